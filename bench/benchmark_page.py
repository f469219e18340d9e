# SPDX-License-Identifier: Apache-2.0
"""Judges and renders the results of compare_gpu.py: what makes a run count, the short table, the page.

A row: its KEY, "blocks": [steps/s, ...], "steps_per_s": {"median", "min", "max"}, and more for Tandem. The
engine is tandem or pytorch. The variant is the schedule of Tandem, or "HOW nchw|nhwc
serial|piped|graph|forked" of PyTorch, where HOW is eager, compile or article (eager, with the published
transform). "augment" is null for segment; cpu or gpu for Tandem, batched or article for PyTorch. "workers" is
0 with input on the device.
"""
import math
import re
import statistics

KEY = ("engine", "workload", "batch", "precision", "input", "init", "variant", "augment", "workers")

# PyTorch's steps/s, measured on an H200 on 2026-11-29 with PyTorch 2.11 (CUDA 13.0, cuDNN 9.19): image 256,
# input on the device, median of three windows. A run in which PyTorch is slower than REFERENCE_SHARE of
# these says more about that run than about either engine. Rows that wait for one core of the host move by
# tens of percent between blocks, and what shares the host only ever slows them: so a row is judged by its
# fastest block, here and where Tandem is compared with it, and has up to REFERENCE_BLOCKS to show it.
REFERENCE_GPU = "H200"
REFERENCE_SHARE = 0.9
REFERENCE_BLOCKS = 20
REFERENCE_SOURCE = "measured on an H200, 2026-11-29, PyTorch 2.11, CUDA 13.0, cuDNN 9.19"
_REFERENCE_COLUMNS = {
    "segment": (("tf32", "eager nchw serial"), ("tf32", "eager nchw piped"),
                ("bf16", "eager nhwc graph"), ("bf16", "eager nhwc forked"),
                ("tf32", "compile nhwc graph"), ("tf32", "compile nhwc forked"),
                ("bf16", "compile nhwc graph"), ("bf16", "compile nhwc forked")),
    "classify": (("bf16", "eager nhwc graph"), ("bf16", "eager nhwc forked"),
                 ("tf32", "compile nhwc graph"), ("tf32", "compile nhwc forked"),
                 ("bf16", "compile nhwc graph"), ("bf16", "compile nhwc forked"),
                 ("tf32", "article nchw serial"), ("tf32", "article nchw piped")),
}
_REFERENCE_FIGURES = {
    ("segment", 8): (278.6, 260.1, 512.0, 543.2, 490.8, 517.7, 669.2, 716.6),
    ("segment", 32): (129.5, 135.7, 242.2, 250.2, 186.2, 190.5, 329.8, 347.3),
    ("segment", 128): (46.0, 46.6, 79.7, 80.3, 64.8, 65.7, 109.5, 111.7),
    ("classify", 8): (680.1, 695.9, 627.3, 620.7, 830.6, 816.1, 153.0, 135.0),
    ("classify", 32): (365.9, 375.0, 253.5, 244.7, 396.3, 385.0, 62.0, 76.0),
    ("classify", 128): (131.6, 133.2, 92.3, 90.1, 133.0, 126.9, 28.0, 27.0),
}
REFERENCE = {  # (workload, batch, precision, variant) -> steps/s
    (workload, batch, *column): figure
    for (workload, batch), figures in _REFERENCE_FIGURES.items()
    for column, figure in zip(_REFERENCE_COLUMNS[workload], figures, strict=True)}

# Tandem's best row is held to GOAL_SHARE of PyTorch's best eager row without a graph, and to ARTICLE_SHARE of
# the best row with the published transform.
GOAL_BATCHES = (8, 32, 128)
GOAL_PRECISIONS = ("tf32", "bf16")
GOAL_SHARE = 1.0
ARTICLE_SHARE = 3.0
ARTICLE_PRECISION = "tf32"
ARTICLE_LOADER_BATCH = 32  # of the published experiment
LEAST_BLOCKS = 5  # of a row that a goal is about
LEAST_BLOCKS_BESIDE = 3  # of the others
LEAST_BLOCKS_BEHIND = 1  # of PyTorch's rows on the device that are not the best of their kind

WORKLOADS = ("segment", "classify")
FIRST_STAGE = {"segment": "encode", "classify": "augment"}  # what runs one batch ahead
# What a row took once, until it could be timed; its first block says it.
START_UP = ("prepare_s", "capture_s", "gpu_memory_bytes", "start_s", "peak_memory_bytes")
SAME_IN_ALL_RUNS = ("commit", "gpu", "driver", "torch", "image")


