#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes parity.json and parity.bin: what PyTorch computes for the segmenter at S = 64. And the same
of the classifier at S = 32, in classifier.json and classifier.bin.

    python3 make_parity.py [--out DIR] [--only segmenter|classifier]
                                           needs torch and numpy; CPU only; a few minutes

Data, labels, weights: see Job and weight(). Layers with parameters are counted through the encoder
first (conv1x1 is 0), then the decoder, or the classifier's linear layer, which is a convolution
with kernel 1 of pictures of one pixel; tensor 0 of a layer is its weight, 1 its bias.
For each seed: a float64 run (step-1 gradients, ten losses, W10 - W0), PyTorch's own float32 run
(its errors against the former), and a bound for the error of each stored gradient value.

The bound. Assume of a float32 step only that every rounding has a relative error of at most
u = 2^-24 and that each has mean zero given those before it. To first order the error of a gradient
value g is then a martingale, sum over all roundings of (dg/d rounding) * rounding, and by
Azuma-Hoeffding it exceeds LAMBDA * sigma with probability at most 2 exp(-LAMBDA^2 / 2), where
sigma^2 is the sum of the squared steps (Higham and Mary, SIAM J. Sci. Comput. 41, 2019).
A value z that is a sum of n terms takes at most n roundings in any order of summation, each of a
partial sum of at most S, the sum of the absolute terms: its share of sigma^2 is at most
(dg/dz)^2 n (S u)^2. So sigma is the root mean square of g(perturbed) - g when the float64 step is
repeated with every computed value moved by +-sqrt(n) S u, the signs drawn anew: Hutchinson's
estimate, which also takes along every ReLU whose sign the roundings may change. (A worst-case
bound, gamma(n) through |W| at each of 14 layers, exceeds the gradients by many powers of ten.)
The same holds for any fixed sum of gradient values, so the signed sums get bounds as well.
"""
import argparse
import functools
import json
import math
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

C, BATCH, STEPS, SEEDS = 10, 8, 10, 8
PARTIAL = 5  # samples of the case with a smaller batch
MOMENTUM = 0.9
U = 2.0**-24
LAMBDA = 8.0
REPEATS = 64  # sigma is known to 1 / sqrt(2 * 64) = 9 %


def splitmix64(i):
    with np.errstate(over="ignore"):
        z = i.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def weight(seed, layer, tensor, shape, scale):
    """Element i, in PyTorch's order: (2u - 1) * scale, rounded once, to float32."""
    i = np.arange(math.prod(shape), dtype=np.uint64)
    base = np.uint64((seed << 48) + ((2 * layer + tensor) << 32))
    u = (splitmix64(base + i) >> np.uint64(40)).astype(np.float64) / 2**24
    return torch.from_numpy(((2 * u - 1) * scale).astype(np.float32)).reshape(shape)


class Layer:
    """A convolution, its bias, and whether a ReLU follows."""

    def __init__(self, index, seed, transposed, c, k, kernel, relu):
        self.transposed, self.kernel, self.relu = transposed, kernel, relu
        self.fan_in = c if transposed else c * kernel * kernel
        shape = (c, k, kernel, kernel) if transposed else (k, c, kernel, kernel)
        self.weight = weight(seed, index, 0, shape, math.sqrt(6.0 / self.fan_in))
        self.bias = weight(seed, index, 1, (k,), 0.1)

    def linear(self, x, w):
        if self.transposed:
            return F.conv_transpose2d(x, w, stride=2)
        stride, padding = {1: (1, 0), 2: (2, 0), 3: (1, 1)}[self.kernel]
        return F.conv2d(x, w, stride=stride, padding=padding)


class Job:
    """A network, its pictures and labels, and the rate it is trained with."""

    def __init__(self, file, size, lr, samples, alive, width):
        self.file, self.size, self.lr = file, size, lr
        self.samples = samples  # values stored of each tensor
        self.alive = alive  # share of units above 0 that each level must have: at least, at most
        self.width = width  # of the median bound of a tensor, at most this share of its value
        self.levels = size.bit_length() - 1

    def images(self):
        """Bytes [N,3,S,S]."""
        i = np.arange(BATCH * 3 * self.size**2, dtype=np.uint64)
        bytes_ = (splitmix64(i) % np.uint64(256)).astype(np.uint8)
        return torch.from_numpy(bytes_).reshape(BATCH, 3, self.size, self.size)

    def encoder(self, seed):
        layers = [Layer(0, seed, False, 3, 16, 1, True)]
        for level in range(self.levels):
            c = 16 << level
            layers.append(Layer(level + 1, seed, False, c, 2 * c, 2, level + 1 < self.levels))
        return layers


