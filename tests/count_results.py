# SPDX-License-Identifier: Apache-2.0
"""Reads a JUnit file of ctest: prints what failed and what was skipped and why.

The last line is "PASSED FAILED SKIPPED". A test that ctest could not start counts as failed, and so
does a ctest that failed without naming a test.
"""
import argparse
import collections
import os
import re
import xml.etree.ElementTree

LINES_SHOWN = 40


def skip_reason(output):
    """The text given to GTEST_SKIP(), or else the last line of a test that says it by exit code."""
    match = re.search(r"Skipped\s*\n(.*?)\n", output + "\n")
    lines = [match.group(1)] if match else output.strip().splitlines()
    return (lines[-1].strip() if lines else "") or "no reason given"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("junit")
    parser.add_argument("--name", required=True, help="of the build, for messages")
    parser.add_argument("--ctest-status", type=int, required=True)
    arguments = parser.parse_args()

    cases = []
    if os.path.exists(arguments.junit):
        cases = xml.etree.ElementTree.parse(arguments.junit).getroot().findall("testcase")
    passed, failed, reasons = 0, 0, collections.Counter()
    for case in cases:
        output = case.findtext("system-out") or ""
        skipped = case.find("skipped")
        if case.get("status") == "run":
            passed += 1
        elif skipped is not None and skipped.get("message", "").startswith("SKIP_"):
            reasons[skip_reason(output)] += 1
        else:
            failed += 1
            print(f"[tandem] {arguments.name}: FAILED {case.get('name')}")
            print("\n".join("    " + line for line in output.splitlines()[-LINES_SHOWN:]))
    if failed == 0 and (arguments.ctest_status != 0 or not cases):
        failed = 1
        print(f"[tandem] {arguments.name}: FAILED ctest itself, status {arguments.ctest_status}, "
              f"{len(cases)} tests; see test.log in the build directory")
    for reason, number in sorted(reasons.items()):
        print(f"[tandem] {arguments.name}: skipped {number}: {reason}")
    skipped = sum(reasons.values())
    print(f"[tandem] {arguments.name}: {passed} passed, {failed} failed, {skipped} skipped")
    print(passed, failed, skipped)


if __name__ == "__main__":
    main()