def median(row):
    return row["steps_per_s"]["median"]


def fastest(row):
    """The rate of its fastest block; no number if one of them is none."""
    return max(row["blocks"], key=lambda rate: (rate != rate, rate), default=math.nan)


def spread(row):
    rate = row["steps_per_s"]
    return f"{rate['min']:.1f} .. {rate['max']:.1f}"


def select(rows, **values):
    return [row for row in rows if all(row.get(name) == value for name, value in values.items())]


def best(rows, rate=median):
    return max(rows, key=rate, default=None)


def without_graph(rows):
    """PyTorch's eager rows that use no CUDA graph."""
    return [row for row in rows if row["engine"] == "pytorch" and
            row["variant"].startswith("eager") and row["variant"].endswith(("serial", "piped"))]


def with_graph(rows):
    return [row for row in rows if row["engine"] == "pytorch" and
            row["variant"].endswith(("graph", "forked"))]


def article(rows):
    """PyTorch's rows with the published transform."""
    return [row for row in rows if row["engine"] == "pytorch" and row["variant"].startswith("article")]


# The kinds of PyTorch's rows; what is compared with Tandem is the best of each. A row that is in the first
# block below this share of the best of its kind is measured no more. Eager rows without a graph are bound by
# the launches of a Python process, and one and the same of them moves by tens of percent from block to block:
# a row 5 % behind in one block may well be the fastest by the median of five. A graph moves by 1 %. The
# article's rows, of which there are two, are all measured again.
CONTENDER_SHARE = {without_graph: 0.85, with_graph: 0.95, article: 0.0}


def of_one_kind(rows):
    """(kind, PyTorch's rows of this kind that differ in nothing but their variant), for each such group."""
    for kind in CONTENDER_SHARE:
        groups = {}
        for row in kind(rows):
            groups.setdefault(tuple(row[name] for name in KEY if name != "variant"), []).append(row)
        for group in groups.values():
            yield kind, group


def contenders(rows):
    """PyTorch's rows that may be the best of their kind, and all with a loader, of which there are few."""
    return [row for kind, group in of_one_kind(rows) for row in group
            if row["input"] == "loader" or median(row) >= CONTENDER_SHARE[kind] * median(best(group))]


def reference_of(row):
    """Steps a second that PyTorch is held to in this row, or nothing."""
    if not device_rows([row], engine="pytorch"):
        return None
    return REFERENCE.get(tuple(row[name] for name in ("workload", "batch", "precision", "variant")))


def behind_reference(rows, gpu):
    """The rows that are slower than PyTorch has to be for a run to count. They are measured again, as long as they
    have not more than REFERENCE_BLOCKS."""
    return [row for row in rows if REFERENCE_GPU in (gpu or "") and (expected := reference_of(row))
            and not fastest(row) >= REFERENCE_SHARE * expected and len(row["blocks"]) < REFERENCE_BLOCKS]


def device_rows(rows, **values):
    return select(rows, input="device", init="he", **values)


def loader_rows(rows, **values):
    return select(rows, input="loader", **values)


def variant_of(row):
    """The variant, with what tells rows of one engine apart beside it."""
    if row["engine"] == "pytorch" or not row["augment"]:
        return row["variant"]
    threads = f", {row['workers']} threads" if row["augment"] == "cpu" else ""
    return f"{row['augment'].upper()} augmentation{threads}, {row['variant']}"


def describe(row):
    engine = {"tandem": "Tandem", "pytorch": "PyTorch"}[row["engine"]]
    loader = " with a loader" if row["input"] == "loader" else ""
    return f"{engine} {row['workload']} batch {row['batch']} {row['precision']} {variant_of(row)}{loader}"


# ------------------------------------------------------------------------------ what makes a run count
# A run may leave out whole parts. It counts as far as it goes: each part that it has any row of is judged as a whole.
PARTS = {("segment", "device"): "the segmenter with input on the device",
         ("classify", "device"): "the classifier with input on the device",
         ("classify", "loader"): "the classifier with a loader"}


def part_rows(rows, part):
    workload, where = part
    return select((device_rows if where == "device" else loader_rows)(rows), workload=workload)