class Segmenter(Job):
    def labels(self):
        """[N,S,S]"""
        n, y, x = np.ogrid[:BATCH, :self.size, :self.size]
        labels = (2 * (2 * y // self.size) + 2 * x // self.size + 4 * (n % 2)) % C
        return torch.from_numpy(labels.astype(np.int64))

    def network(self, seed):
        """The frozen layers, the trained layers."""
        decoder = []
        for level in range(self.levels):
            c = (16 * self.size) >> level
            decoder.append(Layer(self.levels + 1 + level, seed, True, c, c // 2, 2, True))
        decoder.append(Layer(2 * self.levels + 1, seed, False, 16, C, 3, False))
        return self.encoder(seed), decoder


class Classifier(Job):
    def labels(self):
        """[N,1,1]"""
        return torch.arange(BATCH).reshape(BATCH, 1, 1) % C

    def network(self, seed):
        linear = Layer(self.levels + 1, seed, False, 16 * self.size, C, 1, False)
        return [], self.encoder(seed) + [linear]


SEGMENTER = Segmenter("parity", 64, 0.1, 256, (0.2, 0.8), 0.1)
CLASSIFIER = Classifier("classifier", 32, 0.01, 64, (0.1, 0.9), 0.2)


# ------------------------------------------------------------------------ PyTorch's own training

def train(job, seed, dtype, images, labels, steps):
    """Ordinary PyTorch: first gradients, losses, change of each tensor, share of alive units."""
    encoder, decoder = job.network(seed)
    parameters = [p.to(dtype).clone().requires_grad_() for l in decoder for p in (l.weight, l.bias)]
    start = [p.detach().clone() for p in parameters]
    optimizer = torch.optim.SGD(parameters, lr=job.lr, momentum=MOMENTUM)
    x = images.to(dtype) / 255
    with torch.no_grad():
        for l in encoder:
            x = l.linear(x, l.weight.to(dtype)) + l.bias.to(dtype).view(1, -1, 1, 1)
            x = x.relu() if l.relu else x
    losses, gradients, alive = [], None, []
    for step in range(steps):
        h = x
        alive.append([])
        for l, w, b in zip(decoder, parameters[::2], parameters[1::2]):
            h = l.linear(h, w) + b.view(1, -1, 1, 1)
            if l.relu:
                h = h.relu()
                alive[-1].append((h > 0).double().mean().item())
        loss = F.cross_entropy(h, labels)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            gradients = [p.grad.double().clone() for p in parameters]
        optimizer.step()
        losses.append(loss.item())
    change = [p.detach().double() - s.double() for p, s in zip(parameters, start)]
    return gradients, losses, change, alive


# --------------------------------------------------------------------------- bounds of step 1

def backward(layer, x, w, dz):
    """dx and dw of a layer: the exact bilinear maps."""
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    return torch.autograd.grad(layer.linear(x, w), (x, w), dz)


def float64_step(job, seed, images, labels, move):
    """Gradients by hand. move(name, value, size) may move a computed value; size() gives
    sqrt(n) S u of each of its elements, and is called at once or not at all."""
    encoder, decoder = job.network(seed)
    layers, count = encoder + decoder, labels.numel()
    x = images.double() / 255
    x = move("input", x, lambda: math.sqrt(2) * U * x)  # 1 / 255 and the product round
    kept = []
    for i, l in enumerate(layers):
        w, b = l.weight.double(), l.bias.double().view(1, -1, 1, 1)
        z = move(f"z{i}", l.linear(x, w) + b, lambda: math.sqrt(l.fan_in + 1) * U *
                 (l.linear(x.abs(), w.abs()) + b.abs()))
        y = z.clamp_min(0) if l.relu else z
        kept.append((l, x, w, y))
        x = y

    p = x.softmax(1)
    dz = p - F.one_hot(labels, C).permute(0, 3, 1, 2)
    # p: the shift by the largest logit rounds (and acts through the exponential), exp is good to 2
    # units in the last place (4 u), C additions, one division; then p - 1 rounds.
    dz = move("dlogits", dz, lambda: U * ((x.amax(1, keepdim=True) - x + 4 + C + 1) * p + dz.abs()))
    gradients = []
    for i in reversed(range(len(encoder), len(layers))):
        l, x, w, y = kept[i]
        if l.relu:
            dz = dz * (y > 0)
        dx, dw = backward(l, x, w, dz)
        db = dz.sum((0, 2, 3))
        absolute = functools.cache(lambda: backward(l, x.abs(), w.abs(), dz.abs()))
        # Terms of dw: pixels of the smaller side; of dx: outputs of one input. The division by the
        # count rounds twice more, 1 / count and the product.
        pixels = min(x.numel() // x.shape[1], dz.numel() // dz.shape[1])
        terms = w.numel() // x.shape[1]
        dw = move(f"dw{i}", dw, lambda: math.sqrt(pixels + 2) * U * absolute()[1])
        db = move(f"db{i}", db, lambda: math.sqrt(dz.numel() // dz.shape[1] + 2) * U *
                  dz.abs().sum((0, 2, 3)))
        gradients = [dw / count, db / count] + gradients
        dz = move(f"dx{i}", dx, lambda: math.sqrt(terms) * U * absolute()[0])
    return gradients


def bounds(job, seed, images, labels):
    """For each gradient: itself, bounds of its elements, bounds of its sums()."""
    sizes = {}

    def measure(name, value, size):
        sizes[name] = size()
        return value
    reference = float64_step(job, seed, images, labels, measure)
    generator = torch.Generator().manual_seed(seed)

    def perturb(name, value, size):
        sign = torch.randint(0, 2, value.shape, generator=generator, dtype=torch.int8)
        return value + (2 * sign - 1) * sizes[name]
    of_elements = [torch.zeros_like(g) for g in reference]
    of_sums = [np.zeros_like(sums(job, g)) for g in reference]
    for _ in range(REPEATS):
        moved = float64_step(job, seed, images, labels, perturb)
        for t, (m, g) in enumerate(zip(moved, reference)):
            of_elements[t] += (m - g) ** 2 / REPEATS
            of_sums[t] += sums(job, m - g) ** 2 / REPEATS
    return [(g, LAMBDA * e.sqrt(), LAMBDA * np.sqrt(s))
            for g, e, s in zip(reference, of_elements, of_sums)]


# ---------------------------------------------------------------------------------- the files

def sampled(job, tensor):
    """All elements of a small tensor; else element splitmix64(k) mod elements, one a sample."""
    flat = tensor.flatten().numpy()
    if flat.size <= job.samples:
        return flat
    k = splitmix64(np.arange(job.samples, dtype=np.uint64)) % np.uint64(flat.size)
    return flat[k.astype(np.int64)]


@functools.cache
def sum_of(elements, samples):
    """For each element i: which sum it belongs to, and its sign there (Charikar's count sketch)."""
    h = splitmix64(np.arange(elements, dtype=np.uint64))
    sign = 1.0 - 2.0 * ((h >> np.uint64(8)) & np.uint64(1))
    return (h % np.uint64(samples)).astype(np.int64), sign


def sums(job, tensor):
    """All elements of a small tensor; else signed sums, as many as samples, in which every element
    appears once: element i with sign 1 - 2 * bit 8 of h = splitmix64(i) in sum h mod samples. Their
    norm is about that of the tensor, however few elements it is concentrated in: within
    1 / sqrt(2 * samples), one standard deviation."""
    flat = tensor.flatten().numpy()
    if flat.size <= job.samples:
        return flat
    bucket, sign = sum_of(flat.size, job.samples)
    return np.bincount(bucket, weights=flat * sign, minlength=job.samples)


def relative(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def require(condition, text):
    if not condition:
        raise SystemExit(f"make_parity.py: {text}")


def make(job, out):
    images, labels = job.images(), job.labels()
    _, decoder = job.network(0)
    names = [f"{2 * i}.{t}" for i in range(len(decoder)) for t in ("weight", "bias")]
    blob = []
    at = 0

    def store(values):
        nonlocal at
        blob.append(np.asarray(values, dtype="<f8"))
        at += blob[-1].size
        return at - blob[-1].size

    def gradient_entry(name, g, of_elements, of_sums):
        return {"name": name, "norm": g.norm().item(),
                "values": store(sampled(job, g)), "value_bounds": store(sampled(job, of_elements)),
                "sums": store(sums(job, g)), "sum_bounds": store(of_sums)}

    cases = []
    for seed in range(SEEDS):
        g, losses, change, alive = train(job, seed, torch.float64, images, labels, STEPS)
        g32, losses32, change32, _ = train(job, seed, torch.float32, images, labels, STEPS)
        by_hand = bounds(job, seed, images, labels)
        where = f"seed {seed}"
        fall = 1 - losses[-1] / losses[0]
        require(fall >= 0.1, f"{where}: the loss falls by {fall:.1%}, less than 10 %")
        for level, share in enumerate(alive[0]):
            require(job.alive[0] <= share <= job.alive[1],
                    f"{where}: {share:.1%} of level {level} are alive")
        gradients, changes, widths, shares = [], [], [], []
        for t, name in enumerate(names):
            hand, of_elements, of_sums = by_hand[t]
            require(relative(hand, g[t]) < 1e-11,
                    f"{where} {name}: autograd and the step by hand differ")
            error = (g32[t] - g[t]).abs()
            require((error <= of_elements).all() and
                    (np.abs(sums(job, g32[t] - g[t])) <= of_sums).all(),
                    f"{where} {name}: PyTorch's float32 exceeds the bound")
            nonzero = g[t] != 0
            shares.append((error / of_elements)[nonzero].max().item())
            widths.append((of_elements / g[t].abs())[nonzero].median().item())
            require(widths[-1] < job.width,
                    f"{where} {name}: the median bound is {widths[-1]:.1%} of its value")
            full = relative(change32[t], change[t])
            part = relative(sums(job, change32[t]), sums(job, change[t]))
            require(0.7 < part / full < 1.4,
                    f"{where} {name}: error of the sums {part:.2e}, of the tensor {full:.2e}")
            gradients.append(gradient_entry(name, g[t], of_elements, of_sums))
            gradients[-1]["median_bound"] = widths[-1]
            changes.append({"name": name, "norm": change[t].norm().item(),
                            "sums": store(sums(job, change[t])), "torch_error": part})
        cases.append({"seed": seed, "samples": BATCH, "losses": losses,
                      "torch_loss_error": relative(losses32, losses),
                      "alive_first": alive[0], "alive_last": alive[-1],
                      "gradients": gradients, "changes": changes})
        print(f"seed {seed}: loss {losses[0]:.4f} -> {losses[-1]:.4f} ({fall:.0%}); alive "
              f"{min(alive[0]):.2f}..{max(alive[0]):.2f}, at the end "
              f"{min(alive[-1]):.2f}..{max(alive[-1]):.2f}; float32: loss "
              f"{cases[-1]['torch_loss_error']:.1e}, change up to "
              f"{max(c['torch_error'] for c in changes):.1e}, gradients up to {max(shares):.3f} of "
              f"the bound; median bounds {min(widths):.1e}..{max(widths):.1e}", flush=True)

    # A smaller batch: what a batch of 8 with three padded samples must give as well.
    partial = {"seed": 0, "samples": PARTIAL, "gradients": [
        gradient_entry(name, *entry)
        for name, entry in zip(names, bounds(job, 0, images[:PARTIAL], labels[:PARTIAL]))]}

    index = {"torch": torch.__version__.split("+")[0],
             "cpu_capability": torch.backends.cpu.get_cpu_capability(),
             "image": job.size, "classes": C, "batch": BATCH, "steps": STEPS, "lr": job.lr,
             "momentum": MOMENTUM, "samples": job.samples, "values": at, "cases": cases,
             "partial": partial}
    (out / f"{job.file}.json").write_text(json.dumps(index, indent=1) + "\n")
    (out / f"{job.file}.bin").write_bytes(np.concatenate(blob).tobytes())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("--only", choices=["segmenter", "classifier"])
    arguments = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    for name, job in (("segmenter", SEGMENTER), ("classifier", CLASSIFIER)):
        if arguments.only in (None, name):
            make(job, arguments.out)


if __name__ == "__main__":
    main()
