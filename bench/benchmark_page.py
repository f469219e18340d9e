# SPDX-License-Identifier: Apache-2.0
"""Judges and renders the results of compare_gpu.py: what makes a run count, the short table, the page.

A row: {"engine": "tandem" | "pytorch", "workload", "batch", "precision", "input", "init", "variant",
"blocks": [steps/s, ...], "steps_per_s": {"median", "min", "max"}, ...}. The variant is the schedule of
Tandem, or "eager|compile nchw|nhwc serial|piped|graph|forked" of PyTorch.
"""
import statistics

# PyTorch's steps/s, measured on an H200 on 2026-11-29 with PyTorch 2.11 (CUDA 13.0, cuDNN 9.19): image 256,
# input on the device, median of three windows. A run in which PyTorch is slower than REFERENCE_SHARE of
# these says more about that run than about either engine.
REFERENCE_GPU = "H200"
REFERENCE_SHARE = 0.9
REFERENCE_SOURCE = "measured on an H200, 2026-11-29, PyTorch 2.11, CUDA 13.0, cuDNN 9.19"
_REFERENCE_COLUMNS = {
    "segment": (("tf32", "eager nchw serial"), ("tf32", "eager nchw piped"),
                ("bf16", "eager nhwc graph"), ("bf16", "eager nhwc forked"),
                ("tf32", "compile nhwc graph"), ("tf32", "compile nhwc forked"),
                ("bf16", "compile nhwc graph"), ("bf16", "compile nhwc forked")),
    "classify": (("bf16", "eager nhwc graph"), ("bf16", "eager nhwc forked"),
                 ("tf32", "compile nhwc graph"), ("tf32", "compile nhwc forked"),
                 ("bf16", "compile nhwc graph"), ("bf16", "compile nhwc forked")),
}
_REFERENCE_FIGURES = {
    ("segment", 8): (278.6, 260.1, 512.0, 543.2, 490.8, 517.7, 669.2, 716.6),
    ("segment", 32): (129.5, 135.7, 242.2, 250.2, 186.2, 190.5, 329.8, 347.3),
    ("segment", 128): (46.0, 46.6, 79.7, 80.3, 64.8, 65.7, 109.5, 111.7),
    ("classify", 8): (680.1, 695.9, 627.3, 620.7, 830.6, 816.1),
    ("classify", 32): (365.9, 375.0, 253.5, 244.7, 396.3, 385.0),
    ("classify", 128): (131.6, 133.2, 92.3, 90.1, 133.0, 126.9),
}
REFERENCE = {  # (workload, batch, precision, variant) -> steps/s
    (workload, batch, *column): figure
    for (workload, batch), figures in _REFERENCE_FIGURES.items()
    for column, figure in zip(_REFERENCE_COLUMNS[workload], figures, strict=True)}

# Tandem's best schedule is held to this share of PyTorch's best eager row without a graph.
GOAL_BATCHES = (8, 32, 128)
GOAL_PRECISIONS = ("tf32", "bf16")
GOAL_SHARE = 1.0
LEAST_BLOCKS = 5

SAME_IN_ALL_RUNS = ("commit", "gpu", "driver", "torch", "image")


def median(row):
    return row["steps_per_s"]["median"]


def spread(row):
    rate = row["steps_per_s"]
    return f"{rate['min']:.1f} .. {rate['max']:.1f}"


def select(rows, **values):
    return [row for row in rows if all(row.get(name) == value for name, value in values.items())]


def best(rows):
    return max(rows, key=median, default=None)


def without_graph(rows):
    """PyTorch's eager rows that use no CUDA graph."""
    return [row for row in rows if row["engine"] == "pytorch" and
            row["variant"].startswith("eager") and row["variant"].endswith(("serial", "piped"))]


def device_rows(rows, **values):
    return select(rows, input="device", init="he", **values)


