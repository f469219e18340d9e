#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes augment.json and augment.bin: the augmentation as torchvision's functional transforms do it.

    python3 make_augment.py [--out DIR]     needs torch and torchvision; CPU only; seconds

Every case is a chain of crop, hflip, resize, rotate, blur and normalize on one float picture with
values 0 .. 255; a part alone is a chain whose other parts change nothing. Picture p of H x W pixels
has splitmix64(p * 2^32 + (y * W + x) * 3 + c) mod 256 at (y, x, c). augment.bin holds float32
values, little end first:
  chains    (y, x, c) of every `stride`-th pixel, from the first
  indices   for every `row_stride`-th row: y * W + x of the pixel that rotation by nearest takes, -1
            for the fill; torchvision rotates a picture of its own indices
  matrices  the six numbers that torchvision multiplies pixel centres with, and
  weights   the one-dimensional kernel of gaussian_blur, from the middle outwards; both are in the
            JSON file, as decimals that give back the float
A chain that rotates by nearest has no source coordinate near a tie (checked), so that its pixels do
not depend on how a coordinate was rounded; `indices` has the ties.
"""
import argparse
import json
import math
import pathlib
import random
import struct

import torch
import torchvision
from torchvision.transforms import InterpolationMode
from torchvision.transforms import _functional_tensor as F_t
from torchvision.transforms import functional as F

MASK = 2**64 - 1
PAD_MODES = {"constant": "constant", "symmetric": "symmetric", "replicate": "edge"}
IMAGENET = {"mean": [0.485, 0.456, 0.406], "deviation": [0.229, 0.224, 0.225]}
torch.set_num_threads(1)
random.seed(20240607)

values = []


def store(tensor):
    offset = len(values)
    values.extend(tensor.flatten().tolist())
    return {"offset": offset, "count": len(values) - offset}


def f32(number):
    return torch.tensor(number, dtype=torch.float32).item()


def splitmix64(i):
    z = (i + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def picture(number, h, w):
    flat = [splitmix64((number << 32) + i) % 256 for i in range(h * w * 3)]
    return torch.tensor(flat, dtype=torch.float32).view(h, w, 3).permute(2, 0, 1).contiguous()


def grid_matrix(degrees, h, w):
    """What _gen_affine_grid() multiplies pixel centres with, rows for x and y."""
    matrix = F._get_inverse_affine_matrix([0.0, 0.0], -degrees, [0.0, 0.0], 1.0, [0.0, 0.0])
    theta = torch.tensor(matrix, dtype=torch.float32).reshape(1, 2, 3)
    rescaled = theta.transpose(1, 2) / torch.tensor([0.5 * w, 0.5 * h], dtype=torch.float32)
    return rescaled[0].T.flatten().tolist()


def nearest_tie(degrees, h, w):
    """Smallest distance of a source coordinate to a half-integer, in float64."""
    sine, cosine = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    distance = 1.0
    for row in range(h):
        for column in range(w):
            x, y = column - (w - 1) / 2, row - (h - 1) / 2
            for p in (cosine * x - sine * y + (w - 1) / 2, sine * x + cosine * y + (h - 1) / 2):
                distance = min(distance, abs(p - math.floor(p) - 0.5))
    return distance


def blur(x, taps, sigma, border):
    if border == "reflect":
        return F.gaussian_blur(x, [taps, taps], [sigma, sigma])
    kernel = F_t._get_gaussian_kernel2d([taps, taps], [sigma, sigma], x.dtype, x.device)
    padded = F.pad(x, [taps // 2] * 4, fill=0, padding_mode=PAD_MODES[border])
    return torch.nn.functional.conv2d(padded[None], kernel.expand(3, 1, taps, taps), groups=3)[0]


def chain(name, size, crop=None, out=None, padding=0, flip=0, antialias=True, rotate=False,
          degrees=0.0, rotation="nearest", taps=0, sigma=1.0, border="reflect", fill=0.0, scale=1.0,
          mean=(0.0, 0.0, 0.0), deviation=(1.0, 1.0, 1.0), stride=1):
    h, w = size
    crop = crop or [0, 0, h + 2 * padding, w + 2 * padding]
    out = out or crop[2:]
    degrees, sigma, scale = f32(degrees), f32(sigma), f32(scale)
    mean, deviation = [f32(m) for m in mean], [f32(d) for d in deviation]
    number = len(cases)
    x = F.crop(F.pad(picture(number, h, w), [padding] * 4, fill=fill), *crop)
    if flip:
        x = F.hflip(x)
    if list(out) != list(crop[2:]):
        x = F.resize(x, list(out), InterpolationMode.BILINEAR, antialias=antialias)
    if rotate:
        if rotation == "nearest":
            assert nearest_tie(degrees, *out) > 4 * max(out) * 2.0**-24, (name, degrees, out)
        x = F.rotate(x, degrees, InterpolationMode(rotation), fill=[fill])
    if taps:
        x = blur(x, taps, sigma, border)
    x = F.normalize(x * scale, mean, deviation)
    kept = x.permute(1, 2, 0).reshape(-1, 3)[::stride]
    cases.append({
        "name": name, "picture": number, "in": [h, w], "padding": padding, "crop": list(crop),
        "flip": flip, "out": list(out), "antialias": antialias, "rotate": rotate,
        "degrees": degrees, "rotation": rotation, "taps": taps, "sigma": sigma, "border": border,
        "fill": fill, "scale": scale, "mean": mean, "deviation": deviation, "stride": stride,
        **store(kept)})


def safe_angle(low, high, h, w):
    while True:
        degrees = f32(random.uniform(low, high))
        if nearest_tie(degrees, h, w) > 4 * max(h, w) * 2.0**-24:
            return degrees


cases, indices, matrices, weights = [], [], [], []

# Crop, padding, flip.
chain("crop", [9, 7], crop=[2, 1, 5, 4])
chain("crop of one pixel", [9, 7], crop=[8, 6, 1, 1])
chain("crop of everything", [9, 7])
chain("padded crop", [9, 7], padding=4, fill=128.0, crop=[0, 11, 9, 4])
chain("padded crop of fill alone", [5, 5], padding=4, fill=31.0, crop=[0, 0, 4, 4])
chain("flip, even", [5, 6], flip=1)
chain("flip, odd", [6, 5], flip=1)
chain("flip of a crop", [9, 8], crop=[1, 2, 6, 5], flip=1)

# Resize.
for size, out in [([1, 1], [5, 3]), ([2, 2], [5, 5]), ([2, 2], [1, 1]), ([5, 7], [10, 14]),
                  ([8, 8], [16, 16]), ([16, 16], [8, 8]), ([17, 13], [5, 9]), ([32, 32], [24, 20]),
                  ([9, 9], [31, 2]), ([31, 31], [3, 3]), ([20, 20], [20, 33]), ([40, 40], [1, 1]),
                  ([7, 12], [8, 11]), ([64, 50], [9, 7])]:
    for antialias in (True, False):
        chain("resize", size, out=out, antialias=antialias)

# Rotation: values by nearest and bilinear.
for h, w in [(1, 1), (2, 2), (3, 3), (5, 5), (8, 8), (9, 7), (12, 16)]:
    for degrees in (0, 180, 360, -180, 540) + ((90, 270, -90, -270) if h == w else ()):
        chain("turn", [h, w], rotate=True, degrees=degrees, fill=77.0)
    for degrees in (30, -45, 17.25, -33.7, 123.4):
        chain("rotate bilinear", [h, w], rotate=True, degrees=degrees, rotation="bilinear", fill=200.0)
    chain("rotate bilinear, fill 0", [h, w], rotate=True, degrees=-12.5, rotation="bilinear")
    for degrees in (0, 90, 180):
        chain("turn bilinear", [h, w], rotate=True, degrees=degrees, rotation="bilinear", fill=50.0)

# Blur.
for size, taps in [([2, 2], 3), ([3, 5], 5), ([5, 5], 3), ([9, 6], 7), ([16, 16], 7), ([16, 16], 15)]:
    for border in ("reflect", "constant", "symmetric", "replicate"):
        for sigma in (1e-4, 0.3, 1.0, 2.0, 50.0) if size[0] == 9 else (1.0, 1.7):
            chain("blur", size, taps=taps, sigma=sigma, border=border)
for border in ("constant", "replicate"):
    chain("blur of one pixel", [1, 1], taps=7, sigma=1.5, border=border)

# Normalize.
chain("normalize", [5, 6], scale=1 / 255, **IMAGENET)

# Everything at once.
for size, crop, out, taps in [([32, 32], (16, 16), [32, 32], 7), ([20, 20], (20, 20), [20, 20], 3),
                              ([33, 21], (17, 20), [25, 30], 5), ([40, 40], (36, 30), [16, 16], 9),
                              ([32, 32], (31, 31), [17, 17], 15)]:
    for antialias in (True, False):
        place = [random.randint(0, size[0] - crop[0]), random.randint(0, size[1] - crop[1]), *crop]
        chain("chain", size, crop=place, out=out, flip=int(antialias), antialias=antialias,
              rotate=True, degrees=safe_angle(-45, 45, *out), taps=taps,
              sigma=random.uniform(0.1, 2.0), fill=99.0, scale=1 / 255, **IMAGENET)
chain("chain, other parts", [32, 32], padding=4, crop=[3, 7, 32, 32], out=[28, 28], flip=1, rotate=True,
      degrees=21.5, rotation="bilinear", taps=5, sigma=0.8, border="symmetric", fill=12.0,
      scale=1 / 255, **IMAGENET)
chain("chain, constant border", [24, 24], crop=[4, 4, 16, 16], out=[20, 20], rotate=True,
      degrees=safe_angle(-180, 180, 20, 20), taps=7, sigma=1.9, border="constant", scale=1 / 255,
      **IMAGENET)
for flip in (0, 1):  # the article's sizes
    place = [random.randint(0, 128), random.randint(0, 128), 128, 128]
    chain("article", [256, 256], crop=place, out=[256, 256], flip=flip, rotate=True,
          degrees=safe_angle(-45, 45, 256, 256), taps=7, sigma=random.uniform(0.1, 2.0),
          scale=1 / 255, stride=61, **IMAGENET)

# Source indices of rotation by nearest, with the ties.
FIXED = [0, 90, 180, 270, 360, -90, -180, 450, 30, 45, -45, 60, 135, 17.25, -33.7, 1e-3, 89.999]
for h, w in [(1, 1), (1, 5), (2, 2), (2, 1), (5, 5), (8, 8), (9, 7), (12, 16), (31, 17), (64, 64),
             (128, 96), (224, 224), (256, 256)]:
    picked = FIXED if h * w < 600 else [45, 90, -30] + [random.uniform(-180, 180) for _ in range(5)]
    for degrees in map(f32, picked):
        row_stride = 1 if h * w < 600 else h // 16
        own = torch.arange(h * w, dtype=torch.float32).view(1, h, w)
        rotated = F.rotate(own, degrees, InterpolationMode.NEAREST, fill=[-1.0])
        indices.append({"out": [h, w], "degrees": degrees, "row_stride": row_stride,
                        **store(rotated[0, ::row_stride])})

for h, w in [(1, 1), (7, 9), (64, 64), (256, 128), (300, 200)]:
    for degrees in map(f32, FIXED + [random.uniform(-360, 360) for _ in range(8)]):
        matrices.append({"out": [h, w], "degrees": degrees, "matrix": grid_matrix(degrees, h, w)})

for taps in range(3, 16, 2):
    for sigma in map(f32, (1e-6, 0.1, 0.25, 0.5, 1.0, 1.3, 2.0, 7.7, 1e3, 1e6)):
        kernel = F_t._get_gaussian_kernel1d(taps, sigma, torch.float32, torch.device("cpu"))
        weights.append({"taps": taps, "sigma": sigma, "weights": kernel[taps // 2:].tolist()})

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
out = parser.parse_args().out
(out / "augment.bin").write_bytes(struct.pack(f"<{len(values)}f", *values))
lists = {"chains": cases, "indices": indices, "matrices": matrices, "weights": weights}
with open(out / "augment.json", "w") as file:
    head = {"torch": torch.__version__.split("+")[0],
            "torchvision": torchvision.__version__.split("+")[0],
            "cpu_capability": torch.backends.cpu.get_cpu_capability(), "values": len(values)}
    parts = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in head.items()]
    for name, entries in lists.items():
        lines = ",\n  ".join(json.dumps(e) for e in entries)
        parts.append(f' "{name}": [\n  {lines}]')
    file.write("{\n" + ",\n".join(parts) + "\n}\n")
