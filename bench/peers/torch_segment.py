#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Partial training of the segmenter in PyTorch: a frozen encoder, a trained decoder, cross-entropy per pixel,
plain SGD; bytes as pictures, converted on the device. The arithmetic of `tandem bench segment`."""
import sys

import torch
import torch_common as common


def build(config):
    encoder = common.make_network(config, common.encoder(config.image)).eval().requires_grad_(False)
    decoder = common.make_network(config, common.decoder(config.image, config.classes)).train()

    def first(images):
        with torch.no_grad(), config.autocast():
            x = images.to(torch.float32, memory_format=config.memory_format)
            return encoder(x if config.scale == 1 else x.mul_(config.scale))

    if config.compile:
        first = torch.compile(first, dynamic=False)

    generator = torch.Generator(config.device).manual_seed(config.seed + 1)
    shape = (config.batch, 3, config.image, config.image)
    batches = [
        (torch.randint(0, 256, shape, device=config.device, dtype=torch.uint8, generator=generator)
         .to(memory_format=config.memory_format),
         torch.randint(0, config.classes, (config.batch, config.image, config.image),
                       device=config.device, generator=generator))
        for _ in range(common.DISTINCT_BATCHES)]
    return common.Workload(
        first, common.make_trainer(config, decoder), batches, decoder,
        common.RandomSamples(config.image, config.classes, (config.image, config.image)))


if __name__ == "__main__":
    sys.exit(common.main(__doc__, build, can_check=True))
