#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes ops.json: operations and their gradients as PyTorch computes them on the CPU in float64.

Tensors are flat lists in PyTorch's order. Inputs are whole numbers in units of 1/64, small enough to
be exact in bf16; results are numbers. Run: python3 make_ops.py > ops.json
"""
import json
import platform
import sys

import torch
import torch.nn.functional as F

UNIT = 64
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
random = torch.Generator().manual_seed(20240607)


def draw(*shape):
    """Multiples of 1/64 in [-2, 2), for autograd."""
    whole = torch.randint(-127, 128, shape, generator=random)
    return (whole / UNIT).requires_grad_()


def inputs(**tensors):
    return {name: (t.detach() * UNIT).round().long().flatten().tolist() for name, t in tensors.items()}


def results(**tensors):
    return {name: t.detach().flatten().tolist() for name, t in tensors.items()}


def convolution(op, n, c, k, h, w):
    """h x w is the input's size."""
    kernel = {"conv1x1": 1, "conv2x2": 2, "tconv2x2": 2, "conv3x3": 3}[op]
    transposed = op == "tconv2x2"
    x = draw(n, c, h, w)
    weight = draw(*((c, k) if transposed else (k, c)), kernel, kernel)
    b = draw(k)
    if transposed:
        y = F.conv_transpose2d(x, weight, b, stride=2)
    else:
        y = F.conv2d(x, weight, b, stride=2 if op == "conv2x2" else 1, padding=1 if kernel == 3 else 0)
    dy = draw(*y.shape)
    y.backward(dy)
    return {"op": op, "n": n, "c": c, "k": k, "h": h, "w": w,
            **inputs(x=x, weight=weight, b=b, dy=dy),
            **results(y=y, dx=x.grad, dweight=weight.grad, db=b.grad)}


def relu(n, c, h, w):
    x = draw(n, c, h, w)
    with torch.no_grad():
        x.flatten()[::5] = 0
    y = F.relu(x)
    dy = draw(*y.shape)
    y.backward(dy)
    return {"op": "relu", "n": n, "c": c, "h": h, "w": w, **inputs(x=x, dy=dy), **results(y=y, dx=x.grad)}


def cross_entropy(n, k, h, w, ignore):
    logits = draw(n, k, h, w)
    labels = torch.randint(0, k, (n, h, w), generator=random)
    labels[torch.rand(labels.shape, generator=random) < 0.25] = ignore
    F.cross_entropy(logits, labels, ignore_index=ignore, reduction="sum").backward()
    loss = F.cross_entropy(logits, labels, ignore_index=ignore, reduction="mean")
    return {"op": "cross_entropy", "n": n, "k": k, "h": h, "w": w, "ignore": ignore,
            "labels": labels.flatten().tolist(), "valid_count": int((labels != ignore).sum()),
            **inputs(logits=logits), "loss": loss.item(), **results(dlogits_of_sum=logits.grad)}


def sigmoid(n, c, h, w, scale):
    x = (draw(n, c, h, w) * scale).detach().requires_grad_()
    y = torch.sigmoid(x)
    dy = draw(*y.shape)
    y.backward(dy)
    return {"op": "sigmoid", "n": n, "c": c, "h": h, "w": w, **inputs(x=x, dy=dy), **results(y=y, dx=x.grad)}


def binary_cross_entropy(n, k, h, w, ignore, scale):
    """The mean over the classes of each label, and its gradient summed over the labels."""
    logits = (draw(n, k, h, w) * scale).detach().requires_grad_()
    labels = torch.randint(0, k, (n, h, w), generator=random)
    labels[torch.rand(labels.shape, generator=random) < 0.25] = ignore
    valid = labels != ignore
    targets = F.one_hot(labels.clamp(max=k - 1), k).permute(0, 3, 1, 2).double()
    of_valid = [t.permute(0, 2, 3, 1)[valid] for t in (logits, targets)]
    loss = F.binary_cross_entropy_with_logits(*of_valid, reduction="mean")
    (loss * valid.sum()).backward()
    return {"op": "binary_cross_entropy", "n": n, "k": k, "h": h, "w": w, "ignore": ignore,
            "labels": labels.flatten().tolist(), "valid_count": int(valid.sum()),
            **inputs(logits=logits), "loss": loss.item(), **results(dlogits_of_sum=logits.grad)}


def l2_penalty(elements, l2, count):
    """Of a mean loss over `count` labels that is linear in the weights."""
    weight = draw(elements)
    sums = draw(elements).detach()
    loss = (sums * weight).sum() / count
    penalised = loss + l2 * (weight ** 2).sum()
    penalised.backward()
    return {"op": "l2_penalty", "elements": elements, "l2": l2, "count": count,
            **inputs(weight=weight, dweight=sums), "loss": loss.item(), "penalised": penalised.item(),
            **results(after=weight.grad * count)}


def sgd(elements, steps, lr, momentum, weight_decay):
    weight = draw(elements)
    start = inputs(weight=weight)
    optimizer = torch.optim.SGD([weight], lr=lr, momentum=momentum, weight_decay=weight_decay)
    history = []
    for _ in range(steps):
        gradient = draw(elements).detach()
        weight.grad = gradient
        optimizer.step()
        history.append({**inputs(dweight=gradient), **results(after=weight)})
    return {"op": "sgd", "elements": elements, "lr": lr, "momentum": momentum,
            "weight_decay": weight_decay, **start, "steps": history}


cases = [
    convolution("conv1x1", 2, 3, 5, 3, 4),
    convolution("conv1x1", 1, 7, 3, 4, 4),
    convolution("conv2x2", 2, 3, 5, 4, 4),
    convolution("conv2x2", 3, 1, 7, 8, 8),
    convolution("tconv2x2", 2, 5, 3, 2, 2),
    convolution("tconv2x2", 3, 7, 1, 4, 4),
    convolution("conv3x3", 2, 3, 5, 5, 3),
    convolution("conv3x3", 1, 2, 3, 1, 4),
    relu(2, 3, 3, 5),
    cross_entropy(2, 5, 3, 4, 255),
    cross_entropy(3, 11, 2, 3, 2),
    sgd(17, 5, lr=0.125, momentum=0.875, weight_decay=0.03125),
    sgd(17, 5, lr=0.125, momentum=0.875, weight_decay=0),
    sgd(17, 5, lr=0.125, momentum=0, weight_decay=0.03125),
    sigmoid(2, 3, 3, 5, 1),
    sigmoid(2, 3, 3, 5, 16),
    binary_cross_entropy(2, 5, 3, 4, 255, 1),
    binary_cross_entropy(3, 2, 2, 3, 255, 16),
    l2_penalty(19, 0.0078125, 8),
]
versions = {"torch": torch.__version__.split("+")[0], "python": platform.python_version(),
            "cpu_capability": torch.backends.cpu.get_cpu_capability()}
lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
sys.stdout.write('{"versions":%s,\n"unit":%d,\n"cases":[\n%s\n]}\n' % (json.dumps(versions), UNIT, lines))
