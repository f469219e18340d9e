#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes trial.csv: who of a made-up drug trial had side effects.

2,100 people of 13 to 100 years, half of them below 65. Of the older ones 95 % had side effects, of
the younger ones 5 %, so that no rule that knows the age alone is right about more than 95 %. Ages
are scaled to 0 .. 1. Run: python3 make_trial.py > trial.csv
"""
import random

YOUNGEST, OLD, OLDEST = 13, 65, 100
draw = random.Random(1)
print("age,side_effects")
for person in range(2100):
    old = draw.randrange(2)
    age = draw.randint(OLD, OLDEST) if old else draw.randint(YOUNGEST, OLD - 1)
    unusual = draw.random() < 0.05
    print(f"{(age - YOUNGEST) / (OLDEST - YOUNGEST):.6f},{old ^ unusual}")
