#!/usr/bin/env python3
"""Programs written as OTF2 archives, by the package's own writer, and by hand as liballprof's text: both run alike.

Usage: test_otf2.py ORRERY. Prints "N passed, N failed" as the test suite counts.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import otf2
import otf2_to_trace
from otf2 import events
from otf2.enums import CollectiveOp, CommFlag, GroupType, LocationGroupType, LocationType, Paradigm

TOOL = pathlib.Path(__file__).with_name("otf2_to_trace.py")
NO_ROOT = 0xFFFFFFFF
WORLD = 1140850688  # MPICH's, in text


class Program:
    """Writes each call twice. Times are ns; a rank's calls follow each other."""

    def __init__(self, folder, ranks):
        self.folder = pathlib.Path(folder)
        self.text = [[] for _ in range(ranks)]
        self.now = [7_000 + 10 * r for r in range(ranks)]
        self.writer = otf2.writer.Writer(str(self.folder / "archive"), timer_resolution=1_000_000_000)
        define = self.define = self.writer.definitions
        tree = define.system_tree_node("node")
        self.locations = []
        for r in range(ranks):
            group = define.location_group(
                f"MPI Rank {r}", system_tree_parent=tree, location_group_type=LocationGroupType.PROCESS
            )
            self.locations.append(define.location(f"thread {r}", type=LocationType.CPU_THREAD, group=group))
        self.events = [self.writer.event_writer_from_location(location) for location in self.locations]
        define.group("ranks", group_type=GroupType.COMM_LOCATIONS, paradigm=Paradigm.MPI, members=self.locations)
        self.world = self.comm("MPI_COMM_WORLD", range(ranks), None)

    def comm(self, name, members, parent):
        group = self.define.group(
            "of " + name,
            group_type=GroupType.COMM_GROUP,
            paradigm=Paradigm.MPI,
            members=[self.locations[m] for m in members],
        )
        return self.define.comm(name, group=group, parent=parent, flags=CommFlag.CREATE_DESTROY_EVENTS)

    def call(self, r, name, arguments, happens=(), took=500):
        begin, self.now[r] = self.now[r], self.now[r] + took
        region = self.define.region(name, paradigm=Paradigm.MPI)
        self.events[r].enter(begin, region)
        for i, event in enumerate(happens):
            event.time = begin + 1 + i
            self.events[r](event)
        self.events[r].leave(self.now[r], region)
        self.text[r].append(f"{name}:{us(begin)}:{arguments}{':' if arguments else ''}{us(self.now[r])}")

    def work(self, r, ns):
        region = self.define.region("solve")
        self.events[r].enter(self.now[r] + 1, region)
        self.events[r].leave(self.now[r] + ns - 1, region)
        self.now[r] += ns

    def done(self):
        self.writer.close()
        text = self.folder / "text"
        text.mkdir()
        for r, lines in enumerate(self.text):
            (text / f"trace-{r}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return text


def us(ns):
    return f"{ns // 1000}.{ns % 1000:03d}"


def collective(op, comm, root, sent, received):
    return [events.MpiCollectiveBegin(0), events.MpiCollectiveEnd(0, op, comm, root, sent, received)]


def convert(folder):
    return subprocess.run(
        [sys.executable, TOOL, folder / "archive" / "traces.otf2", folder / "converted"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def outcome(trace, *options):
    said = subprocess.run([ORRERY, "simulate", trace, "--json", "-", "--set", "mpi.library=mpich", *options],
                          capture_output=True, text=True, check=False)  # fmt: skip
    if said.returncode != 0:
        raise AssertionError(said.stderr)
    return json.loads(said.stdout)


class Otf2Test(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)

    def alike(self, program, *options):
        by_hand = program.done()
        said = convert(self.folder)
        self.assertEqual(said.returncode, 0, said.stderr)
        hand, ours = outcome(by_hand, *options), outcome(self.folder / "converted", *options)
        self.assertGreater(hand["trace"]["messages"], 0)
        self.assertEqual(hand["trace"], ours["trace"])
        self.assertEqual(hand["simulation"]["fingerprint"], ours["simulation"]["fingerprint"])
        return said

    def refused(self, program, *words):
        program.done()
        with self.assertRaises(otf2_to_trace.Refusal) as caught:
            otf2_to_trace.convert(self.folder / "archive" / "traces.otf2", self.folder / "converted")
        for word in words:
            self.assertIn(word, str(caught.exception))
        self.assertEqual(list((self.folder / "converted").iterdir()), [])

    def ring(self, rounds=3):
        """Every rank gets from its left and gives to its right; then a chain of blocking calls."""
        ranks = 4
        p = Program(self.folder, ranks)
        for r in range(ranks):
            left, right, comm = (r - 1) % ranks, (r + 1) % ranks, f"{WORLD},{r},{ranks}"
            p.call(r, "MPI_Init", "0:0")
            for step in range(rounds):
                n = 1000 * (step + 1)
                p.call(r, "MPI_Irecv", f"64:{n}:13,8,8:{left}:{step}:{comm}:800", [events.MpiIrecvRequest(0, 90 + step)])
                p.call(r, "MPI_Isend", f"64:{n}:13,8,8:{right}:{step}:{comm}:808",
                       [events.MpiIsend(0, right, p.world, step, 8 * n, 40 + step)])  # fmt: skip
                p.work(r, 10_000 + 777 * r)
                p.call(r, "MPI_Test", "808:0:0", [events.MpiRequestTest(0, 40 + step)])
                p.call(r, "MPI_Waitall", "2:800:0",
                       [events.MpiIrecv(0, left, p.world, step, 8 * n, 90 + step), events.MpiIsendComplete(0, 40 + step)])  # fmt: skip
            p.call(r, "MPI_Sendrecv", f"0:3:13,8,8:{right}:5:0:3:13,8,8:{left}:5:{comm}:0",
                   [events.MpiSend(0, right, p.world, 5, 24), events.MpiRecv(0, left, p.world, 5, 24)])  # fmt: skip
            if r > 0:
                p.call(r, "MPI_Recv", f"0:70000:13,1,1:{r - 1}:9:{comm}:0", [events.MpiRecv(0, r - 1, p.world, 9, 70_000)])
            p.work(r, 321)
            if r < ranks - 1:
                p.call(r, "MPI_Send", f"0:70000:13,1,1:{r + 1}:9:{comm}", [events.MpiSend(0, r + 1, p.world, 9, 70_000)])
            else:
                p.call(r, "MPI_Send", f"0:70000:13,1,1:-1:9:{comm}")  # to MPI_PROC_NULL: no event
            p.call(r, "MPI_Finalize", "0")
        return p

    def test_a_ring(self):
        self.alike(self.ring())

    def test_a_receive_longer_open_than_the_buffer_of_text(self):
        ranks, many = 2, 4000
        p = Program(self.folder, ranks)
        for r in range(ranks):
            comm, other = f"{WORLD},{r},{ranks}", 1 - r
            p.call(r, "MPI_Irecv", f"0:16:1,1,1:{other}:1:{comm}:800", [events.MpiIrecvRequest(0, 1)])
            for _ in range(many):
                if r == 0:
                    p.call(r, "MPI_Send", f"0:8:1,1,1:1:2:{comm}", [events.MpiSend(0, 1, p.world, 2, 8)])
                else:
                    p.call(r, "MPI_Recv", f"0:8:1,1,1:0:2:{comm}:0", [events.MpiRecv(0, 0, p.world, 2, 8)])
                p.work(r, 100)
            p.call(r, "MPI_Send", f"0:16:1,1,1:{other}:1:{comm}", [events.MpiSend(0, other, p.world, 1, 16)])
            p.call(r, "MPI_Wait", "800:0", [events.MpiIrecv(0, other, p.world, 1, 16, 1)])
        self.alike(p)

    def test_persistent_requests_and_a_cancelled_receive(self):
        ranks = 2
        p = Program(self.folder, ranks)
        for r in range(ranks):
            comm, other = f"{WORLD},{r},{ranks}", 1 - r
            p.call(r, "MPI_Recv_init", f"0:40:13,1,1:{other}:1:{comm}:800")
            p.call(r, "MPI_Send_init", f"0:40:13,1,1:{other}:1:{comm}:808")
            for _ in range(2):
                p.call(r, "MPI_Startall", "2:800", [events.MpiIrecvRequest(0, 5), events.MpiIsend(0, other, p.world, 1, 40, 6)])
                p.work(r, 400 + r)
                p.call(r, "MPI_Waitall", "2:800:0",
                       [events.MpiIrecv(0, other, p.world, 1, 40, 5), events.MpiIsendComplete(0, 6)])  # fmt: skip
            p.call(r, "MPI_Irecv", f"0:1:1,1,1:{other}:2:{comm}:900", [events.MpiIrecvRequest(0, 7)])
            p.text[r][-1] = p.text[r][-1].replace("MPI_Irecv", "MPI_Probe")
            p.call(r, "MPI_Wait", "900:0", [events.MpiRequestCancelled(0, 7)])
            begin, p.now[r] = p.now[r], p.now[r] + 5_000
            p.events[r].buffer_flush(begin, p.now[r])  # the tracer's own time is no work
            p.text[r].append(f"MPI_Pcontrol:{us(begin)}:{us(p.now[r])}")
            p.call(r, "MPI_Barrier", comm, collective(CollectiveOp.BARRIER, p.world, NO_ROOT, 0, 0))
        self.alike(p)

    def test_a_second_thread_that_calls_mpi(self):
        p = self.ring(1)
        second = p.define.location("second", type=LocationType.CPU_THREAD, group=p.locations[1].group)
        p.writer.event_writer_from_location(second).mpi_send(20_000, 0, p.world, 1, 8)
        self.refused(p, "rank 1", "second thread")

    def split(self, new):
        """Rows of a world of 6, a row's halves in reverse order, and one rank that is in no row."""
        ranks = 7
        p = Program(self.folder, ranks)
        rows = [[0, 2, 4], [1, 3, 5]]
        row_comms = [p.comm(f"row {i}", row, p.world) for i, row in enumerate(rows)]
        back_comms = [p.comm(f"back {i}", row[::-1], row_comms[i]) for i, row in enumerate(rows)]

        def create(parent, child):
            if not new:
                return []
            made = [] if child is None else [events.CommCreate(0, child)]
            end = events.MpiCollectiveEnd(0, CollectiveOp.CREATE_HANDLE, parent, NO_ROOT, 0, 0)
            return [events.MpiCollectiveBegin(0), *made, end]

        for r in range(ranks):
            comm = f"{WORLD},{r},{ranks}"
            p.call(r, "MPI_Init", "0:0")
            p.work(r, 1000 * r + 17)
            if r == 6:
                if new:
                    p.call(r, "MPI_Comm_split", f"{comm}:-32766:0:0", create(p.world, None))
            else:
                i = r % 2
                row, at = rows[i], rows[i].index(r)
                p.call(r, "MPI_Comm_split", f"{comm}:{i}:{r}:0", create(p.world, row_comms[i]))
                in_row, in_back = f"77,{at},3", f"78,{2 - at},3"
                p.call(r, "MPI_Comm_split", f"{in_row}:5:{-r}:0", create(row_comms[i], back_comms[i]))
                p.work(r, 5000)
                for size in (8, 65_536):
                    p.call(r, "MPI_Allreduce", f"0:0:{size}:1,1,1:0:{in_row}",
                           collective(CollectiveOp.ALLREDUCE, row_comms[i], NO_ROOT, 3 * size, 3 * size))  # fmt: skip
                    p.work(r, 900)
                root = at == 2  # of the reversed row the first
                p.call(r, "MPI_Bcast", f"0:400:1,1,1:0:{in_back}",
                       collective(CollectiveOp.BCAST, back_comms[i], 0, 1200 if root else 0, 400))  # fmt: skip
                if at == 0:
                    p.call(r, "MPI_Send", f"0:99:1,1,1:1:3:{in_back}", [events.MpiSend(0, 1, back_comms[i], 3, 99)])
                elif at == 1:
                    p.call(r, "MPI_Recv", f"0:99:1,1,1:2:3:{in_back}:0", [events.MpiRecv(0, 2, back_comms[i], 3, 99)])
            p.call(r, "MPI_Barrier", comm, collective(CollectiveOp.BARRIER, p.world, NO_ROOT, 0, 0))
        return p

    def test_collectives_of_a_split_communicator(self):
        self.alike(self.split(True))

    def test_every_collective(self):
        n, b = 4, 96
        p = Program(self.folder, n)
        counts = [40, 0, 7, 120]
        listed, total = "40,0,7,120", 167
        op = CollectiveOp
        for r in range(n):
            comm, root = f"{WORLD},{r},{n}", r == 1
            one, both = f"0:{b}:1,1,1", f"0:{b}:1,1,1:0:{b}:1,1,1"
            own = f"0:{counts[r]}:1,1,1"
            calls = [
                ("Reduce", op.REDUCE, f"0:{one}:0:1:{comm}", 1, b, n * b * root),
                ("Gather", op.GATHER, f"{both}:1:{comm}", 1, b, n * b * root),
                ("Gather", op.GATHER, f"{both}:1:{comm}", 1, b * (not root), (n - 1) * b * root),  # in place
                ("Scatter", op.SCATTER, f"{both}:1:{comm}", 1, n * b * root, b),
                ("Allgather", op.ALLGATHER, f"{both}:{comm}", NO_ROOT, n * b, n * b),
                ("Alltoall", op.ALLTOALL, f"{both}:{comm}", NO_ROOT, n * b, n * b),
                ("Allreduce", op.ALLREDUCE, "0:0:97:1,1,1:0:" + comm, NO_ROOT, 291, 291),  # in place
                ("Scan", op.SCAN, f"0:{one}:0:{comm}", NO_ROOT, (n - r) * b, (r + 1) * b),
                ("Exscan", op.EXSCAN, f"0:{one}:0:{comm}", NO_ROOT, (n - r - 1) * b, r * b),
                ("Reduce_scatter_block", op.REDUCE_SCATTER_BLOCK, f"0:{one}:0:{comm}", NO_ROOT, n * b, n * b),
                ("Gatherv", op.GATHERV, f"{own}:0:0:{listed}:0:0:1,1,1:1:{comm}", 1, counts[r], total * root),
                ("Scatterv", op.SCATTERV, f"0:0:{listed}:0:0:1,1,1:{own}:1:{comm}", 1, total * root, counts[r]),
                ("Allgatherv", op.ALLGATHERV, f"{own}:0:0:{listed}:0:0:1,1,1:{comm}", NO_ROOT, n * counts[r], total),
                ("Reduce_scatter", op.REDUCE_SCATTER, f"0:0:0:{listed}:1,1,1:0:{comm}", NO_ROOT, total, n * counts[r]),
            ]
            for name, which, arguments, at, sent, received in calls:
                p.call(r, "MPI_" + name, arguments, collective(which, p.world, at, sent, received))
                p.work(r, 2000)
            p.call(r, "MPI_Iallreduce", f"0:{one}:0:{comm}:800", [events.NonBlockingCollectiveRequest(0, 4)])
            p.work(r, 3000)
            done = events.NonBlockingCollectiveComplete(0, op.ALLREDUCE, p.world, NO_ROOT, n * b, n * b, 4)
            p.call(r, "MPI_Wait", "800:0", [done])
        said = self.alike(p)
        self.assertIn("would also fit MPI_IN_PLACE", said.stderr)

    def test_older_archives_say_communicators_in_definitions_only(self):
        self.alike(self.rows_of_all())

    def rows_of_all(self):
        ranks = 4
        p = Program(self.folder, ranks)
        comms = [p.comm(f"half {i}", [i, i + 2], p.world) for i in range(2)]
        for r in range(ranks):
            half = f"9,{r // 2},2"
            p.call(r, "MPI_Comm_split", f"{WORLD},{r},{ranks}:{r % 2}:0:0")
            p.call(r, "MPI_Allreduce", f"0:0:512:1,1,1:0:{half}",
                   collective(CollectiveOp.ALLREDUCE, comms[r % 2], NO_ROOT, 1024, 1024))  # fmt: skip
        return p

    def test_a_rank_that_alone_gets_no_communicator_needs_its_event(self):
        p = self.split(False)
        p.call(6, "MPI_Comm_split", f"{WORLD},6,7:-1:0:0")
        self.refused(p, "rank 6", "MPI_Comm_split at", "does not say which communicator")

    def test_what_cannot_be_said_is_refused_by_name_and_place(self):
        p = self.ring(1)
        p.call(2, "MPI_Alltoallv", "", collective(CollectiveOp.ALLTOALLV, p.world, NO_ROOT, 10, 10))
        self.refused(p, "rank 2: MPI_Alltoallv at ", "how much each rank gets")

    def test_calls_that_are_not_read(self):
        p = self.ring(1)
        p.call(1, "MPI_Put", "")
        self.refused(p, "rank 1: MPI_Put at ", "data/mpi/calls.csv")

    def test_handles_of_files_are_no_communicators(self):
        p = self.ring(1)
        p.call(1, "MPI_File_open", "", collective(CollectiveOp.CREATE_HANDLE, p.world, NO_ROOT, 0, 0))
        self.refused(p, "rank 1: MPI_File_open at ", "not read")

    def test_a_parent_that_the_text_cannot_tell_from_another(self):
        p = Program(self.folder, 4)
        row, column = p.comm("row", [0, 1], p.world), p.comm("column", [0, 2], p.world)
        child = p.comm("child", [0, 2], column)
        for parent, made in ((p.world, row), (p.world, column), (column, child)):
            end = events.MpiCollectiveEnd(0, CollectiveOp.CREATE_HANDLE, parent, NO_ROOT, 0, 0)
            p.call(0, "MPI_Comm_split", "", [events.CommCreate(0, made), end])
        self.refused(p, "rank 0: MPI_Comm_split at ", "cannot tell communicator")

    def test_sizes_that_are_not_sums_over_peers(self):
        p = self.ring(1)
        p.call(0, "MPI_Allreduce", "", collective(CollectiveOp.ALLREDUCE, p.world, NO_ROOT, 10, 10))
        self.refused(p, "rank 0: MPI_Allreduce at ", "10 bytes are no whole blocks")

    def test_a_receive_that_never_ends(self):
        p = self.ring(1)
        p.call(3, "MPI_Irecv", "", [events.MpiIrecvRequest(0, 1234)])
        self.refused(p, "rank 3: the receive begun at ", "never ends")

    def test_a_communicator_that_no_call_made(self):
        p = self.ring(1)
        other = p.comm("other", [0, 1], p.world)
        p.call(0, "MPI_Barrier", "", collective(CollectiveOp.BARRIER, other, NO_ROOT, 0, 0))
        self.refused(p, "rank 0: MPI_Barrier at ", "no call before has made it")

    def test_no_archive(self):
        said = convert(self.folder)
        self.assertEqual(said.returncode, 1)
        self.assertIn("no such file", said.stderr)

    def test_a_cut_off_archive(self):
        self.ring(1).done()
        cut = self.folder / "archive" / "traces" / "2.evt"
        cut.write_bytes(cut.read_bytes()[:200])
        said = convert(self.folder)
        self.assertEqual(said.returncode, 1, said.stderr)
        self.assertNotIn("Traceback", said.stderr)

    def test_without_the_package_one_line_says_what_to_do(self):
        said = subprocess.run([sys.executable, "-S", "-I", TOOL, "a", "b"], capture_output=True, text=True, check=False)
        self.assertEqual((said.returncode, said.stderr.count("\n")), (1, 1))
        self.assertIn("pip install otf2 six", said.stderr)


if __name__ == "__main__":
    ORRERY = sys.argv[1]
    outcome_of_all = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromTestCase(Otf2Test))
    failed = len(outcome_of_all.failures) + len(outcome_of_all.errors)
    print(f"{outcome_of_all.testsRun - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
