"""solution.py's own result with one int8 byte changed: exit code 1, the byte named."""

import importlib.util
from pathlib import Path

import torch

_spec = importlib.util.spec_from_file_location("honest", Path(__file__).parents[3] / "solution.py")
_honest = importlib.util.module_from_spec(_spec)


def c128_256_512_compress(
    state_cache, token_to_req, positions, boundary_token_indices, block_table, rms_norm_weight,
    cos_sin_cache, kv_slot_mapping, kv_cache, block_size, compress_ratio, rms_norm_eps=1.0e-6,
):  # fmt: skip
    _spec.loader.exec_module(_honest)
    result = _honest.c128_256_512_compress(
        state_cache, token_to_req, positions, boundary_token_indices, block_table, rms_norm_weight,
        cos_sin_cache, kv_slot_mapping, kv_cache, block_size, compress_ratio, rms_norm_eps,
    )  # fmt: skip
    result[0, 577] += torch.tensor(64, dtype=torch.uint8, device=result.device)
    return result
