"""Prints 64 MiB: it passes, and fills no disk."""

import importlib.util
import sys
from pathlib import Path

_spec = importlib.util.spec_from_file_location("plain", Path(__file__).parents[1] / "bad_submissions" / "plain.py")
_plain = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_plain)
right = _plain.c128_256_512_compress


def c128_256_512_compress(
    state_cache, token_to_req, positions, boundary_token_indices, block_table, rms_norm_weight,
    cos_sin_cache, kv_slot_mapping, kv_cache, block_size, compress_ratio, rms_norm_eps=1.0e-6,
):  # fmt: skip
    arguments = locals()
    for _ in range(64):
        sys.stdout.write("x" * (1 << 20))
        sys.stderr.write("error\n")
    return right(**arguments)
