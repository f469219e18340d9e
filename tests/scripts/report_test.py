# SPDX-License-Identifier: Apache-2.0
"""Pages and comparisons of results, as a user meets them: the page is read back, and its numbers are those of
the JSON.

usage: report_test.py PROGRAM [unittest options]
"""
import copy
import html.parser
import json
import re
import resource
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = ""
VOID = {"meta", "br"}
MIB, GIB = 1 << 20, 1 << 30
ENVIRONMENT = {"cpu": "Intel(R) Xeon(R)", "cores": 16, "compiler": "g++ 12.2", "openblas": "OpenBLAS 0.3",
               "cuda": "13.0", "cudnn": "9.14", "os": "Debian", "version": "0.1.0", "commit": "4c19cc7",
               "date": "2026-11-29T10:00:00Z"}
GPU = {"device": "cuda:0", "gpu": "NVIDIA H200", "driver": "580.159.04"}


# ------------------------------------------------------------------------------ results as on a GPU
def rate(median, spread=0.005):
    return {"median": median, "min": median * (1 - spread / 2), "max": median * (1 + spread / 2)}


def bench_row(batch, schedule, steps_per_s, stages, precision="bf16", spread=0.005, **more):
    return {"workload": "segment", "batch": batch, "image": 256, "classes": 10, "schedule": schedule,
            "precision": precision, **GPU, "sm_clock_mhz": 1980, "memory_clock_mhz": 3201, "input": "device",
            "workers": 0, "augment": None, "warmup": 10, "steps": 200, "windows": 5,
            "steps_per_s": rate(steps_per_s, spread), "images_per_s": steps_per_s * batch, "stage_ms": dict(stages),
            "bound": sum(stages.values()) / max(stages.values()), "gain": None, "gpu_busy_pct": 98.7,
            "nvml_util_pct": 99.0, "fuse": ["all"], "side_lanes": False, "graphs": 0,
            "memory_bytes": 700_000_000 + 52_000_000 * batch, "plan_hash": "ab" * 8, "weights_sha256": "cd" * 32,
            "verified": True, **more}


def bench(rows=None):
    if rows is None:
        rows = []
        for batch, speeds, stages in (
                (8, (1180.4, 1217.9, 1394.2), {"copy": 0.0041, "encode": 0.2021, "train": 0.6474}),
                (32, (652.1, 674.3, 729.0), {"copy": 0.0043, "encode": 0.4862, "train": 1.0351}),
                (128, (215.7, 216.0, 216.2), {"copy": 0.0051, "encode": 1.5127, "train": 3.3310})):
            rows += [bench_row(batch, schedule, speed, stages)
                     for schedule, speed in zip(("serial", "overlap", "graph"), speeds, strict=True)]
            rows += [bench_row(batch, schedule, speed / 1.3, stages, "tf32")
                     for schedule, speed in zip(("serial", "overlap"), speeds)]
    return {"schema": 1, "command": "bench", "environment": dict(ENVIRONMENT),
            "config": {"batch": [8, 32, 128], "steps": 200, "momentum": 0.0, "fuse": ["all"], "json": "b.json"},
            "rows": rows}


def found():
    rows = []
    for batch in (1, 2, 4, 8, 16, 32, 48, 64, 128, 256):
        row = {"batch_per_gpu": batch, "global_batch": batch, "gpus": 1, "status": "ok", "reason": None,
               "predicted_bytes": 2 * GIB + batch * 480 * MIB, "bytes_per_sample": 1.0, "steps_run": 30}
        if batch == 256:
            row |= {"status": "oom", "reason": "out of memory: 125829120 bytes for the arena", "steps_run": 0}
        else:
            speed = 24000 * batch / (batch + 11)
            stages = {"copy": 0.004, "encode": 0.14 + 0.0108 * batch, "train": 0.5 + 0.0262 * batch}
            serial = sum(stages.values())
            row |= {"warmup_steps": 9, "repeats": 3, "throughput_mean": speed, "throughput_median": speed,
                    "throughput_min": 0.985 * speed, "throughput_max": 1.01 * speed, "noise_pct": 2.5,
                    "step_ms_mean": 1e3 * batch / speed, "step_ms_median": 1.0, "step_ms_p95": 1.1,
                    "mem_peak_bytes": 2 * GIB + batch * 481 * MIB, "mem_free_bytes": 1, "stage_ms": stages,
                    "t_a_ms": stages["encode"], "t_b_ms": stages["train"], "serial_ms": serial,
                    "overlap_ms": serial / 1.04, "predicted_speedup": serial / stages["train"],
                    "measured_speedup": 1.04, "overlap_eff": 0.1,
                    "overlap": f"Overlap pays: 1.04 times as fast as serial, at most "
                               f"{serial / stages['train']:.2f}."}
        rows.append(row)
    return {"schema": 1, "command": "find-batch", "environment": dict(ENVIRONMENT),
            "config": {"classes": 10, "schedule": "overlap", "precision": "bf16", "input": "device", "workers": 8},
            "workload": "segment", **GPU, "image": 256, "memory_bytes": 100 * GIB, "free_bytes": 139 * GIB,
            "rows": rows, "notes": [],
            "largest_feasible": {"batch": 128, "reason": "The largest size that ran; 256 ran out of memory."},
            "best_throughput": {"batch": 128, "reason": "The highest median of 3 trials."},
            "recommended": {"batch": 64, "reason": "Its speed is within 5 % of the best."}}


def scored():
    result = found()
    result["accuracy"] = {"score": "miou", "seeds": 3, "first_seed": 0, "data": "fashion-scenes", "epochs": 1,
                          "train_samples": 1000, "eval": 100, "comparison": "All sizes score alike."}
    for row in result["rows"]:
        if row["status"] == "ok":
            row |= {"scores": [0.25, None, 0.75], "score_mean": 0.5, "score_stddev": 0.125**0.5,
                    "score_min": 0.25, "score_max": 0.75, "diverged": 1}
    return result


def overlap():
    rows = []
    for fill in (12, 50, 100, 400, 800):
        for a, b in ((1, 4), (1, 1), (4, 1)):
            t_a, t_b = 2.0 * a / max(a, b), 2.0 * b / max(a, b)
            efficiency = 0.95 if fill < 400 else 0.5 if fill == 400 else -0.15 if a == b else 0.01
            together = t_a + t_b - efficiency * min(t_a, t_b)
            rows.append({"balance": f"{a}:{b}", "grid_fill": fill, "blocks": fill, "t_a_ms": t_a, "t_b_ms": t_b,
                         "serial_ms": t_a + t_b, "overlap_ms": together, "bound": (t_a + t_b) / max(t_a, t_b),
                         "speedup": (t_a + t_b) / together, "efficiency": efficiency,
                         "verdict": "pays" if efficiency > 0.1 else "hurts" if efficiency < -0.1
                         else "does nothing"})
    return {"schema": 1, "command": "bench overlap", "environment": dict(ENVIRONMENT), "config": {}, **GPU,
            "rows": rows, "sentences": ["Overlap pays in 12 of 15 cases.", "Overlap hurts in 1 of 15 cases."]}


