#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures Tandem and PyTorch on the same GPU in alternating blocks.

  python3 bench/compare_gpu.py --batch 8,32,128 --json results.json
  python3 bench/compare_gpu.py --render results.json [more.json] > docs/benchmarks.md

Exit codes: 0 the run counts and the goals are met; 1 something failed, is slower than it has to be, or is not
verified; 2 usage; 3 nothing failed, but not all that a run needs to count was measured.
"""
import argparse
import datetime
import json
import math
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

import benchmark_page as page

HERE = pathlib.Path(__file__).resolve().parent
WINDOWS = 3
DISTINCT_BATCHES = 4
EAGER = ["eager nchw serial", "eager nchw piped", "eager nhwc serial", "eager nhwc piped"]
BESIDE = ["eager nhwc graph", "eager nhwc forked", "compile nhwc graph", "compile nhwc forked"]
LOADER_BATCH, LOADER_WORKERS = 8, 8  # the published experiment


class Failure(Exception):
    pass


def note(text):
    print(text, file=sys.stderr, flush=True)


class Tandem:
    """One block is one run of the program: it builds, picks its algorithms and warms up, then times."""

    def __init__(self, program, device, image):
        self.program, self.device, self.image = program, device, image
        self.environment = None

    def block(self, batch, precisions, init, source, steps, warmup, observe):
        """Returns the rows of the program, one a schedule and precision; with `observe`, after an extra run
        of each that reads how busy the GPU was."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.json"
            command = [self.program, "bench", "segment", "--device", self.device, "--image", self.image,
                       "--batch", batch, "--schedule", "serial,overlap", "--precision",
                       ",".join(precisions), "--input", source, "--workers", LOADER_WORKERS,
                       "--init-scheme", init, "--lr", "1e-3", "--seed", 1, "--warmup", warmup, "--steps",
                       steps, "--windows", WINDOWS, "--json", path, "--quiet"]
            command += [] if observe else ["--observe", 0]
            command = [str(part) for part in command]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode != 0:
                raise Failure(f"{shlex.join(command)}: exit {result.returncode}: "
                              f"{result.stderr.strip() or 'no message'}")
            output = json.loads(path.read_text(encoding="utf-8"))
        self.environment = output["environment"]
        return output["rows"]


