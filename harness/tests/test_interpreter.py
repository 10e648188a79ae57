"""A submission that casts must see the chip's rounding, interpreted or not: every bfloat16 pattern, and beside it."""

import pytest
import torch
import triton
import triton.language as tl

BLOCK = 1024
PATTERNS = torch.arange(65536, dtype=torch.int32)
FINITE = PATTERNS[(PATTERNS & 0x7F80) != 0x7F80]


@triton.jit
def to_bf16_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n, other=0.0).to(tl.bfloat16), mask=i < n)


@triton.jit
def to_float32_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n, other=0.0).to(tl.float32), mask=i < n)


def cast(kernel, x, dtype, device):
    out = torch.empty(x.shape, dtype=dtype, device=device)
    kernel[(-(-x.numel() // BLOCK),)](x.to(device), out, x.numel(), BLOCK=BLOCK)
    return out.cpu()


@pytest.mark.parametrize("low", [0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
def test_a_cast_to_bfloat16_rounds_to_nearest_even(device, low):
    x = ((FINITE << 16) | low).view(torch.float32)
    given = cast(to_bf16_kernel, x, torch.bfloat16, device)
    assert torch.equal(given.view(torch.int16), x.to(torch.bfloat16).view(torch.int16))


def test_a_cast_to_float32_is_exact(device):
    x = FINITE.to(torch.int16).view(torch.bfloat16)
    assert torch.equal(cast(to_float32_kernel, x, torch.float32, device).view(torch.int32), FINITE << 16)


def test_nan_stays_nan(device):
    assert cast(to_bf16_kernel, torch.full((4,), float("nan")), torch.bfloat16, device).isnan().all()


@triton.jit
def scalar_mask_kernel(out):
    n = tl.program_id(0)
    one = tl.load(out, mask=n > 0, other=1)
    tl.store(out + n, one, mask=n > 0)


def test_a_scalar_mask_is_heeded(device):
    out = torch.full((3,), 7, dtype=torch.int32, device=device)
    scalar_mask_kernel[(2,)](out)
    assert out.tolist() == [7, 7, 7]
    scalar_mask_kernel[(1,)](out.fill_(5))
    assert out.tolist() == [5, 5, 5]


@triton.jit
def sum_of_bits_kernel(x, out):
    bits = tl.load(x + tl.arange(0, 4)[:, None] * 2 + tl.arange(0, 2)[None, :]).to(tl.int32, bitcast=True)
    tl.store(out + tl.arange(0, 4), tl.sum(bits, axis=1).to(tl.float32, bitcast=True))


def test_a_sum_of_int32_is_int32(device):
    x, out = torch.tensor([1.5, 0, 2.5, 0, -3.0, 0, 4.0, 0], device=device), torch.zeros(4, device=device)
    sum_of_bits_kernel[(1,)](x, out)
    assert out.tolist() == [1.5, 2.5, -3.0, 4.0]
