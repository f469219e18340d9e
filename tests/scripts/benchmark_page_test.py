# SPDX-License-Identifier: Apache-2.0
"""What makes a run of bench/compare_gpu.py count, and its page, from results made up here."""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import benchmark_page as page  # noqa: E402
import compare_gpu  # noqa: E402


def make_row(engine, batch, precision, variant, rate, **extra):
    row = {"engine": engine, "workload": "segment", "batch": batch, "precision": precision,
           "input": "device", "init": "he", "variant": variant, "blocks": [rate] * 5,
           "steps_per_s": {"median": rate, "min": rate - 1, "max": rate + 1}, **extra}
    if engine == "tandem":
        row |= {"verified": True, "stage_ms": {"copy": 0.01, "encode": 0.5, "train": 1.5},
                "memory_bytes": 1 << 30, "plan_hash": "ab" * 32}
    return row


def make_run():
    """A run that counts: PyTorch exactly at its figures, Tandem faster than each eager row."""
    rows = [make_row("pytorch", batch, precision, variant, figure)
            for (workload, batch, precision, variant), figure in page.REFERENCE.items()
            if workload == "segment"]
    for batch in page.GOAL_BATCHES:
        rows.append(make_row("pytorch", batch, "bf16", "eager nhwc serial", 300.0))
        for precision in page.GOAL_PRECISIONS:
            for variant, rate in (("serial", 500.0), ("overlap", 600.0)):
                rows.append(make_row("tandem", batch, precision, variant, rate))
    return {"schema": 1, "command": "python3 bench/compare_gpu.py", "failures": [], "rows": rows,
            "settings": {"blocks": 5, "seconds": 0.4, "windows": 3, "distinct_batches": 4,
                         "cudnn_benchmark": False},
            "environment": {"gpu": "NVIDIA H200", "driver": "580", "commit": "abc", "torch": "2.11",
                            "image": 256, "date": "2026-11-29"}}