# ------------------------------------------------------------------------------ what makes a run count
def judge(run):
    """Returns {"valid", "failures", "gaps", "reference", "goals"}. Failures: something is wrong or slower
    than it has to be. Gaps: something was not measured. A run without either is valid."""
    rows, failures, gaps = run["rows"], list(run["failures"]), []
    gpu = run["environment"]["gpu"] or "no GPU"
    reference = []
    for workload in ("segment", "classify"):
        if workload == "classify" and not select(rows, workload="classify"):
            continue
        for batch in GOAL_BATCHES:
            unmeasured = []
            for precision, variant in _REFERENCE_COLUMNS[workload]:
                expected = REFERENCE[workload, batch, precision, variant]
                label = f"PyTorch {workload} batch {batch} {precision} {variant}"
                found = device_rows(rows, engine="pytorch", workload=workload, batch=batch,
                                    precision=precision, variant=variant)
                if not found:
                    unmeasured.append(f"{precision} {variant}")
                    continue
                share = median(found[0]) / expected
                reference.append({"label": label, "expected": expected, "measured": median(found[0]),
                                  "share": share})
                if REFERENCE_GPU in gpu and not share >= REFERENCE_SHARE:
                    failures.append(f"{label}: {median(found[0]):.1f} steps/s is {share:.2f} of {expected}; "
                                    f"a run counts from {REFERENCE_SHARE}")
            if unmeasured:
                gaps.append(f"not measured: PyTorch {workload} batch {batch}: {', '.join(unmeasured)}")
    if REFERENCE_GPU not in gpu:
        gaps.append(f"the figures PyTorch is held to are of an {REFERENCE_GPU}; this is {gpu}")

    goals = []
    for batch in GOAL_BATCHES:
        for precision in GOAL_PRECISIONS:
            mine = device_rows(rows, workload="segment", batch=batch, precision=precision)
            ours, theirs = best(select(mine, engine="tandem")), best(without_graph(mine))
            if ours is None or theirs is None:
                gaps.append(f"not measured: segment batch {batch} {precision}: one of Tandem and PyTorch's "
                            "eager rows")
                continue
            share = median(ours) / median(theirs)
            goals.append({"batch": batch, "precision": precision, "share": share,
                          "tandem": ours["variant"], "pytorch": theirs["variant"]})
            if not share >= GOAL_SHARE:
                failures.append(f"segment batch {batch} {precision}: Tandem {ours['variant']} is "
                                f"{share:.2f} of PyTorch {theirs['variant']}; the goal is {GOAL_SHARE}")
    for row in rows:
        if row["engine"] == "tandem" and row["verified"] is not True:
            failures.append(f"Tandem batch {row['batch']} {row['precision']} {row['variant']}: not verified")
    fewest = min((len(row["blocks"]) for row in rows), default=0)
    if fewest < LEAST_BLOCKS:
        gaps.append(f"a row has {fewest} blocks; a run counts from {LEAST_BLOCKS}")
    return {"valid": not failures and not gaps, "failures": failures, "gaps": gaps,
            "reference": reference, "goals": goals}


def merge(runs):
    """One run with the rows of several, which must be of the same build on the same machine."""
    merged = {**runs[0], "rows": [], "failures": [], "dates": [], "commands": []}
    for run in runs:
        for name in SAME_IN_ALL_RUNS:
            a, b = runs[0]["environment"][name], run["environment"][name]
            if a != b:
                raise ValueError(f"{name} differs between the runs: {a} and {b}")
        for row in run["rows"]:
            key = {name: row[name] for name in
                   ("engine", "workload", "batch", "precision", "input", "init", "variant")}
            if select(merged["rows"], **key):
                raise ValueError(f"two runs hold the same row: {key}")
            merged["rows"].append(row)
        merged["failures"] += run["failures"]
        merged["dates"].append(run["environment"]["date"])
        merged["commands"].append(run["command"])
    return merged


# ------------------------------------------------------------------------------ tables
def markdown(header, lines):
    out = ["| " + " | ".join(header) + " |", "| " + " | ".join("---" for _ in header) + " |"]
    return "\n".join(out + ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines])


def gain(rows, row):
    """Overlap over the best serial row with the same batch and precision."""
    serial = best(select(rows, engine="tandem", variant="serial", **{
        name: row[name] for name in ("workload", "batch", "precision", "input", "init")}))
    return "-" if serial is None else f"{median(row) / median(serial):.2f}"


