#!/usr/bin/env python3
"""A network of FIFO links for Orrery's `external` back end, as an example of its line protocol.

    ORRERY_NETWORK_COMMAND="python3 examples/external/fifo.py" orrery simulate JOB.yaml --network external

Each link serves one message after the other, in the order in which their heads arrive, cut through at the link's MTU: the model
of Orrery's own `links`, so that both agree to the picosecond. Times are whole picoseconds, sizes bytes on the wire.
"""
import heapq
import sys


class Link:
    def __init__(self, bytes_per_s: int, latency: int, mtu: int) -> None:
        self.bytes_per_s, self.latency, self.mtu, self.free = bytes_per_s, latency, mtu, 0

    def time(self, size: int) -> int:
        return -(-size * 10**12 // self.bytes_per_s)


class Network:
    def __init__(self) -> None:
        self.links: dict[int, Link] = {}
        self.events: list[tuple[int, int, int, int]] = []  # time, creator, the creator's own number, message
        self.messages: dict[int, dict] = {}
        self.sent: dict[int, int] = {}

    def start(self, time: int, name: int, size: int, creator: int, path: list[int]) -> None:
        number = self.sent[creator] = self.sent.get(creator, 0) + 1
        self.messages[name] = {"size": size, "path": path, "hop": 0, "tail": time, "key": (creator, number)}
        heapq.heappush(self.events, (time, creator, number, name))

    def next(self) -> str:
        return str(self.events[0][0]) if self.events else "never"

    def until(self, end: float) -> tuple[int, list[int]]:
        """Runs to the first instant with arrivals at or before `end`, else to `end`."""
        while self.events and self.events[0][0] <= end:
            time, done = self.events[0][0], []
            while self.events and self.events[0][0] == time:
                name = heapq.heappop(self.events)[3]
                message = self.messages[name]
                if message["hop"] == len(message["path"]):
                    del self.messages[name]
                    done.append(name)
                else:
                    self.serve(time, name, message)
            if done:
                return time, done
        return int(end), []

    def serve(self, head: int, name: int, message: dict) -> None:
        link, size = self.links[message["path"][message["hop"]]], message["size"]
        first = link.time(min(link.mtu, size) if link.mtu else size)
        begin = max(head, link.free)
        link.free = max(begin + link.time(size), message["tail"] + first)
        message["hop"] += 1
        message["tail"] = link.free + link.latency
        last = message["hop"] == len(message["path"])
        heapq.heappush(self.events, (message["tail"] if last else begin + first + link.latency, *message["key"], name))


def main() -> None:
    network = Network()
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "link":
            network.links[int(rest[0])] = Link(*(int(number) for number in rest[1:4]))
        elif word == "ready":
            print("ready", flush=True)
        elif word == "start":
            time, name, _, _, _, size, creator, _, *path = (int(number) for number in rest)
            network.start(time, name, size, creator, path)
        elif word == "next":
            print("next", network.next(), flush=True)
        elif word == "until":
            time, done = network.until(float("inf") if rest[0] == "never" else int(rest[0]))
            for name in done:
                print("done", time, name)
            print("at", time, network.next(), flush=True)


if __name__ == "__main__":
    main()
