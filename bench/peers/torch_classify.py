#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Classification with augmentation on the device in PyTorch: crop of half the side, resize back, rotation,
blur, for each picture with its own draws; then the encoder with a linear layer is trained.

--augment batched does the chain for a whole batch at once; article does it as the published experiment does,
with torchvision, a Python loop over the rotations and one blur for the batch."""
import math
import random
import sys

import torch
import torch.nn.functional as F
import torch_common as common
from torch import nn

BLUR_TAPS = 7
BLUR_SIGMA = (0.1, 2.0)
DEGREES = 45.0


def batched_augment(images):
    """uint8 [N, 3, S, S] -> float [N, 3, S, S], values 0..255."""
    n, channels, size, _ = images.shape
    device, half = images.device, size // 2
    # Crop: gather the rows, then the columns.
    corner = torch.randint(0, size - half + 1, (2, n), device=device)
    lines = corner[..., None] + torch.arange(half, device=device)  # [2, N, S/2]
    x = images.gather(2, lines[0].view(n, 1, half, 1).expand(n, channels, half, size))
    x = x.gather(3, lines[1].view(n, 1, 1, half).expand(n, channels, half, half))
    x = F.interpolate(x.float(), scale_factor=2, mode="bilinear", align_corners=False)
    # Rotation about the centre, nearest pixel, 0 outside.
    angle = torch.empty(n, device=device).uniform_(-math.radians(DEGREES), math.radians(DEGREES))
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    matrix = torch.stack((cos, -sin, zero, sin, cos, zero), 1).view(n, 2, 3)
    x = F.grid_sample(x, F.affine_grid(matrix, list(x.shape), align_corners=False), mode="nearest",
                      padding_mode="zeros", align_corners=False)
    # Gaussian blur, separable: every picture has its own taps, so each of its planes is a group.
    radius = BLUR_TAPS // 2
    sigma = torch.empty(n, 1, device=device).uniform_(*BLUR_SIGMA)
    taps = torch.softmax(-0.5 * (torch.arange(-radius, radius + 1, device=device) / sigma) ** 2, 1)
    taps = taps.repeat_interleave(channels, 0)  # [3 N, 7]
    planes = F.pad(x, (radius,) * 4, mode="reflect").view(1, n * channels, size + 2 * radius, -1)
    planes = F.conv2d(planes, taps[:, None, None, :], groups=n * channels)
    planes = F.conv2d(planes, taps[:, None, :, None], groups=n * channels)
    return planes.view(n, channels, size, size)


def article_augment(images):
    from torchvision import ops
    from torchvision.transforms import v2

    n, _, size, _ = images.shape
    half = size // 2
    corner = torch.randint(0, size - half + 1, (n, 2), device=images.device).float()
    boxes = torch.cat((torch.arange(n, device=images.device).float()[:, None], corner, corner + half), 1)
    x = ops.roi_align(images.float(), boxes, output_size=half)
    x = v2.functional.resize(x, [size, size])
    x = torch.stack([v2.functional.rotate(one, random.uniform(-DEGREES, DEGREES)) for one in x])
    x = v2.functional.gaussian_blur(x, [BLUR_TAPS] * 2, [random.uniform(*BLUR_SIGMA)] * 2)
    return v2.functional.normalize(x, [0.0] * 3, [1.0] * 3)


def build(config):
    layers = common.encoder(config.image) + [
        nn.Flatten(), nn.Linear(16 * config.image, config.classes)]
    network = common.make_network(config, layers).train()
    augment = article_augment if config.augment == "article" else batched_augment
    if config.compile and config.augment == "batched":
        augment = torch.compile(augment, dynamic=False)

    def first(images):
        with torch.no_grad():
            x = augment(images)
            return (x if config.scale == 1 else x * config.scale).contiguous(
                memory_format=config.memory_format)

    generator = torch.Generator(config.device).manual_seed(config.seed + 1)
    shape = (config.batch, 3, config.image, config.image)
    batches = [
        (torch.randint(0, 256, shape, device=config.device, dtype=torch.uint8, generator=generator),
         torch.randint(0, config.classes, (config.batch,), device=config.device, generator=generator))
        for _ in range(common.DISTINCT_BATCHES)]
    return common.Workload(
        first, common.make_trainer(config, network), batches, network,
        common.RandomSamples(config.image, config.classes, ()))


if __name__ == "__main__":
    sys.exit(common.main(__doc__, build, can_check=False))
