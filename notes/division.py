"""Is one residual step enough for solution.py's division? python notes/division.py, on a CUDA device, half a minute.

e / d by q = e * r, q + (e - q * d) * r, fused, where r is 1 / d rounded, against the device's IEEE division: the significands
for which e / d comes closest to the middle between two floats (all odd significands of d, the nearest 16 quotients of each),
and random ones, some of them beside powers of two. Also the device's exp against solution.py's, all 2^32 floats.
"""

import sys
from pathlib import Path

import torch
import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).parent.parent))
import solution

BLOCK = 1024
divide_rows, exp_f32 = solution.divide, solution.exp


@triton.jit
def divide_kernel(e, d, out, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    divisor = tl.load(d + i)
    reciprocal = tl.div_rn(tl.full([BLOCK], 1.0, tl.float32), divisor)
    tl.store(out + i, tl.reshape(divide_rows(tl.load(e + i)[None, :], divisor, reciprocal), [BLOCK]))


@triton.jit
def exp_kernel(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, exp_f32(tl.load(x + i)))


def wrong(e, d):
    pad = -e.numel() % BLOCK
    e, d = (torch.cat([t, torch.ones(pad, device=t.device)]) for t in (e, d))
    out = torch.empty_like(e)
    divide_kernel[(e.numel() // BLOCK,)](e, d, out, BLOCK=BLOCK, enable_fp_fusion=False)
    return int((out != e / d).sum())


def nearest_to_the_middle(d, distance, bits):
    """Odd significands d -> significands e with e * 2^bits - (2Q + 1) * d = distance, and which of them are in range."""
    inverse = d.clone()
    for _ in range(5):  # Newton modulo 2^64
        inverse = inverse * (2 - d * inverse)
    middle = (-distance * inverse) % (1 << bits)
    middle = torch.where(middle < 1 << 24, middle + (1 << 24), middle)
    e = (middle * d + distance) >> bits
    fits = (middle < 1 << 25) & (middle % 2 == 1) & (e >= 1 << 23) & (e < 1 << 24) & ((e << bits) - middle * d == distance)
    return e, fits


def main():
    device = torch.device("cuda")
    bad = pairs = 0
    odd = torch.arange((1 << 23) + 1, 1 << 24, 2, device=device)
    for bits in (24, 25):
        for distance in (n * sign for n in (1, 3, 5, 7) for sign in (1, -1)):
            e, fits = nearest_to_the_middle(odd, distance, bits)
            bad += wrong(e[fits].float(), odd[fits].float())
            pairs += int(fits.sum())
    print(f"nearest to the middle: {bad} of {pairs:,} wrong")
    generator = torch.Generator(device=device).manual_seed(1)
    bad = pairs = 0
    for turn in range(60):
        e, d = (torch.randint(1 << 23, 1 << 24, (1 << 26,), device=device, generator=generator).float() for _ in range(2))
        beside = ((1 << 24) - 1 - torch.randint(0, 1 << 12, (1 << 26,), device=device, generator=generator)).float()
        e, d = ((e, d), (e, beside), (beside, d))[turn % 3]
        bad, pairs = bad + wrong(e, d), pairs + e.numel()
    print(f"random: {bad} of {pairs:,} wrong")
    bad = 0
    for high in range(256):
        x = torch.arange(high << 24, (high + 1) << 24, device=device).to(torch.int32).view(torch.float32)
        out = torch.empty_like(x)
        exp_kernel[(x.numel() // BLOCK,)](x, out, BLOCK=BLOCK, enable_fp_fusion=False)
        expected = torch.exp(x)
        bad += int(((out.view(torch.int32) != expected.view(torch.int32)) & ~(out.isnan() & expected.isnan())).sum())
    print(f"exp: {bad} of {1 << 32:,} wrong")


if __name__ == "__main__":
    main()
