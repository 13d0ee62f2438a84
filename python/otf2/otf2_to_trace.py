#!/usr/bin/env python3
"""Writes an OTF2 archive of an MPI program (Score-P) as a folder of text, a file a rank, that `orrery simulate` reads.

Usage: otf2_to_trace.py ARCHIVE/traces.otf2 FOLDER

It needs `pip install otf2 six`. Text is in liballprof's form (docs/formats/mpi.md). Ranks are read 64 at a
time and events one by one: memory is that of the definitions, buffers of 64 ranks, open requests and, where calls
with counts by rank occur, 8 bytes a member of each.
"""

import argparse
import array
import csv
import os
import pathlib
import sys

try:
    import _otf2
    import otf2
    from otf2 import events
    from otf2.enums import GroupType, LocationType, MeasurementMode, Paradigm
except ImportError as error:
    sys.exit(f"otf2_to_trace.py: {error}: pip install otf2 six")

CALLS = pathlib.Path(__file__).resolve().parents[2] / "data/mpi/calls.csv"
BUFFER_BYTES = 1 << 18
FIRST_ADDRESS = 4096
BATCH_EVENTS = 4096
BATCH_RANKS = 64  # are read together: a file and a buffer of each are open
# OTF2's collective operations that are read, and as the text names them.
NAMES = {
    op: "MPI_" + op.capitalize()
    for op in (
        "BARRIER", "BCAST", "GATHER", "GATHERV", "SCATTER", "SCATTERV", "ALLGATHER", "ALLGATHERV", "ALLTOALL",
        "ALLREDUCE", "REDUCE", "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "SCAN", "EXSCAN",
    )
}  # fmt: skip
BY_NAME = {name.lower(): op for op, name in NAMES.items()}
ROOTED = {"BCAST", "REDUCE", "GATHER", "GATHERV", "SCATTER", "SCATTERV"}
# Whose counts by rank are put together from what every rank sent or received.
BY_RANK = {"GATHERV", "SCATTERV", "ALLGATHERV", "REDUCE_SCATTER"}
CREATES = {"CREATE_HANDLE", "CREATE_HANDLE_AND_ALLOCATE"}
DESTROYS = {"DESTROY_HANDLE", "DESTROY_HANDLE_AND_DEALLOCATE"}
CREATING_CALLS = {
    "MPI_Comm_split", "MPI_Comm_split_type", "MPI_Comm_dup", "MPI_Comm_dup_with_info", "MPI_Comm_create",
    "MPI_Comm_create_group", "MPI_Cart_create", "MPI_Cart_sub", "MPI_Graph_create", "MPI_Dist_graph_create",
    "MPI_Dist_graph_create_adjacent",
}  # fmt: skip


class Refusal(Exception):
    """What cannot be said in the text, or not be read."""


class Text:
    """A rank's file. A line whose fields are not known yet is written with fixed widths and written again later."""

    def __init__(self, path):
        self.file = open(path, "wb", buffering=0)
        self.base = 0
        self.buffer = bytearray()

    def add(self, line):
        at = self.base + len(self.buffer)
        self.buffer += line.encode() + b"\n"
        if len(self.buffer) > BUFFER_BYTES:
            self.flush()
        return at

    def again(self, at, line):
        raw = line.encode()
        if at >= self.base:
            self.buffer[at - self.base : at - self.base + len(raw)] = raw
        else:
            os.pwrite(self.file.fileno(), raw, at)

    def flush(self):
        while self.buffer:
            written = self.file.write(self.buffer)
            self.base += written
            del self.buffer[:written]

    def close(self):
        self.flush()
        self.file.close()


