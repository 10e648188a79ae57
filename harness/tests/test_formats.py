"""The cache formats: every code and special value by its definition, round trips, and repacking from our pages.

Figures (528 and 288 bytes, scale bytes 114, 119, 127 and 0x01, the e2m1 magnitudes, 37,440): the rules of DeepSeek's Ascend
sparse attention kernel and of FlashMLA's older page layout, as harness/reader/formats.py says.
"""

import math

import pytest
import torch

import reference
from harness.cases import CaseSpec
from harness.diff import output_slots
from harness.inputs import Draws, build
from harness.reader import formats
from harness.reader.attend import stored_vectors


def normal(rows, purpose="formats"):
    return torch.from_numpy(Draws(0, purpose).normal(rows, 512))


def tile(width, *values):
    """[1, 512] whose first tile starts with `values`, zeros elsewhere."""
    row = torch.zeros(1, 512)
    row[0, : len(values)] = torch.tensor(values)
    return row


def e4m3(byte):
    """A byte's value by the definition of e4m3: 4 exponent bits of bias 7, 3 of mantissa, no infinity."""
    sign, exponent, mantissa = (-1) ** (byte >> 7), (byte >> 3) & 15, byte & 7
    return sign * (mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10))


def test_sizes_of_a_token_and_of_a_page():
    assert formats.encode_v41(normal(3)).shape == (3, formats.FORMATS["V41"].token_bytes) == (3, 528)
    assert formats.encode_v41_fp4(normal(3)).shape == (3, formats.FORMATS["V41_FP4"].token_bytes) == (3, 288)
    assert formats.MODEL1_PAGE_BYTES == 37440


@pytest.mark.parametrize(
    ("amax", "byte"),
    [
        (0.0, 114),
        (1.0, 119),
        (448.0, 127),
        (448.0 * (1 + 2**-20), 128),
        (0.0448, 114),
        (448.0 * 2**-13, 114),
        (448.0 * 2**-12, 115),
    ],
)
def test_v41_scale_bytes(amax, byte):
    """114 is the floor: 2^-13 is the least power of two above 1e-4."""
    assert formats.encode_v41(tile(32, -amax))[0, 512] == byte


def test_v41_scale_is_the_least_power_of_two_that_holds_the_tile():
    """From the floor up to the largest float32 that has a scale below 2^120: 448 * scale >= amax > 448 * scale / 2."""
    amax = torch.from_numpy(Draws(2, "amax").power_of_two(-4, 127, 200, 1)) * (
        1 + torch.rand(200, 1, generator=torch.Generator()) / 2
    )
    values = torch.zeros(200, 512)
    values[:, :1] = -amax
    scale = torch.exp2(formats.encode_v41(values)[:, 512].double() - 127)
    assert (448 * scale >= amax[:, 0].double()).all() and (amax[:, 0].double() > 448 * scale / 2).all()


def test_v41_data_of_every_code():
    """Scale 1: every e4m3 code but NaN and a negative zero's twin comes back as itself, beside 448 that pins the scale."""
    for byte in range(256):
        if byte & 127 == 127:
            continue
        token = formats.encode_v41(tile(32, e4m3(byte), 448.0))
        assert token[0, 0] == byte and formats.decode_v41(token)[0, 0] == e4m3(byte)
        assert math.copysign(1, formats.decode_v41(token)[0, 0]) == math.copysign(1, e4m3(byte))


def test_v41_rounds_to_nearest_even():
    kept = formats.decode_v41(formats.encode_v41(tile(32, 448.0, 17.0, 19.0, 17.01, -17.0, 2.0**-10, 1.01 * 2.0**-10)))
    assert kept[0, :7].tolist() == [448.0, 16.0, 20.0, 18.0, -16.0, 0.0, 2.0**-9]


def test_v41_scales_are_of_their_own_32_dims():
    values = torch.arange(16).repeat_interleave(32)[None].float().exp2()
    assert formats.encode_v41(values)[0, 512:].tolist() == [119 + k for k in range(16)]
    assert torch.equal(formats.decode_v41(formats.encode_v41(values)), values)


@pytest.mark.parametrize(
    ("amax", "byte"),
    [(0.0, 0x01), (6 * 2.0**-9, 0x01), (6.0, 0x38), (6 * 448.0, 0x7E), (1e6, 0x7E), (6 * 17.0, 0x58), (6 * 19.0, 0x5A)],
)
def test_fp4_scale_bytes(amax, byte):
    """0x38 is 1, 0x7E is 448; 17 and 19 lie between two e4m3 and go to the even one, 16 (0x58) and 20 (0x5A)."""
    assert formats.encode_v41_fp4(tile(16, amax))[0, 256] == byte


def test_fp4_data_of_every_code_and_every_tie():
    for code, magnitude in enumerate((0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)):
        for sign in (1, -1):
            token = formats.encode_v41_fp4(tile(16, 6.0, sign * magnitude))
            assert token[0, 0] == 7 | (code | (8 if sign < 0 else 0)) << 4, "the odd dim is in the high nibble"
            assert formats.decode_v41_fp4(token)[0, 1] == sign * magnitude
    for middle, even in ((0.25, 0.0), (0.75, 1.0), (1.25, 1.0), (1.75, 2.0), (2.5, 2.0), (3.5, 4.0), (5.0, 4.0)):
        near = [middle, math.nextafter(middle, 9.0), math.nextafter(middle, 0.0), -middle]
        kept = formats.decode_v41_fp4(formats.encode_v41_fp4(torch.cat([tile(16, 6.0, *near)]).double()))[0]
        above, below = min(m for m in formats.E2M1 if m > middle), max(m for m in formats.E2M1 if m < middle)
        assert even in (above, below) and kept[1] == even and kept[4] == -even
        if torch.tensor(near).double()[1] != middle:
            assert (kept[2], kept[3]) == (above, below)


