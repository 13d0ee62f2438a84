#!/usr/bin/env python3
"""Tests of the Python package. Needs nothing but the package on PYTHONPATH."""

import doctest
import json
import pathlib
import pickle
import signal
import tempfile
import threading
import time
import typing
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

    def test_wrong_types_are_named(self):
        for options, word in (
            ({"job": 5}, "job: int"),
            ({"job": b"a.yaml"}, "job: bytes"),
            ({"job": {5: 1}}, "key 5"),
            ({"set": 5}, "set: int"),
            ({"set": [5]}, "set: 5"),
            ({"set": {"nodes": object()}}, "set nodes: object"),
            ({"network": 5}, "network: 5"),
            ({"fold": "no"}, "fold: 'no'"),
            ({"threads": "2"}, "threads: '2'"),
            ({"seed": 1.5}, "seed: 1.5"),
            ({"calibration": 5}, "calibration: int"),
        ):
            with self.assertRaises(TypeError) as caught:
                orrery.simulate(**{"job": JOB, **options})
            self.assertIn(word, str(caught.exception))
        for options in (
            {"set": {"perturb.jitter": float("nan")}},
            {"job": "\udcff.yaml"},
            {"timeline_ranks": "0"},
        ):
            with self.assertRaises(orrery.Error) as caught:
                orrery.simulate(**{"job": JOB, **options})
            self.assertEqual(caught.exception.code, "invalid_input")

    def test_values_of_numpy_paths_and_tuples(self):
        class Array:  # what NumPy's arrays and scalars have
            def __init__(self, value):
                self.value = value

            def tolist(self):
                return self.value

        result = orrery.simulate(
            JOB, set={"parallel.layers_per_stage": Array([5, 7]), "nodes": Array(1)}
        )
        self.assertEqual(result.config["parallel"]["layers_per_stage"], [5, 7])
        orrery.simulate({**JOB, "perturb": {"ranks": ({"rank": 1, "speed": 0.9},)}})
        with self.assertRaises(orrery.Error) as caught:
            orrery.simulate({**JOB, "cluster": pathlib.Path("nowhere.yaml")})
        self.assertIn("nowhere.yaml", str(caught.exception))
        one = orrery.simulate(JOB, set="parallel.layers_per_stage=[5, 7]")
        self.assertEqual(one.step_time_s, result.step_time_s)

    def test_json_in_one_line_is_a_job(self):
        first = orrery.simulate(JOB)
        again = orrery.simulate(json.dumps(first.config))
        self.assertEqual(again.simulation, first.simulation)

    def test_errors_and_results_are_pickled(self):
        error = pickle.loads(pickle.dumps(orrery.Error("infeasible", "why")))
        self.assertEqual((error.code, str(error)), ("infeasible", "why"))
        result = orrery.simulate(JOB)
        self.assertEqual(pickle.loads(pickle.dumps(result)), result)

    def test_document_is_a_copy(self):
        result = orrery.simulate(JOB)
        result.to_dict()["config"].clear()
        self.assertTrue(result.config)
        self.assertLess(len(repr(result)), 300)
        with self.assertRaises(ValueError):
            orrery.Result.from_dict({"schema": "orrery.error/1"})
        with self.assertRaisesRegex(ValueError, "GOAL"):
            orrery.Result.from_dict({"schema": "orrery.result/1", "goal": {}})
        with self.assertRaisesRegex(ValueError, "trace"):
            orrery.Result.from_dict({"schema": "orrery.result/1", "trace": {}})

    def test_types_can_be_asked_for(self):
        for kind in (orrery.MemoryRow, orrery.JobResult, orrery.Simulation, orrery.Result):
            self.assertTrue(typing.get_type_hints(kind))

    def test_several_jobs(self):
        jobs = [{"name": name, "job": JOB} for name in ("a", "b")]
        both = orrery.simulate({"cluster": "h100-ib-400g", "nodes": 2, "jobs": jobs})
        self.assertEqual([job.name for job in both.jobs], ["a", "b"])
        with self.assertRaisesRegex(ValueError, "2 jobs ran"):
            _ = both.step_time_s

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            timeline = pathlib.Path(folder) / "t.pftrace"
            heat_map = pathlib.Path(folder) / "h.svg"
            orrery.simulate(
                JOB, network="flow", timeline=timeline, timeline_ranks="0-3", heat_map=heat_map
            )
            self.assertGreater(timeline.stat().st_size, 1000)
            self.assertIn("<svg", heat_map.read_text(encoding="utf-8"))
            with self.assertRaises(orrery.Error) as caught:
                orrery.simulate(JOB, calibration=heat_map)
            self.assertIn("h.svg", str(caught.exception))

    def test_interrupt_ends_the_wait(self):
        big = {
            **JOB,
            "model": "gpt3-175b",
            "nodes": 1024,
            "parallel": {"tp": 8, "pp": 16, "dp": 64},
            "training": {"global_batch": 65536, "seq_len": 2048, "sharding": "zero1"},
        }
        threading.Timer(0.5, signal.raise_signal, (signal.SIGINT,)).start()
        began = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            orrery.simulate(big, fold=False)
        self.assertLess(time.monotonic() - began, 10)

    def test_out_of_memory_is_a_result(self):
        big = {
            **JOB,
            "model": "gpt3-175b",
            "parallel": {"tp": 8},
            "training": {"global_batch": 1, "seq_len": 2048},
        }
        result = orrery.simulate(big)
        self.assertTrue(result.out_of_memory)
        self.assertEqual(result.job.memory_remedy, result.to_dict()["memory_remedy"])

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