def check_reference(run, failures, gaps):
    """PyTorch's rows beside their figures."""
    gpu = run["environment"]["gpu"] or "no GPU"
    reference = []
    for workload, batch in _REFERENCE_FIGURES:
        if not part_rows(run["rows"], (workload, "device")):
            continue
        unmeasured = []
        for precision, variant in _REFERENCE_COLUMNS[workload]:
            expected = REFERENCE[workload, batch, precision, variant]
            found = device_rows(run["rows"], engine="pytorch", workload=workload, batch=batch,
                                precision=precision, variant=variant)
            if not found or not found[0]["blocks"]:
                unmeasured.append(f"{precision} {variant}")
                continue
            measured = fastest(found[0])
            share = measured / expected
            blocks = len(found[0]["blocks"])
            reference.append({"label": describe(found[0]), "expected": expected, "measured": measured,
                              "median": median(found[0]), "share": share, "blocks": blocks})
            if REFERENCE_GPU in gpu and not share >= REFERENCE_SHARE:
                failures.append(f"{describe(found[0])}: {measured:.1f} steps/s, the fastest of {blocks} "
                                f"blocks, is {share:.2f} of {expected}; a run counts from {REFERENCE_SHARE}")
        if unmeasured:
            gaps.append(f"not measured: PyTorch {workload} batch {batch}: {', '.join(unmeasured)}")
    if REFERENCE_GPU not in gpu:
        gaps.append(f"the figures PyTorch is held to are of an {REFERENCE_GPU}; this is {gpu}")
    return reference


def goal_groups(rows):
    """(part, name, Tandem's rows, PyTorch's rows, share) of each goal."""
    for workload in WORKLOADS:
        part = workload, "device"
        for batch in GOAL_BATCHES:
            for precision in GOAL_PRECISIONS:
                here = select(part_rows(rows, part), batch=batch, precision=precision)
                yield (part, f"{workload} batch {batch} {precision}, PyTorch's best eager row without a graph",
                       select(here, engine="tandem"), without_graph(here), GOAL_SHARE)
    published = [("device", f"batch {batch} {ARTICLE_PRECISION}", batch) for batch in GOAL_BATCHES]
    published += [("loader", f"batch {ARTICLE_LOADER_BATCH} {ARTICLE_PRECISION} with a loader",
                   ARTICLE_LOADER_BATCH)]
    for where, name, batch in published:
        part = "classify", where
        here = select(part_rows(rows, part), batch=batch, precision=ARTICLE_PRECISION)
        yield (part, f"classify {name}, the article's transform", select(here, engine="tandem"), article(here),
               ARTICLE_SHARE)


def goal_sentence(goal):
    return (f"{goal['name']}: Tandem {goal['tandem']} is {goal['share']:.2f} x the fastest block of PyTorch "
            f"{goal['pytorch']} (blocks: {goal['blocks']}); the goal is {goal['least']}")


def goal_blocks(row):
    """How many a row needs that a goal rests on."""
    return LEAST_BLOCKS if row["input"] == "device" else LEAST_BLOCKS_BESIDE


def opponents(theirs):
    """PyTorch's row with the fastest block, and in front of it, where it has too few blocks for a goal, the one
    of those that have enough, if there are any: which rows are measured again was decided by the first block, so
    that the chosen ones may stay below a row that has no other."""
    enough = [row for row in theirs if len(row["blocks"]) >= goal_blocks(row)]
    rows = [row for row in (best(enough, fastest), best(theirs, fastest)) if row]
    return rows[:1] if rows[0] is rows[-1] else rows


def too_few_blocks(row, least):
    return f"{describe(row)} has {len(row['blocks'])} blocks; it counts from {least}"


def least_blocks(rows, judged, beside):
    """How many blocks each row needs: pairs. `judged`: goals rest on these rows; `beside`: on others as
    well as on these."""
    behind = beside + [row for _, group in of_one_kind(device_rows(rows)) for row in group
                       if row is not best(group, fastest)]
    for row in rows:
        yield row, (LEAST_BLOCKS if row in judged else
                    LEAST_BLOCKS_BEHIND if row in behind else LEAST_BLOCKS_BESIDE)


