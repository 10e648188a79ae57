"""Right bytes; the programs of a kernel hand values to each other, and nothing orders them."""

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
def relay_kernel(scratch):
    n = tl.program_id(0)
    tl.store(scratch + n + 1, tl.load(scratch + n) + 1.0)


def c128_256_512_compress(
    state_cache, token_to_req, positions, boundary_token_indices, block_table, rms_norm_weight,
    cos_sin_cache, kv_slot_mapping, kv_cache, block_size, compress_ratio, rms_norm_eps=1.0e-6,
):  # fmt: skip
    arguments = locals()
    scratch = torch.zeros(65, dtype=torch.float32, device=kv_cache.device)[:64]
    relay_kernel[(63,)](scratch)
    return right(**arguments)
