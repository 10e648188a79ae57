"""Works on a stream of its own and waits for nothing: not there when the caller's stream goes on."""

import importlib.util
from pathlib import Path

import torch

_spec = importlib.util.spec_from_file_location("plain", Path(__file__).with_name("plain.py"))
_plain = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_plain)
right = _plain.c128_256_512_compress

streams = {}


def c128_256_512_compress(
    state_cache, token_to_req, positions, boundary_token_indices, block_table, rms_norm_weight,
    cos_sin_cache, kv_slot_mapping, kv_cache, block_size, compress_ratio, rms_norm_eps=1.0e-6,
):  # fmt: skip
    arguments = locals()
    result = torch.zeros_like(kv_cache)
    with torch.cuda.stream(streams.setdefault("side", torch.cuda.Stream())):
        answer = right(**arguments)
        torch.cuda._sleep(20_000_000)  # clocks: some 10 ms
        result.copy_(answer)
    return result
