#!/usr/bin/env python3
"""A sweep on a local Ray cluster of several worker processes, of which some are killed while it runs.

Needs the package on PYTHONPATH and Ray. Prints "N passed, N failed" as the test suite counts.
"""

import os
import signal
import subprocess
import sys
import threading
import unittest

import orrery

JOB = {
    "model": "gpt2",
    "cluster": "h100-ib-400g",
    "nodes": 1,
    "parallel": {"tp": 2, "pp": 2, "dp": 2},
    "training": {"global_batch": 16, "seq_len": 1024},
}
BATCHES = 50


def vary(batches):
    """Two values of the NIC rate for each of so many global batches."""
    return {
        "training.global_batch": range(16, 16 + 8 * batches, 8),
        "cluster.nic_bandwidth": ["100Gb/s", "400Gb/s"],
    }


def workers():
    """Process ids of the workers of this test's cluster that run a piece at this moment."""
    command = ["ps", "-eo", "pid=,ppid=,args="]
    parents, pieces = {}, []
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        pid, parent, args = line.split(maxsplit=2)
        parents[int(pid)] = int(parent)
        if args.startswith("ray::_piece"):
            pieces.append(int(pid))

    def own(pid):
        while pid > 1 and pid != os.getpid():
            pid = parents.get(pid, 0)
        return pid == os.getpid()

    return [pid for pid in pieces if own(pid)]


class RayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import ray

        ray.init(num_cpus=3, include_dashboard=False, logging_level="error", log_to_driver=False)

    @classmethod
    def tearDownClass(cls):
        import ray

        ray.shutdown()

    def test_the_same_answer(self):
        here = orrery.sweep(JOB, vary(BATCHES))
        there = orrery.sweep(JOB, vary(BATCHES), on="ray", shards=7)
        self.assertEqual(here.to_dict(), there.to_dict())

    def test_killed_workers_lose_and_double_nothing(self):
        # How long a sweep lasts is the machine's: a longer one follows until a worker was caught at work.
        killed, batches = [], BATCHES
        while not killed and batches <= 64 * BATCHES:
            here = orrery.sweep(JOB, vary(batches))
            self.assertEqual(here.to_dict(), self.sweep_while_killing(vary(batches), killed).to_dict())
            batches *= 2
        self.assertTrue(killed, f"no worker was caught at work, not in {batches} points either")

    def sweep_while_killing(self, space, killed):
        """The sweep on Ray; meanwhile kills up to three workers that run a piece and appends their ids to `killed`."""
        over = threading.Event()

        def kill():
            while not over.is_set() and len(killed) < 3:
                for pid in workers()[:1]:
                    try:
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)
                    except ProcessLookupError:
                        pass
                over.wait(0.3 if killed else 0.01)

        thread = threading.Thread(target=kill)
        thread.start()
        try:
            return orrery.sweep(JOB, space, on="ray", shards=12)
        finally:
            over.set()
            thread.join()

    def test_what_a_piece_refuses_is_the_error(self):
        with self.assertRaises(orrery.Error) as caught:
            orrery.sweep({**JOB, "model": "no-such-model"}, {"nodes": [1, 2]}, on="ray", shards=1)
        self.assertEqual(caught.exception.code, "invalid_input")


if __name__ == "__main__":
    outcome = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromTestCase(RayTest))
    failed = len(outcome.failures) + len(outcome.errors)
    print(f"{outcome.testsRun - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