def judge(run):
    """Returns {"valid", "failures", "gaps", "absent", "reference", "goals"}. Failures: something is wrong or
    slower than it has to be. Gaps: something was not measured. Absent: parts without any row. A run without
    failures and gaps counts, as far as it goes; one that has all parts, too, is valid."""
    rows, failures, gaps = run["rows"], list(run["failures"]), []
    absent = [part for part in PARTS if not part_rows(rows, part)]
    reference = check_reference(run, failures, gaps)
    goals, judged, beside = [], [], []
    for part, name, ours, theirs, least in goal_groups(rows):
        if part in absent:
            continue
        if not ours or not theirs:
            missing = [engine for engine, found in (("Tandem", ours), ("PyTorch", theirs)) if not found]
            gaps.append(f"not measured: {name}: the rows of {' and '.join(missing)}")
            continue
        first, *short = opponents(theirs)
        judged += select(ours + [first], input="device")
        beside += select(short, input="device")
        ours = best(ours)
        for row in (first, *short):
            goals.append({"name": name, "share": median(ours) / fastest(row), "least": least,
                          "tandem": variant_of(ours), "pytorch": variant_of(row),
                          "blocks": f"{len(ours['blocks'])} and {len(row['blocks'])}"})
            if goals[-1]["share"] >= least:
                continue
            if row is first:
                failures.append(goal_sentence(goals[-1]))
                break  # what is not met beside this row is not decided by the short one
            gaps.append(f"{goal_sentence(goals[-1])}; {too_few_blocks(row, goal_blocks(row))}")
    for row in rows:
        if row["engine"] == "tandem" and row["verified"] is not True:
            failures.append(f"{describe(row)}: not verified")
    for row, least in least_blocks(rows, judged, beside):
        if len(row["blocks"]) < least:
            gaps.append(too_few_blocks(row, least))
    return {"valid": not (failures or gaps or absent), "failures": failures, "gaps": gaps,
            "absent": [PARTS[part] for part in absent], "reference": reference, "goals": goals}


def verdict_sentence(verdict):
    if verdict["failures"] or verdict["gaps"] or len(verdict["absent"]) == len(PARTS):
        return "The run does not count."
    if verdict["absent"]:
        return f"The run counts, as far as it goes. Not part of it: {listed(verdict['absent'])}."
    return "The run counts."


def merge(runs):
    """One run with the rows of several, which must be of the same build on the same machine."""
    if not runs:
        raise ValueError("none of these files holds a run of this script")
    merged = {**runs[0], "rows": [], "failures": [], "dates": [], "commands": [], "tune_s": []}
    for run in runs:
        for name in SAME_IN_ALL_RUNS:
            a, b = runs[0]["environment"][name], run["environment"][name]
            if a != b:
                raise ValueError(f"{name} differs between the runs: {a} and {b}")
        if run["settings"] != merged["settings"]:
            raise ValueError(f"settings differ between the runs: {merged['settings']} and {run['settings']}")
        for row in run["rows"]:
            key = {name: row[name] for name in KEY}
            if select(merged["rows"], **key):
                raise ValueError(f"two runs hold the same row: {key}")
            merged["rows"].append(row)
        merged["failures"] += run["failures"]
        merged["dates"].append(run["environment"]["date"])
        merged["commands"].append(run["command"])
        merged["tune_s"] += filter(None, [run.get("tune_s")])
    return merged


# ------------------------------------------------------------------------------ tables
def markdown(header, lines):
    out = ["| " + " | ".join(header) + " |", "| " + " | ".join("---" for _ in header) + " |"]
    return "\n".join(out + ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines])


def gain(rows, row):
    """Over the serial row with the same batch and precision."""
    serial = best(select(rows, engine="tandem", variant="serial", **{
        name: row[name] for name in KEY if name not in ("engine", "variant")}))
    return None if serial is None else median(row) / median(serial)


def two_digits(value):
    return "-" if value is None else f"{value:.2f}"


def bound(row):
    """What overlapping the two stages could gain at most, from the times of each alone."""
    a, b = row["stage_ms"][FIRST_STAGE[row["workload"]]], row["stage_ms"]["train"]
    return (a + b) / max(a, b)


def in_order(rows):
    return sorted(rows, key=lambda row: (row["precision"] != "fp32", row["precision"] != "tf32", row["batch"],
                                         row["variant"] != "serial"))


