# SPDX-License-Identifier: Apache-2.0
"""What the PyTorch peers share: the networks, the ways to issue a step, timing, and the loop in which a
driver asks for single blocks.

A workload has two stages. first(x) makes the hand-over from a batch, without gradients; second(h, y) trains
on it and returns the loss. Every way to issue them trains on batch k in step k:

  serial  one stream
  piped   two streams, ordered by events: first() of batch k + 1 runs beside second() of batch k
  graph   one CUDA graph of both stages
  forked  one CUDA graph in which first() of batch k + 1 is forked from second() of batch k

A graph reads fixed addresses: each fresh batch is copied there before the replay.
"""
import argparse
import contextlib
import dataclasses
import gc
import itertools
import json
import math
import os
import statistics
import sys
import time

import torch
from torch import nn

DISTINCT_BATCHES = 4  # on the device, used in turn
WARM_STEPS = 12  # of a new configuration; later blocks warm up by time


@dataclasses.dataclass(frozen=True)
class Config:
    """One row. Frozen, because it is the key under which a built configuration is kept."""
    batch: int = 8
    image: int = 256
    classes: int = 10
    precision: str = "tf32"  # fp32, tf32, bf16 (autocast, fp32 weights)
    layout: str = "nchw"  # nchw, nhwc
    issue: str = "serial"  # serial, piped, graph, forked
    compile: bool = False
    init: str = "he"  # he: He-normal, bytes / 255; torch: PyTorch's own, bytes as they are
    lr: float = 1e-3
    input: str = "device"  # device, loader
    workers: int = 8
    augment: str = "batched"  # classify only: batched, article
    device: str = "cuda"
    seed: int = 0

    def __post_init__(self):
        allowed = {"precision": ("fp32", "tf32", "bf16"), "layout": ("nchw", "nhwc"),
                   "issue": ("serial", "piped", "graph", "forked"), "init": ("he", "torch"),
                   "input": ("device", "loader"), "augment": ("batched", "article")}
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise ValueError(f"{name} is {getattr(self, name)!r}; allowed: {', '.join(values)}")
        if self.image < 2 or self.image & (self.image - 1):
            raise ValueError(f"image is {self.image}; allowed: a power of two")
        if self.issue != "serial" and self.device == "cpu":
            raise ValueError(f"issue is {self.issue!r}; allowed without a GPU: serial")
        if self.issue in ("graph", "forked") and self.input == "loader":
            raise ValueError("a graph row takes its input from the device")

    @property
    def memory_format(self):
        return torch.channels_last if self.layout == "nhwc" else torch.contiguous_format

    @property
    def scale(self):
        return 1 / 255 if self.init == "he" else 1.0

    def autocast(self):
        return torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.precision == "bf16")

    def set_math(self):
        """The switches are global, so they are set again before each block."""
        tf32 = self.precision != "fp32"
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32


# ------------------------------------------------------------------------------ networks
def encoder(image):
    """Conv1x1 3 -> 16, ReLU, then log2(image) times a 2x2 stride-2 convolution that doubles the channels,
    with ReLU between them. [N, 3, S, S] -> [N, 16 S, 1, 1]."""
    levels = int(math.log2(image))
    layers = [nn.Conv2d(3, 16, 1), nn.ReLU(inplace=True)]
    for level in range(levels):
        layers += [nn.Conv2d(16 << level, 32 << level, 2, stride=2), nn.ReLU(inplace=True)]
    return layers[:-1]


def decoder(image, classes):
    """The mirror: log2(image) times [transposed 2x2 stride 2, ReLU], then Conv3x3 16 -> classes."""
    layers = []
    for level in reversed(range(int(math.log2(image)))):
        layers += [nn.ConvTranspose2d(32 << level, 16 << level, 2, stride=2), nn.ReLU(inplace=True)]
    return layers + [nn.Conv2d(16, classes, 3, padding=1)]


def make_network(config, layers):
    """Moves the layers to the device and draws their weights there."""
    network = nn.Sequential(*layers).to(config.device, memory_format=config.memory_format)
    if config.init == "he":
        generator = torch.Generator(config.device).manual_seed(config.seed)
        for layer in network:
            if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)):
                # The number of terms summed into one output.
                terms = layer.weight[0].numel() if not isinstance(layer, nn.ConvTranspose2d) \
                    else layer.in_channels
                with torch.no_grad():
                    layer.weight.normal_(0, math.sqrt(2 / terms), generator=generator)
                    layer.bias.zero_()
    return network