def test_fp4_saturates_at_six_scales():
    kept = formats.decode_v41_fp4(formats.encode_v41_fp4(tile(16, 1e6, -1e6, 1000.0)))
    assert kept[0, :3].tolist() == [2688.0, -2688.0, 896.0]


@pytest.mark.parametrize("name", formats.FORMATS)
def test_decoded_values_encode_to_themselves(name):
    """The values for V41 (a smaller amax may take a smaller scale and still hold them); the bytes for V41_FP4."""
    format = formats.FORMATS[name]
    tokens = format.encode(normal(64) * torch.from_numpy(Draws(1, "scales").power_of_two(-3, 6, 64, 1)))
    values = format.decode(tokens)
    again = format.encode(values)
    assert torch.equal(format.decode(again), values)
    assert torch.equal(values.to(torch.bfloat16).float(), values), "exact in bfloat16"
    if name == "V41_FP4":
        assert torch.equal(again, tokens)


@pytest.mark.parametrize(("name", "relative"), [("V41", 2.0**-4), ("V41_FP4", 1 / 4)])
def test_rounding_error_is_that_of_the_type(name, relative):
    """Half a step of e4m3 is 2^-4 of a value, of e2m1 a quarter at 2 to 3 and 4 to 6; below the least normal, half a step."""
    values, format = normal(64), formats.FORMATS[name]
    error = (format.decode(format.encode(values)) - values).abs()
    width = 32 if name == "V41" else 16
    amax = values.unflatten(1, (-1, width)).abs().amax(-1).repeat_interleave(width, dim=1)
    least = amax * 2 * 2.0**-10 / 448 if name == "V41" else amax * 1.07 * 0.25 / 6
    assert (error <= torch.maximum(values.abs() * relative, least)).all()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", formats.FORMATS)
def test_values_without_a_code_are_refused(name, bad):
    values = normal(3)
    values[1, 5] = bad
    with pytest.raises(ValueError, match="token 1 is not finite"):
        formats.FORMATS[name].encode(values)
    with pytest.raises(ValueError, match=r"\[3, 511\] given; \[tokens, 512\] is needed"):
        formats.FORMATS[name].encode(values[:, :511])


def test_our_slots_decode_to_what_was_compressed():
    """Against the reference's own groups, in float64; shuffled slots over padded pages, noise between them."""
    inputs = build(CaseSpec("formats", 2, 1024, 128, slots="gaps", page_padding=64))
    cache, slots = reference.c128_256_512_compress(**inputs.arguments), output_slots(inputs)
    decoded = formats.decode_slots(cache, slots)
    assert torch.equal(decoded.to(torch.bfloat16).float(), decoded)
    page, slot = slots // 64, slots % 64
    for m in range(slots.shape[0]):
        row = cache[page[m]]
        for dim in (0, 63, 64, 447):
            byte = int(row[slot[m] * 576 + dim])
            scale = int(row[36864 + slot[m] * 8 + dim // 64])
            assert decoded[m, dim] == (byte - 256 * (byte > 127)) * 2.0 ** (scale - 127)
        low, high = (int(row[slot[m] * 576 + 448 + k]) for k in (126, 127))
        bits = torch.tensor([low | high << 8], dtype=torch.int32).to(torch.int16)
        assert decoded[m, 511] == bits.view(torch.bfloat16).float()


def test_truncation_shrinks_and_loses_more_than_rounding_would():
    """Twice as much for a continuous value; less here, since bfloat16 values past 64 steps lie on whole and half steps."""
    inputs = build(CaseSpec("formats", 2, 1024, 128))
    cache, slots = reference.c128_256_512_compress(**inputs.arguments), output_slots(inputs)
    vectors = stored_vectors(inputs.arguments).to(torch.bfloat16).float()
    decoded, nearest = formats.decode_slots(cache, slots), formats.round_to_nearest(cache, slots, vectors)
    assert (decoded.abs() <= vectors.abs()).all() and not (nearest.abs() <= vectors.abs()).all()
    truncated, rounded = ((values - vectors)[:, :448].square().mean().sqrt() for values in (decoded, nearest))
    assert 1.5 < truncated / rounded < 2
    assert torch.equal(decoded[:, 448:], vectors[:, 448:]) and torch.equal(nearest[:, 448:], vectors[:, 448:])


def test_repacking_takes_our_values():
    inputs = build(CaseSpec("formats", 1, 512, 128))
    cache, slots = reference.c128_256_512_compress(**inputs.arguments), output_slots(inputs)
    for name, format in formats.FORMATS.items():
        tokens = formats.repack(cache, slots, name)
        assert torch.equal(tokens, format.encode(formats.decode_slots(cache, slots)))
    with pytest.raises(ValueError, match="format V5: known: V41, V41_FP4"):
        formats.repack(cache, slots, "V5")


def test_scale_bytes_at_their_ends():
    assert formats.power_of_two(torch.tensor([0, 1, 127, 254], dtype=torch.uint8)).tolist() == [2.0**-127, 2.0**-126, 1.0, 2.0**127]
    assert formats.power_of_two(torch.tensor([255], dtype=torch.uint8)).isnan()