class Archive:
    """The definitions: ranks, their threads, communicators."""

    def __init__(self, path):
        self.path = path
        with self.open() as trace:
            definitions = trace.definitions
            clock = definitions.clock_properties
            self.resolution, self.offset = clock.timer_resolution, clock.global_offset
            worlds = [
                g
                for g in definitions.groups
                if g.group_type == GroupType.COMM_LOCATIONS and g.paradigm == Paradigm.MPI
            ]
            if len(worlds) != 1:
                raise Refusal(f"{path}: {len(worlds)} groups of MPI ranks, not 1: is it a trace of one MPI program?")
            self.ranks = [m._ref for m in worlds[0].members]
            self.world = None
            self.comms = {}  # number: (members or None of a rank alone, parent)
            for comm in sorted(definitions.comms, key=lambda c: c._ref):
                if isinstance(comm, otf2.definitions.InterComm) or comm.group.paradigm != Paradigm.MPI:
                    continue
                alone = comm.group.group_type == GroupType.COMM_SELF
                members = None if alone else array.array("q", (m._ref for m in comm.group.members))
                self.comms[comm._ref] = (members, None if comm.parent is None else comm.parent._ref)
                if self.world is None and not alone and comm.parent is None and list(members) == self.ranks:
                    self.world = comm._ref
            if self.world is None:
                raise Refusal(f"{path}: no communicator holds all ranks in their order (MPI_COMM_WORLD)")
        self.counts = None

    def open(self):
        try:
            return otf2.reader.open(str(self.path), batch_events=BATCH_EVENTS)
        except (_otf2.Error, otf2.error.TraceReaderError) as error:
            raise Refusal(f"{self.path}: no OTF2 archive that can be read: {error}") from error

    def events(self, ranks):
        """(rank, whether it is the rank's own thread, event) of these ranks' processes."""
        try:
            with self.open() as trace:
                definitions = trace.definitions
                own = {self.ranks[r]: r for r in ranks}
                processes = {id(definitions.locations[number].group): r for number, r in own.items()}
                threads = {
                    t._ref: (processes[id(t.group)], t._ref in own)
                    for t in definitions.locations
                    if id(t.group) in processes and t.type == LocationType.CPU_THREAD
                }
                left = {number: definitions.locations[number].number_of_events for number in threads}
                for location, event in trace.events([definitions.locations[number] for number in threads]):
                    left[location._ref] -= 1
                    yield *threads[location._ref], event
        except (_otf2.Error, otf2.error.TraceReaderError, LookupError) as error:
            raise Refusal(f"{self.path}: events of ranks from {ranks[0]} cannot be read: {error}") from error
        for number, events_left in left.items():
            if events_left > 0:
                raise Refusal(f"{self.path}: rank {threads[number][0]}: {events_left} events are missing; is it cut off?")

    def batches(self):
        for first in range(0, len(self.ranks), BATCH_RANKS):
            yield range(first, min(first + BATCH_RANKS, len(self.ranks)))

    def counts_of(self, comm, turn):
        """Bytes by member of the communicator's `turn`-th call with counts by rank. The first time reads all events."""
        if self.counts is None:
            self.counts = {}
            for ranks in self.batches():
                turns = {}
                for rank, _, event in self.events(ranks):
                    if not isinstance(event, events.MpiCollectiveEnd) or operation(event) not in BY_RANK:
                        continue
                    number, op = event.communicator._ref, operation(event)
                    if number not in self.comms or self.comms[number][0] is None:
                        continue
                    members = self.comms[number][0]
                    at = turns[rank, number] = turns.get((rank, number), -1) + 1
                    counts = self.counts.setdefault((number, at), array.array("q", [-1]) * len(members))
                    counts[members.index(self.ranks[rank])] = own_bytes(op, event, len(members))
        return self.counts[comm, turn]


def operation(event):
    return str(event.collective_op).rpartition(".")[2]


def own_bytes(op, event, size):
    """A rank's own block, as Score-P counts: see README.md."""
    if op == "GATHERV":
        return event.size_sent
    if op == "SCATTERV":
        return event.size_received
    return (event.size_sent if op == "ALLGATHERV" else event.size_received) // size


