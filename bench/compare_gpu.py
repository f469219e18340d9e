#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures Tandem and PyTorch on the same GPU in alternating blocks.

  python3 bench/compare_gpu.py --segment 8,32,128 --classify-loader 32 --json results.json
  python3 bench/compare_gpu.py --render results.json [more.json] [augmentation.json] > docs/benchmarks.md
  python3 bench/compare_gpu.py --warm

A job and its input are named with their batch sizes; without any: both jobs at batch 8, 32 and 128, input on
the device. --render also takes what a Google Benchmark program wrote with --benchmark_out: the times of the
augmentation alone.

--warm measures nothing: several processes at once compile what torch.compile is asked for in the same command
without --warm, so that those rows then load it from the caches on the disk (TORCHINDUCTOR_CACHE_DIR, the same
for both commands). Otherwise each of them compiles for up to half a minute before its first block.

Exit codes: 0 the run counts and the goals are met; 1 something failed, is slower than it has to be, or is not
verified; 2 usage; 3 nothing failed, but not all that a run needs to count was measured.
"""
import argparse
import concurrent.futures
import dataclasses
import datetime
import json
import math
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

import benchmark_page as page

HERE = pathlib.Path(__file__).resolve().parent
WINDOWS = 3
DISTINCT_BATCHES = 4
PEERS = {"segment": "torch_segment.py", "classify": "torch_classify.py"}
EAGER = ["eager nchw serial", "eager nchw piped", "eager nhwc serial", "eager nhwc piped"]
BESIDE = ["eager nhwc graph", "eager nhwc forked", "compile nhwc graph", "compile nhwc forked"]
ARTICLE = ["article nchw serial", "article nchw piped"]  # the published transform
LOADER_WORKERS = 8  # of the published experiments
CPU_AUGMENT_WORKERS = (8, 16)
LOADER_SECONDS = 4  # times a block's: the batches that wait ready when the clock starts must not matter
WARM_PROCESSES = 6
OBSERVED_SECONDS = 1
# A block's steps are those of so many of its lengths at the best rate of PyTorch's first blocks: Tandem may be
# that much faster before its blocks get shorter.
STEPS_OVER_PEER = 2


class Failure(Exception):
    pass


def note(text):
    print(text, file=sys.stderr, flush=True)


# ------------------------------------------------------------------------------ what is measured
@dataclasses.dataclass(frozen=True)
class Ours:
    """The rows of one process of the program: these schedules, in every precision of the case."""
    schedules: str
    augment: str = ""  # classify: cpu, gpu
    workers: int = LOADER_WORKERS  # loader threads, with input from a loader


@dataclasses.dataclass(frozen=True)
class Theirs:
    """A row of PyTorch."""
    variant: str
    precision: str
    blocks: int  # at most: see page.contenders()


@dataclasses.dataclass(frozen=True)
class Case:
    """Rows that are measured in turn."""
    workload: str
    batch: int
    input: str
    init: str
    precisions: tuple
    ours: tuple
    theirs: tuple
    blocks: int
    seconds: float  # of a block

    def __str__(self):
        return f"{self.workload}, {self.input}, batch {self.batch}"


def device_case(options, workload, batch):
    on_cpu = options.peer_device == "cpu"
    theirs = [Theirs(variant, precision, options.blocks) for precision in options.precision
              for variant in EAGER if variant.endswith("serial") or not on_cpu]
    if not on_cpu and not options.eager_only:
        theirs += [Theirs(variant, precision, options.blocks) for precision in options.precision
                   for variant in BESIDE]
    if workload == "classify":
        theirs += [Theirs(variant, options.precision[0], options.blocks) for variant in ARTICLE
                   if variant.endswith("serial") or not on_cpu]
    ours = Ours("serial,overlap,graph", "gpu" if workload == "classify" else "")
    return Case(workload, batch, "device", "he", tuple(options.precision), (ours,), tuple(theirs),
                options.blocks, options.seconds)


def loader_case(options, workload, batch):
    """As the published experiments ran: one precision, their initial weights, bytes as they are."""
    blocks = min(options.blocks, page.LEAST_BLOCKS_BESIDE)
    variants = ARTICLE if workload == "classify" else [v for v in EAGER if "nchw" in v]
    theirs = [Theirs(variant, options.precision[0], blocks) for variant in variants
              if variant.endswith("serial") or options.peer_device != "cpu"]
    ours = [Ours("serial,overlap,graph", "gpu" if workload == "classify" else "")]
    if workload == "classify":
        ours += [Ours("serial", "cpu", workers) for workers in CPU_AUGMENT_WORKERS]
    return Case(workload, batch, "loader", "torch", (options.precision[0],), tuple(ours), tuple(theirs),
                blocks, LOADER_SECONDS * options.seconds)


def cases_of(options):
    return [make(options, workload, batch)
            for make, suffix in ((device_case, ""), (loader_case, "_loader"))
            for workload in PEERS
            for batch in getattr(options, workload + suffix)]


# ------------------------------------------------------------------------------ the two sides
def run_program(command):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise Failure(f"{shlex.join(command)}: exit {result.returncode}: "
                      f"{result.stderr.strip() or 'no message'}")


class Served:
    """A process that writes a line of JSON with its environment, then one for each line of JSON it reads."""

    def __init__(self, command):
        self.command = [str(part) for part in command]
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8")
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True)
        try:
            self.environment = self.receive()["environment"]
        except Failure:
            self.close()
            raise

    def failure(self):
        code = self.process.wait()
        self.errors.seek(0)
        return Failure(f"{shlex.join(self.command)}: exit {code}: "
                       f"{self.errors.read().strip()[-1000:] or 'no message'}")

    def receive(self):
        line = self.process.stdout.readline()
        if not line:
            raise self.failure()
        return json.loads(line)

    def ask(self, **request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self.failure() from None
        return self.receive()

    def close(self):
        """Ends the process. Returns the failure that it ended with, or nothing."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended already
        failure = None if self.process.wait() == 0 else self.failure()
        self.process.stdout.close()
        self.errors.close()
        return failure


