"""The meaning of `c128_256_512_compress`, in PyTorch: C state rows become one packed cache slot.

This file is the contract. It keeps the official order of rounding, operation by operation, runs on any device, and imports
nothing of this project. Where it is defined, a submission must return the same bytes.

    gather C rows -> softmax over the window, per dimension -> weighted sum -> RMSNorm
        -> first 448 dims: bfloat16, then int8 with one power-of-two scale per 64 dims
        -> last 64 dims:   rotary embedding of 32 neighbouring pairs, bfloat16
        -> one 584-byte slot of a paged cache

Negative tokens, requests, blocks, positions and slots index from the end, as PyTorch does. An index past the end raises
(IndexError on a CPU, a device assertion elsewhere).
"""

import torch

HEAD_DIM = 512  # columns of values in a state row; as many scores follow
INT8_DIM = 448  # leading dimensions, stored as int8
GROUP_DIM = 64  # dimensions that share one scale byte
ROPE_PAIRS = 32  # (even, odd) neighbours in the last 64 dimensions
PAGE_SLOTS = 64  # slots of a page
PAYLOAD_BYTES = 576  # of a slot: 448 int8, then 64 bfloat16
SCALE_BYTES = 8  # of a slot: 7 scales and one zero
AMAX_FLOOR = 1.0e-4  # least group maximum


def c128_256_512_compress(
    state_cache,
    token_to_req,
    positions,
    boundary_token_indices,
    block_table,
    rms_norm_weight,
    cos_sin_cache,
    kv_slot_mapping,
    kv_cache,
    block_size,
    compress_ratio,
    rms_norm_eps=1.0e-6,
):
    """Compress the windows that `boundary_token_indices` close into the slots that `kv_slot_mapping` gives them.

    state_cache             [num_blocks, block_size, 1024] float32: 512 values, then 512 scores
    token_to_req            [num_tokens] int: request of a token
    positions               [num_tokens] int: position of a token within its request
    boundary_token_indices  [num_outputs] int: tokens that close a window
    block_table             [num_reqs, blocks_per_req] int: logical block -> block of state_cache
    rms_norm_weight         [512] bfloat16
    cos_sin_cache           [max_pos, 64] float32: 32 cosines, then 32 sines
    kv_slot_mapping         [num_tokens] int: slot of a token
    kv_cache                [kv_blocks, block_stride >= 37376] uint8: only its shape is used

    Returns a new contiguous uint8 tensor shaped like kv_cache: zeros, and the slots written.
    """
    tokens = boundary_token_indices.long()
    last = positions[tokens].long()

    compressed = compress_windows(state_cache, token_to_req[tokens].long(), last, block_table, block_size, compress_ratio)
    rrms = torch.rsqrt(compressed.square().mean(-1, keepdim=True) + rms_norm_eps)
    normed = compressed * rrms * rms_norm_weight.float()

    quantised, scales = quantise_groups(normed[:, :INT8_DIM])
    rotated = rotate_pairs(normed[:, INT8_DIM:], cos_sin_cache[last // compress_ratio * compress_ratio])

    slots = kv_slot_mapping[tokens].long()
    page, slot = (slots // PAGE_SLOTS)[:, None], (slots % PAGE_SLOTS)[:, None]
    payload = torch.cat([quantised.view(torch.uint8), rotated.to(torch.bfloat16).view(torch.uint8)], dim=1)
    result = torch.zeros_like(kv_cache, memory_format=torch.contiguous_format)
    result[page, slot * PAYLOAD_BYTES + torch.arange(PAYLOAD_BYTES, device=slots.device)] = payload
    scale_column = PAGE_SLOTS * PAYLOAD_BYTES + slot * SCALE_BYTES
    result[page, scale_column + torch.arange(scales.shape[1], device=slots.device)] = scales
    return result


def compress_windows(state_cache, reqs, last, block_table, block_size, compress_ratio):
    """[num_outputs] requests and last positions -> [num_outputs, 512] float32: each window's weighted sum of values."""
    window = last[:, None] + torch.arange(1 - compress_ratio, 1, device=last.device)
    blocks = block_table[reqs[:, None], window // block_size].long()
    rows = state_cache.reshape(-1, 2 * HEAD_DIM)[blocks * block_size + window % block_size]
    values, scores = rows[..., :HEAD_DIM], rows[..., HEAD_DIM:]
    return (values * torch.softmax(scores, dim=1)).sum(dim=1)


def quantise_groups(normed):
    """[num_outputs, 448] float32 -> ([num_outputs, 448] int8, [num_outputs, 7] uint8 scale bytes, 2^(byte - 127))."""
    groups = normed.to(torch.bfloat16).float().unflatten(1, (-1, GROUP_DIM))
    amax = groups.abs().amax(-1, keepdim=True).clamp(min=AMAX_FLOOR)
    exponent = torch.ceil(torch.log2(amax * (1.0 / 127.0)))
    quantised = torch.clamp(groups * torch.exp2(-exponent), -127.0, 127.0).to(torch.int8)  # .to truncates toward zero
    scales = torch.clamp(exponent + 127.0, 0.0, 255.0).to(torch.uint8)
    return quantised.flatten(1), scales.squeeze(-1)


def rotate_pairs(normed, cos_sin):
    """[num_outputs, 64] float32 and [num_outputs, 64] (cosines, sines) -> [num_outputs, 64], pairs (2j, 2j + 1) rotated."""
    even, odd = normed[:, 0::2], normed[:, 1::2]
    cos, sin = cos_sin[:, :ROPE_PAIRS], cos_sin[:, ROPE_PAIRS:]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(1)