def speed_table(rows):
    published = bool(article(rows))
    lines = []
    for batch, precision in dict.fromkeys((row["batch"], row["precision"]) for row in in_order(rows)):
        here = select(rows, batch=batch, precision=precision)
        rates = [best(select(here, engine="tandem", variant=name)) for name in ("serial", "overlap", "graph")]
        ours = best([row for row in rates if row])

        def beside(row):
            return [f"{median(row):.1f} ({row['variant']})" if row else "-",
                    two_digits(median(ours) / median(row) if ours and row else None)]

        graph = best(with_graph(here))
        lines.append([precision, batch]
                     + [f"{median(row):.1f} ({spread(row)})" if row else "-" for row in rates]
                     + [two_digits(gain(rows, rates[1]) if rates[1] else None)]
                     + beside(best(without_graph(here)))
                     + (beside(best(article(here))) if published else [])
                     + beside(graph))
    return markdown(["precision", "batch", "Tandem serial", "Tandem overlap", "Tandem graph",
                     "gain of overlap",
                     "PyTorch, best eager without a graph", "Tandem / that"]
                    + (["the article's transform", "Tandem / that"] if published else [])
                    + ["PyTorch, best with a graph", "Tandem / that"], lines)


def stage_table(rows):
    lines = []
    for row in in_order(select(rows, engine="tandem")):
        first = FIRST_STAGE[row["workload"]]
        stages = row["stage_ms"]
        percent = [row.get(name) for name in ("gpu_busy_pct", "nvml_util_pct")]
        lines.append([row["precision"], row["batch"], row["variant"], f"{stages['copy']:.3f}",
                      f"{stages[first]:.3f}", f"{stages['train']:.3f}", two_digits(bound(row)),
                      two_digits(gain(rows, row)) if row["variant"] != "serial" else "-",
                      f"{row['memory_bytes'] / 2**20:.0f}",
                      *("-" if value is None else f"{value:.0f}" for value in percent),
                      f"`{row['plan_hash'][:12]}`"])
    first = "/".join(sorted({FIRST_STAGE[row["workload"]] for row in rows}))
    return markdown(["precision", "batch", "schedule", "copy ms", f"t_A {first} ms", "t_B train ms",
                     "bound", "gain", "MiB", "GPU busy %", "NVML %", "plan"], lines)


def pytorch_table(rows):
    batches = sorted({row["batch"] for row in rows})
    lines = []
    for variant in sorted({row["variant"] for row in select(rows, engine="pytorch")}):
        for precision in sorted({row["precision"] for row in rows}, reverse=True):
            found = {row["batch"]: row for row in select(rows, engine="pytorch", variant=variant,
                                                         precision=precision)}
            if found:
                lines.append([variant, precision] + [
                    f"{median(found[batch]):.1f} ({spread(found[batch])}; {len(found[batch]['blocks'])})"
                    if batch in found else "-" for batch in batches])
    return markdown(["PyTorch", "precision"] + [f"batch {batch}" for batch in batches], lines)


def loader_table(rows):
    def percent(row):
        value = row.get("gpu_busy_pct")
        return "-" if value is None else f"{value:.0f}"

    return markdown(["batch", "engine", "variant", "workers", "precision", "steps/s", "min .. max",
                     "blocks", "images/s", "GPU busy %"], [
        [row["batch"], row["engine"], variant_of(row), row["workers"], row["precision"],
         f"{median(row):.1f}", spread(row), len(row["blocks"]), f"{median(row) * row['batch']:.0f}",
         percent(row)]
        for row in sorted(rows, key=lambda row: (row["batch"], row["engine"] != "tandem", variant_of(row)))])


def reference_table(reference):
    return markdown(["row", "held to", "median", "fastest block", "share", "blocks"], [
        [line["label"], line["expected"], f"{line['median']:.1f}", f"{line['measured']:.1f}",
         f"{line['share']:.2f}", line["blocks"]] for line in reference])


def goal_table(goals):
    return markdown(["beside", "Tandem", "PyTorch", "blocks", "Tandem's median / PyTorch's fastest block", "goal"], [
        [goal["name"], goal["tandem"], goal["pytorch"], goal["blocks"], f"{goal['share']:.2f}", goal["least"]]
        for goal in goals])


def start_table(rows):
    """What the fastest rows took before they could be timed. A result may lack any of it."""
    def number(value, digits):
        return "-" if value is None else f"{value:.{digits}f}"

    def mebibytes(value):
        return number(None if value is None else value / 2**20, 0)

    def theirs(row):
        if row is None:
            return ["-"] * 3
        peak = row.get("peak_memory_bytes") or {}
        return [row["variant"], number(row.get("start_s"), 1),
                f"{mebibytes(peak.get('allocated'))} / {mebibytes(peak.get('reserved'))}" if peak else "-"]

    lines = []
    for workload in WORKLOADS:
        of_workload = select(rows, workload=workload)
        for batch, precision in dict.fromkeys((row["batch"], row["precision"])
                                              for row in in_order(of_workload)):
            here = select(of_workload, batch=batch, precision=precision)
            ours = best(select(here, engine="tandem")) or {"variant": "-"}
            lines.append([workload, precision, batch, ours["variant"], number(ours.get("prepare_s"), 2),
                          number(ours.get("capture_s"), 2), mebibytes(ours.get("gpu_memory_bytes"))]
                         + theirs(best(with_graph(here))) + theirs(best(without_graph(here))))
    return markdown(["workload", "precision", "batch", "Tandem", "prepare s", "capture s", "MiB",
                     "PyTorch, best with a graph", "start s", "peak MiB", "PyTorch, best eager without a graph",
                     "start s", "peak MiB"], lines)


