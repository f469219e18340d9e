# SPDX-License-Identifier: Apache-2.0
"""What bench/compare_gpu.py measures, what makes a run count, and its page, from results made up here."""
import collections
import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import benchmark_page as page  # noqa: E402
import compare_gpu  # noqa: E402


def make_row(engine, workload, batch, precision, variant, rate, blocks=5, **extra):
    """On the device unless `extra` says otherwise."""
    augment = None if workload == "segment" else "gpu" if engine == "tandem" else \
        "article" if variant.startswith("article") else "batched"
    row = {"engine": engine, "workload": workload, "batch": batch, "precision": precision,
           "input": "device", "init": "he", "variant": variant, "augment": augment, "workers": 0,
           "blocks": [rate] * blocks,
           "steps_per_s": {"median": rate, "min": rate - 1, "max": rate + 1}}
    if engine == "tandem":
        first = page.FIRST_STAGE[workload]
        row |= {"verified": True, "stage_ms": {"copy": 0.01, first: 0.5, "train": 1.5},
                "memory_bytes": 1 << 30, "plan_hash": "ab" * 32, "prepare_s": 1.25,
                "capture_s": 0.125 if variant == "graph" else None, "gpu_memory_bytes": 700 << 20}
    else:
        row |= {"start_s": 12.34, "peak_memory_bytes": {"allocated": 800 << 20, "reserved": 900 << 20}}
    return {**row, **extra}


def loader_row(*arguments, workers=8, **extra):
    return make_row(*arguments, blocks=3, input="loader", init="torch", workers=workers, **extra)


def make_run():
    """A run that counts: PyTorch exactly at its figures, Tandem faster than each eager row and more than
    three times as fast as the article's."""
    rows = [make_row("pytorch", workload, batch, precision, variant, figure,
                     blocks=3 if variant.endswith(("graph", "forked")) else 5)
            for (workload, batch, precision, variant), figure in page.REFERENCE.items()]
    for workload in page.WORKLOADS:
        for batch in page.GOAL_BATCHES:
            rows.append(make_row("pytorch", workload, batch, "bf16", "eager nhwc serial", 300.0))
            if workload == "classify":
                rows.append(make_row("pytorch", workload, batch, "tf32", "eager nhwc serial", 290.0))
            for precision in page.GOAL_PRECISIONS:
                for variant, rate in (("serial", 500.0), ("overlap", 600.0)):
                    rows.append(make_row("tandem", workload, batch, precision, variant, rate))
    rows += [loader_row("tandem", "classify", 32, "tf32", "overlap", 210.0),
             loader_row("tandem", "classify", 32, "tf32", "serial", 200.0),
             loader_row("tandem", "classify", 32, "tf32", "serial", 70.0, augment="cpu"),
             loader_row("tandem", "classify", 32, "tf32", "serial", 105.0, augment="cpu", workers=16),
             loader_row("pytorch", "classify", 32, "tf32", "article nchw serial", 63.0),
             loader_row("pytorch", "classify", 32, "tf32", "article nchw piped", 68.0)]
    return {"schema": 2, "command": "python3 bench/compare_gpu.py", "failures": [], "rows": rows,
            "settings": {"seconds": 0.25, "loader_seconds": 1.0, "windows": 3, "distinct_batches": 4,
                         "cudnn_benchmark": False},
            "environment": {"gpu": "NVIDIA H200", "driver": "580", "commit": "abc", "torch": "2.11",
                            "image": 256, "date": "2026-11-29"}}


