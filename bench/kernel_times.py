#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times every kernel of training steps with Nsight Compute, and counts the bytes it moves.

  python3 bench/kernel_times.py --steps 4 -- build-gpu/bin/tandem train segment --data synthetic \\
      --steps 4 --eval 0 --device cuda:0 --batch 8 --image 256 --momentum 0 --precision bf16 \\
      --schedule serial --quiet

The command trains --steps steps and launches nothing else; what is printed is one step: for each kernel its
launches, microseconds, megabytes of device memory read and written, and the rate that makes. Kernels run
one after the other under the tool, each with the L2 cache as the one before left it.

For `train segment` and `train classify` that name their --data a second table puts the model beside it: what
`tandem plan` says of the same options, each operand read once and written once. With --bench the sum of the
kernels' times stands beside the step's of a serial row of `tandem bench` with those options.

  python3 bench/kernel_times.py --from times.json --program build/bin/tandem

prints both again from what --json wrote; the program need not be able to use a GPU.

Exit codes: 0 good, 1 the tool or the command failed, or the model is not the command's, 2 usage.
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


# Operations and the kernels that do them: a name, the kinds, the kernels. Kernels of no row are the libraries',
# and do products, to which casts belong: an update in a product makes the copy of the weights too. Copies are no
# kernels.
GROUPS = (
    ("products, casts", r"(conv1x1|t?conv2x2|conv3x3)_(forward|backward_data|backward_weights|update)|cast",
     r"(cast|weight_update|conv1x1_few_\w+)_kernel"),
    ("bias, relu forward", r"bias_forward|bias_relu_forward|relu_forward", r"(bias|relu)_forward_kernel"),
    ("bias, relu backward", r"bias_backward|relu_bias_backward|relu_backward",
     r"(bias_backward|bias_backward_sum|relu_backward)_kernel"),
    ("input", r"u8_to_float|augment",
     r"(u8_to_float|augment_fused|crop|resize|rotate|blur_rows|blur_columns|normalise)_kernel"),
    ("permute", r"permute", r"permute_\w+_kernel"),
    ("sigmoid", r"sigmoid_forward|sigmoid_backward", r"sigmoid_(forward|backward)_kernel"),
    ("binary_cross_entropy", r"binary_cross_entropy", r"binary_cross_entropy_(result_)?kernel"),
    ("l2_penalty", r"l2_penalty", r"l2_penalty_(result_)?kernel"),
    ("softmax_cross_entropy", r"softmax_cross_entropy", r"softmax_cross_entropy_(result_)?kernel"),
    ("conv3x3_loss", r"conv3x3_loss", r"conv3x3_loss_(result_)?kernel"),
    ("conv3x3_loss_backward", r"conv3x3_loss_backward", r"conv3x3_loss_backward_(sum_)?kernel"),
    ("sgd", r"sgd\w*", r"sgd_\w*kernel"),
    ("argmax", r"argmax", r"argmax_kernel"),
    ("copy", r"copy", r"(?!)"),
)


def group_of_kind(kind):
    for name, kinds, _ in GROUPS:
        if re.fullmatch(kinds, kind):
            return name
    raise ValueError(f"operations of kind {kind} belong to no row of the table")


def group_of_kernel(kernel):
    base = kernel.split("<")[0]
    return next((name for name, _, kernels in GROUPS if re.fullmatch(kernels, base)), GROUPS[0][0])


def beside_model(kernels, plan):
    """Rows of a step, the slowest first. "weights" is the part of "model" that is of tensors which outlive a step."""
    rows = {name: {"group": name, "operations": 0, "launches": 0.0, "us": 0.0, "counted": 0.0, "model": 0,
                   "weights": 0} for name, *_ in GROUPS}
    for stage in plan["stages"]:
        for operation in stage["operations"]:
            row = rows[group_of_kind(operation["kind"])]
            row["operations"] += 1
            row["model"] += operation["bytes_read"] + operation["bytes_written"]
            row["weights"] += sum(operand["bytes"] * (operand["read"] + operand["written"])
                                  for operand in operation["operands"] if operand["lasting"])
    for kernel in kernels:
        row = rows[group_of_kernel(kernel["kernel"])]
        row["launches"] += kernel["launches"]
        row["us"] += kernel["us"]
        row["counted"] += kernel["bytes"]
    copies = rows.pop("copy")
    for row in rows.values():
        if row["launches"] < row["operations"] or (row["launches"] > 0 and row["operations"] == 0):
            raise ValueError(f"{row['group']}: {row['operations']} operations in the plan, {row['launches']:g} "
                             "kernels a step: the plan is not of this command, or --steps is not its steps")
    rows = sorted((row for row in rows.values() if row["operations"]), key=lambda row: -row["us"])
    return rows + [copies] if copies["operations"] else rows


def model_table(rows):
    lines = [f"{'operations':31} {'kernels':>8} {'us':>9} {'counted MB':>10} {'model MB':>9} {'ratio':>6} "
             f"{'weights MB':>10}"]
    keys = ("operations", "launches", "us", "counted", "model", "weights")
    # Copies are in neither sum: the counters are of kernels.
    total = {key: sum(row[key] for row in rows if row["group"] != "copy") for key in keys}
    for row in [*rows, {"group": "a step, without copies", **total}]:
        is_copy = row["group"] == "copy"
        counted, ratio = ("-", "-") if is_copy else (f"{row['counted'] / 1e6:.1f}",
                                                     f"{row['counted'] / row['model']:.2f}")
        lines.append(f"{row['operations']:4} {row['group']:26} {row['launches']:8.1f} {row['us']:9.1f} "
                     f"{counted:>10} {row['model'] / 1e6:9.1f} {ratio:>6} {row['weights'] / 1e6:10.1f}")
    return "\n".join(lines) + """
model: each operand of an operation, read once and written once; weights: what of it are weights, their copies,
gradients and velocities.
counted: what went between device memory and the L2 cache, both ways. It is less than the model where a tensor was
still in the L2 (50 to 60 MB on an H100 or H200) when it was read, or was written again before it left. A write
counts in the kernel that drives it out, which may be a later one. It is more where a kernel reads an operand twice
or keeps sums beside it (products with a split sum, gradients of biases, losses)."""


