"""Byte formats of a cached token: ours (paged, scales at the page's end), and two with data and scale side by side.

Ours: 584 bytes a token. 448 int8 times 2^(scale byte - 127), one scale a group of 64 dims, then 64 bfloat16; a page holds 64
payloads of 576 bytes, then 64 scale records of 8 (harness/diff.py). Decoded values are exact in bfloat16. It is the layout
"MODEL1" of FlashMLA before September 2026, with int8 / 127 where that one has e4m3 / 448.

V41: 528 bytes a token. 512 e4m3, all dims, then 16 scale bytes, 2^(byte - 127), one for each 32 dims.
V41_FP4: 288 bytes a token. 512 e2m1, the even dim in the low nibble, then 32 e4m3 scales, one for each 16 dims.
Rules of both: DeepSeek's article on its Ascend sparse attention kernel (FlashMLA repository, September 2026) and that kernel's
tests. Scale next to data, a token takes one copy request where ours takes two.

Encoders take finite values only: a NaN or an infinity has no code in e2m1. Every step is exact or rounds once, to nearest even.
"""

from dataclasses import dataclass

import torch

from harness.diff import INT8, PAGE_BYTES, ROPE, SCALE, slot_bytes

HEAD_DIM = 512
E4M3_MAX = 448.0  # largest e4m3 (the variant without infinities)
E2M1_MAX = 6.0
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # magnitude of the codes 0 to 7; code 8 adds the sign
E2M1_MIDDLES = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)  # between neighbouring magnitudes
AMAX_FLOOR = 1.0e-4  # of amax / 448 in V41: a tile of zeros has scale byte 114, 2^-13
LEAST_E4M3 = 2.0**-9  # least positive e4m3: the scale of a V41_FP4 tile of zeros, byte 0x01
MODEL1_PAGE_BYTES = -(-PAGE_BYTES // 576) * 576  # a page of 64 tokens there: padded to whole payloads, 37,440


# --- ours ----------------------------------------------------------------------------------------------------------------


def decode_slots(cache, slots):
    """[kv_blocks, block_stride] uint8 on the CPU and [m] slots -> [m, 512] float32, each value exact in bfloat16."""
    record = slot_bytes(cache, slots)
    scale = power_of_two(record[:, SCALE])
    int8 = record[:, INT8].contiguous().view(torch.int8).float() * scale.repeat_interleave(64, dim=1)
    rope = record[:, ROPE].contiguous().view(torch.bfloat16).float()
    return torch.cat([int8, rope], dim=1)


def round_to_nearest(cache, slots, vectors):
    """[m, 512] vectors -> what the slots would decode to, their scales kept, if int8 were rounded to nearest, not truncated."""
    scale = power_of_two(slot_bytes(cache, slots)[:, SCALE]).repeat_interleave(64, dim=1)
    int8 = (vectors[:, INT8] / scale).round().clamp(-127, 127) * scale
    return torch.cat([int8, vectors[:, 448:]], dim=1)


def power_of_two(byte):
    """uint8 scale byte (ue8m0) -> 2^(byte - 127) float32; 255 is NaN there."""
    value = torch.ldexp(torch.ones_like(byte, dtype=torch.float32), byte.int() - 127)
    return torch.where(byte == 255, torch.nan, value)


# --- the two formats with data and scale side by side --------------------------------------------------------------------


def encode_v41(values):
    """[m, 512] float -> [m, 528] uint8. Scale 2^ceil(log2(max(amax / 448, 1e-4))) of each 32 dims; data to nearest even."""
    tiles = _tiles(values, 32)
    least = (tiles.abs().amax(-1) / E4M3_MAX).clamp(min=AMAX_FLOOR)
    fraction, exponent = torch.frexp(least)  # least = fraction * 2^exponent, fraction in [1/2, 1)
    exponent = exponent - (fraction == 0.5).int()  # ceil(log2): a power of two is its own
    data = torch.ldexp(tiles, -exponent[..., None]).float().to(torch.float8_e4m3fn).view(torch.uint8)
    return torch.cat([data.flatten(1), (exponent + 127).to(torch.uint8)], dim=1)


def decode_v41(tokens):
    """[m, 528] uint8 -> [m, 512] float32, each value exact in bfloat16."""
    data = tokens[:, :HEAD_DIM].contiguous().view(torch.float8_e4m3fn).float()
    return data * power_of_two(tokens[:, HEAD_DIM:]).repeat_interleave(32, dim=1)


def encode_v41_fp4(values):
    """[m, 512] float -> [m, 288] uint8. Scale e4m3(clamp(amax / 6, 2^-9, 448)) of each 16 dims; data to nearest, ties to even."""
    tiles = _tiles(values, 16)
    wanted = (tiles.abs().amax(-1) / E2M1_MAX).clamp(LEAST_E4M3, E4M3_MAX)
    scale = wanted.float().to(torch.float8_e4m3fn)
    codes = _e2m1(tiles, scale.double()[..., None]).flatten(1)
    packed = codes[:, 0::2] | (codes[:, 1::2] << 4)
    return torch.cat([packed, scale.view(torch.uint8)], dim=1)


def decode_v41_fp4(tokens):
    """[m, 288] uint8 -> [m, 512] float32, each value exact in bfloat16."""
    packed = tokens[:, : HEAD_DIM // 2]
    codes = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(1).long()
    magnitudes = torch.tensor(E2M1 + tuple(-m for m in E2M1), device=tokens.device)
    scale = tokens[:, HEAD_DIM // 2 :].contiguous().view(torch.float8_e4m3fn).float()
    return magnitudes[codes] * scale.repeat_interleave(16, dim=1)


def _tiles(values, size):
    """[m, 512] -> [m, 512 / size, size] float64, checked."""
    if values.dim() != 2 or values.shape[1] != HEAD_DIM:
        raise ValueError(f"values: shape {list(values.shape)} given; [tokens, {HEAD_DIM}] is needed")
    if not values.isfinite().all():
        raise ValueError(f"values: token {int((~values.isfinite()).any(1).nonzero()[0])} is not finite; it has no code")
    return values.double().unflatten(1, (-1, size))


def _e2m1(x, scale):
    """float64 x and scale -> uint8 codes of x / scale. Compared with middle * scale, which is exact: no division rounds."""
    code = torch.zeros(x.shape, dtype=torch.uint8, device=x.device)
    for below, middle in enumerate(E2M1_MIDDLES):  # a tie goes to the even one of (below, below + 1)
        passed = x.abs() >= middle * scale if below % 2 else x.abs() > middle * scale
        code += passed.to(torch.uint8)
    return code | (torch.signbit(x).to(torch.uint8) << 3)


@dataclass(frozen=True)
class Format:
    """A way to hold a token of 512 values."""

    token_bytes: int
    copies: int  # copy requests a token takes: data and scale are two where they lie apart
    encode: object  # [m, 512] float -> [m, token_bytes] uint8
    decode: object  # [m, token_bytes] uint8 -> [m, 512] float32


FORMATS = {
    "V41": Format(528, 1, encode_v41, decode_v41),
    "V41_FP4": Format(288, 1, encode_v41_fp4, decode_v41_fp4),
}


def repack(cache, slots, name):
    """Slots of our pages -> [m, token_bytes] uint8 in the format of that name. The values are those of our bytes, rounded again."""
    if name not in FORMATS:
        raise ValueError(f"format {name}: known: {', '.join(FORMATS)}")
    return FORMATS[name].encode(decode_slots(cache, slots))