def make_trainer(config, network):
    """second(h, y): mean cross-entropy, backward, plain SGD. Returns the loss, on the device."""
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(network.parameters(), lr=config.lr, fused=config.device == "cuda")

    def loss_of(h, y):
        with config.autocast():
            return criterion(network(h).float(), y)

    if config.compile:
        loss_of = torch.compile(loss_of, dynamic=False)

    def second(h, y):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(h, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return second


@dataclasses.dataclass
class Workload:
    first: object
    second: object
    batches: list  # of (x, y) on the device
    network: nn.Module  # what is trained
    dataset: object = None  # for the rows with a loader

    def __post_init__(self):
        self.start = None

    def keep_start(self):
        self.start = [p.detach().clone() for p in self.network.parameters()]

    def restart(self):
        """Back to the weights of keep_start(), in place: a captured graph knows their addresses."""
        with torch.no_grad():
            for parameter, value in zip(self.network.parameters(), self.start):
                parameter.copy_(value)


# ------------------------------------------------------------------------------ input
class DeviceInput:
    """Distinct batches that already lie on the device, in turn."""

    def __init__(self, batches):
        self.batches, self.next = batches, 0

    def rewind(self):
        self.next = 0

    def __call__(self):
        item = self.batches[self.next]
        self.next = (self.next + 1) % len(self.batches)
        return item

    def close(self):
        pass


class LoaderInput:
    """Batches of a DataLoader with worker processes, copied by the stream that is current."""

    def __init__(self, config, dataset):
        self.device = config.device
        self.batches = iter(torch.utils.data.DataLoader(
            dataset, batch_size=config.batch, num_workers=config.workers))

    def rewind(self):
        pass

    def __call__(self):
        return [t.to(self.device, non_blocking=True) for t in next(self.batches)]

    def close(self):
        self.batches = None  # ends the workers


class RandomSamples(torch.utils.data.Dataset):
    """Random bytes as pictures, random classes as labels, made when they are asked for."""

    def __init__(self, image, classes, label_shape):
        self.image, self.classes, self.label_shape = image, classes, label_shape

    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        return (torch.randint(0, 256, (3, self.image, self.image), dtype=torch.uint8),
                torch.randint(0, self.classes, self.label_shape))


# ------------------------------------------------------------------------------ ways to issue a step
class Serial:
    def __init__(self, work, draw):
        self.work, self.draw = work, draw

    def prime(self):
        pass

    def step(self):
        x, y = self.draw()
        return self.work.second(self.work.first(x), y)


class Piped:
    """The allocator may give a freed tensor's memory to the stream that allocated it, so what the other
    stream reads is recorded on that one."""

    def __init__(self, work, draw):
        self.work, self.draw = work, draw
        self.producer, self.consumer = torch.cuda.Stream(), torch.cuda.Stream()
        self.ahead = None

    def prime(self):
        torch.cuda.synchronize()  # what the default stream prepared is there
        self.ahead = self.produce()

    def produce(self):
        with torch.cuda.stream(self.producer):
            x, y = self.draw()
            h = self.work.first(x)
            ready = self.producer.record_event()
        h.record_stream(self.consumer)
        y.record_stream(self.consumer)
        return h, y, ready

    def step(self):
        h, y, ready = self.ahead
        with torch.cuda.stream(self.consumer):
            self.consumer.wait_event(ready)
            loss = self.work.second(h, y)
        self.ahead = self.produce()
        return loss


class Graph:
    """Both stages in one graph, one after the other or forked."""

    def __init__(self, work, draw, forked):
        self.work, self.draw, self.forked = work, draw, forked
        x, y = work.batches[0]
        self.x, self.y = x.clone(), y.clone()
        # Libraries set themselves up and torch.compile compiles outside of a capture, on a side stream.
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                h = work.first(self.x)
                work.second(h.clone(), self.y)
            self.h, self.y_of_h = h.clone(), self.y.clone()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            if forked:
                main, branch = torch.cuda.current_stream(), side
                branch.wait_stream(main)
                with torch.cuda.stream(branch):
                    ahead = work.first(self.x)
                self.loss = work.second(self.h, self.y_of_h)
                main.wait_stream(branch)
                self.h.copy_(ahead)
                self.y_of_h.copy_(self.y)
            else:
                self.loss = work.second(work.first(self.x), self.y)

    def prime(self):
        if self.forked:
            x, y = self.draw()
            self.h.copy_(self.work.first(x))
            self.y_of_h.copy_(y)

    def step(self):
        x, y = self.draw()
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        return self.loss


def make_runner(config, work):
    draw = DeviceInput(work.batches) if config.input == "device" else LoaderInput(config, work.dataset)
    if config.issue == "serial":
        return Serial(work, draw)
    if config.issue == "piped":
        return Piped(work, draw)
    return Graph(work, draw, config.issue == "forked")


# ------------------------------------------------------------------------------ timing
def synchronize(config):
    if config.device == "cuda":
        torch.cuda.synchronize()


def run_steps(config, runner, steps):
    """Seconds of so many steps, from an idle device to an idle device; and the last loss."""
    synchronize(config)
    start = time.perf_counter()
    for _ in range(steps):
        loss = runner.step()
    synchronize(config)
    return time.perf_counter() - start, loss


@contextlib.contextmanager
def no_garbage_collection():
    """As in timeit: a collection walks through all that torch.compile keeps, and a window is short."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def measure(config, runner, seconds, warm_seconds, windows):
    """One block: warm-up, then the rates of equal windows."""
    once, _ = run_steps(config, runner, 5)
    once /= 5
    run_steps(config, runner, max(1, math.ceil(warm_seconds / once)))
    steps = max(5, math.ceil(seconds / windows / once))
    rates = []
    for _ in range(windows):
        elapsed, loss = run_steps(config, runner, steps)
        rates.append(steps / elapsed)
    loss = loss.item()
    if not math.isfinite(loss):
        raise RuntimeError(f"the loss is {loss}")
    return {"steps_per_s": {"median": statistics.median(rates), "min": min(rates), "max": max(rates)},
            "steps": steps * windows, "loss": loss}


def free_unused():
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


class PeakMemory:
    """The most GPU memory that is in use (allocated), and that the allocator holds for it (reserved), from
    the construction on, beyond what the process held then."""

    def __init__(self, config):
        self.before = None
        if config.device == "cuda":
            free_unused()
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()

    def bytes(self):
        """Nothing on the CPU."""
        if self.before is None:
            return None
        allocated, reserved = self.before
        return {"allocated": torch.cuda.max_memory_allocated() - allocated,
                "reserved": torch.cuda.max_memory_reserved() - reserved}


@dataclasses.dataclass
class Built:
    """A configuration that is ready to be timed."""
    runner: object
    start_s: float  # building, compiling, capturing, and the first step
    peak_memory_bytes: object = None  # known after the first block


class Peer:
    """Builds configurations when they are first asked for and keeps them, so that later blocks of the same
    one start warm. No two share weights: what autograd remembers of a stream stays within one row."""

    def __init__(self, build):
        self.build = build
        self.built = {}

    def release(self):
        self.built.clear()
        torch._dynamo.reset()
        free_unused()

    def start(self, config):
        started = time.perf_counter()
        runner = make_runner(config, self.build(config))
        runner.prime()
        run_steps(config, runner, 1)
        start_s = time.perf_counter() - started
        run_steps(config, runner, WARM_STEPS)
        return Built(runner, start_s)

    def block(self, config, seconds, warm_seconds, windows):
        config.set_math()
        built, peak = self.built.get(config), None
        if built is None:
            peak = PeakMemory(config)
            built = self.start(config)
            if config.input == "device":
                self.built[config] = built
        try:
            with no_garbage_collection():
                result = measure(config, built.runner, seconds, warm_seconds, windows)
        finally:
            if config.input == "loader":
                built.runner.draw.close()  # idle workers would still hold processor time and memory
        if peak is not None:
            built.peak_memory_bytes = peak.bytes()
        return {**result, "start_s": built.start_s, "peak_memory_bytes": built.peak_memory_bytes}


def check_issues(build, config):
    """Whether all ways to issue a step train on the same batches in the same order with the same weights.

    Only for a workload without random draws. Returns what is wrong, or an empty list. At this size the
    losses of two batches differ by about 1e-2, the same kernels on other streams by their rounding.
    """
    tolerance, steps = 1e-4, 2 * DISTINCT_BATCHES
    config = dataclasses.replace(config, batch=2, image=min(config.image, 64), lr=0.1, compile=False,
                                 init="he", input="device", issue="serial")
    config.set_math()
    losses = {}
    for issue in ("serial",) if config.device == "cpu" else ("serial", "piped", "graph", "forked"):
        work = build(config)  # the same weights and batches each time
        work.keep_start()
        runner = make_runner(dataclasses.replace(config, issue=issue), work)  # a graph trains to warm up
        synchronize(config)
        work.restart()
        runner.draw.rewind()
        runner.prime()
        kept = []
        for _ in range(steps):
            loss = runner.step()
            synchronize(config)
            kept.append(loss.item())
        losses[issue] = kept
    wrong = []
    serial = losses["serial"]
    if not serial[DISTINCT_BATCHES] < serial[0]:
        wrong.append(f"serial: the loss of the first batch does not fall: {serial[0]} -> "
                     f"{serial[DISTINCT_BATCHES]}")
    if not max(abs(a - b) for a, b in itertools.pairwise(serial)) > 10 * tolerance * serial[0]:
        wrong.append(f"serial: the losses are too close for this check to see a shift: {serial}")
    for issue, values in losses.items():
        for step, (a, b) in enumerate(zip(serial, values)):
            if not abs(a - b) <= tolerance * abs(a):
                wrong.append(f"{issue}: loss {b} in step {step}, serial has {a}")
                break
    return wrong


# ------------------------------------------------------------------------------ program
def environment():
    cuda = torch.cuda.is_available()
    return {"torch": torch.__version__, "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version() if cuda else None,
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "gpu": torch.cuda.get_device_name() if cuda else None, "python": sys.version.split()[0]}


def serve(peer, build):
    """One JSON object a line in, one out. The first line out describes the environment.

    {"config": {...}, "seconds": S, "warm_seconds": S, "windows": N}  measures a block; the reply also says
        what its configuration took when it was built: start_s, peak_memory_bytes
    {"check": {...}}  compares the ways to issue a step
    {"release": true}  frees everything that was built
    """
    # Whatever else prints (a compiler, a library) goes to standard error.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def reply(value):
        replies.write(json.dumps(value) + "\n")
        replies.flush()

    reply({"environment": environment()})
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if request.get("release"):
                peer.release()
                reply({})
            elif "check" in request:
                reply({"wrong": check_issues(build, Config(**request["check"]))})
            else:
                reply(peer.block(Config(**request["config"]), request["seconds"],
                                 request["warm_seconds"], request["windows"]))
        except Exception as error:  # the driver shows it beside the rows that ran
            text = str(error).strip() or "no message"
            reply({"error": f"{type(error).__name__}: {text.splitlines()[0][:300]}"})


def main(description, build, can_check):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--serve", action="store_true",
                        help="answer requests on standard input; see serve() in torch_common.py")
    if can_check:
        parser.add_argument("--check", action="store_true",
                            help="compare the losses of the ways to issue a step, and exit")
    parser.add_argument("--cudnn-benchmark", action="store_true",
                        help="let cuDNN time its algorithms (PyTorch's default is not to)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a block (default 1)")
    parser.add_argument("--windows", type=int, default=3, help="parts of a block (default 3)")
    lists = {"batch": "8", "precision": "tf32,bf16", "layout": "nchw,nhwc",
             "issue": "serial,piped,graph,forked", "compile": "no", "augment": "batched"}
    for name, default in lists.items():
        parser.add_argument(f"--{name}", default=default, help=f"comma list (default {default})")
    defaults = Config(device="cuda" if torch.cuda.is_available() else "cpu")
    for name in ("image", "classes", "init", "lr", "input", "workers", "device", "seed"):
        value = getattr(defaults, name)
        parser.add_argument(f"--{name}", type=type(value), default=value, help=f"default {value}")
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark = arguments.cudnn_benchmark
    peer = Peer(build)
    if arguments.serve:
        serve(peer, build)
        return 0

    common = {name: getattr(arguments, name) for name in
              ("image", "classes", "init", "lr", "input", "workers", "device", "seed")}
    if can_check and arguments.check:
        wrong = check_issues(build, Config(**common))
        print("\n".join(wrong) or "every way to issue a step gives the same losses")
        return bool(wrong)
    print(json.dumps(environment()))
    failed = 0
    for values in itertools.product(*(getattr(arguments, name).split(",") for name in lists)):
        row = dict(zip(lists, values))
        label = " ".join(f"{value:9}" for value in values)
        try:
            config = Config(**common, **{**row, "batch": int(row["batch"]),
                                         "compile": row["compile"] == "yes"})
            result = peer.block(config, arguments.seconds, arguments.seconds / 4, arguments.windows)
            rate = result["steps_per_s"]["median"]
            print(f"{label} {rate:9.1f} steps/s {rate * config.batch:10.0f} images/s", flush=True)
        except Exception as error:  # a row that cannot run is shown, not hidden
            failed += 1
            print(f"{label} {type(error).__name__}: {str(error).strip().splitlines()[0][:200]}", flush=True)
    return bool(failed)