class BenchmarkPage(unittest.TestCase):
    def setUp(self):
        self.run_ = make_run()

    def row(self, **values):
        return page.select(self.run_["rows"], **values)[0]

    def set_rate(self, row, rate):
        row["steps_per_s"]["median"] = rate

    def expect_failure(self, text):
        verdict = page.judge(self.run_)
        self.assertFalse(verdict["valid"])
        self.assertTrue(any(text in failure for failure in verdict["failures"]), verdict["failures"])

    def expect_gap(self, text):
        verdict = page.judge(self.run_)
        self.assertFalse(verdict["valid"])
        self.assertEqual(verdict["failures"], [])
        self.assertTrue(any(text in gap for gap in verdict["gaps"]), verdict["gaps"])

    def test_a_whole_run_counts(self):
        verdict = page.judge(self.run_)
        self.assertTrue(verdict["valid"], verdict["failures"] + verdict["gaps"])
        self.assertEqual(len(verdict["goals"]), 6)
        self.assertEqual(len(verdict["reference"]), 24)

    def test_pytorch_below_its_figures(self):
        self.set_rate(self.row(variant="compile nhwc forked", precision="bf16", batch=128), 0.89 * 111.7)
        self.expect_failure("batch 128 bf16 compile nhwc forked")

    def test_a_rate_that_is_no_number(self):
        self.set_rate(self.row(variant="eager nhwc graph", precision="bf16", batch=8), float("nan"))
        self.expect_failure("batch 8 bf16 eager nhwc graph")

    def test_pytorch_at_nine_tenths_counts(self):
        self.set_rate(self.row(variant="eager nchw serial", precision="tf32", batch=8), 0.91 * 278.6)
        self.assertTrue(page.judge(self.run_)["valid"])

    def test_pytorch_faster(self):
        for variant in ("serial", "overlap"):
            self.set_rate(self.row(engine="tandem", variant=variant, batch=32, precision="bf16"), 299.0)
        self.expect_failure("batch 32 bf16: Tandem")

    def test_a_graph_is_not_the_eager_row(self):
        self.set_rate(self.row(variant="eager nhwc graph", precision="bf16", batch=8), 9999.0)
        self.assertTrue(page.judge(self.run_)["valid"])

    def test_not_verified(self):
        for value in (False, None):
            self.row(engine="tandem", batch=8)["verified"] = value
            self.expect_failure("not verified")

    def test_a_row_that_failed(self):
        self.run_["failures"] = ["PyTorch batch 8: out of memory"]
        self.expect_failure("out of memory")

    def test_not_all_measured(self):
        self.run_["rows"].remove(self.row(variant="compile nhwc graph", batch=32, precision="tf32"))
        self.expect_gap("batch 32: tf32 compile nhwc graph")

    def test_too_few_blocks(self):
        self.row(engine="tandem", batch=8)["blocks"] = [500.0] * 4
        self.expect_gap("4 blocks")

    def test_another_gpu(self):
        self.run_["environment"]["gpu"] = "NVIDIA A10G"
        self.expect_gap("A10G")

    def render(self, *runs):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for number, run in enumerate(runs):
                paths.append(pathlib.Path(folder) / f"{number}.json")
                paths[-1].write_text(json.dumps(run))
            return subprocess.run([sys.executable, BENCH / "compare_gpu.py", "--render", *paths],
                                  check=False, capture_output=True, text=True)

    def test_page(self):
        loader = make_row("tandem", 8, "tf32", "overlap", 91.0)
        loader |= {"input": "loader", "init": "torch"}
        result = self.render({**self.run_, "rows": self.run_["rows"] + [loader]})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("| tf32 | 8 | 500.0 (499.0 .. 501.0) | 600.0 (599.0 .. 601.0) | 1.20 | "
                      "278.6 (nchw serial) | 2.15 | 517.7 (compile nhwc forked) |", result.stdout)
        self.assertIn("| tf32 | 8 | overlap | 0.010 | 0.500 | 1.500 | 1.33 | 1.20 | 1024 |", result.stdout)
        self.assertIn("| tandem | overlap | tf32 | 8 | 91.0 |", result.stdout)
        self.assertIn("It counts.", result.stdout)
        self.assertNotIn("None", result.stdout)

    def test_page_says_when_a_run_does_not_count(self):
        self.run_["failures"] = ["PyTorch batch 8: out of memory"]
        result = self.render(self.run_)
        self.assertIn("It does **not** count", result.stdout)
        self.assertIn("- PyTorch batch 8: out of memory", result.stdout)

    def test_two_runs_make_one_page(self):
        other = copy.deepcopy(self.run_)
        self.run_["rows"] = page.select(self.run_["rows"], engine="tandem")
        other["rows"] = page.select(other["rows"], engine="pytorch")
        self.assertIn("It counts.", self.render(self.run_, other).stdout)
        other["environment"]["commit"] = "def"
        result = self.render(self.run_, other)
        self.assertEqual(result.returncode, 1)
        self.assertIn("commit differs", result.stderr)

    def test_two_runs_with_the_same_row(self):
        result = self.render(self.run_, self.run_)
        self.assertEqual(result.returncode, 1)
        self.assertIn("same row", result.stderr)


class ObservingTandem:
    """Stands for the program: a block that observes reads the GPU, the others do not."""

    def __init__(self):
        self.observed = []

    def block(self, batch, precisions, init, source, steps, warmup, observe):
        self.observed.append(observe)
        seen = {"gpu_busy_pct": 97.0, "nvml_util_pct": 0.0} if observe else {
            "gpu_busy_pct": None, "nvml_util_pct": None}
        return [{"precision": precision, "schedule": schedule, "steps_per_s": {"median": 500.0},
                 "stage_ms": {"copy": 0.01, "encode": 0.5, "train": 1.5}, "memory_bytes": 1 << 30,
                 "plan_hash": "ab" * 32, "verified": True, **seen}
                for precision in precisions for schedule in ("serial", "overlap")]


class Peer:
    def ask(self, **_):
        return {"steps_per_s": {"median": 300.0}}


class Blocks(unittest.TestCase):
    def test_one_block_of_a_row_observes_the_gpu(self):
        tandem = ObservingTandem()
        run = compare_gpu.Run(types.SimpleNamespace(blocks=5, seconds=0.4, image=256, peer_device="cuda"))
        run.alternate(tandem, Peer(), (8, ["tf32", "bf16"], "device", "he"), ["eager nhwc serial"])
        self.assertEqual(sorted(tandem.observed), [False] * 4 + [True])
        rows = page.select(run.finished(), engine="tandem")
        self.assertEqual(len(rows), 4)
        for row in rows:
            self.assertEqual(len(row["blocks"]), 5)
            self.assertEqual((row["gpu_busy_pct"], row["nvml_util_pct"]), (97.0, 0.0))
        self.assertIn("| 1024 | 97 | 0 | `abababababab` |", page.stage_table(rows))


if __name__ == "__main__":
    unittest.main()