class Judgement(unittest.TestCase):
    def setUp(self):
        self.run_ = make_run()

    def row(self, workload="segment", **values):
        return page.select(self.run_["rows"], **{"input": "device", "workload": workload, **values})[0]

    def set_rate(self, row, rate):
        row["steps_per_s"]["median"] = rate
        row["blocks"] = [rate] * len(row["blocks"])

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
        self.assertEqual(len(verdict["goals"]), 2 * 6 + 3 + 1)
        self.assertEqual(len(verdict["reference"]), 6 * 8)

    def test_pytorch_below_its_figures(self):
        for workload, figure in (("segment", 111.7), ("classify", 126.9)):
            self.set_rate(self.row(workload, variant="compile nhwc forked", precision="bf16", batch=128),
                          0.89 * figure)
            self.expect_failure(f"PyTorch {workload} batch 128 bf16 compile nhwc forked")

    def test_the_article_below_its_figures(self):
        self.set_rate(self.row("classify", variant="article nchw serial", batch=8), 0.89 * 153)
        self.expect_failure("PyTorch classify batch 8 tf32 article nchw serial")

    def test_one_block_at_its_figure_is_enough(self):
        row = self.row("classify", variant="article nchw serial", batch=8)
        row["blocks"] = [100.0, 0.91 * 153, 90.0, 95.0, 85.0]
        row["steps_per_s"] = page.summarise(row["blocks"])
        verdict = page.judge(self.run_)
        self.assertTrue(verdict["valid"], verdict["failures"])
        line, = [line for line in verdict["reference"] if line["label"] == page.describe(row)]
        self.assertEqual((line["median"], line["measured"]), (95.0, 0.91 * 153))
        row["blocks"][3] = float("nan")
        self.expect_failure("PyTorch classify batch 8 tf32 article nchw serial: nan steps/s")

    def test_tandem_is_held_to_the_fastest_block_of_any_row(self):
        row = self.row(variant="eager nhwc serial", precision="bf16", batch=8)
        row["blocks"][2] = 601.0  # Tandem's median is 600
        self.expect_failure("segment batch 8 bf16, PyTorch's best eager row without a graph: Tandem overlap is "
                            "1.00 x the fastest block of PyTorch eager nhwc serial")

    def test_a_rate_that_is_no_number(self):
        self.set_rate(self.row(variant="eager nhwc graph", precision="bf16", batch=8), float("nan"))
        self.expect_failure("batch 8 bf16 eager nhwc graph")

    def test_pytorch_at_nine_tenths_counts(self):
        self.set_rate(self.row(variant="eager nchw serial", precision="tf32", batch=8), 0.91 * 278.6)
        self.assertTrue(page.judge(self.run_)["valid"])

    def test_pytorch_faster(self):
        for workload in page.WORKLOADS:
            for variant in ("serial", "overlap"):
                self.set_rate(self.row(workload, engine="tandem", variant=variant, batch=32,
                                       precision="bf16"), 299.0)
            self.expect_failure(f"{workload} batch 32 bf16, PyTorch's best eager")

    def test_less_than_three_times_the_article(self):
        article = self.row("classify", variant="article nchw piped", batch=8)
        self.set_rate(article, 200.0)  # a third of Tandem's best
        self.assertTrue(page.judge(self.run_)["valid"])
        self.set_rate(article, 201.0)
        self.expect_failure("classify batch 8 tf32, the article's transform: Tandem GPU augmentation, "
                            "overlap is 2.99")

    def test_less_than_three_times_the_article_with_a_loader(self):
        self.set_rate(self.row("classify", input="loader", variant="article nchw piped"), 70.1)
        self.expect_failure("classify batch 32 tf32 with a loader, the article's transform")

    def test_the_article_is_not_the_eager_row(self):
        goals = page.judge(self.run_)["goals"]
        self.set_rate(self.row("classify", variant="article nchw piped", batch=8), 199.0)
        for row in page.select(self.run_["rows"], workload="classify", variant="eager nhwc serial"):
            self.set_rate(row, 150.0)  # now below the article's
        after = {goal["name"]: goal for goal in page.judge(self.run_)["goals"]}
        self.assertEqual(len(goals), len(after))
        self.assertEqual(after["classify batch 8 tf32, PyTorch's best eager row without a graph"]["pytorch"],
                         "eager nhwc serial")

    def test_a_graph_is_not_the_eager_row(self):
        self.set_rate(self.row(variant="eager nhwc graph", precision="bf16", batch=8), 9999.0)
        self.assertTrue(page.judge(self.run_)["valid"])

    def test_a_loader_row_is_not_a_device_row(self):
        self.set_rate(self.row("classify", input="loader", variant="overlap"), 9999.0)
        for variant in ("serial", "overlap"):
            self.set_rate(self.row("classify", engine="tandem", variant=variant, batch=32,
                                   precision="tf32"), 280.0)
        self.expect_failure("classify batch 32 tf32, PyTorch's best eager")

    def test_not_verified(self):
        for workload, values in (("segment", {"batch": 8}),
                                 ("classify", {"input": "loader", "augment": "cpu", "workers": 16})):
            row = self.row(workload, engine="tandem", **values)
            for value in (False, None):
                row["verified"] = value
                self.expect_failure(f"{page.describe(row)}: not verified")

    def test_a_row_that_failed(self):
        self.run_["failures"] = ["PyTorch batch 8: out of memory"]
        self.expect_failure("out of memory")

    def test_not_all_measured(self):
        self.run_["rows"].remove(self.row(variant="compile nhwc graph", batch=32, precision="tf32"))
        self.expect_gap("batch 32: tf32 compile nhwc graph")

    def expect_absent(self, *parts):
        verdict = page.judge(self.run_)
        self.assertFalse(verdict["valid"])
        self.assertEqual((verdict["failures"], verdict["gaps"]), ([], []))
        self.assertEqual(verdict["absent"], [page.PARTS[part] for part in parts])
        return page.verdict_sentence(verdict)

    def test_a_job_not_measured(self):
        self.run_["rows"] = page.select(self.run_["rows"], workload="segment")
        self.assertEqual(self.expect_absent(("classify", "device"), ("classify", "loader")),
                         "The run counts, as far as it goes. Not part of it: the classifier with input on the "
                         "device and the classifier with a loader.")
        self.assertEqual(len(page.judge(self.run_)["goals"]), 6)

    def test_loader_not_measured(self):
        self.run_["rows"] = page.select(self.run_["rows"], input="device")
        self.expect_absent(("classify", "loader"))

    def test_nothing_measured(self):
        self.run_["rows"] = []
        self.assertEqual(self.expect_absent(*page.PARTS), "The run does not count.")

    def test_a_job_measured_in_part(self):
        self.run_["rows"] = [row for row in self.run_["rows"]
                             if (row["workload"], row["batch"]) != ("classify", 128)]
        self.expect_gap("classify batch 128 bf16, PyTorch's best eager row without a graph: the rows of "
                        "Tandem and PyTorch")
        self.run_["rows"] = page.select(self.run_["rows"], engine="pytorch", workload="segment")
        self.expect_gap("segment batch 8 tf32, PyTorch's best eager row without a graph: the rows of Tandem")

    def test_too_few_blocks(self):
        for values, blocks in (({"engine": "tandem", "batch": 8}, 4),
                               ({"variant": "eager nhwc serial"}, 4),  # the only one of its kind
                               ({"variant": "eager nchw piped", "batch": 32}, 0),
                               ({"variant": "eager nchw serial", "batch": 32}, 0),
                               ({"workload": "classify", "variant": "article nchw piped", "batch": 32}, 0),
                               ({"workload": "classify", "variant": "article nchw serial", "batch": 32}, 0),
                               ({"variant": "compile nhwc forked", "precision": "tf32"}, 2),
                               ({"variant": "compile nhwc graph", "precision": "tf32"}, 0),
                               ({"workload": "classify", "input": "loader"}, 2),
                               ({"workload": "classify", "input": "loader",
                                 "variant": "article nchw serial"}, 2)):
            self.run_ = make_run()
            row = self.row(**values)
            row["blocks"] = [page.median(row)] * (blocks + 1)
            self.assertTrue(page.judge(self.run_)["valid"], values)
            row["blocks"].pop()
            self.expect_gap(f"{page.describe(row)} has {blocks} blocks")

    def goals_beside_a_short_row(self):
        """Of segment batch 8 in tf32: PyTorch's best row, 278.6, has one block, the next, 260.1, five."""
        self.row(variant="eager nchw serial", batch=8)["blocks"] = [278.6]
        return [(goal["pytorch"], goal["blocks"]) for goal in page.judge(self.run_)["goals"]
                if goal["name"].startswith("segment batch 8 tf32")]

    def set_tandem(self, rate):
        for variant in ("serial", "overlap"):
            self.set_rate(self.row(engine="tandem", variant=variant, batch=8, precision="tf32"), rate)

    def test_a_best_row_with_few_blocks_is_judged_with_the_best_that_has_enough(self):
        self.assertEqual(page.judge(self.run_)["goals"][0]["blocks"], "5 and 5")
        self.assertEqual(self.goals_beside_a_short_row(),
                         [("eager nchw piped", "5 and 5"), ("eager nchw serial", "5 and 1")])
        self.assertTrue(page.judge(self.run_)["valid"])
        self.row(variant="eager nchw piped", batch=8)["blocks"] = [260.1] * 4  # none has enough
        self.assertEqual(self.goals_beside_a_short_row(), [("eager nchw serial", "5 and 1")])
        self.expect_gap("eager nchw serial has 1 blocks; it counts from 5")

    def test_a_row_with_few_blocks_that_decides_is_a_gap(self):
        self.goals_beside_a_short_row()
        self.set_tandem(270.0)  # between the two
        self.expect_gap("is 0.97 x the fastest block of PyTorch eager nchw serial (blocks: 5 and 1); the goal is 1.0; "
                        "PyTorch segment batch 8 tf32 eager nchw serial has 1 blocks; it counts from 5")

    def test_a_goal_missed_beside_the_row_with_enough_blocks_fails(self):
        self.goals_beside_a_short_row()
        self.set_tandem(250.0)  # below both
        self.expect_failure("is 0.96 x the fastest block of PyTorch eager nchw piped (blocks: 5 and 5); the goal is 1.0")
        self.assertEqual(page.judge(self.run_)["gaps"], [])

    def test_with_a_loader_three_blocks_are_enough(self):
        self.row("classify", input="loader", variant="article nchw piped")["blocks"] = [68.0] * 2
        self.assertEqual([(goal["pytorch"], goal["blocks"]) for goal in page.judge(self.run_)["goals"][-2:]],
                         [("article nchw serial", "3 and 3"), ("article nchw piped", "3 and 2")])
        self.expect_gap("article nchw piped with a loader has 2 blocks; it counts from 3")

    def test_a_goal_missed_where_no_row_has_enough_blocks_fails(self):
        self.goals_beside_a_short_row()
        self.row(variant="eager nchw piped", batch=8)["blocks"] = [260.1]
        self.set_tandem(270.0)
        self.expect_failure("is 0.97 x the fastest block of PyTorch eager nchw serial (blocks: 5 and 1)")

    def test_another_gpu(self):
        self.run_["environment"]["gpu"] = "NVIDIA A10G"
        self.expect_gap("A10G")


