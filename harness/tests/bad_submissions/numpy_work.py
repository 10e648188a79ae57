"""A kernel that does nothing of the work, beside NumPy, which PyTorch's operators do not show."""

import numpy as np
import torch
import triton
import triton.language as tl


@triton.jit
def decoy_kernel(x):
    tl.store(x, 1.0)


def to_bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def c128_256_512_compress(
    state_cache, token_to_req, positions, boundary_token_indices, block_table, rms_norm_weight,
    cos_sin_cache, kv_slot_mapping, kv_cache, block_size, compress_ratio, rms_norm_eps=1.0e-6,
):  # fmt: skip
    decoy_kernel[(1,)](torch.empty(1, device=kv_cache.device))
    state, table, weight = state_cache.cpu().numpy(), block_table.cpu().numpy(), rms_norm_weight.view(torch.int16).cpu().numpy()
    bits, cos_sin, result = weight.astype(np.uint32) << 16, cos_sin_cache.cpu().numpy(), np.zeros(kv_cache.shape, np.uint8)
    for b in boundary_token_indices.tolist():
        last, slot = int(positions[b]), int(kv_slot_mapping[b])
        rows = [
            state[table[int(token_to_req[b]), t // block_size], t % block_size] for t in range(last + 1 - compress_ratio, last + 1)
        ]
        values, scores = np.split(np.stack(rows), 2, axis=1)
        exps = np.exp(scores - scores.max(0))
        x = (values * (exps / exps.sum(0))).sum(0)
        z = x / np.sqrt((x * x).mean() + rms_norm_eps, dtype=np.float32) * bits.view(np.float32)
        rounded = (to_bf16(z[:448]).astype(np.uint32) << 16).view(np.float32).reshape(7, 64)
        exponent = np.ceil(np.log2(np.maximum(abs(rounded).max(1), 1e-4) / 127)).astype(np.int32)
        (cos, sin), even, odd = np.split(cos_sin[last // compress_ratio * compress_ratio], 2), z[448::2], z[449::2]
        rope = to_bf16(np.stack([even * cos - odd * sin, odd * cos + even * sin], 1)).view(np.uint8).ravel()
        page, at = result[slot // 64], slot % 64
        page[at * 576 : at * 576 + 448] = np.ldexp(rounded, -exponent[:, None]).astype(np.int8).view(np.uint8).ravel()
        page[at * 576 + 448 : at * 576 + 576] = rope
        page[36864 + at * 8 : 36871 + at * 8] = exponent + 127
    return torch.from_numpy(result).to(kv_cache.device)
