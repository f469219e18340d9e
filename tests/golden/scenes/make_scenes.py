#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes scenes.txt: hashes of fashion-scenes made by a second, independent implementation.

Needs Python 3 alone. Interpolation is in exact fractions, Philox and the IDX reader are its own.
Usage: make_scenes.py > scenes.txt      (folder of Fashion-MNIST as an optional argument)
"""
import gzip
import hashlib
import math
import struct
import sys
from fractions import Fraction

FOLDER = sys.argv[1] if len(sys.argv) > 1 else "/usr/share/datasets/fashion-mnist"
MASK = 0xFFFFFFFF


def philox(counter, key):
    """Philox 4x32-10 of Salmon et al. 2011: four words from four words and a key of two."""
    x, k = list(counter), list(key)
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * x[0], 1 << 32)
        high1, low1 = divmod(0xCD9E8D57 * x[2], 1 << 32)
        x = [high1 ^ x[1] ^ k[0], low1, high0 ^ x[3] ^ k[1], low0]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return x


# Published test vectors (Random123, known-answer tests).
assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
assert philox([MASK] * 4, [MASK] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
assert philox([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0]) == [
    0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


def read_idx(name):
    with gzip.open(f"{FOLDER}/{name}.gz") as file:
        data = file.read()
    kind, rank = struct.unpack(">HBB", data[:4])[1:]
    assert kind == 8
    shape = struct.unpack(f">{rank}I", data[4:4 + 4 * rank])
    body = data[4 + 4 * rank:]
    assert len(body) == math.prod(shape)
    return shape, body


def load_fashion(split):
    prefix = {"train": "train", "held_out": "t10k"}[split]
    (count, _, _), pixels = read_idx(f"{prefix}-images-idx3-ubyte")
    labels = read_idx(f"{prefix}-labels-idx1-ubyte")[1]
    return [pixels[784 * i:784 * (i + 1)] for i in range(count)], labels


def load_formula(split):
    """Twenty-three noisy pictures that need no file; the C++ test makes the same."""
    salt = {"train": 0, "held_out": 1}[split]
    pictures = [bytes((((n + 100 * salt) * 7919 + p * 131 + 17) * 2654435761 & MASK) >> 24
                      for p in range(784)) for n in range(23)]
    return pictures, bytes((n * 3 + salt) % 10 for n in range(23))


def resize(picture, side):
    """Bilinear with half-pixel centres and clamped coordinates; halves are rounded up."""
    def taps(target):
        position = (target + Fraction(1, 2)) * Fraction(28, side) - Fraction(1, 2)
        position = min(max(position, Fraction(0)), Fraction(27))
        low = math.floor(position)
        return low, min(low + 1, 27), position - low
    result = []
    for y in range(side):
        y0, y1, fy = taps(y)
        row = []
        for x in range(side):
            x0, x1, fx = taps(x)
            upper = (1 - fx) * picture[28 * y0 + x0] + fx * picture[28 * y0 + x1]
            lower = (1 - fx) * picture[28 * y1 + x0] + fx * picture[28 * y1 + x1]
            row.append(math.floor((1 - fy) * upper + fy * lower + Fraction(1, 2)))
        result.append(row)
    return result


def scene(pictures, labels, split, size, seed, garments, min_scale, index):
    canvas = [[0] * size for _ in range(size)]
    truth = [[0] * size for _ in range(size)]
    use = {"train": int.from_bytes(b"scen", "big"), "held_out": int.from_bytes(b"held", "big")}
    for number in range(garments):
        w = philox([index & MASK, index >> 32, number, use[split]], [seed & MASK, seed >> 32])
        garment = w[0] * len(pictures) // 2**32
        scale = min_scale + (1 - min_scale) * (w[1] / 2**32)
        side = max(1, math.floor(scale * size + 0.5))
        left = w[2] * (size - side + 1) // 2**32
        top = w[3] * (size - side + 1) // 2**32
        for y, row in enumerate(resize(pictures[garment], side)):
            for x, value in enumerate(row):
                if value >= 32:
                    canvas[top + y][left + x] = value
                    truth[top + y][left + x] = labels[garment] + 1
                elif truth[top + y][left + x] == 0:
                    canvas[top + y][left + x] = max(canvas[top + y][left + x], value)
    picture = bytes(v for row in canvas for v in row for _ in range(3))
    return picture, bytes(v for row in truth for v in row)


print("# data split image seed garments min_scale sha256 of picture and labels of scenes 0 to 15")
for data, split, size, seed, garments, min_scale in [
        ("formula", "train", 32, 1, 1, 0.8),
        ("formula", "held_out", 32, 1, 1, 0.8),
        ("formula", "train", 32, 0x123456789ABCDEF0, 4, 0.3),
        ("formula", "train", 16, 7, 2, 1.0),
        ("formula", "held_out", 40, 3, 3, 0.05),
        ("fashion", "train", 32, 1, 1, 0.8),
        ("fashion", "held_out", 32, 1, 1, 0.8),
        ("fashion", "train", 64, 42, 3, 0.5)]:
    pictures, labels = (load_formula if data == "formula" else load_fashion)(split)
    digest = hashlib.sha256()
    for index in range(16):
        for part in scene(pictures, labels, split, size, seed, garments, min_scale, index):
            digest.update(part)
    print(data, split, size, seed, garments, min_scale, digest.hexdigest(), flush=True)
