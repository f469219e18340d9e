#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own ten steps on this machine's GPU, for the parity test of the CUDA backend.

    python3 torch_on_gpu.py OUT.json     needs torch with CUDA, numpy, a GPU; about half a minute
    TANDEM_TORCH_PARITY=OUT.json tandem_test_gpu_parity

Data, network and the float64 reference are those of make_parity.py for the segmenter. For each
precision and seed the file holds the relative error of the ten losses and, for each tensor of the
decoder, that of the signed sums of W10 - W0. fp32 and tf32 set both of PyTorch's switches; bf16 is
autocast with fp32 weights.
"""
import contextlib
import json
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

from make_parity import MOMENTUM, SEEDS, SEGMENTER, STEPS, relative, sums


def apply(layer, x, weight, bias):
    if layer.transposed:
        x = F.conv_transpose2d(x, weight, bias, stride=2)
    else:
        stride, padding = {1: (1, 0), 2: (2, 0), 3: (1, 1)}[layer.kernel]
        x = F.conv2d(x, weight, bias, stride=stride, padding=padding)
    return x.relu() if layer.relu else x


def train(seed, precision, images, labels):
    """Losses, and the change of each tensor."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"

    def casting():
        if precision == "bf16":
            return torch.autocast("cuda", dtype=torch.bfloat16)
        return contextlib.nullcontext()

    encoder, decoder = SEGMENTER.network(seed)
    parameters = [p.cuda().requires_grad_() for l in decoder for p in (l.weight, l.bias)]
    start = [p.detach().clone() for p in parameters]
    optimizer = torch.optim.SGD(parameters, lr=SEGMENTER.lr, momentum=MOMENTUM)
    losses = []
    for _ in range(STEPS):
        with casting():
            x = images.float() / 255
            with torch.no_grad():
                for l in encoder:
                    x = apply(l, x, l.weight.cuda(), l.bias.cuda())
            for l, w, b in zip(decoder, parameters[::2], parameters[1::2]):
                x = apply(l, x, w, b)
            loss = F.cross_entropy(x.float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [(p.detach() - s).double().cpu() for p, s in zip(parameters, start)]


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    if not torch.cuda.is_available():
        raise SystemExit("torch_on_gpu.py: PyTorch sees no GPU")
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    folder = pathlib.Path(__file__).parent
    index = json.loads((folder / "parity.json").read_text())
    values = np.fromfile(folder / "parity.bin", dtype="<f8")
    images, labels = SEGMENTER.images().cuda(), SEGMENTER.labels().cuda()

    precisions = {}
    for precision in ("fp32", "tf32", "bf16"):
        runs = []
        for seed in range(SEEDS):
            case = index["cases"][seed]
            losses, changes = train(seed, precision, images, labels)
            errors = []
            for change, stored in zip(changes, case["changes"], strict=True):
                ours = sums(SEGMENTER, change)
                errors.append(relative(ours, values[stored["sums"]:stored["sums"] + ours.size]))
            runs.append({"seed": seed, "loss_error": relative(losses, case["losses"]),
                         "change_errors": errors})
        precisions[precision] = runs
        median = np.median([[r["loss_error"], *r["change_errors"]] for r in runs], axis=0)
        print(f"{precision}: median error of the losses {median[0]:.1e}, of the changes "
              f"{median[1:].min():.1e} to {median[1:].max():.1e}", flush=True)
    pathlib.Path(sys.argv[1]).write_text(json.dumps(
        {"torch": torch.__version__, "device": torch.cuda.get_device_name(),
         "precisions": precisions}, indent=1) + "\n")


if __name__ == "__main__":
    main()
