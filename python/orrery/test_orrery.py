#!/usr/bin/env python3
"""Tests of the Python package. Needs nothing but the package on PYTHONPATH."""

import doctest
import pathlib
import tempfile
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


class SimulateTest(unittest.TestCase):
    def test_values(self):
        result = orrery.simulate(JOB)
        self.assertGreater(result.step_time_s, 0)
        self.assertEqual(result.job.ranks, 8)
        self.assertEqual(len(result.breakdown.stages), 2)
        overall = result.breakdown.overall
        self.assertEqual(sum(overall.parts_ps.values()), result.job.step_time_ps)
        self.assertFalse(result.out_of_memory)
        self.assertTrue(result.assumed)
        self.assertEqual(result.to_dict()["schema"], "orrery.result/1")

    def test_path_text_and_mapping_agree(self):
        text = "\n".join(f"{key}: {value}" for key, value in JOB.items()).replace("'", "") + "\n"
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "job.yaml"
            path.write_text(text, encoding="utf-8")
            prints = {
                orrery.simulate(job).simulation.fingerprint for job in (JOB, text, path, str(path))
            }
        self.assertEqual(len(prints), 1)

    def test_config_runs_again(self):
        first = orrery.simulate(JOB)
        again = orrery.simulate(first.config)
        self.assertEqual(first.simulation.config_hash, again.simulation.config_hash)
        self.assertEqual(first.simulation.fingerprint, again.simulation.fingerprint)

    def test_set(self):
        slow = orrery.simulate(JOB, set={"cluster.nvlink_bandwidth": "50GB/s"})
        same = orrery.simulate(JOB, set=["cluster.nvlink_bandwidth=50GB/s"])
        self.assertGreater(slow.step_time_s, orrery.simulate(JOB).step_time_s)
        self.assertEqual(slow.step_time_s, same.step_time_s)
        listed = orrery.simulate(JOB, set={"parallel.layers_per_stage": [5, 7]})
        self.assertEqual(listed.config["parallel"]["layers_per_stage"], [5, 7])

    def test_errors(self):
        with self.assertRaises(orrery.Error) as caught:
            orrery.simulate({**JOB, "networks": "analytic"})
        self.assertEqual(caught.exception.code, "invalid_input")
        self.assertIn("did you mean 'network'", str(caught.exception))
        with self.assertRaises(orrery.Error):
            orrery.simulate("nowhere.yaml")
        with self.assertRaises(orrery.Error):
            orrery.simulate(JOB, seed=-1)
        with self.assertRaises(orrery.Error):
            orrery.simulate(JOB, threads=0)

    def test_out_of_memory_is_a_result(self):
        big = {
            **JOB,
            "model": "gpt3-175b",
            "parallel": {"tp": 8},
            "training": {"global_batch": 1, "seq_len": 2048},
        }
        self.assertTrue(orrery.simulate(big).out_of_memory)

    def test_threads_side_by_side(self):
        prints = []
        runs = [
            threading.Thread(
                target=lambda: prints.append(orrery.simulate(JOB).simulation.fingerprint)
            )
            for _ in range(4)
        ]
        for run in runs:
            run.start()
        for run in runs:
            run.join()
        self.assertEqual(len(prints), 4)
        self.assertEqual(len(set(prints)), 1)


def load_tests(loader, tests, pattern):
    tests.addTests(doctest.DocTestSuite(orrery))
    return tests


if __name__ == "__main__":
    unittest.main()
