# SPDX-License-Identifier: Apache-2.0
"""The PyTorch peers and bench/compare_gpu.py on the CPU, at a tiny size: what a GPU is not needed to see.

usage: peers_test.py PROGRAM [unittest options]. Exits 77 where there is no PyTorch with torchvision.
"""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
PROGRAM = ""
os.environ["OMP_NUM_THREADS"] = "1"  # of the processes started here: tiny work, perhaps on a busy machine
SCHEDULES = ("graph", "overlap", "serial")
TINY = {"batch": 2, "image": 16, "precision": "fp32", "device": "cpu", "workers": 1}


def run(*command):
    return subprocess.run([sys.executable, *map(str, command)], check=False, capture_output=True, text=True)


def serve(script, *requests):
    """The replies to the requests, without the environment that comes first."""
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    result = subprocess.run([sys.executable, BENCH / "peers" / script, "--serve"], input=lines, check=True,
                            capture_output=True, text=True)
    replies = [json.loads(line) for line in result.stdout.splitlines()]
    assert "environment" in replies[0], replies
    return replies[1:]


def block(**values):
    return {"config": {**TINY, **values}, "seconds": 0.05, "warm_seconds": 0.01, "windows": 3}


class Peers(unittest.TestCase):
    def test_blocks(self):
        for script in ("torch_segment.py", "torch_classify.py"):
            requests = [block(), block(layout="nhwc"), block(precision="bf16"), block(init="torch"),
                        block(input="loader"), block()]
            for reply in serve(script, *requests):
                self.assertGreater(reply["steps_per_s"]["min"], 0, reply)
                self.assertLessEqual(reply["steps_per_s"]["min"], reply["steps_per_s"]["median"])
                # Untrained: near log(10), or a few times that with bytes as they are.
                self.assertTrue(0.5 < reply["loss"] < 100, reply)
                self.assertGreater(reply["start_s"], 0)
                self.assertIsNone(reply["peak_memory_bytes"])  # there is no GPU's to ask for

    def test_every_block_says_what_the_start_took(self):
        first, other, again, _, anew = serve("torch_segment.py", block(), block(layout="nhwc"), block(),
                                             {"release": True}, block())
        self.assertEqual(first["start_s"], again["start_s"])
        self.assertNotEqual(first["start_s"], other["start_s"])
        self.assertNotEqual(first["start_s"], anew["start_s"])

    def test_the_peak_is_what_comes_on_top(self):
        """With readings made up here in the place of the GPU's."""
        code = (f"import sys; sys.path.insert(0, {str(BENCH / 'peers')!r})\n"
                "from unittest import mock\n"
                "import torch, torch_common as common\n"
                "cuda = {name: mock.Mock(return_value=value) for name, value in dict(\n"
                "    memory_allocated=100, memory_reserved=200, reset_peak_memory_stats=None,\n"
                "    max_memory_allocated=150, max_memory_reserved=270, is_available=False).items()}\n"
                "with mock.patch.multiple(torch.cuda, **cuda):\n"
                "    print(common.PeakMemory(common.Config()).bytes(),\n"
                "          cuda['reset_peak_memory_stats'].call_count)\n")
        result = run("-c", code)
        self.assertEqual(result.stdout, "{'allocated': 50, 'reserved': 70} 1\n", result.stderr)

    def test_release_and_wrong_requests(self):
        replies = serve("torch_segment.py", block(), {"release": True}, block(issue="sideways"),
                        block(issue="graph"), block(image=48), {"config": {}}, block())
        self.assertEqual(replies[1], {})
        for reply, text in zip(replies[2:6], ("sideways", "without a GPU", "48", "seconds")):
            self.assertIn(text, reply["error"])
        self.assertIn("steps_per_s", replies[6])

    def test_segmenter_trains(self):
        self.assertEqual(serve("torch_segment.py", {"check": {**TINY, "image": 64}}), [{"wrong": []}])

    def test_the_check_can_fail(self):
        code = (f"import sys; sys.path.insert(0, {str(BENCH / 'peers')!r})\n"
                "import torch_common as common, torch_segment as segment\n"
                "def build(config):\n"
                "    work = segment.build(config)\n"
                "    second = work.second\n"
                "    def forgets(h, y):\n"
                "        loss = second(h, y)\n"
                "        work.restart()\n"
                "        return loss\n"
                "    work.second = forgets\n"
                "    return work\n"
                "print(common.check_issues(build, common.Config(device='cpu', precision='fp32', image=64)))")
        result = run("-c", code)
        self.assertIn("does not fall", result.stdout, result.stderr)

    def test_by_hand(self):
        result = run(BENCH / "peers/torch_segment.py", "--image", 16, "--batch", 2, "--precision", "fp32",
                     "--issue", "serial,piped", "--layout", "nchw", "--device", "cpu", "--seconds", 0.05)
        self.assertEqual(result.returncode, 1, result.stderr)  # piped needs a GPU
        self.assertIn("images/s", result.stdout)
        self.assertIn("allowed without a GPU: serial", result.stdout)

    def test_article(self):
        requests = [block(augment="article"), block(augment="article", input="loader", init="torch"),
                    block(augment="sideways")]
        replies = serve("torch_classify.py", *requests)
        for reply in replies[:2]:
            self.assertGreater(reply["steps_per_s"]["min"], 0, reply)
            self.assertTrue(0.5 < reply["loss"] < 100, reply)
        self.assertIn("sideways", replies[2]["error"])

    def test_both_in_turn(self):
        expected = {
            ("segment", "device"): [("eager nchw serial", None, 0), ("eager nhwc serial", None, 0),
                                    *((schedule, None, 0) for schedule in SCHEDULES)],
            ("classify", "device"): [("article nchw serial", "article", 0),
                                     ("eager nchw serial", "batched", 0), ("eager nhwc serial", "batched", 0),
                                     *((schedule, "gpu", 0) for schedule in SCHEDULES)],
            ("segment", "loader"): [("eager nchw serial", None, 8),
                                    *((schedule, None, 8) for schedule in SCHEDULES)],
            ("classify", "loader"): [("article nchw serial", "article", 8), ("serial", "cpu", 8),
                                     ("serial", "cpu", 16),
                                     *((schedule, "gpu", 8) for schedule in SCHEDULES)]}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "results.json"
            result = run(BENCH / "compare_gpu.py", "--tandem", PROGRAM, "--device", "host", "--image", 32,
                         "--segment", 1, "--classify", 2, "--segment-loader", 1, "--classify-loader", 2,
                         "--precision", "fp32", "--blocks", 2, "--seconds", 0.02, "--json", path)
            self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
            self.assertIn("The run does not count.", result.stdout)
            rows = json.loads(path.read_text())["rows"]
            found = {}
            for row in rows:
                found.setdefault((row["workload"], row["input"]), []).append(
                    (row["variant"], row["augment"], row["workers"]))
                # Of PyTorch's rows on the device only those near the best are measured twice.
                least = 1 if (row["engine"], row["input"]) == ("pytorch", "device") else 2
                self.assertIn(len(row["blocks"]), range(least, 3))
                if row["engine"] == "tandem":
                    self.assertTrue(row["verified"])
                self.assertGreater(row["prepare_s" if row["engine"] == "tandem" else "start_s"], 0)
            self.assertEqual({case: sorted(found[case], key=str) for case in found},
                             {case: sorted(expected[case], key=str) for case in expected})
            page = run(BENCH / "compare_gpu.py", "--render", path)
            self.assertEqual(page.returncode, 0, page.stderr)
            self.assertIn("## Classifier with augmentation, image 32, input on the device", page.stdout)


if __name__ == "__main__":
    for name in ("torch", "torchvision"):
        if importlib.util.find_spec(name) is None:
            print(f"Skipped\n{name} is not installed for {sys.executable}")
            sys.exit(77)
    PROGRAM = sys.argv.pop(1)
    unittest.main()
