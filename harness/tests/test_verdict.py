"""Diff, oracle, verdict: every kind of difference placed and named; tie and wrong told apart."""

from dataclasses import replace

import pytest
import torch

import reference
from harness.cases import DISTRIBUTIONS, CaseSpec
from harness.diff import describe_offset, describe_stray, diff, output_slots, slot_bytes
from harness.inputs import Inputs, build
from harness.oracle import bounds, explained
from harness.verdict import judge

CASE = CaseSpec("verdict", 2, 2048, 128, slots="gaps", page_padding=8)


@pytest.fixture(scope="module")
def inputs():
    return build(CASE)


@pytest.fixture(scope="module")
def expected(inputs):
    return reference.c128_256_512_compress(**inputs.arguments)


def with_byte(cache, page, column, change):
    got = cache.clone()
    got[page, column] = (int(got[page, column]) + change) % 256
    return got


def place(inputs, output, offset):
    """(page, column) of a byte of an output's slot."""
    slot = int(output_slots(inputs)[output])
    page, slot = divmod(slot, 64)
    return page, slot * 576 + offset if offset < 576 else 36864 + slot * 8 + offset - 576


# --- naming --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "name", "region"),
    [
        (0, "int8 dim 0 (group 0)", "int8"),
        (447, "int8 dim 447 (group 6)", "int8"),
        (448, "rope pair 0 even (dim 448), low byte", "rope"),
        (449, "rope pair 0 even (dim 448), high byte", "rope"),
        (450, "rope pair 0 odd (dim 449), low byte", "rope"),
        (575, "rope pair 31 odd (dim 511), high byte", "rope"),
        (576, "scale of group 0", "scale"),
        (582, "scale of group 6", "scale"),
        (583, "zero byte after the scales", "other"),
    ],
)
def test_a_byte_of_a_slot_is_named(inputs, expected, offset, name, region):
    page, column = place(inputs, 5, offset)
    found = judge(inputs, expected, with_byte(expected, page, column, 64))
    assert describe_offset(offset) == name
    assert (found.differing, found.wrong, found.regions[region], found.strict) == (1, 1, 1, False)
    slot = int(output_slots(inputs)[5])
    was = int(expected[page, column])
    assert found.first.startswith(
        f"wrong: output 5, slot {slot}, {name}: expected {was:#04x}, got {(was + 64) % 256:#04x}; float64 "
    )
    assert found.official == (region == "rope" and offset in (448, 450)) or region == "rope"


def test_a_byte_outside_every_slot_is_named(inputs, expected):
    slots = output_slots(inputs)
    free = next(slot for slot in range(64) if slot not in slots)
    found = judge(inputs, expected, with_byte(expected, 0, free * 576 + 3, 1))
    assert found.wrong == 1 and not found.official and found.regions["other"] == 1
    assert found.first == f"wrong: page 0, slot {free}, which no output writes, column {free * 576 + 3}: expected 0x00, got 0x01"
    found = judge(inputs, expected, with_byte(expected, 0, 37376 + 5, 7))
    assert found.first == "wrong: page 0, padding byte 5: expected 0x00, got 0x07"
    assert describe_stray(2, 36864 + 8) == "page 2, slot 129, which no output writes, column 36872"


def test_equal_caches_are_strict(inputs, expected):
    found = judge(inputs, expected, expected.clone())
    assert found.strict and found.official and found.first == "" and found.compared == expected.numel()


def test_diff_collects_slots_and_strays(inputs, expected):
    slots = output_slots(inputs)
    got = with_byte(with_byte(expected, *place(inputs, 3, 10), 1), *place(inputs, 9, 580), 1)
    found = diff(expected, with_byte(got, 0, 37380, 1), slots)
    assert (found.differing, found.outputs.tolist(), found.stray.tolist()) == (3, [3, 9], [[0, 37380]])
    assert torch.equal(found.expected, slot_bytes(expected, slots[[3, 9]])) and int((found.expected != found.got).sum()) == 2


def test_zeros_and_noise_are_wrong(inputs, expected):
    for got in (torch.zeros_like(expected), torch.full_like(expected, 0xFF), inputs.arguments["kv_cache"]):
        found = judge(inputs, expected, got)
        assert not found.official and found.wrong > 0.9 * found.differing


def test_rope_tolerance_is_the_contests(inputs, expected):
    """A rope value off by less than 1e-2 is official, though wrong; off by more, it is neither."""
    page, column = place(inputs, 0, 448)
    value = slot_bytes(expected, output_slots(inputs)[:1])[:, 448:450].contiguous().view(torch.bfloat16)
    for factor, official in ((1.004, True), (1.5, False)):
        got = expected.clone()
        got[page, column : column + 2] = (
            (value.float() * factor + (0.02 if not official else 0)).to(torch.bfloat16).view(torch.uint8)
        )
        found = judge(inputs, expected, got)
        assert found.official is official and found.differing > 0