class SweepTest(unittest.TestCase):
    def test_rows_are_what_simulate_says(self):
        swept = orrery.sweep(JOB, {"parallel.tp": [1, 2, 3], "training.micro_batch": "1,2"}, set={"parallel.dp": None})
        self.assertEqual(len(swept), 6)
        for row in swept.ok:
            alone = orrery.simulate(JOB, set={"parallel.dp": None, **row["values"]})
            self.assertEqual(row["step_time_ps"], alone.job.step_time_ps)
        refused = [row for row in swept if row["status"] == "refused"]
        self.assertEqual({row["values"]["parallel.tp"] for row in refused}, {"3"})
        self.assertIn(swept.best, swept.ok)

    def test_zip_runs_and_files(self):
        zipped = orrery.sweep(JOB, zip={"nodes": [1, 2], "parallel.dp": [2, 4]})
        listed = orrery.sweep(JOB, runs=[{"nodes": 1, "parallel.dp": 2}, {"nodes": 2, "parallel.dp": 4}])
        self.assertEqual(zipped.rows, listed.rows)
        scaled = orrery.sweep(JOB, scale="nodes=1x,2x", keep="global-batch")
        self.assertEqual([row["gpus"] for row in scaled], [8, 16])
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.csv"
            zipped.to_csv(path)
            self.assertEqual(len(path.read_text(encoding="utf-8").splitlines()), 3)

    def test_a_thousand_variants(self):
        swept = orrery.sweep(
            JOB,
            {"training.global_batch": range(16, 2016, 8), "cluster.nic_bandwidth": ["200Gb/s", "400Gb/s"], "training.recompute": ["none", "full"]},
            replay=False,
        )
        self.assertEqual(len(swept.ok), 1000)

    def test_errors(self):
        for kwargs in ({}, {"vary": {"parallel.tp": "8..1"}}, {"vary": {"parallel.tpp": [1]}}, {"zip": {"nodes": [1], "parallel.dp": [1, 2]}}, {"scale": "nodes=2"}, {"vary": {"nodes": [1]}, "on": "slurm"}):
            with self.assertRaises(orrery.Error):
                orrery.sweep(JOB, **kwargs)
        with self.assertRaises(TypeError):
            orrery.sweep(JOB, {"nodes": 3})


