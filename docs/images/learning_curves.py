#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mean loss and held-out accuracy of each epoch, from logs of `tandem train classify`, as one SVG.

  python3 docs/images/learning_curves.py none=a/log.jsonl mild=b/log.jsonl > docs/images/learning_curves.svg
"""
import json
import sys

COLOURS = ("#1f6fb4", "#c2571a", "#3b8f4e", "#7a4fa3")
WIDTH, HEIGHT, LEFT, TOP, BETWEEN = 300, 190, 48, 34, 70


def epochs(path):
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    found = [line for line in lines if "mean_loss" in line and "accuracy" in line]
    if not found:
        sys.exit(f"learning_curves.py: {path}: no line of an epoch with a score")
    return found


def panel(x0, title, runs, field, text):
    """Axes, and a line a run; the scale ends at the extremes."""
    values = [line[field] for _, lines in runs for line in lines]
    low, high, last = min(values), max(values), max(len(lines) for _, lines in runs)

    def at(epoch, value):
        return (x0 + WIDTH * (epoch - 1) / max(last - 1, 1),
                TOP + HEIGHT * (high - value) / ((high - low) or 1))

    yield f'<text x="{x0}" y="{TOP - 14}" font-weight="bold">{title}</text>'
    for i in range(5):
        value = low + (high - low) * i / 4
        y = at(1, value)[1]
        yield f'<line x1="{x0}" x2="{x0 + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#888" stroke-opacity="0.3"/>'
        yield f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{text(value)}</text>'
    for epoch in sorted({1, *range(5, last + 1, 5), last}):
        yield (f'<text x="{at(epoch, low)[0]:.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{epoch}'
               f'{" epochs" if epoch == last else ""}</text>')
    for colour, (name, lines) in zip(COLOURS, runs):
        points = " ".join("{:.1f},{:.1f}".format(*at(line["epoch"], line[field])) for line in lines)
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"><title>{name}</title></polyline>'


def main():
    runs = [(name, epochs(path)) for name, _, path in (argument.partition("=") for argument in sys.argv[1:])]
    if not 1 <= len(runs) <= len(COLOURS):
        sys.exit(f"learning_curves.py: {len(runs)} logs; allowed: 1 to {len(COLOURS)}, each as NAME=FILE")
    width, height = LEFT + 2 * WIDTH + BETWEEN + 60, TOP + HEIGHT + 50
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
          'font-family="sans-serif" font-size="12">')
    print(f'<rect width="{width}" height="{height}" fill="#fff"/><g fill="#222">')
    for line in (*panel(LEFT, "Mean loss of an epoch", runs, "mean_loss", "{:.2f}".format),
                 *panel(LEFT + WIDTH + BETWEEN, "Accuracy on held-out pictures", runs, "accuracy",
                        "{:.1%}".format)):
        print(line)
    x = LEFT
    for colour, (name, _) in zip(COLOURS, runs):
        y = TOP + HEIGHT + 40
        print(f'<line x1="{x}" x2="{x + 18}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" stroke-width="3"/>'
              f'<text x="{x + 24}" y="{y}">{name}</text>')
        x += 40 + 7 * len(name)
    print("</g></svg>")


if __name__ == "__main__":
    main()