def cases(rows):
    return sorted({(row["batch"], row["precision"]) for row in rows},
                  key=lambda case: (case[1] != "fp32", case[1] != "tf32", case[0]))


def speed_table(rows):
    lines = []
    for batch, precision in cases(rows):
        here = select(rows, batch=batch, precision=precision)
        rates = [best(select(here, engine="tandem", variant=name)) for name in ("serial", "overlap")]
        ours, theirs = best([row for row in rates if row]), best(without_graph(here))
        graph = best([row for row in select(here, engine="pytorch") if row["variant"].endswith(
            ("graph", "forked"))])
        lines.append([precision, batch]
                     + [f"{median(row):.1f} ({spread(row)})" if row else "-" for row in rates]
                     + [gain(rows, rates[1]) if rates[1] else "-"]
                     + [f"{median(theirs):.1f} ({theirs['variant'][6:]})" if theirs else "-",
                        f"{median(ours) / median(theirs):.2f}" if ours and theirs else "-",
                        f"{median(graph):.1f} ({graph['variant']})" if graph else "-"])
    return markdown(["precision", "batch", "Tandem serial", "Tandem overlap", "gain",
                     "PyTorch, best eager without a graph", "Tandem / that",
                     "PyTorch, best with a graph"], lines)


def stage_table(rows):
    lines = []
    for row in sorted(select(rows, engine="tandem"), key=lambda r: (
            r["precision"] != "tf32", r["batch"], r["variant"] != "serial")):
        stages = row["stage_ms"]
        a, b = stages["encode"], stages["train"]
        percent = [row.get(name) for name in ("gpu_busy_pct", "nvml_util_pct")]
        lines.append([row["precision"], row["batch"], row["variant"], f"{stages['copy']:.3f}", f"{a:.3f}",
                      f"{b:.3f}", f"{(a + b) / max(a, b):.2f}",
                      gain(rows, row) if row["variant"] != "serial" else "-",
                      f"{row['memory_bytes'] / 2**20:.0f}",
                      *("-" if value is None else f"{value:.0f}" for value in percent),
                      f"`{row['plan_hash'][:12]}`"])
    return markdown(["precision", "batch", "schedule", "copy ms", "t_A encode ms", "t_B train ms",
                     "bound", "gain", "MiB", "GPU busy %", "NVML %", "plan"], lines)


def pytorch_table(rows):
    variants = sorted({row["variant"] for row in select(rows, engine="pytorch")})
    lines = []
    for variant in variants:
        for precision in sorted({row["precision"] for row in rows}, reverse=True):
            found = {row["batch"]: row for row in select(rows, engine="pytorch", variant=variant,
                                                         precision=precision)}
            if found:
                lines.append([variant, precision] + [
                    f"{median(found[batch]):.1f} ({spread(found[batch])})" if batch in found else "-"
                    for batch in sorted({row["batch"] for row in rows})])
    return markdown(["PyTorch", "precision"] + [f"batch {batch}" for batch in sorted(
        {row["batch"] for row in rows})], lines)


def loader_table(rows):
    return markdown(["engine", "variant", "precision", "batch", "steps/s", "min .. max", "images/s"], [
        [row["engine"], row["variant"], row["precision"], row["batch"], f"{median(row):.1f}", spread(row),
         f"{median(row) * row['batch']:.0f}"] for row in rows])


def reference_table(reference):
    return markdown(["row", "held to", "measured", "share"], [
        [line["label"], line["expected"], f"{line['measured']:.1f}", f"{line['share']:.2f}"]
        for line in reference])


def short_table(rows):
    """For a terminal: one line a row."""
    lines = [f"{'engine':8} {'workload':8} {'batch':>5} {'prec':5} {'input':7} {'variant':22}"
             f"{'steps/s':>9}  {'(min .. max)':20} {'images/s':>9}"]
    for row in rows:
        lines.append(f"{row['engine']:8} {row['workload']:8} {row['batch']:5} {row['precision']:5} "
                     f"{row['input']:7} {row['variant']:22}{median(row):9.1f}  {'(' + spread(row) + ')':20} "
                     f"{median(row) * row['batch']:9.0f}")
    return "\n".join(lines)


