#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes precision.json: how far step-1 gradients of the segmenter in tf32 and bf16 may be from
float64; and classifier_precision.json, the same of the classifier.

    python3 make_precision.py [--out DIR] [--only segmenter|classifier]
                                              needs torch and numpy; CPU only; some minutes

Data, networks and the argument are those of make_parity.py: to first order the error of the
gradients is a martingale, a sum over all roundings. Here it is bounded tensor by tensor, because
single values are too noisy. For a vector-valued martingale whose steps have norms of at most d_j,
the norm exceeds LAMBDA * sigma, sigma^2 = sum of d_j^2, with probability at most
2 exp(-LAMBDA^2 / 2) (Pinelis, Ann. Probab. 22, 1994, theorem 3.5). sigma is estimated as in
make_parity.py: the root mean square of the norm of g(perturbed) - g when every rounding moves its
value by its largest error, with signs drawn anew.

What is rounded, besides sums in fp32 (unit 2^-23, twice that of rounding to nearest, because
tensor cores may cut off):
  tf32   the factors of every product, to 11 significant bits. A library may round (error up to
         2^-11) or cut off (error between 0 and 2^-10, towards zero): both are a shift by 0 or
         -2^-11 and an error of at most 2^-11 around it. What the shift does to the gradients is
         not random and is added to the bound.
  bf16   what is stored: pixels, weights, biases, each layer's product, the sum with the bias,
         p - y, and gradients of activations, to 8 significant bits, to nearest. Not the logits.
         A tensor read twice is rounded once. Products of two such numbers are exact in fp32.
