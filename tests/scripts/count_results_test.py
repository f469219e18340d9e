# SPDX-License-Identifier: Apache-2.0
"""The counts of tests/count_results.py, from files as ctest writes them."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "count_results.py"
PASSED = '<testcase name="a" status="run"><system-out>fine</system-out></testcase>'
FAILED = ('<testcase name="b" status="fail"><failure message="Failed"/>'
          '<system-out>the reason is here</system-out></testcase>')
SKIPPED = ('<testcase name="c" status="notrun">'
           '<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'
           "<system-out>x.cpp:1: Skipped\nno CUDA device\n\n[  SKIPPED ] c (0 ms)</system-out></testcase>")
SKIPPED_BY_CODE = ('<testcase name="s" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>'
                   "<system-out>looking\nno torch here\n</system-out></testcase>")
NOT_BUILT = ('<testcase name="d_NOT_BUILT" status="notrun">'
             '<skipped message="Unable to find executable"/></testcase>')
DISABLED = '<testcase name="e" status="disabled"><skipped message="Disabled"/></testcase>'


class CountResults(unittest.TestCase):
    def count(self, *cases, status=0, write=True):
        with tempfile.TemporaryDirectory() as directory:
            junit = pathlib.Path(directory) / "junit.xml"
            if write:
                junit.write_text(f"<testsuite>{''.join(cases)}</testsuite>", encoding="utf-8")
            self.output = subprocess.run(
                [sys.executable, SCRIPT, junit, "--name", "ci", "--ctest-status", str(status)],
                check=True, capture_output=True, text=True).stdout
        return self.output.splitlines()[-1]

    def test_each_kind(self):
        self.assertEqual(self.count(PASSED, PASSED, FAILED, SKIPPED, status=8), "2 1 1")
        self.assertIn("FAILED b\n    the reason is here", self.output)
        self.assertIn("skipped 1: no CUDA device", self.output)

    def test_a_skip_by_exit_code(self):
        self.assertEqual(self.count(PASSED, SKIPPED_BY_CODE), "1 0 1")
        self.assertIn("skipped 1: no torch here", self.output)

    def test_a_test_that_could_not_start_failed(self):
        self.assertEqual(self.count(PASSED, NOT_BUILT, status=8), "1 1 0")

    def test_a_disabled_test_failed(self):
        self.assertEqual(self.count(PASSED, DISABLED), "1 1 0")

    def test_ctest_itself_failed(self):
        self.assertEqual(self.count(PASSED, status=8), "1 1 0")

    def test_no_test_at_all(self):
        self.assertEqual(self.count(), "0 1 0")

    def test_no_file(self):
        self.assertEqual(self.count(write=False, status=1), "0 1 0")


if __name__ == "__main__":
    unittest.main()