def augmentation_table(benchmarks):
    """Of Google Benchmark's JSON, whose names hold the batch size. With repetitions, the medians; an entry
    that failed is shown as such."""
    medians = select(benchmarks, run_type="aggregate", aggregate_name="median")
    unit = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
    lines = []
    for entry in medians or [entry for entry in benchmarks if entry.get("run_type") != "aggregate"]:
        name = f"`{entry.get('run_name', entry['name'])}`"
        if entry.get("error_occurred"):
            lines.append([name, entry.get("error_message", "failed"), "-"])
            continue
        microseconds = entry["real_time"] * unit[entry["time_unit"]]
        batch = re.search(r"/batch/(\d+)", name)
        lines.append([name, f"{microseconds:.1f}",
                      f"{1e6 * int(batch[1]) / microseconds:.0f}" if batch else "-"])
    return markdown(["benchmark", "µs", "images/s"], lines)


def short_table(rows):
    """For a terminal: one line a row."""
    lines = [f"{'engine':8} {'workload':8} {'batch':>5} {'prec':5} {'input':7} {'variant':37}"
             f"{'steps/s':>9}  {'(min .. max)':20} {'images/s':>9}"]
    for row in rows:
        lines.append(f"{row['engine']:8} {row['workload']:8} {row['batch']:5} {row['precision']:5} "
                     f"{row['input']:7} {variant_of(row):37}{median(row):9.1f}  {'(' + spread(row) + ')':20} "
                     f"{median(row) * row['batch']:9.0f}")
    return "\n".join(lines)


def summarise(blocks):
    return {"median": statistics.median(blocks), "min": min(blocks), "max": max(blocks)}


# ------------------------------------------------------------------------------ sentences from the numbers
def listed(parts):
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def overlap_sentences(rows):
    """What overlap gains over serial, said from the rows. A difference counts where the blocks' ranges of the
    two do not touch."""
    groups = {"faster": [], "slower": [], "same": []}
    first = FIRST_STAGE[rows[0]["workload"]]
    faster, shares = [], []
    for row in in_order(select(rows, engine="tandem", variant="overlap")):
        value = gain(rows, row)
        if value is None:
            continue
        serial = best(select(rows, engine="tandem", variant="serial", batch=row["batch"],
                             precision=row["precision"]))
        a, b = row["steps_per_s"], serial["steps_per_s"]
        where = f"batch {row['batch']} in {row['precision']}"
        group = "faster" if a["min"] > b["max"] else "slower" if a["max"] < b["min"] else "same"
        groups[group].append(f"{where} ({value:.2f}, bound {bound(serial):.2f})")
        stages = serial["stage_ms"]
        shares.append(100 * stages[first] / (stages[first] + stages["train"]))
        if group == "faster":
            faster.append((value, f"{where}; the bound there is {100 * (bound(serial) - 1):.1f} %"))
    if not shares:
        return "Overlap was not measured beside serial."
    out = []
    if groups["faster"]:
        out.append(f"Overlap is faster than serial at {listed(groups['faster'])}.")
    if groups["slower"]:
        out.append(f"Overlap is slower than serial at {listed(groups['slower'])}.")
    if groups["same"]:
        out.append("The ranges of overlap and serial touch, so that no difference is shown, at "
                   f"{listed(groups['same'])}.")
    if faster:
        value, where = max(faster)
        out.append(f"The most it gains is {100 * (value - 1):.1f} %, at {where}.")
    else:
        out.append("No row shows a gain.")
    out.append(f"t_A is {min(shares):.1f} to {max(shares):.1f} % of t_A + t_B.")
    return "\n".join(out)