def profile():
    rows = []
    for batch in (8, 32):
        split = {"kernel": 0.05 * batch, "copy": 0.01, "memset": 0.0, "runtime": 0.08, "data_loader": 0.0,
                 "host": 0.02, "rest": 0.03}
        rows.append({"batch": batch, "cycles": 2, "steps": 6, "step_ms": sum(split.values()),
                     "plain_step_ms": 0.9 * sum(split.values()), "split_ms": split,
                     "hidden_ms": {"kernel": 0.0, "copy": 0.2, "runtime": 0.3},
                     "kernel_busy_pct": 100 * split["kernel"] / sum(split.values()),
                     "overlap_pct": 12.5, "sm_fill_pct": 71.25, "nvml_util_pct": None, "nvml_util_reason": "short",
                     "stage_ms": {"copy": 0.01, "encode": 0.012 * batch, "train": 0.04 * batch},
                     "top_kernels": [{"name": "sgd_kernel<float, 4>", "count_per_step": 9.0,
                                      "ms_per_step": 0.0625, "mean_us": 7.0}],
                     "memory": {"device_bytes": batch * 50 * MIB, "pinned_bytes": 3 * MIB, "parts": [
                         {"purpose": "weights", "bytes": 170 * MIB, "pinned": False},
                         {"purpose": "activations", "bytes": batch * 20 * MIB, "pinned": False}]},
                     "findings": [{"rule": "launch_bound", "text": "Launches take longer than kernels."}]})
    return {"schema": 1, "command": "profile", "environment": dict(ENVIRONMENT), "config": {}, **GPU,
            "workload": "segment", "image": 256, "rows": rows}