class Peer:
    """A PyTorch peer as a process that measures one block for each line it reads."""

    def __init__(self, python, script, cudnn_benchmark):
        command = [python, str(HERE / "peers" / script), "--serve"]
        command += ["--cudnn-benchmark"] if cudnn_benchmark else []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.environment = self.receive()["environment"]

    def receive(self):
        line = self.process.stdout.readline()
        if not line:
            raise Failure(f"the PyTorch peer ended with exit {self.process.wait()}")
        return json.loads(line)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.receive()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Run:
    """Collects blocks into rows."""

    def __init__(self, options):
        self.options = options
        self.rows, self.failures = {}, []

    def add(self, rate, engine, workload, batch, precision, source, init, variant, **extra):
        key = (engine, workload, batch, precision, source, init, variant)
        row = self.rows.setdefault(key, dict(
            engine=engine, workload=workload, batch=batch, precision=precision, input=source, init=init,
            variant=variant, blocks=[], stages=[]))
        row["blocks"].append(rate)
        if "stage_ms" in extra:
            row["stages"].append(extra.pop("stage_ms"))
        for name, value in extra.items():
            if name == "verified":
                value = value is True and row.get(name, True)
            if name == "plan_hash" and row.get(name, value) != value:
                self.failures.append(f"Tandem batch {batch} {precision} {variant}: its plan changed from "
                                     f"{row[name]} to {value} between blocks")
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

    # One block of each side. Each returns its best rate.
    def tandem_block(self, tandem, case, best_rate, observe=False):
        batch, precisions, source, init = case
        # As many steps as fill the block at 1.5 times the best rate seen on the other side.
        steps = max(5 * WINDOWS, math.ceil(1.5 * best_rate * self.seconds(source)))
        try:
            rows = tandem.block(batch, precisions, init, source, steps, max(10, steps // 4), observe)
        except Failure as failure:
            self.fail(str(failure))
            return
        for row in rows:
            self.add(row["steps_per_s"]["median"], "tandem", "segment", batch, row["precision"], source,
                     init, row["schedule"],
                     **{name: row.get(name) for name in ("stage_ms", "memory_bytes", "plan_hash", "verified",
                                                         "gpu_busy_pct", "nvml_util_pct")})

    def seconds(self, source):
        # With a loader the batches that wait ready when the clock starts must not matter.
        return self.options.seconds * (5 if source == "loader" else 1)

    def peer_block(self, peer, workload, case, variants):
        batch, precisions, source, init = case
        rates = [0.0]
        for precision in precisions:
            for variant in variants:
                how, layout, issue = variant.split()
                config = dict(batch=batch, image=self.options.image, precision=precision, layout=layout,
                              issue=issue, compile=how == "compile", init=init, input=source,
                              workers=LOADER_WORKERS, device=self.options.peer_device)
                seconds = self.seconds(source)
                reply = peer.ask(config=config, seconds=seconds, warm_seconds=seconds / 4,
                                 windows=WINDOWS)
                if "error" in reply:
                    self.fail(f"PyTorch {workload} batch {batch} {precision} {variant}: {reply['error']}")
                    continue
                rates.append(reply["steps_per_s"]["median"])
                self.add(rates[-1], "pytorch", workload, batch, precision, source, init, variant)
        return max(rates)

    def alternate(self, tandem, peer, case, variants):
        """Blocks of both sides in turn; which goes first alternates too. PyTorch starts, because its rate
        says how many steps fill a block."""
        best_rate = self.peer_block(peer, "segment", case, variants)
        self.tandem_block(tandem, case, best_rate, observe=True)
        for block in range(1, self.options.blocks):
            if block % 2:
                self.tandem_block(tandem, case, best_rate)
                best_rate = max(best_rate, self.peer_block(peer, "segment", case, variants))
            else:
                best_rate = max(best_rate, self.peer_block(peer, "segment", case, variants))
                self.tandem_block(tandem, case, best_rate)


def query_gpu():
    """What nvidia-smi says, or nothing."""
    fields = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.limit"
    try:
        result = subprocess.run(["nvidia-smi", "--id=0", f"--query-gpu={fields}",
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
    peer = Peer(options.python, "torch_segment.py", options.cudnn_benchmark)

    def write():
        result = {"schema": 1, "command": options.command, "settings": {
            "blocks": options.blocks, "seconds": options.seconds, "windows": WINDOWS,
            "distinct_batches": DISTINCT_BATCHES, "cudnn_benchmark": options.cudnn_benchmark},
            "environment": environment_of(tandem, peer.environment, options.image),
            "failures": run.failures, "rows": run.finished()}
        result["verdict"] = page.judge(result)
        if options.json:
            new = pathlib.Path(str(options.json) + ".new")
            new.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            os.replace(new, options.json)
        return result

    try:
        note("PyTorch: do all ways to issue a step give the same losses?")
        checked = peer.ask(check=dict(image=options.image, device=options.peer_device,
                                      precision=options.precision[0]))
        for wrong in checked.get("wrong", [checked.get("error")]):
            run.fail(f"PyTorch's check of itself: {wrong}")
        on_cpu = options.peer_device == "cpu"
        eager = [v for v in EAGER if v.endswith("serial")] if on_cpu else EAGER
        beside = [] if on_cpu or options.eager_only else BESIDE
        for batch in options.batch:
            note(f"batch {batch}")
            run.alternate(tandem, peer, (batch, options.precision, "device", "he"), eager + beside)
            peer.ask(release=True)
            write()
        if options.loader:
            note(f"loader, batch {LOADER_BATCH}")
            run.alternate(tandem, peer, (LOADER_BATCH, options.precision[:1], "loader", "torch"),
                          [v for v in eager if "nchw" in v])
            write()
    finally:
        peer.close()
    if options.classify:
        classify = Peer(options.python, "torch_classify.py", options.cudnn_benchmark)
        try:
            for batch in options.batch:
                note(f"classify, batch {batch}")
                for _ in range(options.blocks):
                    run.peer_block(classify, "classify", (batch, options.precision, "device", "he"),
                                   eager[:1] if on_cpu else BESIDE)
                classify.ask(release=True)
        finally:
            classify.close()
    return write()


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


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--render", nargs="+", metavar="JSON",
                        help="print the page of these results, and measure nothing")
    parser.add_argument("--tandem", default=str(HERE.parent / "build-gpu/bin/tandem"),
                        help="the program (default build-gpu/bin/tandem)")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has PyTorch")
    parser.add_argument("--device", choices=["cuda:0", "host"], default="cuda:0",
                        help="for another GPU set CUDA_VISIBLE_DEVICES; host: to try this script without one")
    parser.add_argument("--image", type=positive(int), default=256, help="side (default 256)")
    parser.add_argument("--batch", type=comma_list(int), default=[8, 32, 128],
                        help="samples a step (default 8,32,128)")
    parser.add_argument("--precision", type=comma_list(str, ["fp32", "tf32", "bf16"]),
                        default=["tf32", "bf16"], help="default tf32,bf16")
    parser.add_argument("--blocks", type=positive(int), default=5, help="of each row (default 5)")
    parser.add_argument("--seconds", type=positive(float), default=0.4,
                        help="of steps in a block (default 0.4; with a loader five times that)")
    parser.add_argument("--eager-only", action="store_true",
                        help="leave out PyTorch's rows with a graph or torch.compile")
    parser.add_argument("--loader", action="store_true",
                        help=f"also batch {LOADER_BATCH} with {LOADER_WORKERS} loader workers")
    parser.add_argument("--classify", action="store_true",
                        help="also PyTorch's classification with augmentation, without Tandem")
    parser.add_argument("--cudnn-benchmark", action="store_true",
                        help="let PyTorch's cuDNN time its algorithms")
    parser.add_argument("--json", type=pathlib.Path, help="results; written anew after each batch size")
    options = parser.parse_args()
    options.peer_device = "cpu" if options.device == "host" else "cuda"
    options.command = shlex.join(["python3", "bench/compare_gpu.py", *sys.argv[1:]])
    if not options.render and not os.access(options.tandem, os.X_OK):
        parser.error(f"--tandem is {options.tandem}, which is no program; build it, or name another")
    return options


def main():
    options = parse_options()
    if options.render:
        runs = [json.loads(pathlib.Path(path).read_text(encoding="utf-8")) for path in options.render]
        try:
            print(page.page(runs), end="")
        except ValueError as error:
            sys.exit(f"compare_gpu.py: {error}")
        return 0
    try:
        result = measure(options)
    except Failure as failure:
        sys.exit(f"compare_gpu.py: {failure}")
    verdict = result["verdict"]
    print(page.short_table(result["rows"]))
    for goal in verdict["goals"]:
        print(f"batch {goal['batch']} {goal['precision']}: Tandem {goal['tandem']} is {goal['share']:.2f} x "
              f"PyTorch {goal['pytorch']}")
    for text in verdict["failures"]:
        print(f"FAILED {text}")
    for text in verdict["gaps"]:
        print(text)
    print("the run counts" if verdict["valid"] else "the run does not count")
    return 0 if verdict["valid"] else 1 if verdict["failures"] else 3


if __name__ == "__main__":
    sys.exit(main())
