"""Sparse attention over the packed cache, in Triton: each query token attends to `topk` slots, key and value being the same 512.

    P = Q K^T * sm_scale      S = softmax(P, sink)      out = S K         K [topk, 512] decoded from 584 bytes a slot

Index i is slot i % 64 of page i // 64. An index below 0 or at or past the number of slots takes no part, and its bytes are not
read. bfloat16 products, float32 sums, skip-scale online softmax (harness/reader/skip_scale.py).

Design. One decoding token has 64 heads and reads 0.3 MB (topk 512): one program cannot take it in, so the keys are split over
programs (flash decoding), each leaving its unnormalised output, shift and sum; the heads may be split too, since programs that
share keys find them in the L2. Partial outputs weigh splits * heads * 2,048 bytes, soon more than the keys: few splits of many
keys, narrow in heads, write least. They are joined by a second small launch, [heads x 512 / JOIN_DIMS] programs wide: the last
program to arrive would read them all through one multiprocessor, and needs counters that are zero. With enough query tokens to
fill the chip there is one split, no scratch and one launch.

The shift moves only where it must, row by row, and the accumulator is multiplied every time (by exp(0) where the shift stays). The
published rule, a branch if any row ran away, keeps the same bound; here its reduction over rows makes the kernel spill: 760 bytes
of stack a thread against 56, for 64 heads and 32 keys, compiled for sm_90 by Triton 3.7.1.

Decoding costs two operations a value and no conversion: the byte, its sign flipped, becomes the low bits of 2^23 + b, and one
multiply-add takes off the offset and applies the group's scale. The result is exact in bfloat16: its upper half is taken as it is.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from harness.diff import PAGE_BYTES
from harness.reader.skip_scale import attend_float64

HEAD_DIM = tl.constexpr(512)
GROUPS = tl.constexpr(8)  # of 64 dims: 7 int8, then the rotary one
INT8_GROUPS = tl.constexpr(7)
GROUP_DIM = tl.constexpr(64)
PAGE_SLOTS = tl.constexpr(64)
PAYLOAD_BYTES = tl.constexpr(576)
ROPE_AT = tl.constexpr(448)
SCALES_AT = tl.constexpr(64 * 576)
SCALE_BYTES = tl.constexpr(8)
THRESHOLD = tl.constexpr(6.0)  # skip_scale.RESCALE_THRESHOLD
MAGIC_BITS = tl.constexpr(0x4B000000)  # 2^23 as float32: its last bit counts 1
MAGIC = tl.constexpr(8388608.0 + 128.0)  # 2^23, and the 128 by which an int8 with its sign flipped is too large
JOIN_DIMS = 128


@dataclass(frozen=True)
class Tile:
    """What one program takes: `heads` of the heads, `keys` at a time of its share of the keys, which `splits` programs divide."""

    heads: int
    keys: int
    splits: int
    num_warps: int
    num_stages: int = 1

    def __post_init__(self):
        for name in ("heads", "keys", "splits", "num_warps"):
            value, least = getattr(self, name), 16 if name in ("heads", "keys") else 1
            if value < least or value & (value - 1):
                raise ValueError(f"{self}: {name} must be a power of two of at least {least}")


def choose_tile(num_queries, num_heads, topk, multiprocessors=132):
    """All heads of a query in one program, its keys split until the chip is full; 16 heads where even splits of 32 keys leave it
    half empty. The rule follows the best tiles of notes/sweep_reader.py on an H200 (notes/2026-11-30-reader.md).
    """
    heads = min(64, max(16, triton.next_power_of_2(num_heads)))
    programs = num_queries * triton.cdiv(num_heads, heads)
    if 2 * programs > multiprocessors:
        return Tile(heads, keys=64, splits=1, num_warps=8)
    keys, most = 32, max(1, triton.next_power_of_2(topk // 32))
    if 2 * programs * most > multiprocessors:
        return Tile(heads, keys, min(most, triton.next_power_of_2(multiprocessors // programs + 1) // 2), num_warps=8)
    programs = num_queries * triton.cdiv(num_heads, 16)
    return Tile(16, keys, min(most, triton.next_power_of_2(triton.cdiv(multiprocessors, 2 * programs))), num_warps=4)


# --- kernels -------------------------------------------------------------------------------------------------------------


@triton.jit
def upper_half(x):
    """float32 exact in bfloat16 -> its bits, int16."""
    return (x.to(tl.int32, bitcast=True) >> 16).to(tl.int16)


@triton.jit
def decode_keys(cache, cache16, index, valid, page_stride, page_stride16):
    """[KEYS] slots -> [KEYS, 512] bfloat16; zeros where not valid. `cache16`: the same memory as int16."""
    group = tl.arange(0, GROUPS)
    lane = tl.arange(0, GROUP_DIM)
    page = (index // PAGE_SLOTS).to(tl.int64)
    slot = index % PAGE_SLOTS

    payload = cache + (page * page_stride + slot * PAYLOAD_BYTES)[:, None, None]
    dim = (group * GROUP_DIM)[None, :, None] + lane[None, None, :]
    is_int8 = (group < INT8_GROUPS)[None, :, None]
    byte = tl.load(payload + dim, mask=valid[:, None, None] & is_int8, other=0)
    scales = cache + (page * page_stride + slot * SCALE_BYTES + SCALES_AT)[:, None]
    scale = tl.load(scales + group[None, :], mask=valid[:, None], other=0).to(tl.int32)
    scale = (scale << 23).to(tl.float32, bitcast=True)[:, :, None]  # 2^(byte - 127); compression writes 107 to 254
    shifted = ((byte.to(tl.int32) ^ 0x80) | MAGIC_BITS).to(tl.float32, bitcast=True)
    int8_bits = upper_half(shifted * scale - MAGIC * scale)

    rope = cache16 + (page * page_stride16 + slot * (PAYLOAD_BYTES // 2) + ROPE_AT // 2)[:, None]
    rope_bits = tl.load(rope + lane[None, :], mask=valid[:, None], other=0)
    bits = tl.where(is_int8, int8_bits, rope_bits[:, None, :])
    return tl.reshape(bits, [index.shape[0], HEAD_DIM]).to(tl.bfloat16, bitcast=True)


@triton.jit
def dot(a, b, INTERPRETED: tl.constexpr):
    """bfloat16 [m, k] x [k, n] -> float32. The CPU interpreter cannot multiply bfloat16; the same products in float32 are exact."""
    if INTERPRETED:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    else:
        return tl.dot(a, b)


@triton.jit
def store_result(row, mask, acc, total, shift, running_max, sink, dims, out, lse, max_logit, HAS_SINK: tl.constexpr):
    """[m] rows of query token x head, `acc` [m, n] unnormalised, of dims `dims` -> out; with dim 0, also lse and max_logit."""
    empty = running_max == float("-inf")
    with_sink = total
    if HAS_SINK:
        with_sink = total + tl.exp(sink - shift)
    acc = acc / tl.where(empty, 1.0, with_sink)[:, None]
    tl.store(out + row[:, None] * HEAD_DIM + dims[None, :], acc.to(tl.bfloat16), mask=mask[:, None])
    once = mask & (tl.min(dims, axis=0) == 0)
    tl.store(lse + row, tl.where(empty, float("inf"), shift + tl.log(tl.where(empty, 1.0, total))), mask=once)
    tl.store(max_logit + row, running_max, mask=once)


@triton.jit(do_not_specialize=["num_slots", "splits"])
def attend_kernel(
    query, cache, cache16, indices, sinks, out, lse, max_logit, partial_out, partial_shift, partial_sum, partial_max,
    num_heads, topk, num_slots, page_stride, page_stride16, splits, sm_scale,
    HEADS: tl.constexpr, KEYS: tl.constexpr, IS_SPLIT: tl.constexpr, HAS_SINK: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """One program: HEADS heads of one query token over its share of the keys. Neighbours share keys."""
    head_groups = tl.cdiv(num_heads, HEADS)
    token = (tl.program_id(0) // (head_groups * splits)).to(tl.int64)
    split = tl.program_id(0) // head_groups % splits
    head = tl.program_id(0) % head_groups * HEADS + tl.arange(0, HEADS)
    row = token * num_heads + head
    dims = tl.arange(0, HEAD_DIM)
    q = tl.load(query + row[:, None] * HEAD_DIM + dims[None, :], mask=(head < num_heads)[:, None], other=0.0)

    running_max = tl.full([HEADS], float("-inf"), tl.float32)
    max_for_softmax = running_max
    sumexp = tl.zeros([HEADS], tl.float32)
    acc = tl.zeros([HEADS, HEAD_DIM], tl.float32)
    blocks = tl.cdiv(topk, KEYS)
    for block in range(split * blocks // splits, (split + 1) * blocks // splits):
        place = block * KEYS + tl.arange(0, KEYS)
        index = tl.load(indices + token * topk + place, mask=place < topk, other=-1)
        valid = (index >= 0) & (index < num_slots)
        keys = decode_keys(cache, cache16, tl.where(valid, index, 0), valid, page_stride, page_stride16)

        logits = dot(q, tl.trans(keys), INTERPRETED) * sm_scale
        logits = tl.where(valid[None, :], logits, float("-inf"))
        running_max = tl.maximum(running_max, tl.max(logits, axis=1))
        ran_away = tl.where(running_max == float("-inf"), 0.0, running_max - max_for_softmax)
        new_max = tl.where(ran_away > THRESHOLD, running_max, max_for_softmax)
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)
        factor = tl.exp(max_for_softmax - shift)  # exp(0) where the shift stays
        acc = acc * factor[:, None]
        sumexp = sumexp * factor
        max_for_softmax = new_max
        weights = tl.exp(logits - shift[:, None])
        sumexp = sumexp + tl.sum(weights, axis=1)
        acc = acc + dot(weights.to(tl.bfloat16), keys, INTERPRETED)

    shift = tl.where(max_for_softmax == float("-inf"), 0.0, max_for_softmax)
    mask = head < num_heads
    if IS_SPLIT:
        part = row * splits + split
        tl.store(partial_out + part[:, None] * HEAD_DIM + dims[None, :], acc, mask=mask[:, None])
        tl.store(partial_shift + part, shift, mask=mask)
        tl.store(partial_sum + part, sumexp, mask=mask)
        tl.store(partial_max + part, running_max, mask=mask)
    else:
        sink = shift
        if HAS_SINK:
            sink = tl.load(sinks + head, mask=mask, other=0.0)
        store_result(row, mask, acc, sumexp, shift, running_max, sink, dims, out, lse, max_logit, HAS_SINK)


@triton.jit
def join_kernel(
    partial_out, partial_shift, partial_sum, partial_max, sinks, out, lse, max_logit, num_heads,
    SPLITS: tl.constexpr, DIMS: tl.constexpr, HAS_SINK: tl.constexpr,
):  # fmt: skip
    """One program: DIMS dims of one query token and head, from all splits."""
    one = tl.zeros([1], tl.int32)  # a tile of one row
    row = (tl.program_id(0) // (HEAD_DIM // DIMS)).to(tl.int64) + one
    dims = tl.program_id(0) % (HEAD_DIM // DIMS) * DIMS + tl.arange(0, DIMS)
    part = row * SPLITS + tl.arange(0, SPLITS)
    top = tl.load(partial_max + part)
    shift = tl.where(top == float("-inf"), top, tl.load(partial_shift + part))  # a split without a valid key weighs nothing
    highest = tl.max(shift, axis=0)
    highest = tl.where(highest == float("-inf"), 0.0, highest)
    weight = tl.exp(shift - highest)
    total = tl.sum(tl.load(partial_sum + part) * weight, axis=0)
    acc = tl.sum(tl.load(partial_out + part[:, None] * HEAD_DIM + dims[None, :]) * weight[:, None], axis=0)
    sink = highest + one
    if HAS_SINK:
        sink = tl.load(sinks + row % num_heads)
    store_result(
        row, row >= 0, acc[None, :], total + one, highest + one, tl.max(top, axis=0) + one, sink, dims,
        out, lse, max_logit, HAS_SINK,
    )  # fmt: skip


# --- launcher ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attention:
    """A token and head without a valid index: out 0, lse +inf, max_logit -inf."""

    out: torch.Tensor  # [num_queries, num_heads, 512] bfloat16
    lse: torch.Tensor  # [num_queries, num_heads] float32: log of the sum of exp(P), the sink left out
    max_logit: torch.Tensor  # [num_queries, num_heads] float32


def attend(query, kv_cache, indices, sm_scale, sink=None, num_slots=None, tile=None):
    """Attention of each query token over its `topk` slots of the packed cache.

    query     [num_queries, num_heads, 512] bfloat16
    kv_cache  [kv_blocks, block_stride >= 37376] uint8, contiguous, as compression returns it
    indices   [num_queries, topk] int32 slots; negative or >= num_slots (all slots of the cache, if None): not taken
    sink      [num_heads] float32 or None
    """
    num_queries, num_heads, topk = _check(query, kv_cache, indices, sink)
    held = kv_cache.shape[0] * PAGE_SLOTS.value
    num_slots = held if num_slots is None else num_slots
    if num_slots > held:
        raise ValueError(f"num_slots: {num_slots} given; kv_cache holds {held}")
    rows, device = (num_queries, num_heads), query.device
    out = torch.empty((*rows, HEAD_DIM.value), dtype=torch.bfloat16, device=device)
    lse, max_logit = torch.empty((2, *rows), dtype=torch.float32, device=device)
    if out.numel() == 0:
        return Attention(out, lse, max_logit)
    tile = tile or choose_tile(num_queries, num_heads, topk, multiprocessors(query.device))
    splits = (*rows, tile.splits)
    split_out = torch.empty((*splits, HEAD_DIM.value) if tile.splits > 1 else 1, dtype=torch.float32, device=device)
    split_shift, split_sum, split_max = torch.empty((3, *splits), dtype=torch.float32, device=device)
    sinks = lse if sink is None else sink
    interpreted = device.type == "cpu"
    attend_kernel[(num_queries * tile.splits * triton.cdiv(num_heads, tile.heads),)](
        query, kv_cache, kv_cache.view(torch.int16), indices, sinks, out, lse, max_logit,
        split_out, split_shift, split_sum, split_max,
        num_heads, topk, num_slots, kv_cache.shape[1], kv_cache.shape[1] // 2, tile.splits, sm_scale,
        HEADS=tile.heads, KEYS=tile.keys, IS_SPLIT=tile.splits > 1, HAS_SINK=sink is not None, INTERPRETED=interpreted,
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip
    if tile.splits > 1:
        join_kernel[(num_queries * num_heads * (HEAD_DIM.value // JOIN_DIMS),)](
            split_out, split_shift, split_sum, split_max, sinks, out, lse, max_logit, num_heads,
            SPLITS=tile.splits, DIMS=JOIN_DIMS, HAS_SINK=sink is not None, num_warps=4,
        )  # fmt: skip
    return Attention(out, lse, max_logit)


def _check(query, kv_cache, indices, sink):
    """TypeError or ValueError naming the argument -> (num_queries, num_heads, topk)."""
    for name, tensor, dtype, rank in (
        ("query", query, torch.bfloat16, 3),
        ("kv_cache", kv_cache, torch.uint8, 2),
        ("indices", indices, torch.int32, 2),
        ("sink", sink, torch.float32, 1),
    ):
        if tensor is None:
            continue
        if tensor.dtype != dtype:
            raise TypeError(f"{name}: {tensor.dtype} given; {dtype} is needed")
        if tensor.dim() != rank or not tensor.is_contiguous():
            raise ValueError(
                f"{name}: shape {list(tensor.shape)}, strides {tensor.stride()} given; {rank} dims, contiguous, are needed"
            )
    if query.shape[2] != HEAD_DIM.value or kv_cache.shape[1] < PAGE_BYTES or kv_cache.shape[1] % 2:
        raise ValueError(
            f"query {list(query.shape)}, kv_cache {list(kv_cache.shape)}: 512 dims; {PAGE_BYTES} bytes a page or more, even"
        )
    if indices.shape[0] != query.shape[0] or (sink is not None and sink.shape[0] != query.shape[1]):
        raise ValueError(
            f"indices {list(indices.shape)}, query {list(query.shape)}: one row a query token; one sink a head is needed"
        )
    return query.shape[0], query.shape[1], indices.shape[1]


def multiprocessors(device):
    """Of a GPU, 132 where its backend does not tell; 1 for the interpreter, which runs programs one after another."""
    if device.type == "cpu":
        return 1
    return getattr(getattr(torch, device.type).get_device_properties(device), "multi_processor_count", 132)


# --- what it must read, and the truth ------------------------------------------------------------------------------------


def bytes_needed(num_queries, num_heads, topk, token_bytes=584):
    """(read, written) at least: every chosen slot once, indices, queries; outputs, lse and maximum."""
    read = num_queries * (topk * (token_bytes + 4) + num_heads * HEAD_DIM.value * 2)
    return read, num_queries * num_heads * (HEAD_DIM.value * 2 + 8)


def flops(num_queries, num_heads, topk):
    """2 * topk * heads * (512 + 512) a query token, invalid indices included, as FlashMLA counts them."""
    return num_queries * 2 * topk * num_heads * 2 * HEAD_DIM.value


def attend_truth(query, vectors, indices, sm_scale, sink=None):
    """Float64 attention over [num_slots, 512] vectors, invalid indices left out -> [AttentionResult] a query token."""
    results = []
    for one, chosen in zip(query, indices.long()):
        valid = (chosen >= 0) & (chosen < vectors.shape[0])
        results.append(attend_float64(one, vectors[torch.where(valid, chosen, 0)], valid, sm_scale, sink=sink))
    return results
