"""Right bytes; a kernel reads one row of the cosines past their end."""

import importlib.util
from pathlib import Path

import torch
import triton
import triton.language as tl

_spec = importlib.util.spec_from_file_location("plain", Path(__file__).with_name("plain.py"))
_plain = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_plain)
right = _plain.c128_256_512_compress


@triton.jit
def angle_kernel(cos_sin_cache, row, scratch):
    dims = tl.arange(0, 64)
    tl.store(scratch + dims, tl.load(cos_sin_cache + row * 64 + dims))


def c128_256_512_compress(
    state_cache, token_to_req, positions, boundary_token_indices, block_table, rms_norm_weight,
    cos_sin_cache, kv_slot_mapping, kv_cache, block_size, compress_ratio, rms_norm_eps=1.0e-6,
):  # fmt: skip
    arguments = locals()
    scratch = torch.zeros(65, dtype=torch.float32, device=kv_cache.device)[:64]
    angle_kernel[(1,)](cos_sin_cache, cos_sin_cache.shape[0], scratch)
    return right(**arguments)
