"""Leaves two children behind, one of them in a session of its own and without a parent."""

import importlib.util
import subprocess
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
    subprocess.Popen(["sleep", "600"])
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    subprocess.run(["sh", "-c", "setsid sleep 600 >/dev/null 2>&1 &"], check=True)
    return right(**arguments)
