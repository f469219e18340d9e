#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times every kernel of training steps with Nsight Compute, and counts the bytes it moves.

  python3 bench/kernel_times.py --steps 4 -- build-gpu/bin/tandem train segment --data synthetic \\
      --steps 4 --eval 0 --device cuda:0 --batch 8 --precision bf16 --schedule serial --quiet

The command trains --steps steps and launches nothing else; what is printed is one step: for each kernel its
launches, microseconds, megabytes of device memory read and written, and the rate that makes. Kernels run
one after the other under the tool, each with the L2 cache as the one before left it.

Exit codes: 0 good, 1 the tool or the command failed, 2 usage.
"""
import argparse
import collections
import csv
import io
import json
import re
import subprocess
import sys

METRICS = {"us": "gpu__time_duration.sum", "read": "dram__bytes_read.sum", "written": "dram__bytes_write.sum"}
# Units of the tool's raw page, to microseconds and bytes.
UNITS = {"ns": 1e-3, "us": 1.0, "usecond": 1.0, "nsecond": 1e-3, "ms": 1e3, "msecond": 1e3, "s": 1e6,
         "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}


def short_name(name):
    """The function's name with the types it is made for; library kernels keep their first word."""
    # A template argument is printed with its type: "(int)4", "(tandem::Border)0".
    name = re.sub(r"\([\w: ]+\)(?=\d)", "", name)
    ours = re.search(r"tandem::.*?(\w+_kernel)(<[^(]*>)?\(", name)
    if ours:
        return ours[1] + (ours[2] or "").replace("tandem::", "")
    words = re.sub(r"<.*", "", name.replace("void ", "")).split("(")[0]
    return words[:60]


def read_rows(text):
    """Rows of the tool's CSV: {"name", "us", "read", "written"}."""
    start = text.find('"ID"')
    if start < 0:
        raise ValueError("the tool printed no table:\n" + text[-2000:])
    lines = list(csv.reader(io.StringIO(text[start:])))
    header, units = lines[0], lines[1]
    column = {key: header.index(metric) for key, metric in METRICS.items()}
    name = header.index("Kernel Name")
    rows = []
    for line in lines[2:]:
        if len(line) != len(header):
            continue
        row = {"name": short_name(line[name])}
        for key, at in column.items():
            row[key] = float(line[at].replace(",", "")) * UNITS[units[at]]
        rows.append(row)
    return rows


def per_step(rows, steps):
    """Sums of a step, by kernel, the slowest first."""
    sums = collections.defaultdict(lambda: {"launches": 0.0, "us": 0.0, "bytes": 0.0})
    for row in rows:
        total = sums[row["name"]]
        total["launches"] += 1 / steps
        total["us"] += row["us"] / steps
        total["bytes"] += (row["read"] + row["written"]) / steps
    return sorted(({"kernel": name, **total} for name, total in sums.items()), key=lambda row: -row["us"])


def table(kernels):
    lines = [f"{'kernel':60} {'launches':>8} {'us':>9} {'MB':>9} {'GB/s':>7}"]
    total = {key: sum(kernel[key] for kernel in kernels) for key in ("launches", "us", "bytes")}
    for kernel in [*kernels, {"kernel": "a step", **total}]:
        lines.append(f"{kernel['kernel'][:60]:60} {kernel['launches']:8.1f} {kernel['us']:9.1f} "
                     f"{kernel['bytes'] / 1e6:9.1f} {kernel['bytes'] / kernel['us'] / 1e3:7.0f}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, required=True, help="steps that the command trains")
    parser.add_argument("--ncu", default="ncu", help="the tool (default ncu)")
    parser.add_argument("--json", help="also write the table here")
    parser.add_argument("command", nargs="+", help="behind --")
    options = parser.parse_args()
    if options.steps < 1:
        parser.error(f"--steps is {options.steps}; allowed: 1 or more")
    tool = [options.ncu, "--clock-control", "none", "--cache-control", "none", "--metrics",
            ",".join(METRICS.values()), "--csv", "--page", "raw", "--kernel-name-base", "demangled"]
    try:
        result = subprocess.run(tool + options.command, capture_output=True, text=True, check=False)
    except OSError as error:
        sys.exit(f"kernel_times.py: {options.ncu}: {error.strerror}")
    if result.returncode != 0:
        sys.exit(f"kernel_times.py: exit {result.returncode}: {(result.stderr or result.stdout)[-2000:]}")
    try:
        kernels = per_step(read_rows(result.stdout), options.steps)
    except (ValueError, KeyError) as error:
        sys.exit(f"kernel_times.py: {error}")
    print(table(kernels))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"schema": 1, "steps": options.steps, "command": options.command, "kernels": kernels},
                      file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