class Rank:
    def __init__(self, archive, rank, folder, made, calls):
        self.archive, self.rank, self.made, self.calls = archive, rank, made, calls
        self.location = archive.ranks[rank]
        self.text = Text(folder / f"rank-{rank}.txt")
        self.region, self.began, self.depth = None, 0, 0
        self.events = []
        self.open = {}  # request: (kind, place in the text, start, end, what)
        self.address = FIRST_ADDRESS
        self.places, self.turns, self.creations = {}, {}, {}
        self.known, self.parents = set(), set()
        self.unmade = None
        self.in_place = 0  # calls whose sizes would also fit MPI_IN_PLACE
        self.known.add(archive.world)
        self.bind(archive.world)

    # --- what is said in errors, and fields of lines

    def refuse(self, why, name=None, at=None):
        name = name or self.region or "an MPI event outside of a call"
        at = self.began if at is None else at
        raise Refusal(f"{self.archive.path}: rank {self.rank}: {name} at {self.us(at)} us: {why}")

    def us(self, ticks):
        ns = (ticks - self.archive.offset) * 1_000_000_000 // self.archive.resolution
        if ns < 0:
            raise Refusal(f"{self.archive.path}: rank {self.rank}: an event before the trace's begin")
        return f"{ns // 1000}.{ns % 1000:03d}"

    def place(self, number):
        """The rank's number in a communicator, and its size."""
        if number not in self.places:
            if number not in self.archive.comms:
                self.refuse(f"communicator {number} is one between two groups, or not MPI's")
            members = self.archive.comms[number][0]
            if members is None:
                self.places[number] = (0, 1)
            elif self.location not in members:
                self.refuse(f"the rank is not in communicator {number}")
            else:
                self.places[number] = (members.index(self.location), len(members))
        return self.places[number]

    def comm(self, number):
        rank, size = self.place(number)
        if size > 1 and number not in self.known:
            self.refuse(f"communicator {number}: no call before has made it")
        return f"{number:010},{rank:010},{size:010}"

    # --- lines

    def nothing(self, start, end):
        """A call that only takes its time: MPI_Pcontrol stands for it."""
        self.text.add(f"MPI_Pcontrol:{start}:0:{end}")

    def bind(self, number):
        """An empty send to nobody: the handle belongs to the communicator that was made last."""
        self.text.add(f"MPI_Send:-:0:0:1,1,1:-1:0:{self.comm(number)}:-")

    def send(self, e, start, end, name="MPI_Send", address=None):
        request = "" if address is None else f"{address:012}:"
        comm = self.comm(e.communicator._ref)
        return f"{name}:{start}:0:{e.msg_length}:1,1,1:{e.receiver}:{e.msg_tag}:{comm}:{request}{end}"

    def receive(self, e, start, end):
        return f"MPI_Recv:{start}:0:{e.msg_length}:1,1,1:{e.sender}:{e.msg_tag}:{self.comm(e.communicator._ref)}:0:{end}"

    def irecv(self, e, start, end, address):
        if e is None:
            size, sender, tag, comm = 0, 0, 0, f"{0:010},{0:010},{1:010}"
        else:
            size, sender, tag, comm = e.msg_length, e.sender, e.msg_tag, self.comm(e.communicator._ref)
        return f"MPI_Irecv:{start}:0:{size:020}:1,1,1:{sender:010}:{tag:010}:{comm}:{address:012}:{end}"

    def collective(self, e, op, start, end, address=None):
        """With `address`: a nonblocking one, in fixed width; `e` is None before it is over."""
        name, request = NAMES[op], ""
        if address is not None:
            name, request = "MPI_I" + name[4:].lower(), f"{address:012}:"
        if e is None:
            block, root, comm = 0, 0, f"{0:010},{0:010},{1:010}"
        else:
            number = e.communicator._ref
            comm, root = self.comm(number), e.root if op in ROOTED else 0
            block = 0 if op in BY_RANK else self.block(e, op)
        data, kind = f"{block:020}", "1,1,1"
        one, both = f"0:{data}:{kind}", f"0:{data}:{kind}:0:{data}:{kind}"
        if op in BY_RANK:
            lines = self.with_counts(e, op, kind, root, comm)
        elif op == "BARRIER":
            lines = comm
        elif op == "BCAST":
            lines = f"{one}:{root:010}:{comm}"
        elif op == "REDUCE":
            lines = f"0:{one}:0:{root:010}:{comm}"
        elif op in ("GATHER", "SCATTER"):
            lines = f"{both}:{root:010}:{comm}"
        elif op in ("ALLGATHER", "ALLTOALL"):
            lines = f"{both}:{comm}"
        else:  # reductions that all ranks get
            lines = f"0:{one}:0:{comm}"
        return f"{name}:{start}:{lines}:{request}{end}"

    def block(self, e, op):
        """Bytes of one block of a collective, from Score-P's sums over all peers."""
        me, size = self.place(e.communicator._ref)
        sent, received = e.size_sent, e.size_received
        if op == "BARRIER":
            return 0
        if op == "BCAST":
            if me == e.root and sent != size * received:
                self.refuse(f"{sent} bytes sent are not {size} times the {received} received: sums of another kind")
            return received
        if op in ("REDUCE", "GATHER"):
            return sent if me != e.root or sent or size == 1 else self.share(received, size - 1)
        if op == "SCATTER":
            return received if me != e.root or received or size == 1 else self.share(sent, size - 1)
        if op == "SCAN":  # in place it has its own block neither sent nor received
            if sent * (me + 1) == received * (size - me):
                return self.share(sent, size - me)
            return self.share(sent if me < size - 1 else received, size - me - 1 if me < size - 1 else me)
        if op == "EXSCAN":
            return self.share(sent + received, size - 1) if size > 1 else 0
        if sent % size == 0:
            self.in_place += size > 1 and sent > 0 and sent % (size - 1) == 0
            return sent // size
        return self.share(sent, size - 1)

    def share(self, total, parts):
        if parts == 0 or total % parts:
            self.refuse(f"{total} bytes are no whole blocks of {parts} peers: its sums are not Score-P's")
        return total // parts

    def with_counts(self, e, op, kind, root, comm):
        number = e.communicator._ref
        turn = self.turns[number] = self.turns.get(number, -1) + 1
        me, size = self.place(number)
        if size == 1:
            counts = [own_bytes(op, e, 1)]
        else:
            counts = list(self.archive.counts_of(number, turn))
        if min(counts) < 0:
            self.refuse(f"not all ranks of communicator {number} come to it")
        total = {"GATHERV": e.size_received, "SCATTERV": e.size_sent, "ALLGATHERV": e.size_received}.get(op, e.size_sent)
        if (op not in ROOTED or me == e.root) and sum(counts) != total:
            self.refuse(f"its ranks' own blocks are {sum(counts)} bytes, its event says {total}; MPI_IN_PLACE is not read here")
        listed = ",".join(str(c) for c in counts)
        own = f"0:{counts[me]}:{kind}"
        if op == "GATHERV":
            return f"{own}:0:0:{listed}:0:0:{kind}:{root}:{comm}"
        if op == "SCATTERV":
            return f"0:0:{listed}:0:0:{kind}:{own}:{root}:{comm}"
        if op == "ALLGATHERV":
            return f"{own}:0:0:{listed}:0:0:{kind}:{comm}"
        return f"0:0:0:{listed}:{kind}:0:{comm}"

    def create(self, parent, child, start, end):
        """A call that makes a communicator: a split whose colour is the communicator's number."""
        if parent not in self.archive.comms:
            self.refuse(f"communicator {parent} is one between two groups, or not MPI's")
        if child is not None and child not in self.archive.comms:
            self.refuse(f"communicator {child}, which it makes, is one between two groups")
        self.tell_apart(parent)
        turn = self.creations[parent] = self.creations.get(parent, -1) + 1
        color, key = -1, 0
        if child is not None:
            color, key = child, self.place(child)[0]
            was = self.made.setdefault(child, (parent, turn))
            if was != (parent, turn):
                self.refuse(f"communicator {child}: ranks make it by different calls")
        self.text.add(f"MPI_Comm_split:{start}:{self.comm(parent)}:{color}:{key}:0:{end}")
        if child is not None:
            self.known.add(child)
            self.bind(child)

    def tell_apart(self, parent):
        """Orrery takes a communicator that is split for the first time by the rank's number in it and its size."""
        if parent == self.archive.world or parent in self.parents:
            return
        self.parents.add(parent)
        members, place = self.archive.comms[parent][0], self.place(parent)
        for other in self.known - self.parents - {self.archive.world}:
            if place[1] > 1 and self.place(other) == place and self.archive.comms[other][0] != members:
                self.refuse(f"the text cannot tell communicator {parent}, which is split, from {other}: in both the rank "
                            f"is {place[0]} of {place[1]}")  # fmt: skip

    # --- events

    def feed(self, own, event):
        kind = type(event)
        if not own:
            if kind in COMMUNICATES:
                self.refuse("MPI is called by a second thread, whose order is not known", at=event.time)
        elif kind is events.Enter:
            self.enter(event)
        elif kind is events.Leave:
            if self.region is not None:
                self.depth -= 1
                if self.depth == 0:
                    self.leave(event)
        elif kind in COMMUNICATES:
            if self.region is None:
                self.refuse("its Enter is missing", kind.__name__, event.time)
            self.events.append(event)
        elif kind is events.BufferFlush:
            self.nothing(self.us(event.time), self.us(event.stop_time))
        elif kind is events.MeasurementOnOff and event.measurement_mode == MeasurementMode.OFF:
            self.refuse("the recording was switched off, so calls are missing", "MeasurementOnOff", event.time)
        elif kind.__name__ in MATCHED or kind.__name__.startswith("Rma"):
            what = "a matched probe or receive" if kind.__name__ in MATCHED else "one-sided communication"
            self.refuse(f"{what} is not read", at=event.time)

    def end(self):
        for kind, _, start, _, _ in self.open.values():
            if kind != "send":
                raise Refusal(
                    f"{self.archive.path}: rank {self.rank}: the {kind} begun at {start} us never ends, so what it "
                    "receives is not in the trace"
                )
        if self.region is not None:
            self.refuse("it never returns; is the trace cut off?")

    def enter(self, event):
        if self.region is not None:
            self.depth += 1
        elif event.region.name.startswith("MPI_"):
            self.region, self.began, self.depth = event.region.name, event.time, 1

    def leave(self, event):
        start, end = self.us(self.began), self.us(event.time)
        happened = [e for e in self.events if type(e) not in IGNORED]
        self.events = []
        if not happened:
            self.silent(start, end)
        elif sorted(type(e).__name__ for e in happened) == ["MpiRecv", "MpiSend"]:
            self.both(happened, start, end)
        else:
            ended = []
            child = None
            for e in happened:
                kind = type(e)
                if kind is events.CommCreate:
                    child = e.communicator._ref
                    continue
                if kind in ENDS:
                    ended.append(e)
                    continue
                self.one(e, child, start, end)
                start = end = "-"  # of several the first has the time
            if ended:
                self.wait(ended, start, end)
        self.region = None

    def silent(self, start, end):
        """A call without an event: one to MPI_PROC_NULL, one that found nothing, or one that is not of messages."""
        if self.region in CREATING_CALLS:
            if self.unmade is None:  # archives before CommCreate: those of the rank, in the order of their numbers
                self.unmade = [
                    c for c, (members, parent) in self.archive.comms.items()
                    if c != self.archive.world and members is not None and self.location in members
                ]  # fmt: skip
            if not self.unmade:
                self.refuse("the trace does not say which communicator it makes")
            child = self.unmade.pop(0)
            parent = self.archive.comms[child][1]
            self.create(self.archive.world if parent is None else parent, child, start, end)
            return
        call = self.calls.get(self.region)
        if call is None or call not in SILENT:
            why = "the call is not read (data/mpi/calls.csv)" if call is None else "the trace has no event of its data"
            self.refuse(why)
        self.nothing(start, end)

    def both(self, happened, start, end):
        s, r = sorted(happened, key=lambda e: type(e) is events.MpiRecv)
        comm = self.comm(s.communicator._ref)
        if s.communicator._ref != r.communicator._ref:
            self.refuse("it sends and receives in two communicators")
        self.text.add(
            f"MPI_Sendrecv:{start}:0:{s.msg_length}:1,1,1:{s.receiver}:{s.msg_tag}:"
            f"0:{r.msg_length}:1,1,1:{r.sender}:{r.msg_tag}:{comm}:0:{end}"
        )

    def one(self, e, child, start, end):
        kind = type(e)
        if kind is events.MpiSend:
            self.text.add(self.send(e, start, end))
        elif kind is events.MpiRecv:
            self.text.add(self.receive(e, start, end))
        elif kind is events.MpiIsend:
            self.begin("send", e, start, end, self.send(e, start, end, "MPI_Isend", 0))
        elif kind is events.MpiIrecvRequest:
            self.begin("receive", e, start, end, self.irecv(None, start, end, 0))
        elif kind is events.NonBlockingCollectiveRequest:
            op = BY_NAME.get("mpi_" + self.region[len("MPI_I") :].lower())
            if op is None or op in BY_RANK or not self.region.startswith("MPI_I"):
                self.refuse("of nonblocking calls those with one size for all ranks are read")
            self.begin(op, e, start, end, self.collective(None, op, start, end, 0))
        elif kind is events.MpiRequestCancelled:
            self.cancel(e)
            self.nothing(start, end)
        elif operation(e) in CREATES | DESTROYS and self.calls.get(self.region) == "local":  # MPI_Init, MPI_Comm_free
            self.nothing(start, end)
        elif operation(e) in CREATES and self.region in CREATING_CALLS:
            self.create(e.communicator._ref, child, start, end)
        elif operation(e) in NAMES:
            self.text.add(self.collective(e, operation(e), start, end))
        else:
            self.refuse("how much each rank gets is not in an OTF2 trace" if "alltoall" in self.region.lower()
                        else "the operation is not read")  # fmt: skip

    def begin(self, kind, e, start, end, line):
        if e.request_id in self.open:
            self.refuse(f"request {e.request_id} is begun twice")
        self.open[e.request_id] = (kind, self.text.add(line), start, end, e if kind == "send" else None)

    def cancel(self, e):
        kind, at, start, end, _ = self.open.pop(e.request_id, (None,) * 5)
        if kind != "receive":
            self.refuse(f"request {e.request_id}, which is cancelled, is no open receive")
        # MPI_Probe has the length of MPI_Irecv, any arguments, and does nothing.
        self.text.again(at, self.irecv(None, start, end, 0).replace("MPI_Irecv", "MPI_Probe"))

    def wait(self, ended, start, end):
        """Requests that end in one call get addresses beside each other, as MPI_Waitall has them."""
        first = self.address
        for e in ended:
            kind, at, begun, returned, what = self.open.pop(e.request_id, (None,) * 5)
            expected = {events.MpiIsendComplete: "send", events.MpiIrecv: "receive"}.get(type(e))
            if kind is None or (expected or kind) != kind or (expected is None and kind in ("send", "receive")):
                self.refuse(f"request {e.request_id} ends, but was not begun")
            if kind == "send":
                line = self.send(what, begun, returned, "MPI_Isend", self.address)
            elif kind == "receive":
                line = self.irecv(e, begun, returned, self.address)
            else:
                line = self.collective(e, kind, begun, returned, self.address)
            self.text.again(at, line)
            self.address += 8
        if len(ended) == 1:
            self.text.add(f"MPI_Wait:{start}:{first}:0:{end}")
        else:
            self.text.add(f"MPI_Waitall:{start}:{len(ended)}:{first}:0:{end}")


