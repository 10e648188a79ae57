"""Allocates a gibibyte at each call."""

import importlib.util
from pathlib import Path

import torch

_spec = importlib.util.spec_from_file_location("plain", Path(__file__).parents[1] / "bad_submissions" / "plain.py")
_plain = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_plain)
right = _plain.c128_256_512_compress


def c128_256_512_compress(
    state_cache, token_to_req, positions, boundary_token_indices, block_table, rms_norm_weight,
    cos_sin_cache, kv_slot_mapping, kv_cache, block_size, compress_ratio, rms_norm_eps=1.0e-6,
):  # fmt: skip
    arguments = locals()
    scratch = torch.empty(1 << 30, dtype=torch.uint8, device=kv_cache.device)
    scratch[-1] = 0
    return right(**arguments)
