"""Triton's own dispatch on a machine without its chip: what a launcher really asks for, with nothing launched.

A launcher runs as it would on the chip: Triton binds the arguments, finds which integers and pointers to specialise on, parses
the options. Only its driver is replaced, by one that names a target and owns no device.
"""

import torch
from triton.runtime import driver

from harness.diff import PAGE_BYTES, PAGE_SLOTS


class NoDevice:
    """Stands for Triton's driver. Each target is a device of its own, since Triton keeps what it compiled by device."""

    def __init__(self, target, index=0):
        self.target, self.index = target, index

    def get_current_device(self):
        return self.index

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return self.target


def dispatch_for(target, index=0):
    """From here on Triton of this process compiles for `target`, a GPUTarget; `index`: another for each target."""
    driver.set_active(NoDevice(target, index))


def untouched_arguments(num_outputs, compress_ratio, block_size=8):
    """The contract's arguments of one request, sizes and strides alone: the memory is reserved, and no launch reads it."""
    tokens = num_outputs * compress_ratio
    blocks = -(-tokens // block_size)
    i32, i64 = (dict(dtype=dtype) for dtype in (torch.int32, torch.int64))
    return {
        "state_cache": torch.empty(blocks, block_size, 1024), "token_to_req": torch.empty(tokens, **i32),
        "positions": torch.empty(tokens, **i64), "boundary_token_indices": torch.empty(num_outputs, **i64),
        "block_table": torch.empty(1, blocks, **i32), "rms_norm_weight": torch.empty(512, dtype=torch.bfloat16),
        "cos_sin_cache": torch.empty(tokens, 64), "kv_slot_mapping": torch.empty(tokens, **i64),
        "kv_cache": torch.empty(-(-num_outputs // PAGE_SLOTS), PAGE_BYTES, dtype=torch.uint8),
        "block_size": block_size, "compress_ratio": compress_ratio,
    }  # fmt: skip
