"""The reference against an independent reading of the contract: plain loops over one output, numpy scalars."""

import math

import numpy as np
import pytest
import torch

from harness.cases import DISTRIBUTIONS, CaseSpec
from harness.diff import output_slots, slot_bytes
from harness.inputs import build
from harness.oracle import bounds, explained
from reference import c128_256_512_compress


def bf16(x):
    return float(torch.tensor(x, dtype=torch.float32).to(torch.bfloat16))


def slot_by_hand(a, n):
    """Output n -> its 584 bytes, in float64 but for the bfloat16 roundings."""
    C, block_size = a["compress_ratio"], a["block_size"]
    token = int(a["boundary_token_indices"][n])
    request, last = int(a["token_to_req"][token]), int(a["positions"][token])
    rows = []
    for t in range(last - C + 1, last + 1):
        block = int(a["block_table"][request, t // block_size])
        rows.append(a["state_cache"][block, t % block_size].double().numpy())
    values, scores = np.array(rows)[:, :512], np.array(rows)[:, 512:]
    weights = np.exp(scores - scores.max(0))
    x = (values * weights).sum(0) / weights.sum(0)
    z = x / math.sqrt((x * x).mean() + a["rms_norm_eps"]) * a["rms_norm_weight"].double().numpy()

    payload, scales = bytearray(), bytearray()
    for group in range(7):
        rounded = [bf16(v) for v in z[group * 64 : group * 64 + 64]]
        amax = max(1e-4, max(abs(v) for v in rounded))
        exponent = -200
        while 127 * 2.0**exponent < amax:
            exponent += 1
        payload += bytes(int(max(-127, min(127, v / 2.0**exponent))) & 0xFF for v in rounded)
        scales.append(exponent + 127)
    cos_sin = a["cos_sin_cache"][last // C * C].double().numpy()
    for pair in range(32):
        even, odd = z[448 + 2 * pair], z[449 + 2 * pair]
        cos, sin = cos_sin[pair], cos_sin[32 + pair]
        for v in (even * cos - odd * sin, odd * cos + even * sin):
            payload += torch.tensor([v], dtype=torch.float32).to(torch.bfloat16).view(torch.uint8).numpy().tobytes()
    return torch.tensor(list(payload + scales + b"\0"), dtype=torch.uint8)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("compress_ratio", [128, 256, 512])
def test_reference_is_the_contract(distribution, compress_ratio):
    case = CaseSpec("by hand", 2, 4 * compress_ratio, compress_ratio, 7, distribution, "permuted", "gaps", "equal", 5)
    inputs = build(case, seed=3)
    slots = slot_bytes(c128_256_512_compress(**inputs.arguments), output_slots(inputs))
    limits = bounds(inputs, torch.arange(inputs.num_outputs))
    assert explained(limits, slots).all()
    by_hand = torch.stack([slot_by_hand(inputs.arguments, n) for n in range(inputs.num_outputs)])
    assert explained(limits, by_hand).all()
    assert (by_hand != slots).float().mean() < 0.002  # ties only: about 1 byte of 4,000 is expected


def test_everything_else_is_zero():
    inputs = build(CaseSpec("zeros", 1, 512, 128, slots="gaps", page_padding=48))
    result = c128_256_512_compress(**inputs.arguments)
    slots = output_slots(inputs)
    written = slot_bytes(result, slots).clone()
    rest = result.clone()
    for slot in slots.tolist():
        rest[slot // 64, slot % 64 * 576 : slot % 64 * 576 + 576] = 0
        rest[slot // 64, 36864 + slot % 64 * 8 : 36864 + slot % 64 * 8 + 8] = 0
    assert rest.count_nonzero() == 0 and written.any(dim=1).all()


def test_power_of_two_scaling_is_exact():
    """torch.exp2 of every exponent that a scale can take is that power of two."""
    exponents = torch.arange(-122, 21, dtype=torch.float32)
    assert torch.equal(torch.exp2(exponents).double(), torch.exp2(exponents.double()))
