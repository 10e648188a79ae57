"""Right bytes by PyTorch alone: passes the check, and is disqualified by the contest. Other files here spoil its result."""

import torch


def c128_256_512_compress(
    state_cache, token_to_req, positions, boundary_token_indices, block_table, rms_norm_weight,
    cos_sin_cache, kv_slot_mapping, kv_cache, block_size, compress_ratio, rms_norm_eps=1.0e-6,
):  # fmt: skip
    tokens = boundary_token_indices.long()
    last, slots, outputs = positions[tokens].long(), kv_slot_mapping[tokens].long(), len(tokens)
    window = last[:, None] + torch.arange(1 - compress_ratio, 1, device=last.device)
    blocks = block_table[token_to_req[tokens].long()[:, None], window // block_size].long()
    rows = state_cache[blocks, window % block_size]
    x = (rows[..., :512] * torch.softmax(rows[..., 512:], dim=1)).sum(dim=1)
    z = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + rms_norm_eps) * rms_norm_weight.float()

    groups = z[:, :448].bfloat16().float().view(outputs, 7, 64)
    exponent = torch.ceil(torch.log2(groups.abs().amax(-1, keepdim=True).clamp(min=1e-4) * (1 / 127)))
    int8 = (groups * torch.exp2(-exponent)).clamp(-127, 127).to(torch.int8).view(outputs, 448).view(torch.uint8)
    scales = torch.nn.functional.pad((exponent + 127).to(torch.uint8).view(outputs, 7), (0, 1))
    cos, sin = cos_sin_cache[last // compress_ratio * compress_ratio].chunk(2, dim=-1)
    even, odd = z[:, 448::2], z[:, 449::2]
    rotated = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).bfloat16().view(outputs, 64).view(torch.uint8)

    result = torch.zeros(kv_cache.shape, dtype=torch.uint8, device=kv_cache.device)
    page, slot = slots // 64, slots % 64
    for n in range(outputs):
        result[page[n], slot[n] * 576 : slot[n] * 576 + 576] = torch.cat([int8[n], rotated[n]])
        result[page[n], 36864 + slot[n] * 8 : 36872 + slot[n] * 8] = scales[n]
    return result
