"""The entry point with two parameters exchanged: refused before anything runs."""


def c128_256_512_compress(
    state_cache, positions, token_to_req, boundary_token_indices, block_table, rms_norm_weight,
    cos_sin_cache, kv_slot_mapping, kv_cache, block_size, compress_ratio, rms_norm_eps=1.0e-6,
):  # fmt: skip
    return kv_cache