class PlanTest(unittest.TestCase):
    def test_best_is_what_the_sweep_finds(self):
        vary = {"parallel.tp": [1, 2, 4], "parallel.pp": [1, 2], "training.micro_batch": [1, 2]}
        free = {"parallel.dp": None}
        plans = orrery.plan(JOB, vary, top=2, set=free)
        self.assertTrue(plans.proven)
        best = orrery.sweep(JOB, vary, set=free).best
        self.assertEqual(plans.best["tokens_per_s"], best["tokens_per_s"])
        again = orrery.simulate(JOB, set={**free, **plans.best["values"]})
        self.assertEqual(again.job.step_time_ps, plans.best["step_time_ps"])

    def test_errors(self):
        with self.assertRaises(orrery.Error) as caught:
            orrery.plan({**JOB, "model": "gpt3-175b"}, {"parallel.tp": [1, 2]}, set={"parallel.dp": None})
        self.assertEqual(caught.exception.code, "infeasible")
        with self.assertRaises(orrery.Error):
            orrery.plan(JOB, objective="speed")


class AroundTest(unittest.TestCase):
    def test_models_and_clusters(self):
        self.assertAlmostEqual(orrery.models()["llama3-8b"]["parameters"] / 1e9, 8.03, places=2)
        self.assertEqual(orrery.clusters()["h100-ib-400g"]["gpus_per_node"], 8)

    def test_a_script_becomes_a_job(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "train.sh"
            script.write_text(
                "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 1024 "
                "--num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024 "
                "--micro-batch-size 1 --global-batch-size 8 --bf16 --vocab-size 32000\n",
                encoding="utf-8",
            )
            imported = orrery.import_job(script, cluster="h100-ib-400g", gpus=8)
            self.assertEqual(orrery.simulate(imported["job"]).job.ranks, 8)
            self.assertEqual({a["effect"] for a in imported["arguments"]}, {"mapped"})
            with self.assertRaisesRegex(orrery.Error, "cluster"):
                orrery.import_job(script, gpus=8)

    def test_traffic(self):
        rows = orrery.traffic("all-reduce", nodes=2, min_bytes=1 << 20, max_bytes=1 << 28)
        self.assertEqual([row["bytes"] for row in rows], [1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28])
        with self.assertRaisesRegex(orrery.Error, "all-reduce"):
            orrery.traffic("all-reduc")

    def test_views_in_a_notebook(self):
        result = orrery.simulate(JOB)
        self.assertEqual([row["stage"] for row in result.records()], ["all", 0, 1])
        first = result.records()[0]
        parts = sum(s for name, s in first.items() if name.endswith("_s") and name != "step_s")
        self.assertAlmostEqual(parts, first["step_s"], places=9)
        swept = orrery.sweep(JOB, {"training.micro_batch": [1, 2]})
        traffic = orrery.traffic("all-reduce", nodes=1, max_bytes=1024)
        for view in (result, swept, traffic):
            page = view._repr_html_()
            self.assertTrue(page.startswith("<table>"))
            self.assertIn("</table>", page)
        self.assertIn("training.micro_batch", swept._repr_html_())
        self.assertRegex(repr(swept), r"<SweepResult: 2 rows; best: training.micro_batch=\d: [\d.]+ s, [\d,]+ tokens/s>")
        self.assertEqual(repr(traffic), "<TrafficResult: 1 row>")

    def test_data_frames_need_pandas(self):
        swept = orrery.sweep(JOB, {"training.micro_batch": [1, 2]})
        try:
            import pandas
        except ImportError:
            with self.assertRaisesRegex(ImportError, "pip install pandas"):
                swept.to_dataframe()
            return
        frame = swept.to_dataframe()
        self.assertIsInstance(frame, pandas.DataFrame)
        self.assertEqual(list(frame["training.micro_batch"]), [1, 2])


if __name__ == "__main__":
    unittest.main()