# ------------------------------------------------------------------------------ reading a page
class Page(html.parser.HTMLParser):
    """Tables by caption, marks of charts by the caption of their figure, text. Refuses what is not nested."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tables, self.charts, self.ids, self.links = [], {}, {}, [], []
        self.text, self.starts, self.table, self.figure = "", [], None, None
        self.section = ""
        self.feed(text)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        assert len(values) == len(attributes), f"<{tag}> has an attribute twice"
        self.starts.append((tag, values))
        if "id" in values:
            self.ids.append(values["id"])
            self.section = values["id"]
        if tag == "a":
            self.links.append(values["href"])
        if tag not in VOID:
            self.open.append(tag)
        if tag == "caption":
            self.caption = ""
        elif tag == "figcaption":
            self.figure = ""
        elif tag == "tr":
            self.table = self.table or []
            self.table.append([])
        elif tag in ("td", "th"):
            self.table[-1].append({"text": "", "values": []})
        elif tag == "data":
            self.value = float(values["value"])
            if self.table:
                self.table[-1][-1]["values"].append(self.value)
        if "data-x" in values:
            self.charts.setdefault((self.section, self.figure), []).append({"tag": tag, **values})

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"
        if tag == "table":
            self.tables.setdefault((self.section, self.caption), []).append(self.table)
            self.table = None

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.text += data
        if "caption" in self.open:
            self.caption += data
        elif "figcaption" in self.open:
            self.figure += data
        elif {"td", "th"} & set(self.open):
            self.table[-1][-1]["text"] += data
        if "data" in self.open:
            # What is shown is the value, rounded to what is shown.
            digits = len(data.partition(".")[2])
            assert f"{self.value:.{digits}f}" == data, (data, self.value)

    def one_table(self, section, caption):
        """Of a caption that begins so: [[(text, values) of each cell] of each row], the header first."""
        found = [table for (at, name), tables in self.tables.items() for table in tables
                 if at == section and name.startswith(caption)]
        assert len(found) == 1, (section, caption, list(self.tables))
        return found[0]

    def columns(self, section, caption):
        """{name of a column: [values of each cell]}"""
        table = self.one_table(section, caption)
        names = [cell["text"] for cell in table[0]]
        assert all(len(row) == len(names) for row in table), table
        return {name: [row[c]["values"] or row[c]["text"] for row in table[1:]]
                for c, name in enumerate(names)}


class WithResults(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, **results):
        """NAME.json of each."""
        for name, result in results.items():
            text = result if isinstance(result, str) else json.dumps(result)
            (self.folder / f"{name}.json").write_text(text)

    def run_program(self, *arguments, **options):
        return subprocess.run([PROGRAM, *map(str, arguments)], cwd=self.folder, text=True, check=False,
                              capture_output=True, timeout=300, **options)

    def succeed(self, *arguments):
        result = self.run_program(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")
        return result.stdout

    def files(self):
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}

    def refuse(self, code, words, *arguments):
        """One message with these words, this exit code, nothing on stdout, nothing written."""
        before = self.files()
        result = self.run_program(*arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        lines = [line for line in result.stderr.splitlines() if not line.startswith("  hint: ")]
        self.assertEqual(len(lines), 1, result.stderr)
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, lines[0])
        self.assertEqual(result.stdout, "")
        self.assertEqual(self.files(), before)

    def page(self, *names):
        self.succeed("report", *(f"{name}.json" for name in names), "--out", "page.html")
        return Page((self.folder / "page.html").read_text())


class Report(WithResults):
    def of_all(self):
        self.write(b=bench(), f=found(), o=overlap(), p=profile())
        return self.page("b", "f", "o", "p")

    def test_it_stands_alone(self):
        page = self.of_all()
        tags = {tag for tag, _ in page.starts}
        self.assertFalse(tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}, tags)
        for tag, values in page.starts:
            self.assertFalse({"src", "srcset", "style", "action"} & values.keys(), (tag, values))
            self.assertFalse([name for name in values if name.startswith("on")], (tag, values))
        text = (self.folder / "page.html").read_text()
        for forbidden in ("url(", "@import", "http"):
            self.assertNotIn(forbidden, text.replace("http-equiv", ""))
        self.assertIn(("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}), page.starts)
        self.assertIn("prefers-color-scheme: dark", text)
        self.assertEqual(len(set(page.ids)), len(page.ids))
        self.assertEqual(page.links, [f"#result{i}" for i in (1, 2, 3, 4)])
        self.assertLessEqual({link[1:] for link in page.links}, set(page.ids))
        # Every colour that a mark uses is one that the page defines.
        used = {name for _, values in page.starts for name in values.get("class", "").split()
                if re.fullmatch(r"s\d+", name)}
        for name in used:
            self.assertEqual(text.count(f"--{name}:"), 2, name)

    def test_the_same_results_give_the_same_bytes(self):
        self.of_all()
        first = (self.folder / "page.html").read_bytes()
        self.of_all()
        self.assertEqual((self.folder / "page.html").read_bytes(), first)

    def test_environment_and_options(self):
        page = self.of_all()
        values = {row[0]["text"]: row[1]["text"] for row in page.one_table("result1", "Environment")[1:]}
        self.assertEqual(values, {key: str(value) for key, value in ENVIRONMENT.items()})
        options = {row[0]["text"]: row[1]["text"] for row in page.one_table("result1", "Options")[1:]}
        self.assertEqual((options["batch"], options["momentum"]), ("8, 32, 128", "0.0"))
        self.assertIn("NVIDIA H200 (cuda:0), driver 580.159.04", page.text)
        self.assertIn("commit 4c19cc7", page.text)

    def check_bench(self, page, section, result):
        """Numbers of a result with one precision."""
        rows = {(row["batch"], row["schedule"]): row for row in result["rows"]}
        batches = sorted({batch for batch, _ in rows})
        schedules = list(dict.fromkeys(schedule for _, schedule in rows))

        def spread(row):
            return [row["steps_per_s"][name] for name in ("median", "min", "max")]

        speeds = page.columns(section, "Steps a second by batch size")
        self.assertEqual(speeds["batch"], [[batch] for batch in batches])
        for schedule in schedules:
            self.assertEqual(speeds[schedule], [spread(rows[batch, schedule]) for batch in batches])
        for i, batch in enumerate(batches):
            both = [rows[batch, name]["steps_per_s"]["median"] for name in ("serial", "overlap")]
            self.assertAlmostEqual(speeds["overlap / serial"][i][0], both[1] / both[0])
            self.assertEqual(speeds["bound"][i], [rows[batch, "overlap"]["bound"]])
        every = page.columns(section, "Every row")
        self.assertEqual(every["steps/s"], [spread(row) for row in result["rows"]])
        self.assertEqual(every["images/s"], [[row["images_per_s"]] for row in result["rows"]])
        self.assertEqual(every["MiB"], [[row["memory_bytes"] / MIB] for row in result["rows"]])
        self.assertEqual(every["verified"], ["yes"] * len(result["rows"]))

        throughput = page.columns(section, "Throughput")
        memory = page.columns(section, "Memory")
        for schedule in schedules:
            here = [rows[batch, schedule] for batch in batches]
            self.assertEqual(throughput[schedule], [[row["images_per_s"]] for row in here])
            self.assertEqual(memory[schedule], [[row["memory_bytes"] / MIB] for row in here])
            self.check_line(page, section, "Throughput", schedule,
                            [(row["batch"], row["images_per_s"]) for row in here])
            self.check_line(page, section, "Memory", schedule,
                            [(row["batch"], row["memory_bytes"]) for row in here])
        shares = page.columns(section, "Each stage alone")
        stages = [rows[batch, "overlap"]["stage_ms"] for batch in batches]
        for name in stages[0]:
            self.assertEqual(shares[name], [[times[name]] for times in stages])
        self.check_shares(page, section, "Each stage alone", dict(zip(batches, stages, strict=True)))

    def check_line(self, page, section, figure, series, points):
        """The marks have these values, and lie where the values belong: height is in proportion from 0."""
        marks = [mark for mark in page.charts[section, figure] if mark["data-series"] == series]
        self.assertEqual([(float(mark["data-x"]), float(mark["data-y"])) for mark in marks], points)
        everything = page.charts[section, figure]
        base = 188  # where y is 0
        highest = max(everything, key=lambda mark: float(mark["data-y"]))
        scale = (base - float(highest["data-at"])) / float(highest["data-y"])
        for mark in marks:
            height = base - float(mark["data-at"])
            self.assertGreater(height, 0)
            self.assertAlmostEqual(height, scale * float(mark["data-y"]), delta=0.02)
            # The path begins within a mark's size of the place that was said.
            y = float(mark["d"].split()[1].split("a")[0].split("h")[0].split("l")[0])
            self.assertLess(abs(y - float(mark["data-at"])), 5)

    def check_shares(self, page, section, figure, bars, unit=1):
        """A bar's parts lie end to end, as wide as their shares."""
        marks = page.charts[section, figure]
        for batch, parts in bars.items():
            here = [mark for mark in marks if mark["data-x"] == str(batch)]
            self.assertEqual([mark["data-series"] for mark in here], list(parts))
            whole = sum(float(mark["width"]) for mark in here)
            x = float(here[0]["x"])
            for mark, value in zip(here, parts.values(), strict=True):
                self.assertAlmostEqual(float(mark["data-y"]), value / unit)
                self.assertAlmostEqual(float(mark["width"]), whole * value / sum(parts.values()), delta=0.05)
                self.assertAlmostEqual(float(mark["x"]), x, delta=0.05)
                x += float(mark["width"])

    def test_bench(self):
        result = bench()
        one = {**result, "rows": [row for row in result["rows"] if row["precision"] == "bf16"]}
        self.write(one=one)
        page = self.page("one")
        self.check_bench(page, "result1", one)
        every = page.columns("result1", "Every row")
        self.assertEqual((every["busy %"][0], every["SM MHz"][0]), ([98.7], [1980]))
        speeds = page.columns("result1", "Steps a second")
        self.assertEqual(speeds["overlapping"], ["pays", "pays", "does nothing"])
        advice = page.text[:page.text.index("one.json")]
        self.assertIn("Take batch 128 with --schedule graph: 27673.6 images/s", advice)
        self.assertIn("Overlap pays at batch 8 (1.03 times as fast as serial, at most 1.32), 32 (1.03", advice)
        self.assertIn("Overlap does nothing at batch 128 (1.00", advice)

    def test_a_group_for_each_precision(self):
        self.write(b=bench())
        page = self.page("b")
        self.assertEqual(len(page.tables["result1", "Every row"]), 2)
        self.assertIn("segment, image 256, 10 classes, tf32, input device", page.text)

    def test_a_smaller_batch_that_is_as_fast_is_taken(self):
        stages = {"encode": 1.0, "train": 2.0}
        self.write(b=bench([bench_row(batch, "serial", speed / batch, stages)
                            for batch, speed in ((8, 900), (16, 951), (32, 1000), (64, 990))]))
        self.assertIn("Take batch 16 with --schedule serial: 951.0 images/s, within 5 % of the fastest that was "
                      "measured, 1000.0 at batch 32.", self.page("b").text)

    def test_what_overlap_does(self):
        stages, unequal = {"encode": 1.0, "train": 2.0}, {"encode": 0.01, "train": 2.0}
        rows = [bench_row(batch, "serial", 100, times) for batch, times in
                ((1, stages), (2, stages), (4, stages), (8, unequal))]
        rows += [bench_row(1, "overlap", 90, stages), bench_row(2, "overlap", 120, stages),
                 bench_row(4, "overlap", 104, stages, spread=0.3),
                 bench_row(8, "overlap", 100.5, unequal)]
        self.write(b=bench(rows))
        text = self.page("b").text
        for sentence in ("Overlap loses at batch 1 (0.90", "Overlap pays at batch 2 (1.20",
                         "unclear at batch 4 (1.04", "at batch 8 (1.00 times as fast as serial, at most 1.00: "
                         "the stages are too unequal to gain)"):
            self.assertIn(sentence, text)

    def test_rows_that_are_not_verified_count_nowhere(self):
        rows = [bench_row(8, "serial", 100, {"encode": 1.0, "train": 2.0}),
                bench_row(8, "overlap", 500, {"encode": 1.0, "train": 2.0}, verified=False)]
        self.write(b=bench(rows))
        page = self.page("b")
        self.assertIn("1 of 2 rows are not verified", page.text)
        self.assertIn("Take batch 8 with --schedule serial", page.text)
        self.assertNotIn("Overlap pays", page.text)
        self.assertEqual(page.columns("result1", "Every row")["verified"], ["yes", "NO"])
        self.assertEqual(list(page.columns("result1", "Steps a second")), ["batch", "serial", "overlap"])
        rows += [bench_row(4, schedule, 100, {"encode": 1.0, "train": 2.0}) for schedule in ("serial", "overlap")]
        self.write(b=bench(rows))
        self.assertEqual(self.page("b").columns("result1", "Steps a second")["overlapping"], ["does nothing", "-"])

    def test_results_of_one_workload_stand_side_by_side(self):
        """As the published table of augmentation: on the CPU, on the GPU, overlapped."""
        def of(augment, **speeds):
            return bench([bench_row(batch, schedule, speed / batch, {"augment": 1.0, "train": 2.0}, workload="classify",
                                    augment=augment, gpu_busy_pct=busy)
                          for schedule, (speed, busy) in speeds.items() for batch in (32, 8)])

        cpu, gpu = of("cpu", serial=(20.4, 42.0)), of("gpu", serial=(35.2, 80.0), overlap=(38.8, 99.5))
        gpu["rows"][0]["verified"] = False
        self.write(c=cpu, b=bench(), g=gpu)
        page = self.page("c", "b", "g")
        table = page.columns("beside", "Steps a second: classify, image 256, 10 classes")

        def cells(result, schedule):
            return [[*(row["steps_per_s"][name] for name in ("median", "min", "max")), row["gpu_busy_pct"]]
                    for row in reversed(result["rows"]) if row["schedule"] == schedule]

        self.assertEqual((table["precision"], table["batch"]), (["bf16"] * 2, [[8], [32]]))
        self.assertEqual(table["1. serial, augment cpu, input device"], cells(cpu, "serial"))
        self.assertEqual(table["3. overlap, augment gpu, input device"], cells(gpu, "overlap"))
        self.assertEqual(table["3. serial, augment gpu, input device"],
                         [cells(gpu, "serial")[0], "not verified"])
        self.assertEqual([section for section, _ in page.tables].count("beside"), 1)  # none for segment
        self.assertNotIn("beside", self.page("c", "b").ids)

    def check_found(self, page, section, result):
        ok = [row for row in result["rows"] if row["status"] == "ok"]
        speeds = page.columns(section, "Steps a second by batch size")
        self.assertEqual(speeds["batch"], [[row["global_batch"]] for row in ok])
        for i, row in enumerate(ok):
            self.assertAlmostEqual(speeds["serial"][i][0], 1e3 / row["serial_ms"])
            self.assertAlmostEqual(speeds["overlap"][i][0], 1e3 / row["overlap_ms"])
            self.assertEqual((speeds["speed-up"][i], speeds["bound"][i]),
                             ([row["measured_speedup"]], [row["predicted_speedup"]]))
        every = page.columns(section, "Every size that was looked at")
        self.assertEqual(every["batch"], [[row["global_batch"]] for row in result["rows"]])
        self.assertEqual(every["status"], [row["status"] for row in result["rows"]])
        self.assertEqual([cell for cell in every["samples/s"] if cell != "-"], [
            [row[f"throughput_{name}"] for name in ("median", "min", "max")] for row in ok])
        self.assertEqual(every["MiB planned"], [[row["predicted_bytes"] / MIB] for row in result["rows"]])
        self.assertEqual([cell for cell in every["MiB held"] if cell != "-"],
                         [[row["mem_peak_bytes"] / MIB] for row in ok])
        self.check_line(page, section, "Throughput", result["config"]["schedule"],
                        [(row["global_batch"], row["throughput_median"]) for row in ok])
        self.check_line(page, section, "Memory", "planned",
                        [(row["global_batch"], row["predicted_bytes"]) for row in result["rows"]])
        self.check_line(page, section, "Memory", "held", [(row["global_batch"], row["mem_peak_bytes"]) for row in ok])
        self.check_shares(page, section, "Each stage alone",
                          {row["global_batch"]: row["stage_ms"] for row in ok})
        advice = page.text[:page.text.index("f.json")]
        for key in ("recommended", "best_throughput", "largest_feasible"):
            self.assertIn(f"{result[key]['batch']}. {result[key]['reason']}", advice)

    def test_find_batch(self):
        self.write(f=found())
        page = self.page("f")
        self.check_found(page, "result1", found())
        reasons = page.one_table("result1", "What was found at each size")
        self.assertEqual(reasons[-1][1]["text"], "out of memory: 125829120 bytes for the arena")
        self.assertIn("Memory by batch size, GiB; limit 100.0", [name for _, name in page.tables])

    def test_notes_are_advice(self):
        """What a reader would not expect stands where he looks first: that the size scores worse, above all."""
        result = found()
        result["notes"] = ["Batch 64 is recommended for its speed, but it scores below the best.", "Another note."]
        self.write(f=result)
        page = self.page("f")
        advice = page.text[:page.text.index("f.json")]
        for note in result["notes"]:
            self.assertIn(note, advice)
            self.assertEqual(page.text.count(note), 1)

    def test_scores_of_seeds(self):
        """Of each row: two of three seeds, one alone, none."""
        result = scored()
        result["rows"][1] |= {"scores": [None, 0.5, None], "score_mean": 0.5, "score_stddev": None, "score_min": 0.5,
                              "score_max": 0.5, "diverged": 2}
        result["rows"][2] |= {"scores": [None] * 3, "diverged": 3,
                              **dict.fromkeys(("score_mean", "score_stddev", "score_min", "score_max"))}
        self.write(f=result)
        self.page("f")
        for row, name, value in ((1, "score_stddev", 0.1), (2, "score_mean", 0.5)):
            wrong = copy.deepcopy(result)
            wrong["rows"][row][name] = value
            self.refuse_result(f"rows[{row}].{name} is {value}; allowed: nothing of so few scores", wrong)

    def test_find_batch_without_overlap(self):
        result = found()
        for row in result["rows"]:
            for name in ("stage_ms", "serial_ms", "overlap_ms", "predicted_speedup", "measured_speedup", "overlap"):
                row.pop(name, None)
        self.write(f=result)
        page = self.page("f")
        captions = [caption for _, caption in page.tables]
        self.assertFalse([name for name in captions if name.startswith(("Steps a second", "Each stage"))], captions)

    def test_overlap(self):
        result = overlap()
        disturbed = result["rows"][4]
        disturbed |= {"serial_ms": 9.0, "speedup": 9.0 / disturbed["overlap_ms"], "verdict": "unclear",
                      "efficiency": (9.0 - disturbed["overlap_ms"]) / 2.0}
        self.write(o=result)
        page = self.page("o")
        table = page.columns("result1", "Every case")
        for name, key in (("t_A ms", "t_a_ms"), ("t_B ms", "t_b_ms"), ("serial ms", "serial_ms"),
                          ("overlap ms", "overlap_ms"), ("bound", "bound"), ("speed-up", "speedup"),
                          ("efficiency", "efficiency"), ("fill %", "grid_fill")):
            self.assertEqual(table[name], [[row[key]] for row in result["rows"]])
        self.assertEqual(table["overlapping"], [row["verdict"] for row in result["rows"]])
        speeds = page.columns("result1", "Speed-up of overlapping")
        rows = {(row["balance"], row["grid_fill"]): row for row in result["rows"]}
        for (balance, fill), row in rows.items():
            self.assertEqual(speeds[f"{fill} %"][speeds["balance"].index(balance)], [row["speedup"]])
        for sentence in overlap()["sentences"]:
            self.assertIn(sentence, page.text)

    def test_profile(self):
        self.write(p=profile())
        page = self.page("p")
        rows = profile()["rows"]
        use = page.columns("result1", "How busy the device was")
        for name, key in (("kernel-busy %", "kernel_busy_pct"), ("two streams or more %", "overlap_pct"),
                          ("SM fill %", "sm_fill_pct"), ("step ms", "step_ms")):
            self.assertEqual(use[name], [[row[key]] for row in rows])
        self.assertEqual(use["NVML %"], ["-", "-"])
        self.assertEqual(use["MiB on the device"], [[400], [1600]])
        for figure, key in (("Where a step's time goes", "split_ms"), ("Each stage under way", "stage_ms"),
                            ("Hidden behind other work", "hidden_ms")):
            self.check_shares(page, "result1", figure, {row["batch"]: row[key] for row in rows})
        # Many parts stand one below the other.
        split = page.columns("result1", "Where a step's time goes")
        self.assertEqual(split[""], [*rows[0]["split_ms"], "sum"])
        for row in rows:
            self.assertEqual(split[f"batch {row['batch']}"][:-1], [[ms] for ms in row["split_ms"].values()])
            self.assertAlmostEqual(split[f"batch {row['batch']}"][-1][0], row["step_ms"])
        self.assertEqual(page.columns("result1", "Each stage under way")["train"],
                         [[row["stage_ms"]["train"]] for row in rows])
        self.check_shares(page, "result1", "Memory by purpose", {
            row["batch"]: {part["purpose"]: part["bytes"] for part in row["memory"]["parts"]} for row in rows}, MIB)
        self.check_line(page, "result1", "Throughput", "with profiling",
                        [(row["batch"], 1e3 / row["step_ms"]) for row in rows])
        self.assertIn("sgd_kernel<float, 4>", page.text)
        self.assertIn("Batch 8: Launches take longer than kernels.", page.text)

    def test_what_the_commands_write(self):
        """On the host, whatever it measures."""
        small = ("--image", 32, "--device", "host", "--quiet")
        self.succeed("bench", "segment", *small, "--batch", "1,2", "--steps", 6, "--windows", 3, "--warmup", 2,
                     "--workers", 2, "--json", "b.json")
        self.succeed("find-batch", "segment", *small, "--max", 4, "--warmup", 1, "--steps", 3, "--repeats", 2,
                     "--flat", 0, "--refine", 0, "--json", "f.json")
        self.succeed("bench", "overlap", "--device", "host", "--longest", 200, "--steps", 4, "--balance", "1:4,1:1",
                     "--quiet", "--json", "o.json")
        results = {name: json.loads((self.folder / f"{name}.json").read_text()) for name in "bfo"}
        self.check_bench(self.page("b"), "result1", results["b"])
        self.check_found(self.page("f"), "result1", results["f"])
        page = self.page("b", "f", "o")
        self.assertEqual(page.columns("result3", "Speed-up of overlapping")["speed-up"],
                         [[row["speedup"]] for row in results["o"]["rows"]])
        for sentence in results["o"]["sentences"]:
            self.assertIn(sentence, page.text)
        for name in "bf":
            self.assertIn("0 faster", self.succeed("compare", f"{name}.json", f"{name}.json"))

    def test_texts_are_escaped(self):
        evil = "<script>alert('x')</script>&amp;\"<b>\u0007\u2028"
        shown = evil.replace("\u0007", "\ufffd")
        result = found()
        result["workload"] = evil
        result["gpu"] = result["environment"]["cpu"] = result["notes"] = evil
        result["notes"] = [evil]
        result["environment"][evil] = [evil]
        result["config"]["augment"] = evil
        result["recommended"]["reason"] = evil
        for row in result["rows"]:
            row["overlap"] = row["reason"] = evil
            row |= {"stage_ms": {evil: 1.0, "b": 2.0}, "predicted_speedup": 1.5}
        profiled, made_up = profile(), overlap()
        profiled["rows"][0]["top_kernels"][0]["name"] = profiled["rows"][0]["findings"][0]["text"] = evil
        profiled["rows"][0]["memory"]["parts"][0]["purpose"] = evil
        made_up["rows"][0]["balance"] = made_up["sentences"][0] = evil
        self.write(**{"f": result, "<i>'\"&": profiled, "o": made_up})
        page = self.page("f", "<i>'\"&", "o")
        self.assertFalse({tag for tag, _ in page.starts} & {"script", "b", "i"})
        self.assertGreater(page.text.count(shown), 15)
        self.assertIn("<i>'\"&.json", page.text)
        for mark in page.charts["result1", "Each stage alone"]:
            self.assertIn(mark["data-series"], (shown, "b"))

    def test_names_that_are_not_text(self):
        (self.folder / "f.json").write_text(json.dumps(found()))
        name = self.folder / "\udcff.json"
        name.write_text(json.dumps(overlap()))
        self.assertIn("\ufffd.json", self.page("f", "\udcff").text)

    def test_a_page_is_written_as_a_whole_or_not_at_all(self):
        self.write(b=bench())
        self.succeed("report", "b.json", "--out", "page.html")
        self.assertEqual(sorted(self.files()), ["b.json", "page.html"])
        (self.folder / "page.html").write_text("old")

        def fill_the_disk():
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # which kills, unless the program says otherwise
            resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))

        before = self.files()
        result = self.run_program("report", "b.json", "--out", "page.html", preexec_fn=fill_the_disk)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("cannot write page.html", result.stderr)
        self.assertEqual(self.files(), before)

    def test_a_page_on_standard_output(self):
        self.write(b=bench())
        self.succeed("report", "b.json", "--out", "page.html")
        self.assertEqual(self.succeed("report", "b.json", "--out", "-"), (self.folder / "page.html").read_text())
        self.assertEqual(sorted(self.files()), ["b.json", "page.html"])

    def test_bad_places(self):
        self.write(b=bench(), f=found())
        self.refuse(3, ["--out nowhere/p.html", "there is no folder nowhere"], "report", "b.json", "--out",
                    "nowhere/p.html")
        self.refuse(3, ["--out .", "folder"], "report", "b.json", "--out", ".")
        self.refuse(3, ["--out /dev/null", "not a plain file"], "report", "b.json", "--out", "/dev/null")
        self.refuse(2, ["--out", "b.json", "one file"], "report", "f.json", "b.json", "--out", "./b.json")
        self.refuse(2, "one file", "report", "b.json", "f.json", "b.json", "--out", "p.html")
        self.refuse(2, "--out is required", "report", "b.json")
        self.refuse(2, "results.json is required", "report", "--out", "p.html")
        self.refuse(2, "unknown option '--ou'", "report", "b.json", "--ou", "p.html", "--out", "p.html")

    def refuse_result(self, words, result):
        self.write(x=result, good=bench())
        for command in (("report", "good.json", "x.json", "--out", "p.html"), ("compare", "x.json", "good.json"),
                        ("compare", "good.json", "x.json")):
            self.refuse(3, ["x.json: ", *([words] if isinstance(words, str) else words)], *command)

    def test_bad_results(self):
        self.refuse(3, "none.json: No such file", "report", "none.json", "--out", "p.html")
        self.refuse(3, ".: ", "report", ".", "--out", "p.html")
        self.refuse_result("is not JSON: parse error at line 1, column 1", "")
        self.refuse_result(["is not JSON", "line 2"], '{"schema": 1,\n]')
        self.refuse_result("is not JSON", json.dumps(bench())[:-9])
        self.refuse_result("is not JSON", '{"schema": 1e999}')
        for opened, closed in (("[", "]"), ('{"a":', "}")):
            self.refuse_result("is nested deeper than the allowed 32 levels",
                               json.dumps(bench())[:-1] + ', "x": ' + 300_000 * opened + "1" + 300_000 * closed + "}")
        self.refuse_result(["is not an object", "with --json"], "[1]")
        self.refuse_result(["schema is missing", "allowed: 1"], "{}")
        self.refuse_result("schema is 2; allowed: 1", {**bench(), "schema": 2})
        self.refuse_result('schema is "1"', {**bench(), "schema": "1"})
        without = bench()
        del without["command"]
        self.refuse_result(["command is missing", "bench, bench overlap, find-batch or profile"], without)
        self.refuse_result(['command is "info"', "find-batch"], {**bench(), "command": "info"})
        for result in (bench(), found(), overlap(), profile()):
            self.refuse_result("rows is []; allowed: at least one row", {**result, "rows": []})
            self.refuse_result("rows is missing; allowed: a list", {
                key: value for key, value in result.items() if key != "rows"})
            self.refuse_result("rows is 7; allowed: a list", {**result, "rows": 7})
            twice = {**result, "rows": result["rows"] + result["rows"][1:2]}
            self.refuse_result(f"rows[1] and rows[{len(result['rows'])}] are one row twice", twice)
            self.refuse_result("environment is missing; allowed: an object", {
                key: value for key, value in result.items() if key != "environment"})

    def test_bad_values(self):
        def changed(result, place, value):
            result, inner = copy.deepcopy(result), None
            inner = result
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
            return result

        for base, place, value, words in (
                (bench(), ("rows", 0, "batch"), 0, "rows[0].batch is 0; allowed: a whole number from 1"),
                (bench(), ("rows", 0, "batch"), 8.5, "rows[0].batch is 8.5"),
                (bench(), ("rows", 0, "batch"), 2**64 - 1, "rows[0].batch is 18446744073709551615"),
                (bench(), ("rows", 1, "steps_per_s", "median"), None, "rows[1].steps_per_s.median is missing"),
                (bench(), ("rows", 1, "steps_per_s", "median"), 0, "rows[1].steps_per_s.median is 0; allowed: a num"),
                (bench(), ("rows", 1, "steps_per_s", "max"), 1.5, "rows[1].steps_per_s.max is 1.5; allowed: no less"),
                (bench(), ("rows", 1, "steps_per_s", "min"), 1e9, "rows[1].steps_per_s.min is 1000000000.0; allow"),
                (bench(), ("rows", 1, "steps_per_s"), 7, "rows[1].steps_per_s is 7; allowed: an object"),
                (bench(), ("rows", 2, "stage_ms", "train"), -1, "rows[2].stage_ms.train is -1; allowed: a number from"),
                (bench(), ("rows", 2, "memory_bytes"), 1e300, "rows[2].memory_bytes is 1e+300; allowed"),
                (bench(), ("rows", 2, "verified"), "yes", 'rows[2].verified is "yes"; allowed: true or false'),
                (bench(), ("rows", 2, "workload"), "classify", "allowed: the workload of the first row"),
                (bench(), ("rows", 2), [], "rows[2] is []; allowed: an object"),
                (found(), ("rows", 0, "steps_run"), 0, "rows[0].steps_run is 0; allowed: a whole number from 1"),
                (found(), ("recommended", "batch"), 256, "recommended.batch is 256; allowed: the batch of a row"),
                (found(), ("recommended",), None, "recommended is missing; allowed: an object"),
                (found(), ("notes",), [3], "notes[0] is 3; allowed: a text"),
                (found(), ("rows", 0, "gpu_busy_pct"), 200, "rows[0].gpu_busy_pct is 200; allowed: a number from 0 to 100"),
                (overlap(), ("rows", 0, "verdict"), "maybe", "allowed: pays, does nothing, hurts, unclear"),
                (bench(), ("rows", 0, "gpu_busy_pct"), 200, "rows[0].gpu_busy_pct is 200; allowed: a number from 0 to 100"),
                (bench(), ("rows", 0, "nvml_util_pct"), 100.5, "rows[0].nvml_util_pct is 100.5; allowed"),
                *((profile(), ("rows", 1, f"{name}_pct"), 200, f"rows[1].{name}_pct is 200; allowed: a number from 0 to 100")
                  for name in ("kernel_busy", "overlap", "sm_fill", "nvml_util")),
                (profile(), ("rows", 0, "split_ms", "copy"), 0.2, "rows[0].split_ms adds up to 0.73; allowed: at most step_ms, 0.54"),
                (profile(), ("rows", 0, "split_ms", "copy"), 7, "rows[0].split_ms.copy is 7; allowed: a number from 0 to step_ms, 0.54"),
                (profile(), ("rows", 0, "hidden_ms", "copy"), 0.6, "rows[0].hidden_ms.copy is 0.6; allowed"),
                (profile(), ("rows", 0, "stage_ms", "train"), 0.6, "rows[0].stage_ms.train is 0.6; allowed"),
                (profile(), ("rows", 0, "memory", "parts"), {}, "rows[0].memory.parts is {}; allowed: a list"),
                (profile(), ("rows", 0, "memory", "parts", 0, "bytes"), -1, "memory.parts[0].bytes is -1; allowed: a number"),
                (profile(), ("rows", 0, "memory", "parts", 0, "bytes"), 401 * MIB,
                 "memory.parts[0].bytes is 420478976; allowed: a number from 0 to device_bytes, 4.1943e+08"),
                (profile(), ("rows", 0, "memory", "parts", 0, "bytes"), 300 * MIB,
                 "rows[0].memory.parts on the device adds up to 4.82345e+08; allowed: at most device_bytes, 4.1943e+08"),
                (profile(), ("rows", 0, "memory", "parts", 0, "pinned"), True,
                 "memory.parts[0].bytes is 178257920; allowed: a number from 0 to pinned_bytes, 3.14573e+06"),
                (profile(), ("rows", 0, "memory", "parts", 0, "pinned"), None, "parts[0].pinned is missing; allowed: true or"),
                (profile(), ("rows", 0, "top_kernels", 0, "ms_per_step"), -1, "top_kernels[0].ms_per_step is -1; allowed: a"),
                (profile(), ("rows", 0, "top_kernels", 0, "count_per_step"), -1, "count_per_step is -1; allowed: a number"),
                (profile(), ("rows", 0, "top_kernels", 0, "count_per_step"), 0, "count_per_step is 0; allowed: a number from"),
                (profile(), ("rows", 0, "top_kernels", 0, "ms_per_step"), 30,
                 "top_kernels[0].ms_per_step is 30; allowed: at most count_per_step times the whole recording, 29.16"),
                (profile(), ("rows", 0, "records"), 53,
                 "rows[0].top_kernels adds up to 54; allowed: at most records, 53"),
                *((bench(), ("rows", 0, "bound"), value,
                   f"rows[0].bound is {value}; allowed: the sum of stage_ms / the longest, 1.3185") for value in (0.99, 1.32)),
                (bench(), ("rows", 0, "stage_ms"), {}, "rows[0].bound is 1.3185"),
                (bench(), ("rows", 0, "images_per_s"), 9443.3,
                 "rows[0].images_per_s is 9443.3; allowed: steps_per_s.median x batch, 9443.2"),
                (bench(), ("rows", 0, "schedule"), "piped", 'rows[0].schedule is "piped"; allowed: serial, overlap, graph'),
                (bench(), ("rows", 0, "precision"), "fp16", 'rows[0].precision is "fp16"; allowed: fp32, tf32, bf16'),
                (bench(), ("rows", 0, "input"), "disk", 'rows[0].input is "disk"; allowed: loader, device'),
                (found(), ("config", "schedule"), "piped", 'config.schedule is "piped"; allowed: serial, overlap, graph'),
                (found(), ("config", "precision"), "fp16", 'config.precision is "fp16"; allowed: fp32, tf32, bf16'),
                (found(), ("rows", 9, "status"), "lost", 'rows[9].status is "lost"; allowed: ok, oom, skipped'),
                (found(), ("best_throughput", "batch"), 12, "best_throughput.batch is 12; allowed: the batch of a row that"),
                (found(), ("largest_feasible", "batch"), 256, "largest_feasible.batch is 256; allowed: the batch of a row"),
                *((found(), ("rows", 0, "predicted_speedup"), value,
                   f"rows[0].predicted_speedup is {value}; allowed: the sum of stage_ms / the longest, 1.2") for value in (0.5, 1.3)),
                (found(), ("rows", 0, "measured_speedup"), 1.05,
                 "rows[0].measured_speedup is 1.05; allowed: serial_ms / overlap_ms, 1.04"),
                (found(), ("rows", 0, "overlap_ms"), None, "rows[0].measured_speedup is 1.04; allowed: nothing without"),
                (found(), ("rows", 0, "step_ms_mean"), 0.6,
                 "rows[0].step_ms_mean is 0.6; allowed: 1000 x global_batch / throughput_median, 0.5"),
                (scored(), ("rows", 0, "scores"), [0.5], "rows[0].scores is [0.5]; allowed: one for each of the 3 seeds"),
                (scored(), ("rows", 0, "scores", 1), 1.5, "rows[0].scores[1] is 1.5; allowed: a number from 0 to 1"),
                (scored(), ("rows", 0, "diverged"), 4, "rows[0].diverged is 4; allowed: the seeds without a score, 1"),
                (scored(), ("rows", 0, "scores"), [None] * 3, "rows[0].diverged is 1; allowed: the seeds without a score, 3"),
                (scored(), ("rows", 0, "scores", 2), 0.5, "rows[0].score_mean is 0.5; allowed: that of scores, 0.375"),
                (scored(), ("rows", 0, "score_mean"), 0.8, "rows[0].score_mean is 0.8; allowed: that of scores, 0.5"),
                (scored(), ("rows", 0, "score_min"), 0.6, "rows[0].score_min is 0.6; allowed: that of scores, 0.25"),
                (scored(), ("rows", 0, "score_max"), None, "rows[0].score_max is missing; allowed: that of scores, 0.75"),
                (scored(), ("rows", 0, "score_stddev"), 0.5, "rows[0].score_stddev is 0.5; allowed: that of scores, 0.353"),
                (profile(), ("rows", 0, "kernel_busy_pct"), 0,
                 "rows[0].kernel_busy_pct is 0; allowed: the kernels' part of step_ms, 74.0741"),
                (profile(), ("rows", 0, "hidden_ms", "kernel"), 0.1, "rows[0].kernel_busy_pct is 74.074"),
                (overlap(), ("rows", 1, "bound"), 0.5, "rows[1].bound is 0.5; allowed: (t_a_ms + t_b_ms) / the longer, 2"),
                (overlap(), ("rows", 1, "bound"), 1.9, "rows[1].bound is 1.9; allowed: (t_a_ms + t_b_ms) / the longer, 2"),
                (overlap(), ("rows", 1, "speedup"), 1.2, "rows[1].speedup is 1.2; allowed: serial_ms / overlap_ms, 1.90476"),
                (overlap(), ("rows", 1, "efficiency"), 0.9,
                 "rows[1].efficiency is 0.9; allowed: (serial_ms - overlap_ms) / the shorter stage, 0.95")):
            with self.subTest(place=place, value=value):
                self.refuse_result(words, changed(base, place, value))