BENCHMARKS = {"context": {"date": "2026-11-29"}, "benchmarks": [
    {"name": "fused/batch/32/manual_time", "run_name": "fused/batch/32/manual_time",
     "run_type": "iteration", "real_time": 25.0, "time_unit": "us"},
    {"name": "plain/batch/8", "run_name": "plain/batch/8", "run_type": "iteration", "real_time": 90000.0,
     "time_unit": "ns"},
    {"name": "copy", "run_name": "copy", "run_type": "iteration", "real_time": 1.0, "time_unit": "ms"}]}


class Page(unittest.TestCase):
    def setUp(self):
        self.run_ = make_run()

    def render(self, *results):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for number, result in enumerate(results):
                paths.append(pathlib.Path(folder) / f"{number}.json")
                paths[-1].write_text(json.dumps(result))
            return subprocess.run([sys.executable, BENCH / "compare_gpu.py", "--render", *paths],
                                  check=False, capture_output=True, text=True)

    def rendered(self, *results):
        result = self.render(*results)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("None", result.stdout)
        self.assertNotIn("{", result.stdout)
        return result.stdout

    def sections(self, text):
        """Heading -> what is below it, up to the next heading of any level."""
        parts = re.split(r"(?m)^#+ (.*)$", text)
        return dict(zip(parts[1::2], parts[2::2]))

    def test_page(self):
        self.run_["rows"].append(loader_row("tandem", "segment", 8, "tf32", "overlap", 91.0))
        text = self.rendered(self.run_)
        self.assertIn("| tf32 | 8 | 500.0 (499.0 .. 501.0) | 600.0 (599.0 .. 601.0) | - | 1.20 | "
                      "278.6 (eager nchw serial) | 2.15 | 517.7 (compile nhwc forked) | 1.16 |", text)
        self.assertIn("| tf32 | 8 | overlap | 0.010 | 0.500 | 1.500 | 1.33 | 1.20 | 1024 |", text)
        self.assertIn("| 8 | tandem | overlap | 8 | tf32 | 91.0 |", text)
        self.assertIn("3 blocks for PyTorch's rows with a graph", text)
        self.assertIn("The run counts.", text)

    def test_classifier(self):
        sections = self.sections(self.rendered(self.run_))
        device = sections["Classifier with augmentation, image 256, input on the device"]
        self.assertIn("| tf32 | 8 | 500.0 (499.0 .. 501.0) | 600.0 (599.0 .. 601.0) | - | 1.20 | "
                      "290.0 (eager nhwc serial) | 2.07 | 153.0 (article nchw serial) | 3.92 | "
                      "627.3 (compile nhwc graph) | 0.96 |", device)
        loader = sections["Classifier with augmentation, with a loader"]
        self.assertIn("| 32 | tandem | GPU augmentation, overlap | 8 | tf32 | 210.0 |", loader)
        self.assertIn("| 32 | tandem | CPU augmentation, 16 threads, serial | 16 | tf32 | 105.0 |", loader)
        self.assertIn("At batch 32 augmentation on the GPU (overlap) is 3.00 x that of 8 CPU threads and "
                      "2.00 x that of 16 CPU threads.", loader)
        self.assertNotIn("The augmentation alone", sections)

    def test_all_batches_of_the_segmenter(self):
        for batch in (4, 16, 64):
            self.run_["rows"].append(make_row("tandem", "segment", batch, "tf32", "overlap", 50.0, blocks=3))
        text = self.rendered(self.run_)
        for batch in (4, 8, 16, 32, 64, 128):
            self.assertIn(f"\n| tf32 | {batch} | overlap | 0.010 | 0.500 | 1.500 | 1.33 |", text)
        self.assertIn("The run counts.", text)

    def test_start_up_and_memory(self):
        self.run_["rows"].append(make_row("tandem", "segment", 8, "tf32", "graph", 700.0))
        table = self.sections(self.rendered(self.run_))["Start-up and memory"]
        self.assertIn("| segment | tf32 | 8 | graph | 1.25 | 0.12 | 700 | compile nhwc forked | 12.3 | "
                      "800 / 900 | eager nchw serial | 12.3 | 800 / 900 |\n", table)
        self.assertIn("| classify | bf16 | 128 | overlap | 1.25 | - | 700 | eager nhwc forked | 12.3 |", table)
        self.assertEqual(table.count("\n| segment |"), 6)
        self.assertNotIn("tandem tune", table)

    def test_results_without_start_up_still_make_a_page(self):
        for row in self.run_["rows"]:
            for name in page.START_UP:
                row.pop(name, None)
        self.assertNotIn("Start-up and memory", self.sections(self.rendered(self.run_)))

    def test_results_with_some_of_the_start_up(self):
        for row in self.run_["rows"][1:]:
            for name in page.START_UP:
                row.pop(name, None)
        row = page.select(self.run_["rows"], variant="compile nhwc forked", precision="tf32", batch=8)[0]
        row["peak_memory_bytes"] = None  # as the CPU's
        table = self.sections(self.rendered(self.run_))["Start-up and memory"]
        self.assertIn("| segment | tf32 | 8 | overlap | - | - | - | compile nhwc forked | - | - | "
                      "eager nchw serial | 12.3 | 800 / 900 |\n", table)

    def test_rows_with_a_loader_have_no_start_up(self):
        self.run_["rows"] = page.select(self.run_["rows"], input="loader")
        self.assertNotIn("Start-up and memory", self.sections(self.rendered(self.run_)))

    def test_seconds_of_tuning(self):
        other = copy.deepcopy(self.run_)
        self.run_["rows"] = page.select(self.run_["rows"], engine="tandem")
        other["rows"] = page.select(other["rows"], engine="pytorch")
        self.run_["tune_s"], other["tune_s"] = 31.2, 4.4
        table = self.sections(self.rendered(self.run_, other))["Start-up and memory"]
        self.assertIn("once for all rows of a run, took 31 and 4 s", table)
        del self.run_["tune_s"]
        other["tune_s"] = None
        self.assertNotIn("tandem tune", self.sections(self.rendered(self.run_, other))["Start-up and memory"])

    def test_augmentation_alone(self):
        text = self.rendered(BENCHMARKS, self.run_)
        self.assertIn("| `fused/batch/32/manual_time` | 25.0 | 1280000 |", text)
        self.assertIn("| `plain/batch/8` | 90.0 | 88889 |", text)
        self.assertIn("| `copy` | 1000.0 | - |", text)

    def test_augmentation_alone_with_repetitions_shows_medians(self):
        result = copy.deepcopy(BENCHMARKS)
        for entry in list(result["benchmarks"]):
            result["benchmarks"].append({**entry, "name": entry["name"] + "_median", "run_type": "aggregate",
                                         "aggregate_name": "median", "real_time": 2 * entry["real_time"]})
        text = self.rendered(result, self.run_)
        self.assertIn("| `fused/batch/32/manual_time` | 50.0 | 640000 |", text)
        self.assertNotIn(" 25.0 |", text)

    def test_says_when_a_run_does_not_count(self):
        self.run_["failures"] = ["PyTorch batch 8: out of memory"]
        text = self.rendered(self.run_)
        self.assertIn("The run does not count.", text)
        self.assertIn("- PyTorch batch 8: out of memory", text)

    def test_two_runs_make_one_page(self):
        other = copy.deepcopy(self.run_)
        self.run_["rows"] = page.select(self.run_["rows"], engine="tandem")
        other["rows"] = page.select(other["rows"], engine="pytorch")
        self.assertIn("The run counts.", self.rendered(self.run_, BENCHMARKS, other))
        for part, name, value in (("environment", "commit", "def"), ("settings", "seconds", 0.1)):
            changed = copy.deepcopy(other)
            changed[part][name] = value
            result = self.render(self.run_, changed)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, f"({part}|{name}) differs? between the runs")

    def test_two_runs_with_the_same_row(self):
        result = self.render(self.run_, self.run_)
        self.assertEqual(result.returncode, 1)
        self.assertIn("same row", result.stderr)

    def test_no_run(self):
        result = self.render(BENCHMARKS)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "compare_gpu.py: none of these files holds a run of this script\n")

    def test_files_that_hold_no_run(self):
        tandem = {"schema": 1, "command": "bench", "environment": {"version": "0.1.0"}, "config": {}, "rows": [
            {"workload": "segment", "batch": 8, "schedule": "serial"}]}
        without_rows = {key: value for key, value in self.run_.items() if key != "rows"}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "odd.json"
            for content in (tandem, without_rows, {**self.run_, "rows": tandem["rows"]}, {**self.run_, "rows": 7},
                            {**self.run_, "environment": None}, {"benchmarks": 7}, {}, [self.run_], 7):
                with self.subTest(content=str(content)[:60]):
                    path.write_text(json.dumps(content))
                    self.refuse(path, "is no result of this script, nor of a Google Benchmark program")
            for content in (b"", b'{"rows": [', b"\xff"):
                path.write_bytes(content)
                self.refuse(path, "is not JSON")
            path.unlink()
            self.refuse(path, "No such file")

    def refuse(self, path, words):
        result = subprocess.run([sys.executable, BENCH / "compare_gpu.py", "--render", path], check=False,
                                capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
        self.assertRegex(result.stderr, f"^compare_gpu.py: {re.escape(str(path))}:? {words}[^\n]*\n$")


class OverlapSentences(unittest.TestCase):
    def sentences(self, rates):
        """`rates`: batch -> overlap's rate; serial has 500, and both a range of 1 around it."""
        rows = []
        for batch, rate in rates.items():
            rows += [make_row("tandem", "classify", batch, "tf32", "serial", 500.0),
                     make_row("tandem", "classify", batch, "tf32", "overlap", rate)]
        return page.overlap_sentences(rows)

    def test_all_kinds(self):
        text = self.sentences({8: 510.0, 32: 501.0, 64: 520.0, 128: 490.0})
        self.assertIn("faster than serial at batch 8 in tf32 (1.02, bound 1.33) and batch 64 in tf32 (1.04,",
                      text)
        self.assertIn("slower than serial at batch 128 in tf32 (0.98, bound 1.33).", text)
        self.assertIn("no difference is shown, at batch 32 in tf32 (1.00,", text)
        self.assertIn("The most it gains is 4.0 %, at batch 64 in tf32; the bound there is 33.3 %.", text)
        self.assertIn("t_A is 25.0 to 25.0 % of t_A + t_B.", text)

    def test_nothing_gained(self):
        text = self.sentences({8: 480.0, 32: 501.0})
        self.assertNotIn("faster", text)
        self.assertNotIn("The most it gains", text)
        self.assertIn("No row shows a gain.", text)


class FakeTandem:
    """Stands for the program: a block that observes reads the GPU, the others do not."""
    plans = {}
    tune_seconds = None

    def __init__(self, fails=(), content=True):
        self.started, self.blocks, self.closed = [], [], []
        self.fails, self.content = fails, content

    def start(self, case, ours, steps):
        self.started.append((ours, steps))
        return FakeProcess(self, case, ours)


class FakeProcess:
    def __init__(self, program, case, ours):
        self.program, self.case, self.ours = program, case, ours

    def ask(self, **request):
        case, ours = self.case, self.ours
        self.program.blocks.append((ours, request))
        if ours.augment in self.program.fails:
            raise compare_gpu.Failure(f"{ours.augment}: too slow")
        seen = {"gpu_busy_pct": None, "nvml_util_pct": None, "stage_ms": {}}
        if request == {"observe": 1}:
            stages = {"copy": 0.01, page.FIRST_STAGE[case.workload]: 0.5, "train": 1.5}
            if ours.augment == "cpu":
                del stages["augment"]
            seen = {"gpu_busy_pct": 97.0, "nvml_util_pct": 0.0, "stage_ms": stages}
        return {"rows": [
            {"precision": precision, "schedule": schedule, "steps_per_s": {"median": 800.0},
             "memory_bytes": 1 << 30, "plan_hash": "ab" * 32, "verified": self.program.content,
             "prepare_s": float(len(self.program.blocks)), "capture_s": None, "gpu_memory_bytes": 1 << 29,
             **seen}
            for precision in case.precisions for schedule in ours.schedules.split(",")]}

    def close(self):
        self.program.closed.append(self.ours)
        return None if self.program.content else compare_gpu.Failure("exit 1: rows differ")


class FakePeer:
    """`rates`: of variants, where they are not 300; of all blocks, or a list with one each."""

    environment = {"gpu": "a GPU"}

    def __init__(self, rates=None):
        self.configs, self.rates = [], rates or {}

    def ask(self, config, **_):
        how = "article" if config.get("augment") == "article" else "compile" if config["compile"] else "eager"
        before = self.configs.count(config)
        self.configs.append(config)
        rate = self.rates.get(f"{how} {config['layout']} {config['issue']}", 300.0)
        return {"steps_per_s": {"median": rate[before] if isinstance(rate, list) else rate},
                "start_s": 7.0 + before, "peak_memory_bytes": {"allocated": 1 + before, "reserved": 2}}


def cases(*arguments):
    options = compare_gpu.parse_options([*arguments, "--tandem", sys.executable])
    return compare_gpu.Run(options), compare_gpu.cases_of(options)


class Blocks(unittest.TestCase):
    def alternate(self, *arguments, rates=None, gpu="a GPU", **program):
        """The finished rows of the first case, and the fakes that gave them."""
        run, (case, *_) = cases(*arguments)
        tandem, peer = FakeTandem(**program), FakePeer(rates)
        peer.environment = {"gpu": gpu}
        run.alternate(tandem, peer, case)
        return run, tandem, peer

    def test_every_row_has_the_blocks_it_needs(self):
        for arguments in (("--segment", "8"), ("--classify", "128"), ("--classify-loader", "32")):
            run, _, peer = self.alternate(*arguments)
            result = {"rows": run.finished(), "failures": run.failures, "environment": {"gpu": "NVIDIA H200"}}
            self.assertFalse([gap for gap in page.judge(result)["gaps"] if "block" in gap])
            self.assertEqual(run.failures, [])
            self.assertEqual(len({json.dumps(config, sort_keys=True) for config in peer.configs}),
                             len(page.select(result["rows"], engine="pytorch")))

    def test_rows_of_a_case(self):
        def count(arguments):
            run, _, _ = self.alternate(*arguments)
            return collections.Counter((row["engine"], row["augment"]) for row in run.finished())

        self.assertEqual(count(["--segment", "8"]), {("tandem", None): 6, ("pytorch", None): 16})
        self.assertEqual(count(["--segment", "8", "--eager-only"]),
                         {("tandem", None): 6, ("pytorch", None): 8})
        self.assertEqual(count(["--classify", "8"]), {
            ("tandem", "gpu"): 6, ("pytorch", "batched"): 16, ("pytorch", "article"): 2})
        self.assertEqual(count(["--segment-loader", "8"]), {("tandem", None): 3, ("pytorch", None): 2})
        self.assertEqual(count(["--classify-loader", "32"]), {
            ("tandem", "gpu"): 3, ("tandem", "cpu"): 2, ("pytorch", "article"): 2})

    def test_rows_use_the_algorithms_that_were_tuned(self):
        def plan_of(program, case):
            command = program.command(case, case.ours[0], 10)
            return str(command[command.index("--plan") + 1]) if "--plan" in command else None

        options = compare_gpu.parse_options(["--tandem", sys.executable, "--tune", "--segment", "8,32",
                                             "--classify", "8"])
        self.assertTrue(options.tune)
        cases = compare_gpu.cases_of(options)
        program = compare_gpu.Tandem("tandem", "cuda:0", 256)
        self.assertEqual([plan_of(program, case) for case in cases], [None] * 3)
        with mock.patch.object(compare_gpu, "run_program") as run_program:
            self.assertIsNone(program.tune_seconds)
            program.tune("folder", cases)
        self.assertGreater(program.tune_seconds, 0)
        commands = [call.args[0] for call in run_program.call_args_list]
        self.assertEqual([command[:3] for command in commands],
                         [["tandem", "tune", "segment"], ["tandem", "tune", "classify"]])
        self.assertEqual(commands[0][commands[0].index("--batch") + 1], "8,32")
        self.assertEqual(commands[0][commands[0].index("--precision") + 1], "tf32,bf16")
        for case in cases:
            self.assertEqual(plan_of(program, case), f"folder/{case.workload}.plan.json")
            # What is tuned is what is measured: neither says anything about putting operations together.
            for command in (*commands, program.command(case, case.ours[0], 10)):
                self.assertFalse({"--fuse", "--side-lanes"} & set(command))
        self.assertIn("`tandem tune` has timed", page.page([{**make_run(), "settings": {
            **make_run()["settings"], "tuned": True}}]))

    def test_one_block_of_a_row_observes_the_gpu(self):
        run, tandem, _ = self.alternate("--classify", "8")
        self.assertEqual([request for _, request in tandem.blocks], [{"observe": 1}] + [{}] * 4)
        rows = page.select(run.finished(), engine="tandem")
        for row in rows:
            self.assertEqual(len(row["blocks"]), 5)
            self.assertEqual((row["gpu_busy_pct"], row["nvml_util_pct"]), (97.0, 0.0))
        self.assertIn("| 1024 | 97 | 0 | `abababababab` |", page.stage_table(rows))

    def test_the_first_block_says_what_the_start_took(self):
        for job in ("--segment", "--segment-loader"):  # with a loader each block starts anew
            run, _, peer = self.alternate(job, "8")
            rows = run.finished()
            for row in page.select(rows, engine="tandem"):
                self.assertEqual([row[name] for name in ("prepare_s", "capture_s", "gpu_memory_bytes")],
                                 [1.0, None, 1 << 29])
            for row in page.select(rows, engine="pytorch"):
                self.assertEqual((row["start_s"], row["peak_memory_bytes"]),
                                 (7.0, {"allocated": 1, "reserved": 2}))
            self.assertTrue(any(peer.configs.count(config) > 1 for config in peer.configs))

    def test_one_process_for_all_blocks_of_a_case(self):
        for arguments, rates, steps in (
                (("--classify", "8", "--seconds", "0.5"), {"eager nhwc forked": 420.0}, 420),
                (("--classify", "8"), {}, 150),
                (("--segment", "128", "--seconds", "0.01"), {}, 15)):  # five for each window
            run, tandem, _ = self.alternate(*arguments, rates=rates)
            self.assertEqual([steps for _, steps in tandem.started], [steps])
            self.assertEqual(tandem.closed, [ours for ours, _ in tandem.started])
            self.assertEqual(run.failures, [])

    def blocks_of(self, *arguments, **more):
        run, _, _ = self.alternate(*arguments, **more)
        return {(row["variant"], row["precision"]): len(row["blocks"])
                for row in page.select(run.finished(), engine="pytorch")}

    def test_rows_of_pytorch_that_are_behind_have_one_block(self):
        found = self.blocks_of("--classify", "8", rates={
            "eager nchw serial": 254.0, "eager nchw piped": 256.0, "eager nhwc graph": 940.0,
            "compile nhwc graph": 1000.0, "compile nhwc forked": 951.0, "article nchw serial": 50.0,
            "article nchw piped": 80.0})
        for precision in ("tf32", "bf16"):
            self.assertEqual({variant: blocks for (variant, of), blocks in found.items()
                              if of == precision and not variant.startswith("article")}, {
                "eager nchw serial": 1, "eager nchw piped": 5, "eager nhwc serial": 5,
                "eager nhwc piped": 5, "eager nhwc graph": 1, "eager nhwc forked": 1,
                "compile nhwc graph": 5, "compile nhwc forked": 5})
        self.assertEqual((found["article nchw serial", "tf32"], found["article nchw piped", "tf32"]), (5, 5))

    def test_rows_below_their_figures_are_measured_again(self):
        # Not among the best of its kind, and slower than a run may have it (278.6 steps/s).
        rates = {"eager nchw serial": 0.89 * 278.6, "compile nhwc forked": 1000.0, "eager nhwc graph": 500.0}
        self.assertEqual(self.blocks_of("--segment", "8", rates={**rates, "eager nhwc serial": 400.0})[
            "eager nchw serial", "tf32"], 1)  # of another GPU nothing is known
        slow, fast = 0.89 * 278.6, 0.91 * 278.6
        for rate, blocks in ((slow, page.REFERENCE_BLOCKS), (fast, 1), ([slow] * 2 + [fast] * 9, 3),
                             ([slow] * 11 + [fast] * 9, 12)):  # after Tandem's last block, too
            found = self.blocks_of("--segment", "8", gpu="NVIDIA H200", rates={
                **rates, "eager nchw serial": rate, "eager nhwc serial": 400.0})
            self.assertEqual(found["eager nchw serial", "tf32"], blocks)
            self.assertEqual(found["eager nchw serial", "bf16"], 1)  # no figure is kept of it

    def test_the_first_block_decides(self):
        found = self.blocks_of("--segment", "8", "--eager-only", rates={
            "eager nchw serial": [310.0] + [10.0] * 4, "eager nchw piped": [260.0] + [9000.0] * 4})
        self.assertEqual(set(found.values()), {1, 5})
        self.assertEqual(found["eager nchw serial", "tf32"], 5)
        self.assertEqual(found["eager nchw piped", "tf32"], 1)

    def test_rows_with_a_loader_are_all_measured_again(self):
        for job in ("--segment-loader", "--classify-loader"):
            found = self.blocks_of(job, "32", rates={"eager nchw serial": 30.0, "article nchw serial": 30.0})
            self.assertEqual(set(found.values()), {3})

    def test_what_failed_is_not_tried_again(self):
        run, tandem, _ = self.alternate("--classify-loader", "32", fails=("cpu",))
        self.assertEqual(sum(ours.augment == "cpu" for ours, _ in tandem.blocks), 2)  # 8 and 16 threads
        self.assertEqual(sum(ours.augment == "gpu" for ours, _ in tandem.blocks), 3)
        self.assertEqual(len(tandem.closed), 3)
        self.assertTrue(run.failures)

    def test_a_program_that_is_not_content(self):
        run, _, _ = self.alternate("--segment", "8", content=False)
        self.assertEqual(run.failures, ["exit 1: rows differ"])
        self.assertFalse(any(row["verified"] for row in page.select(run.finished(), engine="tandem")))

    def test_a_plan_that_changes(self):
        run, (case, *_) = cases("--segment", "8")
        key = ("tandem", "segment", 8, "tf32", "device", "he", "serial", None, 0)
        run.add(1.0, key, plan_hash="a")
        run.add(1.0, key, plan_hash="b")
        self.assertIn("its plan changed from a to b", run.failures[0])


class Results(unittest.TestCase):
    def test_the_command_without_places(self):
        options = compare_gpu.parse_options(["--tandem", sys.executable, "--segment", "8", "--json=a",
                                             "--blocks", "3", "--python", sys.executable])
        self.assertEqual(options.command, "python3 bench/compare_gpu.py --segment 8 --blocks 3")

    def test_a_run_that_is_stopped_keeps_the_cases_before(self):
        class Stopped(FakeTandem):
            environment = None

            def start(self, case, *arguments):
                if case.workload == "classify":
                    raise KeyboardInterrupt
                return super().start(case, *arguments)

        class PeerProcess(FakePeer):
            environment = {"gpu": None, "torch": "2", "cuda": "13", "cudnn": 9, "python": "3"}

            def ask(self, config=None, check=None, release=False, **_):
                return {"wrong": []} if check else {} if release else super().ask(config)

            def close(self):
                pass

        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "results.json"
            options = compare_gpu.parse_options(["--tandem", sys.executable, "--json", str(path)])
            with mock.patch.object(compare_gpu, "Tandem", lambda *_: Stopped()), \
                    mock.patch.object(compare_gpu, "start_peer", lambda *_: PeerProcess()), \
                    self.assertRaises(KeyboardInterrupt):
                compare_gpu.measure(options)
            rows = json.loads(path.read_text())["rows"]
        self.assertEqual({(row["workload"], row["batch"]) for row in rows},
                         {("segment", 8), ("segment", 32), ("segment", 128)})


SERVER = """
import json, sys
print(json.dumps({"environment": {"commit": "abc"}}), flush=True)
for number, line in enumerate(sys.stdin):
    if number == int(sys.argv[1]):
        sys.exit("the disk is full")
    print(json.dumps({"number": number, "request": json.loads(line)}), flush=True)
sys.exit(int(sys.argv[2]))
"""


class Processes(unittest.TestCase):
    """With a small program that answers."""

    def start(self, dies_at, exit_code):
        return compare_gpu.Served([sys.executable, "-c", SERVER, dies_at, exit_code])

    def test_a_process_stays_for_all_requests(self):
        for code in (0, 1):
            process = self.start(9, code)
            self.assertEqual(process.environment, {"commit": "abc"})
            for number in range(3):
                self.assertEqual(process.ask(observe=number), {"number": number,
                                                               "request": {"observe": number}})
            failure = process.close()
            self.assertEqual("exit 1: no message" in str(failure), code == 1, failure)

    def test_a_process_that_ends_says_why(self):
        process = self.start(1, 0)
        process.ask()
        for _ in range(2):  # the second request meets no process any more
            with self.assertRaisesRegex(compare_gpu.Failure, "exit 1: the disk is full"):
                process.ask()
        self.assertIn("the disk is full", str(process.close()))

    def test_a_program_that_does_not_start(self):
        with self.assertRaisesRegex(compare_gpu.Failure, "exit 4: no message"):
            compare_gpu.Served([sys.executable, "-c", "raise SystemExit(4)"])


class Interpreters(unittest.TestCase):
    """Those that cannot run PyTorch are refused before anything runs."""

    def refuse(self, code, python, words):
        for mode in (("--warm",), ("--tandem", sys.executable), ("--warm", "--device", "host")):
            result = subprocess.run([sys.executable, BENCH / "compare_gpu.py", "--python", python, *mode],
                                    check=False, capture_output=True, text=True)
            self.assertEqual((result.returncode, result.stdout), (code, ""), result.stderr)
            self.assertIn(words, result.stderr)
            self.assertNotIn("Traceback", result.stderr)

    def test_no_interpreter(self):
        for python in ("/nonexistent", str(BENCH), str(BENCH / "README.md")):
            self.refuse(2, python, f"--python is {python}, which is no program")
        self.refuse(1, "false", "compare_gpu.py: false -c ...: exit 1: no message; --python names")

    def test_no_pytorch(self):
        with tempfile.TemporaryDirectory() as folder:
            python = pathlib.Path(folder) / "python"
            # Without the packages of the site, and so without PyTorch.
            python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
            python.chmod(0o755)
            self.refuse(1, str(python), f"compare_gpu.py: {python} has no PyTorch; --python names")


class Warm(unittest.TestCase):
    """With a program in the place of Python that keeps its arguments."""

    def warm(self, exit_code, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            python, log = pathlib.Path(folder) / "python", pathlib.Path(folder) / "log"
            python.write_text('#!/bin/sh\n[ "$1" != -c ] || exec echo True\n'
                              f'echo "$TORCHINDUCTOR_COMPILE_THREADS $*" >>{log}\n'
                              f"exit {exit_code}\n")
            python.chmod(0o755)
            result = subprocess.run([sys.executable, BENCH / "compare_gpu.py", "--warm", "--python", python,
                                     *arguments], check=False, capture_output=True, text=True)
            return result, log.read_text().splitlines() if log.exists() else []

    def test_each_compiled_row_once(self):
        result, lines = self.warm(0, "--segment", "8,128", "--classify", "32", "--classify-loader", "64")
        self.assertEqual(result.returncode, 0, result.stderr)
        found = sorted((re.search(r"torch_(\w+)\.py", line)[1], re.search(r"--batch (\d+)", line)[1],
                        re.search(r"--precision (\w+)", line)[1]) for line in lines)
        self.assertEqual(found, sorted((workload, batch, precision) for workload, batch in (
            ("segment", "8"), ("segment", "128"), ("classify", "32")) for precision in ("tf32", "bf16")))
        for line in lines:
            self.assertRegex(line, r"^[1-9]\d* ")
            self.assertIn("--layout nhwc --issue serial --compile yes", line)

    def test_failure(self):
        result, lines = self.warm(1, "--segment", "8")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(len(lines), 2)

    def test_nothing_to_compile(self):
        for arguments in (("--segment", "8", "--eager-only"), ("--segment", "8", "--device", "host"),
                          ("--classify-loader", "8")):
            result, lines = self.warm(1, *arguments)
            self.assertEqual((result.returncode, lines), (0, []), result.stderr)


if __name__ == "__main__":
    unittest.main()
