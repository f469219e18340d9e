# SPDX-License-Identifier: Apache-2.0
"""The verdict of the quickstart (bench/compare_runs.py) on two logs."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench/compare_runs.py"


class CompareRuns(unittest.TestCase):
    def setUp(self):
        self.losses = {"serial": [2.5, 1.25, 0.5], "overlap": [2.5, 1.25, 0.5]}
        self.summaries = {
            name: {"schedule": name, "steps": 3, "cores": 1.9, "steps_per_s": 20.0,
                   "images_per_s": 640.0, "first_loss": 2.5, "last_loss": 0.5,
                   "pixel_accuracy": 0.9, "miou": 0.4, "garment_miou": 0.41,
                   "background_pixel_accuracy": 0.6, "background_miou": 0.07,
                   "background_garment_miou": 0.0, "weights_sha256": "ab" * 32,
                   "garment_iou": [0.2] * 6 + [0.05] * 3 + [None]}
            for name in self.losses}

    def compare(self, full_run_steps=3):
        with tempfile.TemporaryDirectory() as directory:
            paths = []
            for name, losses in self.losses.items():
                lines = [{"step": step, "loss": loss} for step, loss in enumerate(losses)]
                if self.summaries[name]:
                    lines.append({"summary": self.summaries[name]})
                paths.append(pathlib.Path(directory) / f"{name}.jsonl")
                paths[-1].write_text("".join(json.dumps(line) + "\n" for line in lines))
            return subprocess.run(
                [sys.executable, SCRIPT, *paths, "--full-run-steps", str(full_run_steps)],
                check=False, capture_output=True, text=True)

    def expect_failure(self, text, **options):
        result = self.compare(**options)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(text, result.stderr)

    def test_equal_and_good(self):
        result = self.compare()
        self.assertEqual(result.returncode, 0, result.stderr)
        for text in ("losses of all 3 steps: the same", "weights: the same", "0.410     0.000"):
            self.assertIn(text, result.stdout)

    def test_one_loss_differs_in_its_last_bit(self):
        self.losses["overlap"][1] = 1.2500000000000002
        self.expect_failure("the losses differ")

    def test_a_step_is_missing(self):
        self.losses["overlap"].pop()
        self.expect_failure("the losses differ")

    def test_weights_differ(self):
        self.summaries["overlap"]["weights_sha256"] = "cd" * 32
        self.expect_failure("the weights differ")

    def test_score_too_low(self):
        for miou in (0.2499, float("nan")):
            self.summaries["overlap"]["garment_miou"] = miou
            self.expect_failure("below 0.25")

    def test_too_few_garments(self):
        self.summaries["overlap"]["garment_iou"][0] = 0.1
        self.expect_failure("5 garments have an IoU above 0.1")

    def test_a_short_run_is_not_held_to_the_scores(self):
        self.summaries["overlap"]["garment_miou"] = 0.0
        self.assertEqual(self.compare(full_run_steps=4).returncode, 0)

    def test_runs_without_scores(self):
        for name, summary in self.summaries.items():
            summary |= {"eval": 0, **{key: None for key in summary if key.endswith(("miou", "accuracy", "_iou"))}}
        result = self.compare(full_run_steps=4)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("losses of all 3 steps: the same", result.stdout)
        self.assertIn("no scores", result.stdout)
        self.expect_failure("overlap.jsonl has no scores")  # a full run is held to them
        self.losses["overlap"][1] = 7.0
        self.expect_failure("the losses differ", full_run_steps=4)

    def test_a_run_that_did_not_finish(self):
        self.summaries["overlap"] = None
        self.expect_failure("no summary")


if __name__ == "__main__":
    unittest.main()
