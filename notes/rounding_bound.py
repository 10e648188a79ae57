"""Largest float32 error of the reference's weighted sums against the oracle's bound: python notes/rounding_bound.py (on a CPU)."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
import reference
from harness import oracle
from harness.cases import DISTRIBUTIONS, CaseSpec
from harness.inputs import build

print("| distribution | C | error / (u sum w|v|) | error / bound |\n| --- | --- | --- | --- |")
for distribution in DISTRIBUTIONS:
    for C in (128, 512):
        a = build(CaseSpec("bound", 1, 64 * C, C, distribution=distribution)).arguments
        tokens = a["boundary_token_indices"]
        last = a["positions"][tokens]
        float32 = reference.compress_windows(a["state_cache"], a["token_to_req"][tokens].long(), last, a["block_table"], 8, C)
        in_units = of_bound = 0.0
        for chunk in torch.arange(64).split(oracle.CHUNK):
            window = last[chunk, None] + torch.arange(1 - C, 1)  # the identity table: positions are rows
            values, scores = a["state_cache"].view(-1, 1024)[window].double().split(512, dim=-1)
            exact, bound = oracle._compressed(values, scores, C)
            error = (float32[chunk].double() - exact).abs()
            size = (torch.softmax(scores, 1) * values.abs()).sum(1).clamp(min=1e-300)
            in_units = max(in_units, float((error / size).max()) / oracle.U)
            of_bound = max(of_bound, float((error / bound).max()))
        print(f"| {distribution} | {C} | {in_units:.1f} | {of_bound:.3f} |")
