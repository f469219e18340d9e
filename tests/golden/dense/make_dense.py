#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes dense.json: networks on rows of numbers as PyTorch trains them on the CPU in float64.

Weights, rows and targets are exact in float32. Losses include the L2 terms, as Keras' do. Run:
python3 make_dense.py > dense.json
"""
import json
import platform

import torch
import torch.nn.functional as F
from torch import nn

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
random = torch.Generator().manual_seed(20261130)
BATCH, STEPS, LR, MOMENTUM = 8, 10, 0.125, 0.875


def network(*layers):
    net = nn.Sequential(*layers)
    for p in net.parameters():
        scale = 1 / p.shape[-1] ** 0.5 if p.dim() > 1 else 0.25
        drawn = torch.randn(p.shape, generator=random) * scale
        p.data = drawn.float().double()
    return net


def values(tensor):
    return tensor.detach().flatten().tolist()


def train(name, net, features, classes, l2, binary):
    """`l2`: layer -> factor. `binary`: the network's last sigmoid is in the loss."""
    rows = torch.randint(0, 129, (STEPS * BATCH, features), generator=random) / 128
    labels = torch.randint(0, classes, (STEPS * BATCH,), generator=random)
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM)
    start = {key: values(p) for key, p in net.named_parameters()}
    losses, first = [], None
    for step in range(STEPS):
        batch = slice(step * BATCH, (step + 1) * BATCH)
        logits = net(rows[batch])
        if binary:
            targets = F.one_hot(labels[batch], classes).double()
            loss = F.binary_cross_entropy_with_logits(logits, targets)
        else:
            loss = F.cross_entropy(logits, labels[batch])
        loss = loss + sum(factor * (net[layer].weight ** 2).sum() for layer, factor in l2.items())
        optimizer.zero_grad()
        loss.backward()
        if first is None:
            first = {key: values(p.grad) for key, p in net.named_parameters()}
        optimizer.step()
        losses.append(loss.item())
    return {"name": name, "rows": values(rows), "labels": values(labels), "start": start, "first_gradients": first,
            "losses": losses, "end": {key: values(p) for key, p in net.named_parameters()}}


runs = [
    train("keras_example",
          network(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)), 1, 2,
          {2: 0.01}, True),
    train("hidden_sigmoids",
          network(nn.Linear(3, 6), nn.ReLU(), nn.Sigmoid(), nn.Linear(6, 5), nn.Sigmoid(), nn.Linear(5, 3)), 3, 3,
          {0: 0.02, 5: 0.005}, False),
]
print(json.dumps({"versions": {"torch": torch.__version__.split("+")[0], "python": platform.python_version()},
                  "batch": BATCH, "lr": LR, "momentum": MOMENTUM, "runs": runs}))