class Compare(WithResults):
    STAGES = {"encode": 1.0, "train": 2.0}

    def of_rates(self, **rates):
        """A result with a row for each: batches 1, 2, ..."""
        return bench([bench_row(batch, "serial", value["median"], self.STAGES) | {"steps_per_s": value}
                      for batch, value in enumerate(rates.values(), 1)])

    def verdicts(self, code, *options):
        result = self.run_program("compare", "a.json", "b.json", "--json", "c.json", *options)
        self.assertEqual(result.returncode, code, result.stderr)
        text = self.run_program("compare", "a.json", "b.json", *options)
        self.assertEqual((text.returncode, text.stdout), (code, result.stdout))
        self.comparison = json.loads((self.folder / "c.json").read_text())
        rows = self.comparison["rows"]
        for row in rows:
            self.assertIn(f"\n{row['verdict']} ", result.stdout)
        return result, [row["verdict"] for row in rows]

    def test_verdicts(self):
        self.write(a=self.of_rates(same=rate(100), faster=rate(100), slower=rate(100), close=rate(100, 0.3),
                                   touching=rate(100, 0.1)),
                   b=self.of_rates(same=rate(101), faster=rate(103), slower=rate(97), close=rate(101),
                                   touching=rate(104)))
        result, verdicts = self.verdicts(1)
        self.assertEqual(verdicts, ["same", "faster", "slower", "ambiguous", "ambiguous"])
        self.assertIn("1 faster, 1 same, 2 ambiguous, 1 slower", result.stdout)
        self.assertIn("tandem: 1 of 5 rows slower in b.json than in a.json", result.stderr)
        self.assertEqual([row["ratio"] for row in self.comparison["rows"]], [1.01, 1.03, 0.97, 1.01, 1.04])
        self.assertEqual(self.comparison["rows"][1]["b"], rate(103))
        # A wider tolerance forgives.
        self.assertEqual(self.verdicts(0, "--tolerance", "0.05")[1][:3], ["same"] * 3)

    def test_only_what_is_slower_fails(self):
        self.write(a=self.of_rates(x=rate(100)), b=self.of_rates(x=rate(120)))
        self.assertEqual(self.verdicts(0)[1], ["faster"])
        self.write(a=self.of_rates(x=rate(120)), b=self.of_rates(x=rate(100)))
        self.assertEqual(self.verdicts(1)[1], ["slower"])

    def test_rows_are_matched_by_what_they_measure(self):
        a, b = bench(), bench()
        b["rows"].reverse()
        self.write(a=a, b=b)
        result, verdicts = self.verdicts(0)
        self.assertEqual(verdicts, ["same"] * len(a["rows"]))
        self.assertNotIn("only in", result.stdout)
        del a["rows"][2]  # whose schedule the first row gets
        for key, value in (("batch", 9), ("schedule", "graph"), ("precision", "fp32"), ("image", 64),
                           ("classes", 3), ("input", "loader"), ("workers", 3), ("augment", "gpu")):
            b = copy.deepcopy(a)
            b["rows"][0][key] = value
            b["rows"][0]["images_per_s"] = b["rows"][0]["steps_per_s"]["median"] * b["rows"][0]["batch"]
            self.write(a=a, b=b)
            result, _ = self.verdicts(0)
            self.assertIn("only in a.json: segment, image 256, 10 classes, batch 8, serial, bf16, input device\n",
                          result.stdout)
            self.assertEqual(len(self.comparison["only_in_b"]), 1, key)

    def test_find_batch(self):
        a, b = found(), found()
        b["rows"][0] |= {f"throughput_{name}": 0.5 * a["rows"][0][f"throughput_{name}"]
                         for name in ("median", "min", "max")}
        b["rows"][0]["step_ms_mean"] *= 2
        b["rows"][1] |= {"status": "oom", "reason": "no room"}
        del b["rows"][2]
        self.write(a=a, b=b)
        result, verdicts = self.verdicts(1)
        self.assertEqual(verdicts, ["slower"] + ["same"] * 6)
        self.assertIn("batch 2, overlap, bf16, input device (in b.json oom: no room)\n", result.stdout)
        self.assertIn("only in a.json: segment, image 256, 10 classes, batch 4, ", result.stdout)

    def test_differences_are_named(self):
        a, b = bench(), bench()
        b["environment"] |= {"commit": "1234567", "date": "2026-11-30T10:00:00Z"}
        b["config"] |= {"momentum": 0.9, "json": "other.json", "slots": 3}
        for row in b["rows"]:
            row["gpu"] = "NVIDIA A10G"
        self.write(a=a, b=b)
        self.verdicts(0)
        self.assertEqual(self.comparison["differences"], [
            "gpu: NVIDIA H200 | NVIDIA A10G", "commit: 4c19cc7 | 1234567", "momentum: 0.0 | 0.9", "slots: - | 3"])

    def test_refuses(self):
        classify, wrong, none = bench(), bench(), found()
        for row in classify["rows"]:
            row["workload"] = "classify"
        wrong["rows"][3]["verified"] = False
        none["image"] = 64
        self.write(b=bench(), c=classify, w=wrong, f=found(), n=none, o=overlap(), p=profile())
        self.refuse(3, ["b.json is of bench segment", "c.json is of bench classify"], "compare", "b.json", "c.json")
        self.refuse(3, ["b.json is of bench segment", "f.json is of find-batch segment"], "compare", "b.json",
                    "f.json")
        self.refuse(3, ["f.json and n.json have no row in common", "image 256", "image 64"], "compare", "f.json",
                    "n.json")
        for order in (("b.json", "w.json"), ("w.json", "b.json")):
            self.refuse(3, ["w.json", "batch 8, serial, tf32", "not verified"], "compare", *order)
        for name, command in (("o.json", "bench overlap"), ("p.json", "profile")):
            self.refuse(3, [f"{name}: a result of {command}", "no spread"], "compare", name, name)
        self.refuse(3, "none.json: No such file", "compare", "b.json", "none.json")
        self.refuse(3, "--json nowhere/c.json", "compare", "b.json", "b.json", "--json", "nowhere/c.json")
        self.refuse(2, "one file", "compare", "b.json", "c.json", "--json", "c.json")
        self.refuse(2, "b.json is required", "compare", "b.json")
        self.refuse(2, "unknown argument 'f.json'", "compare", "b.json", "c.json", "f.json")
        self.refuse(2, ["--tolerance", "'0'", "0.001 to 0.5"], "compare", "b.json", "b.json", "--tolerance", 0)
        self.refuse(2, ["--tolerance", "'nan'"], "compare", "b.json", "b.json", "--tolerance", "nan")

    def test_json_on_standard_output(self):
        self.write(a=bench())
        comparison = json.loads(self.succeed("compare", "a.json", "a.json", "--json", "-"))
        self.assertEqual((comparison["schema"], comparison["command"], comparison["tolerance"]), (1, "compare", 0.02))
        self.assertEqual({row["verdict"] for row in comparison["rows"]}, {"same"})


if __name__ == "__main__":
    PROGRAM = str(Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