def test_nan_in_rope_is_not_close(inputs, expected):
    page, column = place(inputs, 0, 448)
    got = expected.clone()
    got[page, column : column + 2] = torch.tensor([0xC0, 0x7F], dtype=torch.uint8)
    found = judge(inputs, expected, got)
    assert not found.official and found.wrong > 0


# --- the oracle ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("compress_ratio", [128, 512])
def test_the_reference_lies_within_the_bounds(distribution, compress_ratio):
    inputs = build(replace(CASE, total_tokens=4096, compress_ratio=compress_ratio, distribution=distribution))
    slots = slot_bytes(reference.c128_256_512_compress(**inputs.arguments), output_slots(inputs))
    limits = bounds(inputs, torch.arange(inputs.num_outputs))
    assert limits.specified.all() and explained(limits, slots).all()


def test_rows_added_in_another_order_are_ties(inputs, expected):
    """The reference itself on windows read backwards: what differs is explained, all of it."""
    reversed_rows = []
    for case in (replace(CASE, total_tokens=16384, distribution="heavy_tails"), replace(CASE, total_tokens=16384)):
        inputs = build(case)
        a = inputs.arguments
        state = a["state_cache"].view(-1, 128, 1024).flip(1).contiguous().view(a["state_cache"].shape)
        first = reference.c128_256_512_compress(**a)
        second = reference.c128_256_512_compress(**{**a, "state_cache": state})
        found = judge(inputs, first, second)
        assert found.wrong == 0, found.first
        reversed_rows.append(found.ties)
    assert sum(reversed_rows) > 0


@pytest.mark.parametrize(("beside", "ties"), [(0.0, 1), (1e-3, 0), (-1e-3, 0)])
def test_a_byte_off_by_one_is_a_tie_beside_a_boundary_and_wrong_away_from_it(beside, ties):
    """z[0] of 95.75 steps is half-way between the bfloat16 values 95.5 and 96; relative distance 1e-3 is far from it."""
    inputs = steered(95.75 * (1 + beside))
    expected = reference.c128_256_512_compress(**inputs.arguments)
    assert expected[0, 36864] == 127 - 6 and int(expected[0, 0]) in (95, 96)
    found = judge(inputs, expected, with_byte(expected, 0, 0, 1 if expected[0, 0] == 95 else -1))
    assert (found.differing, found.ties) == (1, ties), found.first


def steered(steps):
    """One output with z[0] = `steps` * 2^-6 and all other z near 1: equal rows x, weight 1, RMSNorm solved for x[0]."""
    inputs = build(CaseSpec("steered", 1, 128, 128, distribution="zero"))
    z, eps = steps * 2.0**-6, inputs.arguments["rms_norm_eps"]
    state = torch.zeros_like(inputs.arguments["state_cache"])
    state[..., :512] = 1.0
    state[..., 0] = z * ((511 / 512 + eps) / (1 - z * z / 512)) ** 0.5
    return Inputs(
        inputs.case, 0, {**inputs.arguments, "state_cache": state, "rms_norm_weight": torch.ones(512, dtype=torch.bfloat16)}
    )


def test_int8_bytes_are_judged_by_the_scale_they_come_with(inputs, expected):
    """A wrong scale byte makes its whole group wrong, even where the int8 bytes are right."""
    found = judge(inputs, expected, with_byte(expected, *place(inputs, 2, 576), 1))
    assert found.wrong == 1 and found.regions["scale"] == 1


@pytest.mark.parametrize("poison", ["nan value", "nan score", "inf score", "column of -inf"])
def test_unspecified_slots_are_left_out(poison):
    inputs = build(CASE)
    state = inputs.arguments["state_cache"].clone()
    if poison == "nan value":
        state[0, 0, 5] = float("nan")
    elif poison == "nan score":
        state[0, 0, 600] = float("nan")
    elif poison == "inf score":
        state[0, 0, 600] = float("inf")
    else:
        state[:16, :, 600] = float("-inf")
    spoilt = Inputs(CASE, 0, {**inputs.arguments, "state_cache": state})
    expected = reference.c128_256_512_compress(**spoilt.arguments)
    got = with_byte(expected, *place(spoilt, 0, 100), 50)
    assert judge(spoilt, expected, got).unspecified == 1
    assert judge(spoilt, expected, got).strict
    assert judge(spoilt, expected, with_byte(got, *place(spoilt, 1, 100), 50)).wrong == 1
