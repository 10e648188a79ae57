"""Expected cache, returned cache, inputs -> Verdict: official, strict, explained; the first difference named."""

from dataclasses import dataclass

import torch

from harness.diff import INT8, ROPE, SCALE, describe_offset, describe_stray, diff, output_slots
from harness.oracle import bounds, explained

ROPE_TOLERANCE = 1.0e-2  # atol and rtol of the official check on the bfloat16 part


@dataclass(frozen=True)
class Verdict:
    """What the bytes of one returned cache are worth."""

    compared: int  # bytes, the whole cache
    differing: int  # bytes that differ from the reference's in specified slots
    ties: int  # of these, explained by the rounding of float32
    official: bool  # int8 and scale bytes equal, rope within 1e-2: the contest's check
    regions: dict  # differing bytes by region: int8, scale, rope, other
    unspecified: int  # outputs left out, whose bytes the contract leaves open
    first: str  # the first wrong byte in words, else the first tie, else ""

    @property
    def wrong(self):
        return self.differing - self.ties

    @property
    def strict(self):
        return self.differing == 0


def judge(inputs, expected, got):
    """Inputs and two CPU uint8 caches of one shape -> Verdict. The float64 oracle is asked for the slots that differ only."""
    found = diff(expected, got, output_slots(inputs))
    if found.differing == 0:
        return Verdict(found.compared, 0, 0, True, dict.fromkeys(("int8", "scale", "rope", "other"), 0), 0, "")
    if found.outputs.numel():
        limits = bounds(inputs, found.outputs)
        differs = (found.expected != found.got) & limits.specified[:, None]
        tie = differs & explained(limits, found.expected) & explained(limits, found.got)
        unspecified = int((~limits.specified).sum())
    else:
        limits, unspecified = None, 0
        differs = tie = torch.zeros_like(found.got, dtype=torch.bool)
    regions = {
        "int8": int(differs[:, INT8].sum()),
        "scale": int(differs[:, SCALE].sum()),
        "rope": int(differs[:, ROPE].sum()),
        "other": int(differs[:, 583:].sum()) + found.stray.shape[0],
    }
    return Verdict(
        compared=found.compared,
        differing=sum(regions.values()),
        ties=int(tie.sum()),
        official=regions["int8"] + regions["scale"] + regions["other"] == 0 and _rope_is_close(found, differs),
        regions=regions,
        unspecified=unspecified,
        first=_first(found, limits, differs, tie),
    )


def _rope_is_close(found, differs):
    expected, got = (cache[:, ROPE].contiguous().view(torch.bfloat16).float() for cache in (found.expected, found.got))
    far = ~torch.isclose(got, expected, rtol=ROPE_TOLERANCE, atol=ROPE_TOLERANCE)
    return not bool((far.repeat_interleave(2, dim=1) & differs[:, ROPE]).any())


def _first(found, limits, differs, tie):
    wrong = (differs & ~tie).nonzero()
    if wrong.shape[0] == 0 and found.stray.shape[0]:
        (page, column), (expected, got) = found.stray[0].tolist(), found.stray_bytes[0].tolist()
        return f"wrong: {describe_stray(page, column)}: expected {expected:#04x}, got {got:#04x}"
    places = wrong if wrong.shape[0] else tie.nonzero()
    if places.shape[0] == 0:
        return ""
    i, offset = places[0].tolist()
    expected, got = int(found.expected[i, offset]), int(found.got[i, offset])
    what = f"{'tie' if tie[i, offset] else 'wrong'}: output {int(found.outputs[i])}, slot {int(found.slots[i])}"
    scale_byte = int(found.expected[i, 576 + min(offset // 64, 6)])
    truth = _oracle_value(limits, i, offset, scale_byte)
    return f"{what}, {describe_offset(offset)}: expected {expected:#04x}, got {got:#04x}; float64 {truth}"


def _oracle_value(limits, i, offset, scale_byte):
    if offset < 448:
        z = float(limits.z[i, offset])
        return f"{z:.9g} = {z / 2.0 ** (scale_byte - 127):.6f} steps"
    if offset < 576:
        return f"{float(limits.rotated[i, (offset - 448) // 2]):.9g}"
    if offset < 583:
        low, high = (int(side) + 127 for side in limits.exponent_range[:, i, offset - 576])
        return f"scale byte {low}" if low == high else f"scale byte {low} to {high}"
    return "0"