ENDS = {events.MpiIsendComplete, events.MpiIrecv, events.NonBlockingCollectiveComplete}
IGNORED = {events.MpiCollectiveBegin, events.MpiRequestTest, events.CommDestroy}
COMMUNICATES = ENDS | IGNORED | {
    events.MpiSend, events.MpiRecv, events.MpiIsend, events.MpiIrecvRequest, events.MpiRequestCancelled,
    events.MpiCollectiveEnd, events.NonBlockingCollectiveRequest, events.CommCreate,
}  # fmt: skip
MATCHED = {"MpiProbe", "MpiMrecv", "MpiImrecvRequest", "MpiImrecv"}
# Kinds of data/mpi/calls.csv that may come without an event.
SILENT = {"local", "test", "wait", "wait-one", "start", "send", "recv", "sendrecv", "send-init", "recv-init"}


def convert(archive_path, folder):
    with open(CALLS, encoding="utf-8", newline="") as file:
        calls = {row["name"]: row["call"] for row in csv.DictReader(file)}
    if not archive_path.is_file():
        raise Refusal(f"{archive_path}: no such file; name the archive's traces.otf2")
    archive = Archive(archive_path)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise Refusal(f"{folder}: is not empty; name a new folder")
    made, in_place = {}, 0
    try:
        for batch in archive.batches():
            ranks = {r: Rank(archive, r, folder, made, calls) for r in batch}
            for r, own, event in archive.events(batch):
                ranks[r].feed(own, event)
            for rank in ranks.values():
                rank.end()
                rank.text.close()
                in_place += rank.in_place
    except BaseException:
        for file in folder.glob("rank-*.txt"):
            file.unlink()
        raise
    return len(archive.ranks), in_place


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("archive", type=pathlib.Path, help="the archive's traces.otf2")
    parser.add_argument("folder", type=pathlib.Path, help="a new folder for the text")
    said = parser.parse_args()
    try:
        ranks, in_place = convert(said.archive, said.folder)
    except (Refusal, OSError) as error:
        sys.exit(f"otf2_to_trace.py: {error}")
    print(f"{ranks} ranks: orrery simulate {said.folder}")
    if in_place:
        print(
            f"warning: {in_place} collective calls have sizes that would also fit MPI_IN_PLACE; they are taken to have none",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