def plan_command(program, command, known):
    """`tandem plan` with those options of a training command that it knows; None for other commands."""
    if command[1:2] != ["train"] or command[2:3] not in (["segment"], ["classify"]):
        return None
    words, kept, at = command[3:], [], 0
    while at < len(words):
        name, equals, _ = words[at].partition("=")
        more = [] if equals or at + 1 == len(words) or words[at + 1].startswith("--") else [words[at + 1]]
        if name in known:
            kept += [words[at], *more]
        at += 1 + len(more)
    if not any(word.split("=")[0] == "--data" for word in kept):
        return None
    return [program, "plan", command[2], *kept]


def plan_of(program, command):
    """What `tandem plan` says of a training command; None where it has nothing to say."""
    if plan_command(program, command, {"--data"}) is None:
        return None
    text = subprocess.run([program, "plan", command[2], "--help"], capture_output=True, text=True,
                          check=True).stdout
    known = set(re.findall(r"--[a-z][a-z-]*", text)) - {"--json", "--help", "--config"}
    result = subprocess.run([*plan_command(program, command, known), "--json", "-"], capture_output=True,
                            text=True, check=False)
    if result.returncode != 0:
        raise ValueError(f"tandem plan: exit {result.returncode}: {result.stderr[-2000:]}")
    return json.loads(result.stdout)


def step_us(bench, workload, config):
    """Microseconds a step of the serial row of `tandem bench` that is of the same plan."""
    same = ["batch", "image", "precision", "fuse"] + (["augment"] if workload == "classify" else [])
    for row in bench["rows"]:
        if (row["workload"] == workload and row["schedule"] == "serial" and
                all(row[key] == config[key] for key in same) and
                (bench["config"]["momentum"] == 0) == (config["momentum"] == 0)):
            return 1e6 / row["steps_per_s"]["median"]
    wanted = ", ".join(f"{key} {config[key]}" for key in [*same, "momentum"])
    raise ValueError(f"the results of --bench have no serial row of {workload} with {wanted}")


def gaps(kernels, step):
    """A sentence on what of a step no kernel takes."""
    launches, busy = (sum(kernel[key] for kernel in kernels) for key in ("launches", "us"))
    left = step - busy
    text = f"{launches:g} kernels a step take {busy:.1f} us; a serial step takes {step:.1f} us"
    if left < 0:
        return f"{text}: kernels take longer under the tool than in a step, and gaps cannot be told"
    return f"{text}: {left:.1f} us, {100 * left / step:.1f} %, are gaps, {left / launches:.2f} us a kernel"


def run_tool(options):
    """The kernels of a step of the command."""
    tool = [options.ncu, "--clock-control", "none", "--cache-control", "none", "--metrics",
            ",".join(METRICS.values()), "--csv", "--page", "raw", "--kernel-name-base", "demangled"]
    try:
        result = subprocess.run(tool + options.command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ValueError(f"{options.ncu}: {error.strerror}") from error
    if result.returncode != 0:
        raise ValueError(f"exit {result.returncode}: {(result.stderr or result.stdout)[-2000:]}")
    return per_step(read_rows(result.stdout), options.steps)


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, help="steps that the command trains")
    parser.add_argument("--ncu", default="ncu", help="the tool (default ncu)")
    parser.add_argument("--from", dest="stored", metavar="FILE", help="what --json wrote, in place of a run")
    parser.add_argument("--program", help="tandem, for the plan (default: the command's)")
    parser.add_argument("--bench", metavar="FILE", help="JSON of `tandem bench`, for the time of a step")
    parser.add_argument("--json", help="also write the tables here")
    parser.add_argument("command", nargs="*", help="behind --")
    options = parser.parse_args()
    if options.stored:
        if options.command or options.steps is not None:
            parser.error("--from takes the place of --steps and the command")
    elif not options.command or options.steps is None or options.steps < 1:
        parser.error(f"--steps is {options.steps}; allowed: 1 or more, with a command behind --")
    try:
        if options.stored:
            stored = read_json(options.stored)
            options.command, options.steps, kernels = (stored[key] for key in ("command", "steps", "kernels"))
        else:
            kernels = run_tool(options)
        plan = plan_of(options.program or options.command[0], options.command)
        rows = beside_model(kernels, plan) if plan else None
        step = None
        if options.bench:
            if not plan:
                raise ValueError("--bench needs `train segment` or `train classify` with --data")
            step = step_us(read_json(options.bench), options.command[2], plan["config"])
    except (ValueError, KeyError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"kernel_times.py: {error}")
    print(table(kernels))
    if rows:
        print("\n" + model_table(rows))
    if step:
        print("\n" + gaps(kernels, step))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"schema": 1, "steps": options.steps, "command": options.command, "kernels": kernels,
                       "plan_hash": plan and plan["plan_hash"], "model": rows, "step_us": step}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