def summarise(blocks):
    return {"median": statistics.median(blocks), "min": min(blocks), "max": max(blocks)}


# ------------------------------------------------------------------------------ the page
PAGE = """# Benchmarks

One run on one machine; this page is made by `bench/compare_gpu.py --render` from its JSON.

{environment}

**A step** is one optimizer update: the batch's bytes become floats, the frozen encoder runs, the decoder runs
forward, the loss, every gradient, and plain SGD. Input lies on the device, {distinct} distinct batches in turn
for PyTorch and the input slots in turn for Tandem, so that no loader is measured. Start-up, choice of
algorithms, compilation, capture and warm-up lie outside the timed region.

**A figure** is the median over {blocks} blocks, with the smallest and the largest. Blocks of Tandem and of
PyTorch alternate on the same GPU; the other engine's process is idle meanwhile. A block of Tandem is one
`tandem bench` of that batch size, and its losses and weights are compared, bit for bit, with an untimed serial
run. A block of PyTorch is {seconds} s of steps of one configuration that was built once, and is the median of
three windows, as Tandem's is. Both train He-initialised weights on random bytes / 255 at lr 1e-3.

PyTorch runs with both TF32 switches on, fused SGD and, in bf16, autocast; its labels are the 64-bit integers
that its loss wants, Tandem's are bytes. {cudnn} Before the run, PyTorch's ways to issue a step are checked to
give the same losses.

## Segmenter, image {image}, input on the device

Steps a second. Gain: overlap over serial. PyTorch's best eager row is the best of nchw and nhwc, one and two
streams.

{speed}

### Stages

Each stage alone, and the bound they set for overlapping, (t_A + t_B) / max(t_A, t_B). The percentages of the
GPU are read in an extra run of one block.

{stages}

### Every row of PyTorch

{pytorch}
{loader}{classify}
## Does the run count

PyTorch's rows have to reach {share} of the figures {source}:

{reference}

{verdict}
"""

LOADER = """
## Segmenter, with a loader

As the published experiment runs it: 8 loader workers make random pictures and labels, PyTorch's initial
weights, bytes as they are. Tandem's workers are threads, PyTorch's are processes. These rows are bound by the
loader and by launches and move by tens of percent from run to run.

{table}
"""

CLASSIFY = """
## Classification with augmentation, PyTorch alone

{table}
"""


def page(runs):
    run = merge(runs)
    verdict = judge(run)
    environment, rows = run["environment"], run["rows"]
    segment = device_rows(rows, workload="segment")
    loader = select(rows, input="loader")
    classify = device_rows(rows, workload="classify")
    facts = [(name, environment.get(key)) for name, key in (
        ("GPU", "gpu"), ("driver", "driver"), ("clocks", "clocks"), ("CPU", "cpu"), ("cores", "cores"),
        ("system", "os"), ("commit", "commit"), ("CUDA", "cuda"), ("cuDNN", "cudnn"),
        ("PyTorch", "torch_all"))]
    facts += [("date", ", ".join(run["dates"]))]
    facts += [("command", "`" + "`, `".join(run["commands"]) + "`")]
    text = "It counts." if verdict["valid"] else "It does **not** count:\n\n" + "\n".join(
        f"- {reason}" for reason in verdict["failures"] + verdict["gaps"])
    settings = run["settings"]
    return PAGE.format(
        environment=markdown(["", ""], [(name, value) for name, value in facts if value is not None]),
        distinct=settings["distinct_batches"], blocks=settings["blocks"], seconds=settings["seconds"],
        image=environment["image"], share=REFERENCE_SHARE, source=REFERENCE_SOURCE,
        cudnn="cuDNN times its algorithms (`cudnn.benchmark`)." if settings["cudnn_benchmark"] else
        "`cudnn.benchmark` is off, PyTorch's default.",
        speed=speed_table(segment), stages=stage_table(segment), pytorch=pytorch_table(segment),
        loader=LOADER.format(table=loader_table(loader)) if loader else "",
        classify=CLASSIFY.format(table=loader_table(classify)) if classify else "",
        reference=reference_table(verdict["reference"]), verdict=text)