class Tandem:
    """Starts the program."""

    def __init__(self, program, device, image):
        self.program, self.device, self.image = program, device, image
        self.environment = None
        self.plans = {}  # workload -> plan file
        self.tune_seconds = None

    def tune(self, folder, cases):
        """Chooses the library's algorithms of these cases by timing them, once, before anything counts."""
        started = time.monotonic()
        for workload in dict.fromkeys(case.workload for case in cases):
            mine = [case for case in cases if case.workload == workload]
            batches = sorted({case.batch for case in mine})
            precisions = dict.fromkeys(name for case in mine for name in case.precisions)
            path = pathlib.Path(folder) / f"{workload}.plan.json"
            run_program([self.program, "tune", workload, "--device", self.device, "--image", str(self.image),
                         "--batch", ",".join(map(str, batches)), "--precision", ",".join(precisions),
                         "--out", str(path), "--quiet"])
            self.plans[workload] = path
        self.tune_seconds = time.monotonic() - started

    def command(self, case, ours, steps):
        """For rows of so many steps a block; one a schedule and precision."""
        command = [self.program, "bench", case.workload, "--serve", "--device", self.device, "--image",
                   self.image, "--batch", case.batch, "--schedule", ours.schedules, "--precision",
                   ",".join(case.precisions), "--input", case.input, "--workers", ours.workers,
                   "--init-scheme", case.init, "--lr", "1e-3", "--seed", 1, "--warmup",
                   max(10, steps // 4), "--steps", steps, "--windows", WINDOWS, "--quiet"]
        command += ["--augment", ours.augment] if ours.augment else []
        command += ["--plan", self.plans[case.workload]] if case.workload in self.plans else []
        return command

    def start(self, case, ours, steps):
        """Returns a process that is ready to measure: ask() gives {"rows": [...]} of one block."""
        process = Served(self.command(case, ours, steps))
        self.environment = process.environment
        return process


def start_peer(python, script, cudnn_benchmark):
    """A PyTorch peer as a process that measures one block of one row for each request."""
    return Served([python, HERE / "peers" / script, "--serve"]
                  + (["--cudnn-benchmark"] if cudnn_benchmark else []))


# ------------------------------------------------------------------------------ blocks become rows
class Run:
    """Collects blocks into rows."""

    def __init__(self, options):
        self.options = options
        self.rows, self.failures = {}, []

    def add(self, rate, key, stage_ms=None, **values):
        """`key`: the values of page.KEY."""
        row = self.rows.setdefault(key, {**dict(zip(page.KEY, key, strict=True)), "blocks": [],
                                         "stages": []})
        row["blocks"].append(rate)
        if stage_ms:
            row["stages"].append(stage_ms)
        for name, value in values.items():
            if name == "verified":
                value = value is True and row.get(name, True)
            if name == "plan_hash" and row.get(name, value) != value:
                self.fail(f"{page.describe(row)}: its plan changed from {row[name]} to {value} between "
                          "blocks")
            if name in page.START_UP and name in row:
                continue
            if value is not None or name not in row:  # only one block observes the GPU
                row[name] = value

    def fail(self, text):
        if text not in self.failures:
            note(f"FAILED {text}")
            self.failures.append(text)

    def finished(self):
        out = []
        for row in self.rows.values():
            row = dict(row, steps_per_s=page.summarise(row["blocks"]))
            stages = row.pop("stages")
            if stages:
                row["stage_ms"] = {name: page.summarise([s[name] for s in stages])["median"]
                                   for name in stages[0]}
            out.append(row)
        return out

    def tandem_block(self, process, case, ours, observe):
        """With `observe`, after an extra run of each row that reads how busy the GPU was."""
        request = {"observe": OBSERVED_SECONDS} if observe else {}
        for row in process.ask(**request)["rows"]:
            key = ("tandem", case.workload, case.batch, row["precision"], case.input, case.init,
                   row["schedule"], ours.augment or None, ours.workers if case.input == "loader" else 0)
            self.add(row["steps_per_s"]["median"], key, **{name: row.get(name) for name in (
                "steps", "stage_ms", "memory_bytes", "plan_hash", "verified", "gpu_busy_pct", "nvml_util_pct",
                "prepare_s", "capture_s", "gpu_memory_bytes")})

    def peer_block(self, peer, case, theirs):
        """Returns the row so far, or nothing for one that does not run."""
        how, layout, issue = theirs.variant.split()
        workers = LOADER_WORKERS if case.input == "loader" else 0
        augment = None if case.workload == "segment" else "article" if how == "article" else "batched"
        config = dict(batch=case.batch, image=self.options.image, precision=theirs.precision, layout=layout,
                      issue=issue, compile=how == "compile", init=case.init, input=case.input,
                      workers=workers, device=self.options.peer_device)
        if augment:
            config["augment"] = augment
        reply = peer.ask(config=config, seconds=case.seconds, warm_seconds=case.seconds / 4,
                         windows=WINDOWS)
        key = ("pytorch", case.workload, case.batch, theirs.precision, case.input, case.init,
               theirs.variant, augment, workers)
        if "error" in reply:
            self.fail(f"{page.describe(dict(zip(page.KEY, key, strict=True)))}: {reply['error']}")
            return None
        self.add(reply["steps_per_s"]["median"], key,
                 **{name: reply.get(name) for name in ("start_s", "peak_memory_bytes")})
        return self.rows[key]

    def alternate(self, tandem, peer, case):
        """Blocks of both sides in turn; which goes first alternates too. PyTorch starts, because its rate
        says how many steps a block of Tandem has."""
        measured = {}  # theirs -> its row with the first block
        processes = {}  # ours -> its process; nothing for what failed, which is not tried again

        def peer_side(block):
            if block == 0:
                for theirs in case.theirs:
                    row = self.peer_block(peer, case, theirs)
                    if row is not None:
                        measured[theirs] = dict(row, steps_per_s=page.summarise(row["blocks"]))
                return
            rows = measured.values()
            wanted = page.contenders(rows) + page.behind_reference(rows, peer.environment["gpu"])
            for theirs, row in measured.items():
                if row in wanted and block < theirs.blocks:
                    self.peer_block(peer, case, theirs)

        def until_reference():
            """Rows that still are behind their figures, in turn."""
            while behind := page.behind_reference(measured.values(), peer.environment["gpu"]):
                for theirs in [theirs for theirs, row in measured.items() if row in behind]:
                    if self.peer_block(peer, case, theirs) is None:
                        return  # it failed, which is said

        def tandem_side(block):
            best = max((page.median(row) for row in measured.values()), default=0)
            steps = max(5 * WINDOWS, math.ceil(STEPS_OVER_PEER * best * case.seconds))
            for ours in case.ours:
                try:
                    if block == 0:
                        processes[ours] = None
                        processes[ours] = tandem.start(case, ours, steps)
                    if processes[ours]:
                        self.tandem_block(processes[ours], case, ours, observe=block == 0)
                except Failure as failure:
                    if processes[ours]:
                        processes[ours].close()
                    processes[ours] = None
                    self.fail(str(failure))

        try:
            for block in range(case.blocks):
                sides = [peer_side, tandem_side]
                for side in sides if block % 2 == 0 else reversed(sides):
                    side(block)
            until_reference()
        finally:
            for process in filter(None, processes.values()):
                failure = process.close()
                if failure:
                    self.fail(str(failure))


def query_gpu():
    """What nvidia-smi says, or nothing."""
    fields = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.limit"
    try:
        gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        result = subprocess.run(["nvidia-smi", f"--id={gpu}", f"--query-gpu={fields}",
                                 "--format=csv,noheader"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    name, driver, sm, memory, most, power = (part.strip() for part in result.stdout.split(","))
    return {"gpu": name, "driver": driver,
            "clocks": f"after the run SM {sm} (at most {most}), memory {memory}; power limit {power}"}


def environment_of(tandem, peer_environment, image):
    ours = tandem.environment or {}
    return {"gpu": peer_environment["gpu"], "driver": None, **query_gpu(),
            **{name: ours.get(name) for name in ("commit", "cpu", "cores", "os", "cuda", "cudnn")},
            "torch": peer_environment["torch"],
            "torch_all": "{torch}, CUDA {cuda}, cuDNN {cudnn}, Python {python}".format(**peer_environment),
            "tandem": ours, "pytorch": peer_environment, "image": image,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")}


def measure(options):
    tandem = Tandem(options.tandem, options.device, options.image)
    run = Run(options)
    cases = cases_of(options)
    peers = {}

    def write(peer):
        result = {"schema": 2, "command": options.command, "settings": {
            "seconds": options.seconds, "loader_seconds": LOADER_SECONDS * options.seconds,
            "windows": WINDOWS, "distinct_batches": DISTINCT_BATCHES,
            "tuned": bool(tandem.plans), "cudnn_benchmark": options.cudnn_benchmark},
            "environment": environment_of(tandem, peer.environment, options.image),
            "tune_s": tandem.tune_seconds, "failures": run.failures, "rows": run.finished()}
        result["verdict"] = page.judge(result)
        if options.json:
            new = pathlib.Path(str(options.json) + ".new")
            new.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            os.replace(new, options.json)
        return result

    started = time.monotonic()
    plan_folder = tempfile.TemporaryDirectory()
    try:
        if options.tune:
            note("Tandem: choosing algorithms")
            tandem.tune(plan_folder.name, cases)
            note(f"chosen after {tandem.tune_seconds:.0f} s")
        for case in cases:
            peer = peers.get(case.workload)
            if peer is None:
                peer = peers[case.workload] = start_peer(options.python, PEERS[case.workload],
                                                         options.cudnn_benchmark)
                if case.workload == "segment":  # the other peer draws at random
                    note("PyTorch: do all ways to issue a step give the same losses?")
                    checked = peer.ask(check=dict(image=options.image, device=options.peer_device,
                                                  precision=options.precision[0]))
                    for wrong in checked.get("wrong", [checked.get("error")]):
                        run.fail(f"PyTorch's check of itself: {wrong}")
            run.alternate(tandem, peer, case)
            peer.ask(release=True)
            result = write(peer)
            note(f"{case}: done after {time.monotonic() - started:.0f} s")
    finally:
        for peer in peers.values():
            peer.close()
        plan_folder.cleanup()
    return result


# ------------------------------------------------------------------------------ warm caches
def warm_commands(options):
    """One command for each workload, batch size and precision that the run will compile."""
    if options.peer_device == "cpu" or options.eager_only:
        return []
    # The largest batches first and far from each other: they take the most memory.
    return [[options.python, str(HERE / "peers" / PEERS[workload]), "--batch", str(batch), "--image",
             str(options.image), "--precision", precision, "--layout", "nhwc", "--issue", "serial",
             "--compile", "yes", "--seconds", "0.01"]
            for precision in options.precision for workload in PEERS
            for batch in sorted(getattr(options, workload), reverse=True)]


def warm(options):
    """Returns whether everything compiled."""
    threads = max(1, (os.cpu_count() or 1) // WARM_PROCESSES)
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": str(threads)}

    def one(command):
        started = time.monotonic()
        result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        note(f"{shlex.join(command[1:])}: exit {result.returncode}, {time.monotonic() - started:.0f} s")
        if result.returncode != 0:
            note(result.stdout[-1000:] + result.stderr[-1000:])
        return result.returncode == 0

    with concurrent.futures.ThreadPoolExecutor(WARM_PROCESSES) as pool:
        return all(list(pool.map(one, warm_commands(options))))


# ------------------------------------------------------------------------------ program
def comma_list(kind, allowed=None):
    def parse(text):
        values = [kind(part) for part in text.split(",")]
        for value in values:
            if allowed and value not in allowed or kind is int and value < 1:
                raise argparse.ArgumentTypeError(
                    f"{value}; allowed: {', '.join(allowed) if allowed else '1 or more'}")
        return values
    return parse


def positive(kind):
    def parse(text):
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"{text}; allowed: more than 0")
        return value
    return parse


def shown(arguments):
    """The command without what names a place on one machine."""
    places = ("--json", "--tandem", "--python")
    before = [None, *arguments]
    return shlex.join(["python3", "bench/compare_gpu.py"] + [
        argument for previous, argument in zip(before, arguments)
        if previous not in places and argument.partition("=")[0] not in places])


def parse_options(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--render", nargs="+", metavar="JSON",
                        help="print the page of these results, and measure nothing")
    parser.add_argument("--warm", action="store_true", help="fill the caches of torch.compile, and exit")
    for name, text in (("segment", "the segmenter, input on the device"),
                       ("classify", "the classifier with augmentation, input on the device"),
                       ("segment-loader", "the segmenter with a loader; published: 8"),
                       ("classify-loader", "the classifier with a loader; published: 32")):
        parser.add_argument(f"--{name}", type=comma_list(int), default=[], metavar="BATCHES", help=text)
    parser.add_argument("--tandem", default=str(HERE.parent / "build-gpu/bin/tandem"),
                        help="the program (default build-gpu/bin/tandem)")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has PyTorch")
    parser.add_argument("--device", choices=["cuda:0", "host"], default="cuda:0",
                        help="for another GPU set CUDA_VISIBLE_DEVICES; host: to try this script without one")
    parser.add_argument("--image", type=positive(int), default=256, help="side (default 256)")
    parser.add_argument("--precision", type=comma_list(str, ["fp32", "tf32", "bf16"]),
                        default=["tf32", "bf16"],
                        help="default tf32,bf16; the first is that of rows in one precision only")
    parser.add_argument("--blocks", type=positive(int), default=page.LEAST_BLOCKS,
                        help=f"of each row (default {page.LEAST_BLOCKS}; rows with "
                        f"a loader: at most {page.LEAST_BLOCKS_BESIDE}; PyTorch's rows that are clearly "
                        "not its fastest: 1)")
    parser.add_argument("--seconds", type=positive(float), default=0.25,
                        help=f"of steps in a block (default 0.25; with a loader {LOADER_SECONDS} times that)")
    parser.add_argument("--tune", action="store_true",
                        help="first let 'tandem tune' choose the library's algorithms of all rows")
    parser.add_argument("--eager-only", action="store_true",
                        help="leave out PyTorch's rows with a graph or torch.compile")
    parser.add_argument("--cudnn-benchmark", action="store_true",
                        help="let PyTorch's cuDNN time its algorithms")
    parser.add_argument("--json", type=pathlib.Path, help="results; written anew after each batch size")
    options = parser.parse_args(arguments)
    options.peer_device = "cpu" if options.device == "host" else "cuda"
    options.command = shown(arguments)
    lists = (options.segment, options.classify, options.segment_loader, options.classify_loader)
    if not any(lists):
        options.segment = options.classify = list(page.GOAL_BATCHES)
    measures = not options.render and not options.warm
    if measures and not os.access(options.tandem, os.X_OK):
        parser.error(f"--tandem is {options.tandem}, which is no program; build it, or name another")
    if not options.render and not shutil.which(options.python):
        parser.error(f"--python is {options.python}, which is no program; name an interpreter that has PyTorch")
    return options


def require_pytorch(python):
    """Before anything runs, since both sides take minutes to get to their first block."""
    search = "import importlib.util; print(importlib.util.find_spec('torch') is not None)"
    try:
        result = subprocess.run([python, "-c", search], capture_output=True, text=True, check=False)
    except OSError as error:
        raise Failure(f"{python}: {error.strerror}; --python names an interpreter that has PyTorch") from None
    if result.returncode != 0:
        raise Failure(f"{python} -c ...: exit {result.returncode}: {result.stderr.strip() or 'no message'}; "
                      "--python names an interpreter that has PyTorch")
    if result.stdout.strip() == "False":
        raise Failure(f"{python} has no PyTorch; --python names an interpreter that has it")


def is_run(result):
    """Whether it has what a page of it needs: what Tandem itself writes with --json has rows too."""
    parts = {"command": str, "settings": dict, "environment": dict, "failures": list, "rows": list}
    return all(isinstance(result.get(name), kind) for name, kind in parts.items()) and all(
        isinstance(row, dict) and row.keys() >= {*page.KEY, "blocks", "steps_per_s"} for row in result["rows"])


def read_result(path):
    """Of this script, or of a Google Benchmark program."""
    try:
        result = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Failure(f"{path} is not JSON: {error}") from None
    if not isinstance(result, dict) or not (is_run(result) or isinstance(result.get("benchmarks"), list)):
        raise Failure(f"{path} is no result of this script, nor of a Google Benchmark program")
    return result


def render(paths):
    results = [read_result(path) for path in paths]
    return page.page([result for result in results if "rows" in result],
                     [result for result in results if "benchmarks" in result])


def main():
    options = parse_options(sys.argv[1:])
    if options.render:
        try:
            print(render(options.render), end="")
        except (Failure, ValueError) as error:
            sys.exit(f"compare_gpu.py: {error}")
        return 0
    try:
        require_pytorch(options.python)
        if options.warm:
            return 0 if warm(options) else 1
        result = measure(options)
    except Failure as failure:
        sys.exit(f"compare_gpu.py: {failure}")
    verdict = result["verdict"]
    print(page.short_table(result["rows"]))
    for goal in verdict["goals"]:
        print(page.goal_sentence(goal))
    for text in verdict["failures"]:
        print(f"FAILED {text}")
    for text in verdict["gaps"]:
        print(text)
    print(page.verdict_sentence(verdict))
    return 0 if verdict["valid"] else 1 if verdict["failures"] else 3


if __name__ == "__main__":
    sys.exit(main())