def cpu_sentences(rows):
    """Augmentation on the GPU beside the CPU's, both with a loader."""
    out = []
    for batch in sorted({row["batch"] for row in rows}):
        here = select(rows, engine="tandem", batch=batch)
        on_gpu = best(select(here, augment="gpu"))
        on_cpu = sorted(select(here, augment="cpu"), key=lambda row: row["workers"])
        if on_gpu and on_cpu:
            out.append(f"At batch {batch} augmentation on the GPU ({on_gpu['variant']}) is " + listed([
                f"{median(on_gpu) / median(row):.2f} x that of {row['workers']} CPU threads"
                for row in on_cpu]) + ".")
    return "\n".join(out)


# ------------------------------------------------------------------------------ the page
PAGE = """# Benchmarks

One machine; this page is made by `bench/compare_gpu.py --render` from the JSON of its runs.

{environment}

**A figure** is the median over blocks, with the smallest and the largest:
{blocks}.
Blocks of Tandem and of PyTorch alternate on the same GPU; the other engine's process is idle meanwhile. Each
row is built once, in a process that stays for all of its blocks. A block of Tandem starts from the initial
weights, has the same number of steps every time, and its losses and weights are compared, bit for bit, with
an untimed serial run. A block of PyTorch is {seconds} s of steps ({loader_seconds} s with a loader). Both are
the median of three windows. Start-up, choice of algorithms, compilation, capture and warm-up lie outside the
timed region; they have a table of their own.

**PyTorch's rows** are all measured in the first block. Of those with input on the device only the article's,
and those near the best of their kind in the same precision, are measured again: eager without a graph, which
moves by tens of percent, within {behind_eager} %; with a graph within {behind_graph} %.

**Input on the device** means {distinct} distinct batches in turn for PyTorch and the input slots in turn for
Tandem, so that no loader is measured. Both train He-initialised weights on random bytes / 255 at lr 1e-3.
**With a loader**, as the published experiments run, workers (threads of Tandem, processes of PyTorch) make
random pictures and labels; PyTorch's initial weights, bytes as they are. Those rows are bound by the loader
and by launches and move by tens of percent from run to run.

PyTorch runs with both TF32 switches on, fused SGD and, in bf16, autocast; its labels are the 64-bit integers
that its loss wants, Tandem's are bytes. {tuned} {cudnn}
Tandem's rows overlap and graph have weight updates on streams of their own beside their stage (side lanes); serial has
one stream and none.
Before the run, PyTorch's ways to issue a step are checked to give the same losses. In the names of its rows:
piped, two streams; graph, one CUDA graph; forked, one CUDA graph with two branches.
{sections}{start}
## Does the run count

{verdict}

Tandem's best row, by its median, beside the fastest block of PyTorch's:

{goals}

PyTorch's rows have to reach {share} of the figures {source}, each with its fastest block: a row that waits for
one core of the host moves by tens of percent from block to block, and what else the host does only slows it. A row
that has not reached its figure is measured again, up to {reference_blocks} blocks.

{reference}
"""

TITLE = {"segment": "Segmenter", "classify": "Classifier with augmentation"}
STEP = {
    "segment": """
**A step** is one optimizer update: the batch's bytes become floats, the frozen encoder runs (t_A), the
decoder runs forward, the loss, every gradient, and plain SGD (t_B).
""",
    "classify": """
**A step** is one optimizer update: each picture of the batch is cropped to half its side, enlarged again,
rotated by up to 45 degrees, blurred with 7 taps and normalised, with its own draws (t_A); the encoder with a
linear layer runs forward, the loss, every gradient, and plain SGD (t_B). With input on the device Tandem's
draws lie there beside the pictures; PyTorch makes new ones in each step. PyTorch's eager and compile rows do
the chain for a whole batch at once. The article's rows do it as published: a crop that averages four
neighbours, a Python loop over the rotations, one blur for the whole batch.
""",
}

DEVICE = """
## {title}, image {image}, input on the device
{step}
Steps a second (smallest .. largest). Gain: overlap over serial. PyTorch's best eager row is the best of nchw
and nhwc, one and two streams.

{speed}

{overlap}

### Stages

Each stage alone, and the bound they set for overlapping, (t_A + t_B) / max(t_A, t_B). The percentages of the
GPU are read in an extra run of one block.

{stages}

### Every row of PyTorch

Steps a second (smallest .. largest; number of blocks).

{pytorch}
"""

AUGMENTATION = """
### The augmentation alone

As a Google Benchmark program measures it, without a model.

{table}
"""


