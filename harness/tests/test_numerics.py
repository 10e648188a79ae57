"""The finalizer's helpers, bit by bit: every bfloat16 pattern, every exponent."""

import pytest
import torch
import triton
import triton.language as tl

import reference
import solution
from solution import bf16_bits, bf16_value, floor_div, group_exponent, load_bf16, power_of_two, quantise, store_bf16

PATTERNS = torch.arange(65536, dtype=torch.int32)
FINITE = PATTERNS[(PATTERNS & 0x7F80) != 0x7F80]
BLOCK = 1024


@triton.jit
def bf16_bits_kernel(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, bf16_bits(tl.load(x + i)))


@triton.jit
def bf16_value_kernel(bits, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, bf16_value(tl.load(bits + i)))


@triton.jit
def load_store_kernel(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    store_bf16(out + 2 * i, bf16_bits(load_bf16(x + i)), i >= 0)


@triton.jit
def group_exponent_kernel(bits, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, group_exponent(tl.load(bits + i)))


@triton.jit
def power_of_two_kernel(exponent, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, power_of_two(tl.load(exponent + i)))


@triton.jit
def quantise_kernel(bits, out, exponent, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, quantise(bf16_value(tl.load(bits + i)), tl.full([BLOCK], exponent, tl.int32)))


@triton.jit
def floor_div_kernel(x, out, DIVISOR: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, floor_div(tl.load(x + i), DIVISOR))


def apply(kernel, x, out_dtype, device, *, width=1, **constants):
    """kernel over x, padded to whole blocks -> [len(x) * width] on the CPU."""
    padded = torch.zeros(-(-x.numel() // BLOCK) * BLOCK, dtype=x.dtype)
    padded[: x.numel()] = x
    out = torch.full((padded.numel() * width,), 77, dtype=out_dtype, device=device)
    kernel[(padded.numel() // BLOCK,)](padded.to(device), out, BLOCK=BLOCK, **constants)
    return out.cpu()[: x.numel() * width]


def bf16(patterns):
    return patterns.to(torch.int16).view(torch.bfloat16)


@pytest.mark.parametrize("low", [0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
def test_rounds_to_nearest_even_beside_every_pattern(device, low):
    """float32 bit patterns at, just beside and half-way past every finite bfloat16."""
    x = ((FINITE << 16) | low).view(torch.float32)
    assert torch.equal(apply(bf16_bits_kernel, x, torch.int32, device), x.to(torch.bfloat16).view(torch.int16).int() & 0xFFFF)


def test_value_of_every_pattern(device):
    value = apply(bf16_value_kernel, PATTERNS, torch.float32, device)
    assert torch.equal(value.view(torch.int32), PATTERNS << 16)


def test_every_pattern_survives_load_and_store(device):
    stored = apply(load_store_kernel, bf16(FINITE), torch.uint8, device, width=2)
    assert torch.equal(stored, bf16(FINITE).view(torch.uint8))


def test_exponent_of_every_group_maximum(device):
    """All 32,640 finite non-negative patterns against the reference's float formula."""
    patterns = FINITE[FINITE < 0x8000]
    amax = bf16(patterns).float().clamp(min=reference.AMAX_FLOOR)
    expected = torch.ceil(torch.log2(amax * (1.0 / 127.0))).int()
    assert torch.equal(apply(group_exponent_kernel, patterns, torch.int32, device), expected)


def test_knife_edge_of_the_exponent(device):
    """127 * 2^k needs exponent k; the next bfloat16 needs k + 1."""
    k = torch.arange(-19, 121)
    edge = (127.0 * torch.exp2(k.double())).to(torch.bfloat16)
    bits = edge.view(torch.int16).int()
    assert torch.equal(apply(group_exponent_kernel, bits, torch.int32, device), k.int())
    assert torch.equal(apply(group_exponent_kernel, bits + 1, torch.int32, device), k.int() + 1)


def test_power_of_two_of_every_exponent(device):
    exponents = torch.arange(-126, 128, dtype=torch.int32)
    assert torch.equal(apply(power_of_two_kernel, exponents, torch.float32, device).double(), torch.exp2(exponents.double()))


@pytest.mark.parametrize("exponent", [-20, -19, -7, -6, 0, 1, 60, 122])
def test_quantises_every_pattern(device, exponent):
    """Truncation toward zero and the clamp at 127, for every pattern, against float64."""
    expected = (bf16(FINITE).double() / 2.0**exponent).clamp(-127, 127).trunc().to(torch.int8)
    assert torch.equal(apply(quantise_kernel, FINITE, torch.int8, device, exponent=exponent), expected)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("divisor", [1, 2, 7, 8, 64, 512])
def test_floor_div_is_pytorchs(device, dtype, divisor):
    x = torch.arange(-2000, 2000, dtype=dtype)
    assert torch.equal(apply(floor_div_kernel, x, dtype, device, DIVISOR=divisor), x // divisor)


@pytest.mark.parametrize("compress_ratio", [128, 256, 512])
def test_every_tile_divides_its_windows(compress_ratio):
    for route in solution.ROUTES.values():
        for num_outputs in (1, 16, 32, 33, 64, 65, 1024, 10**6):
            assert compress_ratio % route.tile(compress_ratio, num_outputs).rows == 0


def test_a_tile_that_cannot_work_is_refused():
    with pytest.raises(ValueError, match="rows=48"):
        solution.Tile(dims=64, rows=48, num_warps=4)