"""
import argparse
import json
import math
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

from make_parity import CLASSIFIER, SEEDS, SEGMENTER, C, U, backward, require, sampled, sums

LAMBDA = 6.0
REPEATS = 8
UNIT = {"tf32": 2.0**-11, "bf16": 2.0**-8}


def step(job, seed, images, labels, precision, move):
    """Gradients by hand. move(kind, name, value, size) may move a value; kind is "factor",
    "stored" or "sum", and size() the largest error of each of its elements."""
    tf32 = precision == "tf32"
    unit = UNIT[precision]

    def rounded(kind, name, value):
        return move(kind, name, value, lambda: unit * value.abs())

    def factor(name, value):
        return rounded("factor", name, value) if tf32 else value

    def stored(name, value):
        if not tf32:
            return rounded("stored", name, value)
        return move("sum", name, value, lambda: U * value.abs())

    encoder, decoder = job.network(seed)
    layers, count = encoder + decoder, labels.numel()
    x = stored("input", images.double() / 255)
    kept = []
    for i, l in enumerate(layers):
        logits = i + 1 == len(layers)
        w, b = l.weight.double(), l.bias.double()
        if not tf32:
            w = rounded("stored", f"w{i}", w)
            b = b if logits else rounded("stored", f"b{i}", b)
        x, w = factor(f"x{i}", x), factor(f"w{i}", w)
        z = move("sum", f"product{i}", l.linear(x, w),
                 lambda: math.sqrt(l.fan_in) * 2 * U * l.linear(x.abs(), w.abs()))
        if logits:
            z = move("sum", f"z{i}", z + b.view(1, -1, 1, 1), lambda: U * z.abs())
        else:
            z = stored(f"z{i}", stored(f"y{i}", z) + b.view(1, -1, 1, 1))
        y = z.clamp_min(0) if l.relu else z
        kept.append((l, x, w, y))
        x = y

    p = x.softmax(1)
    dz = p - F.one_hot(labels, C).permute(0, 3, 1, 2)
    dz = move("sum", "p", dz,
              lambda: U * ((x.amax(1, keepdim=True) - x + 4 + C + 1) * p + dz.abs()))
    dz = stored("dlogits", dz)
    gradients = []
    for i in reversed(range(len(encoder), len(layers))):
        l, x, w, y = kept[i]
        if l.relu:
            dz = dz * (y > 0)
        db = dz.sum((0, 2, 3))
        dz = factor(f"dz{i}", dz)
        dx, dw = backward(l, x, w, dz)
        pixels = min(x.numel() // x.shape[1], dz.numel() // dz.shape[1])
        terms = w.numel() // x.shape[1]
        dw = move("sum", f"dw{i}", dw, lambda: math.sqrt(pixels + 2) * 2 * U *
                  backward(l, x.abs(), w.abs(), dz.abs())[1])
        dx = move("sum", f"dx{i}", dx, lambda: math.sqrt(terms) * 2 * U *
                  backward(l, x.abs(), w.abs(), dz.abs())[0])
        gradients = [dw / count, db / count] + gradients
        dz = stored(f"dh{i}", dx)
    return gradients


def norms(job, gradients, reference):
    """Of each tensor: the norm of the difference, over the sampled values and over the sums."""
    return np.array([(np.linalg.norm(sampled(job, g - r)), np.linalg.norm(sums(job, g - r)))
                     for g, r in zip(gradients, reference)])


def cut(value, bits, nearest):
    """To `bits` significant bits, to nearest or towards zero."""
    mantissa, exponent = torch.frexp(value)
    scaled = torch.ldexp(mantissa, torch.tensor(bits))
    return torch.ldexp(scaled.round() if nearest else scaled.trunc(), exponent - bits)


def bounds(job, seed, images, labels, precision):
    sizes = {}

    def measure(_, name, value, size):
        sizes[name] = size()
        return value
    reference = step(job, seed, images, labels, precision, measure)
    generator = torch.Generator().manual_seed(seed)

    def perturb(_, name, value, size):
        sign = torch.randint(0, 2, value.shape, generator=generator, dtype=torch.int8)
        return value + (2 * sign - 1) * sizes[name]

    def shift(kind, name, value, size):
        return value * (1 - 2.0**-11) if kind == "factor" else value
    variance = sum(norms(job, step(job, seed, images, labels, precision, perturb), reference)**2
                   for _ in range(REPEATS)) / REPEATS
    drift = norms(job, step(job, seed, images, labels, precision, shift), reference)
    return reference, LAMBDA * np.sqrt(variance) + drift


def make(job, path):
    images, labels = job.images(), job.labels()
    index = {"lambda": LAMBDA, "repeats": REPEATS}
    for precision, bits in (("tf32", 11), ("bf16", 8)):
        index[precision] = []
        for seed in range(SEEDS):
            reference, of_norms = bounds(job, seed, images, labels, precision)
            size = norms(job, reference, [torch.zeros_like(r) for r in reference])
            worst = 0.0
            for nearest in (True, False) if precision == "tf32" else (True,):
                # The roundings themselves, those of sums left out.
                def rounding(kind, name, value, size):
                    return value if kind == "sum" else cut(value, bits, nearest)
                error = norms(job, step(job, seed, images, labels, precision, rounding), reference)
                require((error <= of_norms).all(), f"{precision} seed {seed}: exceeds the bound")
                worst = max(worst, (error / of_norms).max())
            # A bound near the norm would let a gradient of zero pass: such a tensor has none.
            width = (of_norms / size).max(1)
            useful = width < 0.9
            require(useful[-4:].all(), f"{precision} seed {seed}: a bound of the last two layers "
                    f"is {width[-4:].max():.0%} of the norm")

            def listed(column):
                return [bound if keep else None for bound, keep in zip(of_norms[:, column], useful)]
            index[precision].append({"seed": seed, "value_norm_bounds": listed(0),
                                     "sum_norm_bounds": listed(1)})
            print(f"{precision} seed {seed}: bounds of {useful.sum()} of {useful.size} tensors, "
                  f"{width.min():.1%} to {width[useful].max():.1%} of the norms; roundings alone "
                  f"reach {worst:.2f} of the bound", flush=True)
    path.write_text(json.dumps(index, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("--only", choices=["segmenter", "classifier"])
    arguments = parser.parse_args()
    if arguments.only in (None, "segmenter"):
        make(SEGMENTER, arguments.out / "precision.json")
    if arguments.only in (None, "classifier"):
        make(CLASSIFIER, arguments.out / "classifier_precision.json")


if __name__ == "__main__":
    main()
