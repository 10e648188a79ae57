"""Two packed caches -> every differing byte placed: output, slot, region, dimension.

A page is 64 payloads of 576 bytes (448 int8, 64 bfloat16), 64 scale records of 8 bytes (7 scales, one zero), then padding.
A slot's 584 bytes are taken as its payload and then its scale record: offset 0..447 int8, 448..575 rope, 576..582 scale, 583 zero.
"""

from dataclasses import dataclass

import torch

PAGE_SLOTS = 64
PAYLOAD_BYTES = 576
SCALE_BYTES = 8
SLOT_BYTES = PAYLOAD_BYTES + SCALE_BYTES
PAGE_BYTES = PAGE_SLOTS * SLOT_BYTES
INT8, ROPE, SCALE = slice(0, 448), slice(448, 576), slice(576, 583)


@dataclass(frozen=True)
class ByteDiff:
    """Where two caches of one shape differ. `slots` and `outputs` run side by side, one entry for each slot that differs."""

    compared: int  # bytes
    differing: int  # bytes
    outputs: torch.Tensor  # [m] int64: outputs whose slot differs
    slots: torch.Tensor  # [m] int64: their slots, from the start
    expected: torch.Tensor  # [m, 584] uint8
    got: torch.Tensor  # [m, 584] uint8
    stray: torch.Tensor  # [k, 2] int64: page and column of differing bytes that belong to no output
    stray_bytes: torch.Tensor  # [k, 2] uint8: expected and got


def output_slots(inputs):
    """[num_outputs] int64: the slot of each output, negative ones counted from the end."""
    a = inputs.arguments
    slots = a["kv_slot_mapping"][a["boundary_token_indices"].long()].long()
    return torch.where(slots < 0, slots + a["kv_cache"].shape[0] * PAGE_SLOTS, slots)


def slot_bytes(cache, slots):
    """[kv_blocks, block_stride] uint8 and [m] slots -> [m, 584] uint8: payload, then scale record."""
    page, slot = (slots // PAGE_SLOTS)[:, None], (slots % PAGE_SLOTS)[:, None]
    return cache[page, _slot_columns(slot)]


def _slot_columns(slot):
    """[m, 1] slots of a page -> [m, 584] columns of it."""
    payload = slot * PAYLOAD_BYTES + torch.arange(PAYLOAD_BYTES)
    scales = PAGE_SLOTS * PAYLOAD_BYTES + slot * SCALE_BYTES + torch.arange(SCALE_BYTES)
    return torch.cat([payload, scales], dim=1)


def diff(expected, got, slots):
    """Compare two CPU uint8 caches [kv_blocks, block_stride]; `slots` [num_outputs] says which slot each output wrote."""
    differs = expected != got
    differing = int(differs.sum())
    touched = slot_bytes(differs, slots).any(dim=1) if differing else torch.zeros_like(slots, dtype=torch.bool)
    outputs = touched.nonzero().flatten()
    stray = differs  # what remains once the outputs' own bytes are taken out
    if differing:
        stray[(slots // PAGE_SLOTS)[:, None], _slot_columns((slots % PAGE_SLOTS)[:, None])] = False
    stray = stray.nonzero()
    return ByteDiff(
        compared=expected.numel(),
        differing=differing,
        outputs=outputs,
        slots=slots[outputs],
        expected=slot_bytes(expected, slots[outputs]),
        got=slot_bytes(got, slots[outputs]),
        stray=stray,
        stray_bytes=torch.stack([cache[stray[:, 0], stray[:, 1]] for cache in (expected, got)], dim=1),
    )


def describe_offset(offset):
    """Offset within a slot's 584 bytes -> its region and place there, in words."""
    if offset < 448:
        return f"int8 dim {offset} (group {offset // 64})"
    if offset < 576:
        pair, byte = divmod(offset - 448, 4)
        half, part = "odd" if byte > 1 else "even", "high" if byte % 2 else "low"
        return f"rope pair {pair} {half} (dim {448 + (offset - 448) // 2}), {part} byte"
    return f"scale of group {offset - 576}" if offset < 583 else "zero byte after the scales"


def describe_stray(page, column):
    """Page and column of a byte that no output owns, in words."""
    if column >= PAGE_BYTES:
        return f"page {page}, padding byte {column - PAGE_BYTES}"
    scales = column - PAGE_SLOTS * PAYLOAD_BYTES
    slot = scales // SCALE_BYTES if scales >= 0 else column // PAYLOAD_BYTES
    return f"page {page}, slot {page * PAGE_SLOTS + slot}, which no output writes, column {column}"