START = """
## Start-up and memory

Of the fastest row of each, with input on the device; what it took before it could be timed.

- Tandem, prepare: until a trainer is there that could take its weights: backend, library algorithms that pass
  their filter, plan, memory. Capture: from its first step to its last capture.{tuned}
- PyTorch, start: building, compiling, capturing, and the first step. What `torch.compile` made before, in
  `--warm`, is loaded from the disk.
- The first row of each process also pays for what its libraries load once.
- MiB of GPU memory. Tandem: all that a trainer takes, with the workspaces of its streams. PyTorch: the most
  that was allocated / that its allocator reserved, of this row alone. Neither counts the CUDA context.

{table}
"""


def start_section(run):
    rows = device_rows(run["rows"])
    if all(row.get(name) is None for row in rows for name in START_UP):
        return ""  # results of before there were any
    seconds = " and ".join(f"{value:.0f}" for value in run["tune_s"])
    tuned = f"\n  `tandem tune`, once for all rows of a run, took {seconds} s before that." if seconds else ""
    return START.format(tuned=tuned, table=start_table(rows))


def sections(rows, benchmarks, image):
    out = []
    for workload in WORKLOADS:
        device = device_rows(rows, workload=workload)
        loader = loader_rows(rows, workload=workload)
        if device:
            out.append(DEVICE.format(
                title=TITLE[workload], image=image, step=STEP[workload], speed=speed_table(device),
                overlap=overlap_sentences(device), stages=stage_table(device),
                pytorch=pytorch_table(device)))
        if workload == "classify" and benchmarks:
            out.append(AUGMENTATION.format(table=augmentation_table(benchmarks)))
        if loader:
            text = "\n\n".join(filter(None, [loader_table(loader), cpu_sentences(loader)]))
            out.append(f"\n## {TITLE[workload]}, with a loader\n\n{text}\n")
    return "".join(out)


def blocks_sentence(rows):
    device = device_rows(rows)
    counts = {name: sorted({len(row["blocks"]) for row in group}) for name, group in (
        ("Tandem", select(device, engine="tandem")),
        ("PyTorch's eager rows without a graph", without_graph(device)),
        ("the article's rows", article(device)),
        ("PyTorch's rows with a graph", with_graph(device)), ("rows with a loader", loader_rows(rows)))}
    return ", ".join(f"{' or '.join(map(str, values))} blocks for {name}"
                     for name, values in counts.items() if values)


def page(runs, augmentations=()):
    """`augmentations`: of Google Benchmark."""
    run = merge(runs)
    verdict = judge(run)
    environment, rows, settings = run["environment"], run["rows"], run["settings"]
    facts = [(name, environment.get(key)) for name, key in (
        ("GPU", "gpu"), ("driver", "driver"), ("clocks", "clocks"), ("CPU", "cpu"), ("cores", "cores"),
        ("system", "os"), ("commit", "commit"), ("CUDA", "cuda"), ("cuDNN", "cudnn"),
        ("PyTorch", "torch_all"))]
    facts += [("date", ", ".join(run["dates"]))]
    facts += [("command", "`" + "`, `".join(run["commands"]) + "`")]
    text = "\n".join([verdict_sentence(verdict), *(
        f"- {reason}" for reason in verdict["failures"] + verdict["gaps"])]).replace(".\n", ".\n\n", 1)
    benchmarks = [entry for result in augmentations for entry in result["benchmarks"]]
    return PAGE.format(
        environment=markdown(["", ""], [(name, value) for name, value in facts if value is not None]),
        blocks=blocks_sentence(rows), behind_eager=round(100 * (1 - CONTENDER_SHARE[without_graph])),
        behind_graph=round(100 * (1 - CONTENDER_SHARE[with_graph])), seconds=settings["seconds"],
        loader_seconds=settings["loader_seconds"], distinct=settings["distinct_batches"],
        tuned="`tandem tune` has timed the library's algorithms of Tandem's products before the run; "
        "their hash is part of the plan's." if settings.get("tuned") else
        "Tandem takes the library's first algorithm for each product that passes its filter.",
        cudnn="cuDNN times its algorithms (`cudnn.benchmark`)." if settings["cudnn_benchmark"] else
        "`cudnn.benchmark` is off, PyTorch's default.",
        sections=sections(rows, benchmarks, environment["image"]), start=start_section(run),
        share=REFERENCE_SHARE, reference_blocks=REFERENCE_BLOCKS,
        source=REFERENCE_SOURCE, goals=goal_table(verdict["goals"]),
        reference=reference_table(verdict["reference"]), verdict=text)
