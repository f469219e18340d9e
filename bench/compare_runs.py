# SPDX-License-Identifier: Apache-2.0
"""Compares the logs of a serial and an overlapped training run and judges the scores.

Exits 1 if a loss or the weights differ, or if a full run scores below the minimum.
"""
import argparse
import json
import sys

MINIMUM_MIOU = 0.25  # over the garments
MINIMUM_GARMENTS = 6  # so many garments with an IoU above MINIMUM_IOU
MINIMUM_IOU = 0.1


def read_log(path):
    """Returns ([(step, loss), ...], summary) of a log written by `tandem train --log`."""
    losses, summary = [], None
    with open(path, encoding="utf-8") as file:
        for line in file:
            entry = json.loads(line)
            if "summary" in entry:
                summary = entry["summary"]
            else:
                losses.append((entry["step"], entry["loss"]))
    if summary is None or not losses:
        sys.exit(f"{path}: no {'losses' if summary else 'summary'}; the run did not finish")
    return losses, summary


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("serial")
    parser.add_argument("overlap")
    parser.add_argument("--full-run-steps", type=int, default=0, metavar="N",
                        help="hold runs of at least N steps to the minimum scores")
    arguments = parser.parse_args()
    serial_losses, serial = read_log(arguments.serial)
    overlap_losses, overlap = read_log(arguments.overlap)

    for run in (serial, overlap):
        print(f"  {run['schedule']:8} {run['steps_per_s']:8.2f} steps/s "
              f"{run['images_per_s']:9.1f} images/s on {run['cores']:.2g} cores")
    print(f"  overlap is {overlap['steps_per_s'] / serial['steps_per_s']:.2f} times as fast as serial")
    print(f"  loss     {overlap['first_loss']:.4f} -> {overlap['last_loss']:.4f} "
          "(means of the first and the last tenth of the steps)")

    same_losses = serial_losses == overlap_losses
    same_weights = serial["weights_sha256"] == overlap["weights_sha256"]
    print(f"  losses of all {len(serial_losses)} steps: {'the same' if same_losses else 'DIFFERENT'}")
    print(f"  weights: {'the same' if same_weights else 'DIFFERENT'} "
          f"(sha256 {overlap['weights_sha256'][:16]}...)")

    scored = overlap["garment_miou"] is not None
    if scored:
        print("  held-out scenes             trained   background everywhere")
        for name, key in (("garment mIoU", "garment_miou"), ("mIoU of all classes", "miou"),
                          ("pixel accuracy", "pixel_accuracy")):
            print(f"    {name:25} {overlap[key]:7.3f}   {overlap['background_' + key]:7.3f}")
        # null: a garment that occurs in no held-out scene
        ious = [iou for iou in overlap["garment_iou"] if iou is not None]
        print(f"    IoU of each garment       {' '.join(f'{iou:.2f}' for iou in ious)}")
    else:
        print("  no scores: the run was trained with --eval 0")

    failures = []
    if not same_losses:
        failures.append("the losses differ")
    if not same_weights:
        failures.append("the weights differ")
    is_full = arguments.full_run_steps and overlap["steps"] >= arguments.full_run_steps
    if is_full and not scored:
        failures.append(f"{arguments.overlap} has no scores, to which a full run is held")
    elif is_full:
        if not overlap["garment_miou"] >= MINIMUM_MIOU:
            failures.append(f"garment mIoU is {overlap['garment_miou']:.3f}, below {MINIMUM_MIOU}")
        learned = sum(iou > MINIMUM_IOU for iou in ious)
        if learned < MINIMUM_GARMENTS:
            failures.append(f"{learned} garments have an IoU above {MINIMUM_IOU}; at least "
                            f"{MINIMUM_GARMENTS} must")
    if failures:
        sys.exit("FAILED: " + "; ".join(failures))


if __name__ == "__main__":
    main()
