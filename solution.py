"""c128_256_512_compress: C = 128, 256 or 512 consecutive state rows become one packed KV-cache slot (DeepSeek-V4 style).

Contract, for output n closed by token b = boundary_token_indices[n]; r = token_to_req[b], p = positions[b], float32 throughout:

    row(t)      = block_table[r, t // block_size] * block_size + t % block_size          t = p-C+1 .. p
    x           = sum_t value[row(t)] * softmax_t(score[row(t)])                         512 dims, each its own softmax
    z           = x * rsqrt(mean(x^2) + eps) * weight                                    left to right
    z[:448]     -> bfloat16, 7 groups of 64: e = ceil(log2(max(amax, 1e-4) / 127)),
                   byte = trunc(clamp(z * 2^-e, -127, 127)), scale byte = e + 127
    z[448:]     -> 32 neighbouring pairs rotated by cos_sin_cache[p // C * C], bfloat16
    slot        = kv_slot_mapping[b]: page slot // 64, s = slot % 64; payload at column s*576, scales at 64*576 + s*8

    state_cache [num_blocks, block_size, 1024] f32 (512 values, 512 scores)   token_to_req, positions, kv_slot_mapping [num_tokens]
    boundary_token_indices [num_outputs]   block_table [num_reqs, blocks_per_req]   rms_norm_weight [512] bf16
    cos_sin_cache [max_pos, 64] f32 (32 cos, 32 sin)   kv_cache [kv_blocks, block_stride >= 37376] u8, only its shape is used
    Index tensors are int32 or int64. Returns a new contiguous uint8 tensor: zeros, and the slots written.

Rounding: bfloat16, exponent and packing are done on integer bits, so they are exact on every backend. The exact NVIDIA routes
also add, divide and exponentiate as PyTorch's CUDA kernels do, so that every byte is the reference's. The others add in an order
of their own: a value within float32 error of a bfloat16 boundary may round to the neighbour.

Layouts: nothing is assumed of the block table; every row is looked up. Negative indices count from the end, as in PyTorch. An
index past the end is held inside its tensor (a slot past the end is not written): that slot's bytes are unspecified, as are
those of a window with NaN, +inf, or a column that is all -inf. Two outputs with one slot: unspecified which stays.

Errors: TypeError or ValueError before any launch, naming the argument, what came, what is needed.

Sections: constants | types | numerics | slots | kernels in an order of their own | kernels for Ascend | exact kernels | arguments |
launchers | routes | platform | entry
"""

import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache, lru_cache
from math import gcd
from operator import attrgetter, methodcaller
from threading import Lock

import torch
import triton
import triton.language as tl

try:  # a Triton without it has no exact route; see HAS_GLUON
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl
except ImportError:
    gluon = gl = None
try:
    from triton.language.extra import libdevice
except ImportError:
    libdevice = None

# --- constants: the packed page, in bytes unless said --------------------------------------------------------------------

HEAD_DIM = tl.constexpr(512)  # dims of an output; a state row holds as many values, then as many scores (float32)
GROUP_DIM = tl.constexpr(64)  # dims that share a scale byte; the last of the 8 groups is the rotary one
GROUPS = tl.constexpr(8)
INT8_GROUPS = tl.constexpr(7)
INT8_DIM = tl.constexpr(448)
ROPE_PAIRS = tl.constexpr(32)
PAGE_SLOTS = tl.constexpr(64)
PAYLOAD_BYTES = tl.constexpr(576)  # of a slot: 448 int8, then 64 bfloat16
SCALE_BYTES = tl.constexpr(8)  # of a slot: 7 scales, one zero
SLOT_BYTES = tl.constexpr(584)  # 576 + 8
SCALES_AT = tl.constexpr(36864)  # 64 * 576: column of the first scale byte of a page
PAGE_BYTES = tl.constexpr(37376)  # 64 * 584: the bytes of a page that slots use; its rest is padding
FAR = tl.constexpr(1 << 30)  # blocks; farther than any table reaches
MIN_EXPONENT = tl.constexpr(-20)  # ceil(log2(1e-4 / 127)): the clamp of the group maximum at 1e-4
# Up to here pages are zeroed within the one launch; beyond, the fill is a launch of its own. Outputs: a program that zeroes a
# page looks at all of them. Pages (150 MB): their fill takes longer than its launch.
ZERO_OUTPUTS_UP_TO = 4096
ZERO_PAGES_UP_TO = 4096
MANY = float("inf")  # outputs
ANY = None  # compress_ratio


# --- types ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tile:
    """What one program of the compression takes: `dims` of the 512 dimensions, `rows` of the window at a time."""

    dims: int
    rows: int
    num_warps: int
    num_stages: int = 1
    registers: int | None = None  # a thread's, at most, on compute capability 9.0, where it was measured; elsewhere Triton's choice
    early: bool = False  # ask for the values while the exponentials are computed, not after; takes registers

    def __post_init__(self):
        if 512 % self.dims or 512 % self.rows:
            raise ValueError(f"{self}: dims and rows must divide 512")


@dataclass(frozen=True)
class Route:
    """How a platform computes the operator."""

    launch: Callable
    tiles: tuple  # (compress_ratio or ANY, most outputs or MANY, Tile), ...: the first that holds them
    eviction: str = ""  # cache policy of the state loads: "" or "evict_first"
    kernel: object = None  # of launch_exact; of launch_ascend, where it is not ascend_compress_kernel
    finalizer_warps: int = 4  # of launch_two_stage
    mask_all: bool = False  # of launch_ascend: every tile of a window, not only its ends

    def tile(self, compress_ratio, num_outputs):
        return next(tile for ratio, most, tile in self.tiles if ratio in (ANY, compress_ratio) and num_outputs <= most)


@dataclass(frozen=True)
class Plan:
    """What a call launches, from the kinds of its arguments alone: no tensor, no pointer, no stream."""

    route: Route
    tile: Tile
    num_outputs: int
    page_shape: tuple  # of the result: (kv_blocks, block_stride)
    block_size: int
    compress_ratio: int
    sizes: tuple  # num_tokens, num_reqs, blocks_per_req, num_blocks, max_pos, kv_blocks
    strides: tuple  # table, block, row, cos_sin, page; in elements
    rms_norm_eps: float
    unit_strides: bool  # every last dimension is contiguous, as the kernels need it
    contiguous_pages: bool  # kv_cache is laid out as the result
    only_device: bool  # there is no other one to leave for the launch
    zero_pages: int  # zeroed by the kernel of launch_exact; 0: by a fill beforehand
    launches: dict = field(default_factory=dict, compare=False, repr=False)  # of launch_exact: kernels already compiled
    checks: list = field(default_factory=list, compare=False, repr=False)  # one: are tensors of these kinds? see find_plan

    @property
    def mean_lanes(self):
        """Lanes over which PyTorch's CUDA mean of [num_outputs, 512] is spread (notes/2026-12-01-exact.md)."""
        return 32 if self.num_outputs >= 16 else 64 if self.num_outputs >= 8 else 128


# --- numerics: the only place for rounding, exponents and indices -------------------------------------------------------


@triton.jit
def bf16_bits(x):
    """float32 -> its nearest-even bfloat16, as int32 in [0, 65535]. By bits: backends' casts differ."""
    bits = x.to(tl.int32, bitcast=True)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF


@triton.jit
def bf16_value(bits):
    """int32 bfloat16 bits -> float32, exactly."""
    return (bits << 16).to(tl.float32, bitcast=True)


@triton.jit
def group_exponent(amax_bits):
    """bfloat16 bits of a group's largest |z| -> ceil(log2(max(amax, 1e-4) / 127)); 127 * 2^k is the last before a step."""
    return tl.maximum(((amax_bits + 1) >> 7) - 133, MIN_EXPONENT)


@triton.jit
def power_of_two(exponent):
    """int32 in [-126, 127] -> 2^exponent as float32, by bits."""
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def quantise(z, exponent):
    """float32 of bfloat16's precision and the group's exponent -> int8 by truncation toward zero."""
    scaled = z * power_of_two(-exponent)
    return tl.minimum(tl.maximum(scaled, -127.0), 127.0).to(tl.int8)


@triton.jit
def load_bf16(pointer):
    """bfloat16 in memory -> float32, exactly (the interpreter's own cast loses subnormals)."""
    return bf16_value(tl.load(pointer).to(tl.int16, bitcast=True).to(tl.int32))


@triton.jit
def store_bf16(pointer, bits, mask):
    """bfloat16 bits -> two bytes, little-endian: a page may have any alignment."""
    tl.store(pointer, (bits & 0xFF).to(tl.uint8), mask=mask)
    tl.store(pointer + 1, (bits >> 8).to(tl.uint8), mask=mask)


@triton.jit
def floor_div(a, b: tl.constexpr):
    """a // b rounded down, as PyTorch does; Triton's // rounds toward zero."""
    quotient = a // b
    return tl.where(a < quotient * b, quotient - 1, quotient)


@triton.jit
def from_end(index, size):
    """A negative index counts from the end."""
    return tl.where(index < 0, index + size, index)


@triton.jit
def inside(index, size):
    """`from_end`, then held to [0, size): no access leaves the tensor."""
    return tl.minimum(tl.maximum(from_end(index, size), 0), size - 1)


TINY = tl.constexpr(2.0**-90)  # below it the residual of a division by 1 .. 512 may underflow
INTERPRETED = tl.constexpr(not isinstance(inside, triton.JITFunction))


@triton.jit
def exp(x):
    """CUDA's expf, as PyTorch calls it: 0 of the 2^32 floats differ on an H200. tl.exp is a faster, coarser one."""
    if INTERPRETED:
        return tl.exp(x)
    else:
        return libdevice.exp(x)


@triton.jit
def divide(e, denominator, reciprocal):
    """e[rows, dims] / denominator[dims], rounded to nearest: from the rounded reciprocal, in one residual step. No e below TINY."""
    denominator = tl.broadcast_to(denominator[None, :], e.shape)
    reciprocal = tl.broadcast_to(reciprocal[None, :], e.shape)
    quotient = e * reciprocal
    return tl.fma(tl.fma(quotient, -denominator, e), reciprocal, quotient)


@triton.jit
def add_in_order(total, x, is_first):
    """((total + x[0]) + x[1]) + ... along axis 0, which must lie within a thread: there, a sum is taken in order."""
    return tl.sum(tl.where(is_first[:, None], total[None, :] + x, x), axis=0)


@triton.jit
def sum_halves(x, SIZE: tl.constexpr):
    """x[SIZE] -> its sum by halving: x[i] + x[i + SIZE/2], and so on. Two terms an addition: no order is left open."""
    for step in tl.static_range(1, 10):
        if SIZE >> step > 0:
            x = tl.sum(tl.reshape(x, [2, SIZE >> step]), axis=0)
    return tl.sum(x, axis=0)


# --- slots: what is shared by all kernels. Index tensors are the caller's, so that Gluon can lay them out ----------------


@triton.jit
def rrms_of(x, lane, LANES: tl.constexpr, rms_norm_eps):
    """x: pointer to 512 float32, lane: 0 .. LANES - 1 -> 1 / sqrt(mean(x^2) + eps), added in the order of PyTorch's CUDA mean.

    A lane takes four neighbours every 4 * LANES dims, one sum for each; then the four in order; then the lanes by halving.
    """
    for first in tl.static_range(0, HEAD_DIM, 4 * LANES):
        a = tl.load(x + first + 4 * lane)
        b = tl.load(x + first + 4 * lane + 1)
        c = tl.load(x + first + 4 * lane + 2)
        d = tl.load(x + first + 4 * lane + 3)
        if first == 0:
            sum_a, sum_b, sum_c, sum_d = a * a, b * b, c * c, d * d
        else:
            sum_a, sum_b, sum_c, sum_d = sum_a + a * a, sum_b + b * b, sum_c + c * c, sum_d + d * d
    return tl.rsqrt(sum_halves(sum_a + sum_b + sum_c + sum_d, LANES) * (1.0 / HEAD_DIM) + rms_norm_eps)


@triton.jit
def finalize_output(
    n, TILES: tl.constexpr, dim, group, pair, lane, compressed, arrivals, boundary_token_indices, positions, rms_norm_weight,
    cos_sin_cache, kv_slot_mapping, kv_cache, num_tokens, max_pos, kv_blocks, cos_sin_stride, page_stride, rms_norm_eps,
    C: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """compressed[n, :512] float32 -> RMSNorm, int8 groups, rotary pairs -> the 584 bytes of output n's slot.

    Called by each of the output's TILES programs after its stores to compressed[n]: the last to arrive does it, and resets
    arrivals[n] to 0. dim[8, 64]: 0 .. 511, group[8], pair[32], lane[LANES]: each 0, 1, 2, ...
    """
    is_last = n >= 0
    if TILES > 1:
        tl.debug_barrier()  # the stores of all the program's threads, before the release by one of them
        is_last = tl.atomic_add(arrivals + n, 1, sem="acq_rel") == TILES - 1
    if is_last:
        if TILES > 1:
            tl.store(arrivals + n, 0)
        x = compressed + n * HEAD_DIM
        even_dim = INT8_DIM + 2 * pair
        raw = tl.load(x + dim)
        even = tl.load(x + even_dim)
        odd = tl.load(x + even_dim + 1)
        weight = load_bf16(rms_norm_weight + dim)
        even_weight = load_bf16(rms_norm_weight + even_dim)
        odd_weight = load_bf16(rms_norm_weight + even_dim + 1)

        boundary = from_end(tl.load(boundary_token_indices + n).to(tl.int64), num_tokens)
        token = inside(boundary, num_tokens)
        slot = tl.load(kv_slot_mapping + token).to(tl.int64)
        window = floor_div(tl.load(positions + token).to(tl.int64), C) * C
        angle = cos_sin_cache + inside(window, max_pos) * cos_sin_stride + pair
        cos = tl.load(angle)
        sin = tl.load(angle + ROPE_PAIRS)
        page = floor_div(slot, PAGE_SLOTS)
        slot = slot - page * PAGE_SLOTS
        page = from_end(page, kv_blocks)
        writes = (boundary >= 0) & (boundary < num_tokens) & (page >= 0) & (page < kv_blocks)
        payload = kv_cache + page * page_stride + slot * PAYLOAD_BYTES
        scales = kv_cache + page * page_stride + SCALES_AT + slot * SCALE_BYTES

        rrms = rrms_of(x, lane, LANES, rms_norm_eps)
        z_bits = bf16_bits(raw * rrms * weight)
        exponent = group_exponent(tl.max(z_bits & 0x7FFF, axis=1))
        int8 = quantise(bf16_value(z_bits), exponent[:, None])
        is_int8 = group < INT8_GROUPS
        tl.store(payload + dim, int8.to(tl.uint8, bitcast=True), mask=is_int8[:, None] & writes)
        tl.store(scales + group, tl.where(is_int8, exponent + 127, 0).to(tl.uint8), mask=(group < GROUPS) & writes)

        even = even * rrms * even_weight
        odd = odd * rrms * odd_weight
        store_bf16(payload + INT8_DIM + 4 * pair, bf16_bits(even * cos - odd * sin), (pair < ROPE_PAIRS) & writes)
        store_bf16(payload + INT8_DIM + 4 * pair + 2, bf16_bits(odd * cos + even * sin), (pair < ROPE_PAIRS) & writes)


@triton.jit
def finalize_plain(
    n, TILES: tl.constexpr, compressed, arrivals, boundary_token_indices, positions, rms_norm_weight, cos_sin_cache,
    kv_slot_mapping, kv_cache, num_tokens, max_pos, kv_blocks, cos_sin_stride, page_stride, rms_norm_eps,
    C: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """finalize_output for kernels that leave the layout of its tiles to Triton."""
    group = tl.arange(0, GROUPS)
    finalize_output(
        n, TILES, group[:, None] * GROUP_DIM + tl.arange(0, GROUP_DIM)[None, :], group, tl.arange(0, ROPE_PAIRS),
        tl.arange(0, LANES), compressed, arrivals, boundary_token_indices, positions, rms_norm_weight, cos_sin_cache,
        kv_slot_mapping, kv_cache, num_tokens, max_pos, kv_blocks, cos_sin_stride, page_stride, rms_norm_eps, C, LANES,
    )  # fmt: skip


@triton.jit
def zero_page(
    page, slot, byte, boundary_token_indices, kv_slot_mapping, kv_cache, num_outputs, num_tokens, kv_blocks, page_stride,
    ALIGNED_PAGES: tl.constexpr,
):  # fmt: skip
    """Zero what no output writes of one page: no byte has two writers, so it needs no order. slot[64], byte[64]: 0, 1, 2, ..."""
    written = slot < 0
    for first in range(0, num_outputs, 64):
        n = first + byte
        boundary = from_end(tl.load(boundary_token_indices + n, mask=n < num_outputs, other=0).to(tl.int64), num_tokens)
        writes = (n < num_outputs) & (boundary >= 0) & (boundary < num_tokens)
        target = tl.load(kv_slot_mapping + inside(boundary, num_tokens)).to(tl.int64)
        target_page = floor_div(target, PAGE_SLOTS)
        hit = writes & (from_end(target_page, kv_blocks) == page)
        here = hit[None, :] & ((target - target_page * PAGE_SLOTS)[None, :] == slot[:, None])
        written = written | (tl.max(here.to(tl.int32), axis=1) > 0)
    start = kv_cache + page * page_stride
    zero = (slot[:, None] + byte[None, :] < 0).to(tl.uint8)
    payload = start + (slot * PAYLOAD_BYTES)[:, None] + byte[None, :]
    scales = start + SCALES_AT + (slot * SCALE_BYTES)[:, None] + byte[None, :]
    if ALIGNED_PAGES:  # stores of 16 and 8 bytes
        payload = tl.multiple_of(tl.max_contiguous(payload, [1, 16]), [1, 16])
        scales = tl.multiple_of(tl.max_contiguous(scales, [1, 8]), [1, 8])
    for first in tl.static_range(0, PAYLOAD_BYTES, 64):
        tl.store(payload + first, zero, mask=~written[:, None])
    tl.store(scales, zero, mask=~written[:, None] & (byte < SCALE_BYTES)[None, :])
    for first in range(PAGE_BYTES, page_stride, 4096):
        rest = first + (slot * 64)[:, None] + byte[None, :]
        tl.store(start + rest, zero, mask=rest < page_stride)


@triton.jit
def find_window(
    n, boundary_token_indices, token_to_req, positions, block_table, num_tokens, num_reqs, table_stride,
    C: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    """Output n -> its request's row of the block table; its window's first block there, and first row in that block."""
    token = inside(tl.load(boundary_token_indices + n).to(tl.int64), num_tokens)
    req = inside(tl.load(token_to_req + token).to(tl.int64), num_reqs)
    first = tl.load(positions + token).to(tl.int64) - (C - 1)
    first_block = floor_div(first, BLOCK_SIZE)
    first_row = (first - first_block * BLOCK_SIZE).to(tl.int32)
    first_block = tl.minimum(tl.maximum(first_block, -FAR), FAR).to(tl.int32)  # 32-bit arithmetic on vectors
    return block_table + req * table_stride, first_block, first_row


@triton.jit
def row_offsets(
    table, first_block, row, blocks_per_req, num_blocks, block_stride, row_stride, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    """Rows, counted from the start of the window's first block -> their offsets in state_cache, int64 elements."""
    block = row // BLOCK_SIZE
    physical = inside(tl.load(table + inside(first_block + block, blocks_per_req)), num_blocks).to(tl.int64)
    return physical * block_stride + (row - block * BLOCK_SIZE).to(tl.int64) * row_stride


@triton.jit
def state_pointers(state_cache, offset, dims, ALIGNED: tl.constexpr):
    """offset[rows], dims[DIMS] -> pointers to values[rows, DIMS]; scores lie HEAD_DIM further. ALIGNED: to 16 bytes, each row."""
    pointer = state_cache + offset[:, None] + dims[None, :]
    if ALIGNED:
        pointer = tl.multiple_of(tl.max_contiguous(pointer, [1, 4]), [1, 16])
    return pointer


@triton.jit
def window_pointers(
    row, dims, table, first_block, state_cache, blocks_per_req, num_blocks, block_stride, row_stride,
    BLOCK_SIZE: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """row[rows] as in row_offsets, dims[DIMS] -> state_pointers of these rows."""
    offset = row_offsets(table, first_block, row, blocks_per_req, num_blocks, block_stride, row_stride, BLOCK_SIZE)
    return state_pointers(state_cache, offset, dims, ALIGNED)


# --- kernels that add in an order of their own ---------------------------------------------------------------------------

# Integers that differ from call to call: compiled once for all values. block_stride and row_stride are not among them: that
# they are multiples of 16 is what makes the loads of the state 16 bytes wide.
PER_CALL = [
    "num_tokens", "num_reqs", "blocks_per_req", "num_blocks", "max_pos", "kv_blocks",
    "table_stride", "cos_sin_stride", "page_stride",
]  # fmt: skip


@triton.jit(do_not_specialize=PER_CALL)
def compress_kernel(
    boundary_token_indices, token_to_req, positions, block_table, state_cache, compressed,
    num_tokens, num_reqs, blocks_per_req, num_blocks, table_stride, block_stride, row_stride,
    C: tl.constexpr, BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr, DIMS: tl.constexpr, EVICTION: tl.constexpr,
):  # fmt: skip
    """One program: DIMS dims of one output, to compressed[num_outputs, 512] float32. Neighbours read the same rows."""
    n = (tl.program_id(0) // (HEAD_DIM // DIMS)).to(tl.int64)
    dims = (tl.program_id(0) % (HEAD_DIM // DIMS)) * DIMS + tl.arange(0, DIMS)
    table, first_block, first_row = find_window(
        n, boundary_token_indices, token_to_req, positions, block_table, num_tokens, num_reqs, table_stride, C, BLOCK_SIZE,
    )  # fmt: skip

    top = tl.full([DIMS], float("-inf"), tl.float32)
    total = tl.zeros([DIMS], tl.float32)
    weighted = tl.zeros([DIMS], tl.float32)
    for start in range(0, C, ROWS):
        row = first_row + start + tl.arange(0, ROWS)
        state = window_pointers(
            row, dims, table, first_block, state_cache, blocks_per_req, num_blocks, block_stride, row_stride, BLOCK_SIZE, False,
        )  # fmt: skip
        score = tl.load(state + HEAD_DIM, eviction_policy=EVICTION)
        value = tl.load(state, eviction_policy=EVICTION)

        new_top = tl.maximum(top, tl.max(score, axis=0))
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)  # only -inf so far: exp(-inf - 0) = 0, not NaN
        weight = tl.exp(score - shift[None, :])
        rescale = tl.exp(top - shift)
        total = total * rescale + tl.sum(weight, axis=0)
        weighted = weighted * rescale + tl.sum(weight * value, axis=0)
        top = new_top
    tl.store(compressed + n * HEAD_DIM + dims, weighted / total)


@triton.jit(do_not_specialize=PER_CALL)
def finalize_kernel(
    compressed, boundary_token_indices, positions, rms_norm_weight, cos_sin_cache, kv_slot_mapping, kv_cache,
    num_tokens, max_pos, kv_blocks, cos_sin_stride, page_stride, rms_norm_eps, C: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """One program: one output, from compressed[num_outputs, 512] float32 to its slot. Nobody else arrives."""
    finalize_plain(
        tl.program_id(0).to(tl.int64), 1, compressed, None, boundary_token_indices, positions, rms_norm_weight, cos_sin_cache,
        kv_slot_mapping, kv_cache, num_tokens, max_pos, kv_blocks, cos_sin_stride, page_stride, rms_norm_eps, C, LANES,
    )  # fmt: skip


@triton.jit(do_not_specialize=PER_CALL)
def fused_kernel(
    boundary_token_indices, token_to_req, positions, block_table, state_cache, compressed, arrivals,
    rms_norm_weight, cos_sin_cache, kv_slot_mapping, kv_cache,
    num_tokens, num_reqs, blocks_per_req, num_blocks, max_pos, kv_blocks,
    table_stride, block_stride, row_stride, cos_sin_stride, page_stride, rms_norm_eps,
    C: tl.constexpr, BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr, DIMS: tl.constexpr, EVICTION: tl.constexpr,
    LANES: tl.constexpr,
):  # fmt: skip
    """compress_kernel; then the last program of an output to arrive (arrivals[num_outputs] int32, zeros) finalizes it."""
    compress_kernel(
        boundary_token_indices, token_to_req, positions, block_table, state_cache, compressed,
        num_tokens, num_reqs, blocks_per_req, num_blocks, table_stride, block_stride, row_stride,
        C, BLOCK_SIZE, ROWS, DIMS, EVICTION,
    )  # fmt: skip
    finalize_plain(
        (tl.program_id(0) // (HEAD_DIM // DIMS)).to(tl.int64), HEAD_DIM // DIMS, compressed, arrivals,
        boundary_token_indices, positions, rms_norm_weight, cos_sin_cache, kv_slot_mapping, kv_cache,
        num_tokens, max_pos, kv_blocks, cos_sin_stride, page_stride, rms_norm_eps, C, LANES,
    )  # fmt: skip


# --- kernels for Ascend: vector cores with a buffer each (UB), filled by copies that should be long and contiguous --------
#
# As many programs as cores, each loops over tasks. The window is scanned in tiles that lie within one block: one look-up of the
# table and two plain copies a tile, index arithmetic on scalars only. Masks, float32, at the two ends of an unaligned window.


@triton.jit
def scan_tile(
    tile, low, high, top, total, weighted, row, dims, table, state_cache, blocks_per_req, num_blocks, block_stride, row_stride,
    TILES_A_BLOCK: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Rows low .. high - 1 (float32; all, unless MASKED) of a tile into the online softmax; row[ROWS], dims[DIMS]: 0, 1, 2, ..."""
    block = floor_div(tile, TILES_A_BLOCK)
    physical = inside(tl.load(table + inside(block, blocks_per_req)), num_blocks).to(tl.int64)
    first_row = (tile - block * TILES_A_BLOCK) * row.shape[0]
    state = state_cache + physical * block_stride + first_row * row_stride + row[:, None] * row_stride + dims[None, :]
    score = tl.load(state + HEAD_DIM)
    value = tl.load(state)
    if MASKED:  # a row outside may hold anything, NaN included
        at = row.to(tl.float32)[:, None]
        is_inside = (at >= low) & (at < high)
        score = tl.where(is_inside, score, float("-inf"))
        value = tl.where(is_inside, value, 0.0)
    new_top = tl.maximum(top, tl.max(score, axis=0))
    shift = tl.where(new_top == float("-inf"), 0.0, new_top)  # only -inf so far: exp(-inf - 0) = 0, not NaN
    weight = tl.exp(score - shift[None, :])
    rescale = tl.exp(top - shift)
    return new_top, total * rescale + tl.sum(weight, axis=0), weighted * rescale + tl.sum(weight * value, axis=0)


@triton.jit(do_not_specialize=[*PER_CALL, "num_outputs"])
def ascend_compress_kernel(
    boundary_token_indices, token_to_req, positions, block_table, state_cache, compressed,
    num_outputs, num_tokens, num_reqs, blocks_per_req, num_blocks, table_stride, block_stride, row_stride,
    C: tl.constexpr, BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr, DIMS: tl.constexpr, MASK_ALL: tl.constexpr,
):  # fmt: skip
    """A task: DIMS dims of one output, to compressed[num_outputs, 512] float32. ROWS divides BLOCK_SIZE and C."""
    PARTS: tl.constexpr = HEAD_DIM // DIMS
    TILES: tl.constexpr = C // ROWS
    TILES_A_BLOCK: tl.constexpr = BLOCK_SIZE // ROWS
    row = tl.arange(0, ROWS)
    dims = tl.arange(0, DIMS)
    for task in range(tl.program_id(0).to(tl.int64), num_outputs * PARTS, tl.num_programs(0)):
        n = task // PARTS
        first_dim = (task - n * PARTS) * DIMS
        table, tile, skipped = find_window(
            n, boundary_token_indices, token_to_req, positions, block_table, num_tokens, num_reqs, table_stride, C, ROWS,
        )  # fmt: skip
        state = state_cache + first_dim
        top = tl.full([DIMS], float("-inf"), tl.float32)
        total = tl.zeros([DIMS], tl.float32)
        weighted = tl.zeros([DIMS], tl.float32)
        ends = tl.minimum(skipped, 1)  # an unaligned window has a part of a tile at either end
        low = skipped.to(tl.float32)
        for first in range(0, TILES if MASK_ALL else ends):
            top, total, weighted = scan_tile(
                tile + first, tl.where(first == 0, low, 0.0), ROWS, top, total, weighted, row, dims, table, state,
                blocks_per_req, num_blocks, block_stride, row_stride, TILES_A_BLOCK, True,
            )  # fmt: skip
        for middle in range(TILES if MASK_ALL else ends, TILES):
            top, total, weighted = scan_tile(
                tile + middle, 0.0, ROWS, top, total, weighted, row, dims, table, state,
                blocks_per_req, num_blocks, block_stride, row_stride, TILES_A_BLOCK, False,
            )  # fmt: skip
        for last in range(0, ends):
            top, total, weighted = scan_tile(
                tile + TILES + last, 0.0, low, top, total, weighted, row, dims, table, state,
                blocks_per_req, num_blocks, block_stride, row_stride, TILES_A_BLOCK, True,
            )  # fmt: skip
        tl.store(compressed + n * HEAD_DIM + first_dim + dims, weighted / total)


@triton.jit(do_not_specialize=[*PER_CALL, "num_outputs", "rms_norm_eps"])
def ascend_finalize_kernel(
    compressed, boundary_token_indices, positions, rms_norm_weight, cos_sin_cache, packed, packed_words,
    num_outputs, num_tokens, max_pos, cos_sin_stride, rms_norm_eps, C: tl.constexpr,
):  # fmt: skip
    """compressed[num_outputs, 512] float32 -> packed[num_outputs, 584] bytes, also seen as words[num_outputs, 146] int32."""
    group = tl.arange(0, GROUPS)
    dim = group[:, None] * GROUP_DIM + tl.arange(0, GROUP_DIM)[None, :]
    is_int8 = group < INT8_GROUPS
    pair = tl.arange(0, ROPE_PAIRS)
    odd_half = tl.arange(0, 2)[None, :]
    rotary_dim = INT8_DIM + 2 * pair[:, None] + odd_half
    weight = tl.load(rms_norm_weight + dim).to(tl.float32)
    rotary_weight = tl.load(rms_norm_weight + rotary_dim).to(tl.float32)
    for n in range(tl.program_id(0).to(tl.int64), num_outputs, tl.num_programs(0)):
        x = tl.load(compressed + n * HEAD_DIM + dim)
        rrms = tl.rsqrt(tl.sum(tl.sum(x * x, axis=1), axis=0) * (1.0 / HEAD_DIM) + rms_norm_eps)
        z = (x * rrms * weight).to(tl.bfloat16).to(tl.float32)
        exponent = group_exponent(tl.max(tl.abs(z), axis=1).to(tl.int32, bitcast=True) >> 16)
        int8 = quantise(z, exponent[:, None])
        tl.store(packed + n * SLOT_BYTES + dim, int8.to(tl.uint8, bitcast=True), mask=is_int8[:, None])
        tl.store(packed + n * SLOT_BYTES + PAYLOAD_BYTES + group, tl.where(is_int8, exponent + 127, 0).to(tl.uint8))

        token = inside(tl.load(boundary_token_indices + n).to(tl.int64), num_tokens)
        window = floor_div(tl.load(positions + token).to(tl.int64), C) * C
        angle = cos_sin_cache + inside(window, max_pos) * cos_sin_stride + pair
        cos = tl.load(angle)
        sin = tl.load(angle + ROPE_PAIRS)
        rotary = tl.load(compressed + n * HEAD_DIM + rotary_dim) * rrms * rotary_weight
        bits = rotary.to(tl.int32, bitcast=True)  # picked by bits: a sum of floats would lose the sign of zero
        even = tl.sum(bits * (1 - odd_half), axis=1).to(tl.float32, bitcast=True)
        odd = tl.sum(bits * odd_half, axis=1).to(tl.float32, bitcast=True)
        low = (even * cos - odd * sin).to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
        high = (odd * cos + even * sin).to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) << 16
        tl.store(packed_words + n * (SLOT_BYTES // 4) + INT8_DIM // 4 + pair, low | high)


@triton.jit(do_not_specialize=[*PER_CALL, "num_outputs"])
def ascend_scatter_kernel(
    packed, boundary_token_indices, kv_slot_mapping, kv_cache, num_outputs, num_tokens, kv_blocks, page_stride,
):  # fmt: skip
    """packed[num_outputs, 584] -> the slots. Bytes only."""
    for n in range(tl.program_id(0).to(tl.int64), num_outputs, tl.num_programs(0)):
        boundary = from_end(tl.load(boundary_token_indices + n).to(tl.int64), num_tokens)
        slot = tl.load(kv_slot_mapping + inside(boundary, num_tokens)).to(tl.int64)
        page = floor_div(slot, PAGE_SLOTS)
        slot = slot - page * PAGE_SLOTS
        page = from_end(page, kv_blocks)
        if (boundary >= 0) & (boundary < num_tokens) & (page >= 0) & (page < kv_blocks):
            source = packed + n * SLOT_BYTES
            start = kv_cache + page * page_stride
            payload = start + slot * PAYLOAD_BYTES
            most = tl.arange(0, HEAD_DIM)
            rest = HEAD_DIM + tl.arange(0, GROUP_DIM)
            scale = tl.arange(0, SCALE_BYTES)
            tl.store(payload + most, tl.load(source + most))
            tl.store(payload + rest, tl.load(source + rest))
            tl.store(start + SCALES_AT + slot * SCALE_BYTES + scale, tl.load(source + PAYLOAD_BYTES + scale))


# --- exact kernels: every operation, and every order of addition, of PyTorch's CUDA kernels ------------------------------
#
# softmax: top, then exp(score - top) summed in the window's order, then each quotient rounded; the products rounded, never
# fused; row t added to accumulator t % 16, in the window's order; then the 16 accumulators: see sum_16. One launch: the first
# `zero_pages` programs zero the pages, each of the others takes DIMS dims of one output, and the last to arrive finalizes it.

# Nothing of an integer's or a pointer's value is compiled in, so that a compiled kernel serves every call of its plan.
EXACT_RUNTIME = [
    "boundary_token_indices", "token_to_req", "positions", "block_table", "state_cache", "rms_norm_weight", "cos_sin_cache",
    "kv_slot_mapping", "kv_cache", "arrivals", "compressed",
    "num_outputs", "num_tokens", "num_reqs", "blocks_per_req", "num_blocks", "max_pos", "kv_blocks",
    "table_stride", "block_stride", "row_stride", "cos_sin_stride", "page_stride", "zero_pages", "rms_norm_eps",
]  # fmt: skip


@triton.jit
def sum_16(accumulator, DIMS: tl.constexpr):
    """accumulator[16, DIMS], number 4i + y: over i in order, then (y0 + y2) + (y1 + y3). Axis 0 must lie within a thread."""
    by_y = tl.sum(tl.reshape(accumulator, [4, 4, DIMS]), axis=0)
    return tl.sum(tl.sum(tl.reshape(by_y, [2, 2, DIMS]), axis=0), axis=0)


@triton.jit
def accumulate(
    accumulator, row, dims, top, total, table, first_block, state_cache,
    blocks_per_req, num_blocks, block_stride, row_stride,
    C: tl.constexpr, BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr, DIMS: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """Add the window's products, ROWS at a time, to accumulator[16, DIMS]; row[ROWS]: the first of them; top, total: [DIMS]."""
    for start in range(0, C, ROWS):
        state = window_pointers(
            row + start, dims, table, first_block, state_cache, blocks_per_req, num_blocks, block_stride, row_stride, BLOCK_SIZE,
            ALIGNED,
        )  # fmt: skip
        e = exp(tl.load(state + HEAD_DIM) - top[None, :])
        product = tl.div_rn(e, tl.broadcast_to(total[None, :], e.shape)) * tl.load(state)
        if ROWS == 16:
            accumulator += product
        else:
            by_16 = tl.reshape(product, [ROWS // 16, 16, DIMS])
            is_first = (tl.arange(0, ROWS // 16) == 0)[:, None, None]
            accumulator = tl.sum(tl.where(is_first, accumulator[None, :, :] + by_16, by_16), axis=0)
    return accumulator


@triton.jit(do_not_specialize=EXACT_RUNTIME)
def exact_kernel(
    boundary_token_indices, token_to_req, positions, block_table, state_cache, rms_norm_weight, cos_sin_cache,
    kv_slot_mapping, kv_cache, arrivals, compressed,
    num_outputs, num_tokens, num_reqs, blocks_per_req, num_blocks, max_pos, kv_blocks,
    table_stride, block_stride, row_stride, cos_sin_stride, page_stride, zero_pages, rms_norm_eps,
    C: tl.constexpr, BLOCK_SIZE: tl.constexpr, DIMS: tl.constexpr, LANES: tl.constexpr, ALIGNED: tl.constexpr,
    ALIGNED_PAGES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Plain Triton, three passes over the scores. One warp and DIMS = 128 keep the rows of a tile within a thread."""
    TILES: tl.constexpr = HEAD_DIM // DIMS
    page = tl.program_id(0)
    if page < zero_pages:
        zero_page(
            page.to(tl.int64), tl.arange(0, 64), tl.arange(0, 64), boundary_token_indices, kv_slot_mapping, kv_cache,
            num_outputs, num_tokens, kv_blocks, page_stride, ALIGNED_PAGES,
        )  # fmt: skip
    else:
        n = ((page - zero_pages) // TILES).to(tl.int64)
        dims = (page - zero_pages) % TILES * DIMS + tl.arange(0, DIMS)
        table, first_block, first_row = find_window(
            n, boundary_token_indices, token_to_req, positions, block_table, num_tokens, num_reqs, table_stride, C, BLOCK_SIZE,
        )  # fmt: skip
        row = first_row + tl.arange(0, ROWS)
        top = tl.full([DIMS], float("-inf"), tl.float32)
        for start in range(0, C, ROWS):
            state = window_pointers(
                row + start, dims, table, first_block, state_cache, blocks_per_req, num_blocks, block_stride, row_stride,
                BLOCK_SIZE, ALIGNED,
            )  # fmt: skip
            top = tl.maximum(top, tl.max(tl.load(state + HEAD_DIM), axis=0))
        total = tl.zeros([DIMS], tl.float32)
        for start in range(0, C, ROWS):
            state = window_pointers(
                row + start, dims, table, first_block, state_cache, blocks_per_req, num_blocks, block_stride, row_stride,
                BLOCK_SIZE, ALIGNED,
            )  # fmt: skip
            total = add_in_order(total, exp(tl.load(state + HEAD_DIM) - top[None, :]), tl.arange(0, ROWS) == 0)
        accumulator = accumulate(
            tl.zeros([16, DIMS], tl.float32), row, dims, top, total, table, first_block, state_cache,
            blocks_per_req, num_blocks, block_stride, row_stride, C, BLOCK_SIZE, ROWS, DIMS, ALIGNED,
        )  # fmt: skip
        tl.store(compressed + n * HEAD_DIM + dims, sum_16(accumulator, DIMS))
        finalize_plain(
            n, TILES, compressed, arrivals, boundary_token_indices, positions, rms_norm_weight, cos_sin_cache,
            kv_slot_mapping, kv_cache, num_tokens, max_pos, kv_blocks, cos_sin_stride, page_stride, rms_norm_eps, C, LANES,
        )  # fmt: skip


NEEDED_OF_GLUON = ("static_range", "allocate_shared_memory", "convert_layout", "div_rn", "inline_asm_elementwise", "SliceLayout")
HAS_GLUON = not INTERPRETED.value and all(hasattr(gl, name) for name in NEEDED_OF_GLUON)  # the interpreter knows none of it
# Tritons seen to put no barrier into a branch that only some warps take (python -m harness.platforms.compiled looks for them). With
# any other every warp takes it: slower, and safe.
FIRST_WARPS_ALONE = tl.constexpr(triton.__version__.startswith(("3.5.", "3.6.", "3.7.")))
if HAS_GLUON:

    @gluon.jit
    def load_rows(state_cache, offsets, dims, ALIGNED: gl.constexpr, EVICTION: gl.constexpr, LAYOUT: gl.constexpr):
        """offsets[rows] in shared memory, dims[DIMS] -> [rows, DIMS]."""
        offset = offsets.load(gl.SliceLayout(1, LAYOUT))  # read anew each time: cheaper than held
        return gl.load(state_pointers(state_cache, offset, dims, ALIGNED), eviction_policy=EVICTION)

    @gluon.jit
    def chain(total, terms, ROWS: gl.constexpr, STEP: gl.constexpr, COLUMN: gl.constexpr):
        """((total[DIMS] + terms[0]) + terms[1]) + ...; terms[ROWS, DIMS] in shared memory, read STEP rows at a time."""
        is_first = gl.arange(0, STEP, gl.SliceLayout(1, COLUMN)) == 0
        for t in gl.static_range(0, ROWS, STEP):
            total = add_in_order(total, terms.slice(t, STEP).load(COLUMN), is_first)
        return total

    @gluon.jit
    def warp_number():
        """Of the thread's warp in its program: the one value here that differs within a program."""
        return gl.inline_asm_elementwise("mov.u32 $0, %tid.x;", "=r", [], gl.int32, is_pure=True, pack=1) // 32

    @gluon.jit
    def wait_for_launches_before():
        """With launch_pdl a program may start while the launch before ends; beyond this, that has ended and its writes are seen."""
        gl.inline_asm_elementwise("griddepcontrol.wait; mov.u32 $0, 0;", "=r", [], gl.int32, is_pure=False, pack=1)

    @gluon.jit(do_not_specialize=EXACT_RUNTIME)
    def exact_gluon_kernel(
        boundary_token_indices, token_to_req, positions, block_table, state_cache, rms_norm_weight, cos_sin_cache,
        kv_slot_mapping, kv_cache, arrivals, compressed,
        num_outputs, num_tokens, num_reqs, blocks_per_req, num_blocks, max_pos, kv_blocks,
        table_stride, block_stride, row_stride, cos_sin_stride, page_stride, zero_pages, rms_norm_eps,
        C: gl.constexpr, BLOCK_SIZE: gl.constexpr, DIMS: gl.constexpr, LANES: gl.constexpr, ALIGNED: gl.constexpr,
        ALIGNED_PAGES: gl.constexpr, EVICTION: gl.constexpr, NUM_WARPS: gl.constexpr, EARLY: gl.constexpr,
        OVERLAPS: gl.constexpr,
    ):  # fmt: skip
        """The window in two halves: scores in registers, exponentials in shared memory half by half, values in registers.

        spread: 4 dims a thread, at most 16 rows over the threads: row t stays with the thread of accumulator t % 16.
        column: a dim a thread, all rows in it: there the exponentials are summed, by the first warps alone. Half a window keeps
        shared memory small: what is left is L1, and loads on their way need it (notes/2026-12-01-l1.md).
        """
        TILES: gl.constexpr = HEAD_DIM // DIMS
        HALF: gl.constexpr = C // 2
        STEP: gl.constexpr = 32  # exponentials that a thread holds at a time while it adds
        spread: gl.constexpr = gl.BlockedLayout([1, 4], [128 // DIMS, DIMS // 4], [NUM_WARPS, 1], [1, 0])
        by_row: gl.constexpr = gl.BlockedLayout([1], [32], [NUM_WARPS], [0])
        column: gl.constexpr = gl.BlockedLayout([STEP, 1], [1, 32], [1, NUM_WARPS], [0, 1])
        column_16: gl.constexpr = gl.BlockedLayout([16, 1], [1, 32], [1, NUM_WARPS], [0, 1])
        of_dim: gl.constexpr = gl.SliceLayout(0, spread)
        of_column: gl.constexpr = gl.SliceLayout(0, column)
        page_bytes: gl.constexpr = gl.BlockedLayout([1, 16], [8, 4], [NUM_WARPS, 1], [1, 0])
        slot_dims: gl.constexpr = gl.BlockedLayout([1, 16 // NUM_WARPS], [8 // NUM_WARPS, 4 * NUM_WARPS], [NUM_WARPS, 1], [1, 0])
        flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        gl.static_assert(NUM_WARPS * 128 // DIMS <= 16)

        if OVERLAPS:
            wait_for_launches_before()
        page = gl.program_id(0)
        if page < zero_pages:
            zero_page(
                page.to(gl.int64), gl.arange(0, 64, gl.SliceLayout(1, page_bytes)), gl.arange(0, 64, gl.SliceLayout(0, page_bytes)),
                boundary_token_indices, kv_slot_mapping, kv_cache, num_outputs, num_tokens, kv_blocks, page_stride, ALIGNED_PAGES,
            )  # fmt: skip
        else:
            n = ((page - zero_pages) // TILES).to(gl.int64)
            first_dim = (page - zero_pages) % TILES * DIMS
            dims = first_dim + gl.arange(0, DIMS, of_dim)
            table, first_block, first_row = find_window(
                n, boundary_token_indices, token_to_req, positions, block_table, num_tokens, num_reqs, table_stride, C, BLOCK_SIZE,
            )  # fmt: skip
            offsets = gl.allocate_shared_memory(gl.int64, [C], flat)
            row = first_row + gl.arange(0, C, by_row)
            offset = row_offsets(table, first_block, row, blocks_per_req, num_blocks, block_stride, row_stride, BLOCK_SIZE)
            offsets.store(offset)
            offsets_1 = offsets.slice(0, HALF)
            offsets_2 = offsets.slice(HALF, HALF)
            exponentials = gl.allocate_shared_memory(gl.float32, [HALF, DIMS], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
            tops = gl.allocate_shared_memory(gl.float32, [DIMS], flat)  # until the rare case: registers are dearer
            half_totals = gl.allocate_shared_memory(gl.float32, [DIMS], flat)
            totals = gl.allocate_shared_memory(gl.float32, [DIMS], flat)
            reciprocals = gl.allocate_shared_memory(gl.float32, [DIMS], flat)
            # Only some warps take a branch on it: nothing in it may need a barrier, so no memory is both read and written there.
            has_columns = warp_number() * 32 < DIMS if FIRST_WARPS_ALONE else True

            score_1 = load_rows(state_cache + HEAD_DIM, offsets_1, dims, ALIGNED, EVICTION, spread)
            score_2 = load_rows(state_cache + HEAD_DIM, offsets_2, dims, ALIGNED, EVICTION, spread)
            top = gl.max(gl.maximum(score_1, score_2), axis=0)
            tops.store(top)
            has_tiny = gl.min(exp(gl.min(gl.minimum(score_1, score_2), axis=0) - top), axis=0) < TINY
            e_1 = exp(score_1 - top[None, :])
            exponentials.store(e_1)
            if EARLY:
                value_1 = load_rows(state_cache, offsets_1, dims, ALIGNED, EVICTION, spread)
            tl.debug_barrier()
            if has_columns:
                half_totals.store(chain(gl.zeros([DIMS], gl.float32, of_column), exponentials, HALF, STEP, column))
            e_2 = exp(score_2 - top[None, :])
            tl.debug_barrier()
            exponentials.store(e_2)
            if EARLY:
                value_2 = load_rows(state_cache, offsets_2, dims, ALIGNED, EVICTION, spread)
            else:
                value_1 = load_rows(state_cache, offsets_1, dims, ALIGNED, EVICTION, spread)
            tl.debug_barrier()
            if has_columns:
                total = chain(half_totals.load(of_column), exponentials, HALF, STEP, column)
                totals.store(total)
                reciprocals.store(gl.div_rn(gl.full([DIMS], 1.0, gl.float32, of_column), total))
            total = totals.load(of_dim)
            reciprocal = reciprocals.load(of_dim)

            product = gl.reshape(divide(e_1, total, reciprocal) * value_1, [HALF // 16, 16, DIMS])
            accumulator = gl.sum(product, axis=0)
            if not EARLY:
                value_2 = load_rows(state_cache, offsets_2, dims, ALIGNED, EVICTION, spread)
            product = gl.reshape(divide(exponentials.load(spread), total, reciprocal) * value_2, [HALF // 16, 16, DIMS])
            is_first = gl.arange(0, HALF // 16, gl.SliceLayout(1, gl.SliceLayout(2, product.type.layout))) == 0
            accumulator = gl.sum(gl.where(is_first[:, None, None], accumulator[None, :, :] + product, product), axis=0)
            accumulator = gl.convert_layout(accumulator, column_16)
            if has_tiny:  # rare, and slow: once more, with a division that no weight is too small for
                accumulator = accumulate(
                    gl.zeros([16, DIMS], gl.float32, spread), first_row + gl.arange(0, 16, gl.SliceLayout(1, spread)), dims,
                    tops.load(of_dim), totals.load(of_dim), table, first_block, state_cache,
                    blocks_per_req, num_blocks, block_stride, row_stride, C, BLOCK_SIZE, 16, DIMS, ALIGNED,
                )  # fmt: skip
                accumulator = gl.convert_layout(accumulator, column_16)
            x = gl.convert_layout(sum_16(accumulator, DIMS), of_column) + 0.0  # as from sums that began with 0: no -0
            gl.store(compressed + n * HEAD_DIM + first_dim + gl.arange(0, DIMS, of_column), x)

            group = gl.arange(0, GROUPS, gl.SliceLayout(1, slot_dims))
            finalize_output(
                n, TILES, group[:, None] * GROUP_DIM + gl.arange(0, GROUP_DIM, gl.SliceLayout(0, slot_dims))[None, :], group,
                gl.arange(0, ROPE_PAIRS, by_row), gl.arange(0, LANES, by_row), compressed, arrivals,
                boundary_token_indices, positions, rms_norm_weight, cos_sin_cache, kv_slot_mapping, kv_cache,
                num_tokens, max_pos, kv_blocks, cos_sin_stride, page_stride, rms_norm_eps, C, LANES,
            )  # fmt: skip


# --- arguments -----------------------------------------------------------------------------------------------------------

INDEX = (torch.int32, torch.int64)

# name, dtypes, sizes: None for any, a string for the size that all arguments with that string share
ARGUMENTS = (
    ("state_cache", (torch.float32,), (None, "block_size", 1024)),
    ("token_to_req", INDEX, ("num_tokens",)),
    ("positions", INDEX, ("num_tokens",)),
    ("boundary_token_indices", INDEX, (None,)),
    ("block_table", INDEX, (None, None)),
    ("rms_norm_weight", (torch.bfloat16,), (512,)),
    ("cos_sin_cache", (torch.float32,), (None, 64)),
    ("kv_slot_mapping", INDEX, ("num_tokens",)),
    ("kv_cache", (torch.uint8,), (None, None)),
)


KIND = attrgetter("dtype", "device", "shape")
STRIDE = methodcaller("stride")
DATA_PTR = torch.Tensor.data_ptr


def kinds_of(tensors):
    """All that a plan needs to know of the nine tensors: a warm call on an H200 spends a quarter of its time here."""
    try:
        return (*map(KIND, tensors), *map(STRIDE, tensors))
    except AttributeError:
        name, given = next((a[0], type(t).__name__) for a, t in zip(ARGUMENTS, tensors) if not isinstance(t, torch.Tensor))
        raise TypeError(f"{name}: {given} given; a torch.Tensor is needed") from None


def check_kinds(kinds, block_size, compress_ratio):
    """Raise TypeError or ValueError unless the tensors are as ARGUMENTS says, on one device, not empty where they are indexed."""
    if type(block_size) is not int or block_size < 1:
        raise ValueError(f"block_size: {block_size!r} given; an int of at least 1 is needed (rows of a state_cache block)")
    if compress_ratio not in (128, 256, 512):
        raise ValueError(f"compress_ratio: {compress_ratio!r} given; 128, 256 or 512 is needed")
    for given, (name, dtypes, _) in zip(kinds, ARGUMENTS):
        if given[0] not in dtypes:
            raise TypeError(f"{name}: {given[0]} given; {' or '.join(map(str, dtypes))} is needed")
        if given[1] != kinds[0][1]:
            raise ValueError(f"{name}: on {given[1]}, state_cache on {kinds[0][1]}; one device is needed")
    sizes = {"block_size": block_size}
    for (_, _, shape), (name, _, needed) in zip(kinds, ARGUMENTS):
        fits = len(shape) == len(needed)
        for size, wanted in zip(shape, needed):
            wanted = sizes.setdefault(wanted, size) if isinstance(wanted, str) else wanted
            fits = fits and wanted in (None, size)
        if not fits:
            described = ", ".join("any" if n is None else f"{n} = {sizes[n]}" if n in sizes else str(n) for n in needed)
            raise ValueError(f"{name}: shape {list(shape)} given; [{described}] is needed")
    num_outputs, block_stride = kinds[3][2][0], kinds[8][2][1]
    if block_stride < PAGE_BYTES.value:
        raise ValueError(f"kv_cache: {block_stride} bytes a page given; at least {PAGE_BYTES.value} are needed (64 slots of 584)")
    for (_, _, shape), (name, _, _) in zip(kinds[:8], ARGUMENTS):
        if num_outputs and 0 in shape:
            raise ValueError(f"{name}: shape {list(shape)} given; {num_outputs} outputs need at least one element")


# PyTorch's own comparison of tensors with the kinds of others, where it is had: 0.6 us for nine, where reading them takes 4.
TensorGuards = getattr(getattr(getattr(torch._C, "_dynamo", None), "guards", None), "TensorGuards", None)
LAST_PLANS = {}  # (block_size, compress_ratio, rms_norm_eps) -> (TensorGuards.check of the last call's kinds, its Plan)


def find_plan(tensors, block_size, compress_ratio, rms_norm_eps):
    """-> Plan of these arguments; the last one at once if the tensors' kinds are as before."""
    is_as_before, plan = LAST_PLANS.get((block_size, compress_ratio, rms_norm_eps), (None, None))
    if plan and is_as_before(*tensors):
        return plan
    plan = make_plan(kinds_of(tensors), block_size, compress_ratio, rms_norm_eps)
    if TensorGuards:
        if not plan.checks:
            sizes, strides = [list(t.shape) for t in tensors], [list(t.stride()) for t in tensors]
            plan.checks.append(TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check)
        LAST_PLANS[block_size, compress_ratio, rms_norm_eps] = plan.checks[0], plan
    return plan


def forget_plans():
    """After a change of ROUTES or of detection."""
    make_plan.cache_clear()
    LAST_PLANS.clear()


@lru_cache(maxsize=4096)
def make_plan(kinds, block_size, compress_ratio, rms_norm_eps):
    """`kinds_of` the tensors -> Plan, checked; looked up from the second time on."""
    kinds, strides = kinds[:9], kinds[9:]
    check_kinds(kinds, block_size, compress_ratio)
    shapes, device = [kind[2] for kind in kinds], kinds[0][1]
    route = ROUTES[detect_platform(device)[0]]
    return Plan(
        route=route,
        tile=route.tile(compress_ratio, shapes[3][0]),
        num_outputs=shapes[3][0],
        page_shape=tuple(shapes[8]),
        block_size=block_size,
        compress_ratio=compress_ratio,
        sizes=(shapes[2][0], *shapes[4], shapes[0][0], shapes[6][0], shapes[8][0]),
        strides=(strides[4][0], *strides[0][:2], strides[6][0], shapes[8][1]),
        rms_norm_eps=rms_norm_eps,
        unit_strides=all(stride[-1] == 1 or shape[-1] <= 1 for shape, stride in zip(shapes[:8], strides)),
        contiguous_pages=strides[8] == (shapes[8][1], 1),
        only_device=device.type == "cpu" or getattr(torch, device.type).device_count() == 1,
        zero_pages=shapes[8][0] if shapes[3][0] <= ZERO_OUTPUTS_UP_TO and shapes[8][0] <= ZERO_PAGES_UP_TO else 0,
    )


# --- launchers: (plan, the nine tensors) -> result -----------------------------------------------------------------------


def compress_rows(plan, tensors):
    """-> compressed [num_outputs, 512] float32, by compress_kernel."""
    state_cache, token_to_req, positions, boundaries, block_table = tensors[:5]
    num_tokens, num_reqs, blocks_per_req, num_blocks = plan.sizes[:4]
    tile = plan.tile
    compressed = torch.empty((plan.num_outputs, 512), dtype=torch.float32, device=state_cache.device)
    compress_kernel[(plan.num_outputs * (512 // tile.dims),)](
        boundaries, token_to_req, positions, block_table, state_cache, compressed,
        num_tokens, num_reqs, blocks_per_req, num_blocks, *plan.strides[:3],
        C=plan.compress_ratio, BLOCK_SIZE=plan.block_size, ROWS=tile.rows, DIMS=tile.dims, EVICTION=plan.route.eviction,
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip
    return compressed


def launch_two_stage(plan, tensors):
    """Two launches: compress every output to float32, then finalize every output. Plain loads and stores only."""
    _, _, positions, boundaries, _, weight, cos_sin_cache, slots, _ = tensors
    num_tokens, _, _, _, max_pos, kv_blocks = plan.sizes
    result = torch.zeros(plan.page_shape, dtype=torch.uint8, device=weight.device)
    finalize_kernel[(plan.num_outputs,)](
        compress_rows(plan, tensors), boundaries, positions, weight, cos_sin_cache, slots, result,
        num_tokens, max_pos, kv_blocks, *plan.strides[3:], plan.rms_norm_eps,
        C=plan.compress_ratio, LANES=plan.mean_lanes, num_warps=plan.route.finalizer_warps,
    )  # fmt: skip
    return result


def compress_blocks(plan, tensors, cores):
    """-> compressed [num_outputs, 512] float32, by ascend_compress_kernel."""
    state_cache, token_to_req, positions, boundaries, block_table = tensors[:5]
    num_tokens, num_reqs, blocks_per_req, num_blocks = plan.sizes[:4]
    tile, num_outputs = plan.tile, plan.num_outputs
    compressed = torch.empty((num_outputs, 512), dtype=torch.float32, device=state_cache.device)
    ascend_compress_kernel[(min(cores, num_outputs * (512 // tile.dims)),)](
        boundaries, token_to_req, positions, block_table, state_cache, compressed,
        num_outputs, num_tokens, num_reqs, blocks_per_req, num_blocks, *plan.strides[:3],
        C=plan.compress_ratio, BLOCK_SIZE=plan.block_size, ROWS=gcd(plan.block_size, tile.rows), DIMS=tile.dims,
        MASK_ALL=plan.route.mask_all, num_warps=tile.num_warps,
    )  # fmt: skip
    return compressed


def launch_ascend(plan, tensors):
    """Three launches of at most as many programs as the chip has vector cores: compress, finalize to packed slots, scatter them."""
    _, _, positions, boundaries, _, weight, cos_sin_cache, slots, _ = tensors
    num_tokens, _, _, _, max_pos, kv_blocks = plan.sizes
    cos_sin_stride, page_stride = plan.strides[3:]
    device, num_outputs = weight.device, plan.num_outputs
    cores = vector_cores(device)
    grid = (min(cores, num_outputs),)
    result = torch.zeros(plan.page_shape, dtype=torch.uint8, device=device)
    packed_words = torch.empty((num_outputs, SLOT_BYTES.value // 4), dtype=torch.int32, device=device)
    packed = packed_words.view(torch.uint8)
    compressed = compress_rows(plan, tensors) if plan.route.kernel is compress_kernel else compress_blocks(plan, tensors, cores)
    ascend_finalize_kernel[grid](
        compressed, boundaries, positions, weight, cos_sin_cache, packed, packed_words,
        num_outputs, num_tokens, max_pos, cos_sin_stride, plan.rms_norm_eps, C=plan.compress_ratio,
    )  # fmt: skip
    ascend_scatter_kernel[grid](packed, boundaries, slots, result, num_outputs, num_tokens, kv_blocks, page_stride)
    return result


@cache
def vector_cores(device):
    """Vector cores of an Ascend device, a program each: what its Triton tells, else the 48 of a 910B (published)."""
    utils = triton.runtime.driver.active.utils if device.type == "npu" else None
    properties = utils.get_device_properties(device.index or 0) if hasattr(utils, "get_device_properties") else {}
    return properties.get("num_vectorcore", 48)


def launch_fused(plan, tensors):
    """One launch: the last program of an output to arrive finalizes it. Needs device-wide acquire-release atomics.

    The arrival counters lie behind the result, so that one fill zeroes both.
    """
    state_cache, token_to_req, positions, boundaries, block_table, weight, cos_sin_cache, slots, _ = tensors
    device, tile = state_cache.device, plan.tile
    result_bytes = plan.page_shape[0] * plan.page_shape[1]
    zeros = torch.zeros((result_bytes + 3) // 4 + plan.num_outputs, dtype=torch.int32, device=device)
    result, arrivals = zeros.view(torch.uint8)[:result_bytes].view(plan.page_shape), zeros[-plan.num_outputs :]
    compressed = torch.empty((plan.num_outputs, 512), dtype=torch.float32, device=device)
    fused_kernel[(plan.num_outputs * (512 // tile.dims),)](
        boundaries, token_to_req, positions, block_table, state_cache, compressed, arrivals,
        weight, cos_sin_cache, slots, result,
        *plan.sizes, *plan.strides, plan.rms_norm_eps,
        C=plan.compress_ratio, BLOCK_SIZE=plan.block_size, ROWS=tile.rows, DIMS=tile.dims, EVICTION=plan.route.eviction,
        LANES=plan.mean_lanes, num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip
    return result


def launch_exact(plan, tensors):
    """One launch, zeros included; from a plan's second call on straight to the compiled kernel, past Triton's dispatch.

    Nothing of the caller's is kept: a call hands its own pointers over, and a compiled kernel depends on the plan alone.
    """
    state_cache, token_to_req, positions, boundaries, block_table, weight, cos_sin_cache, slots, kv_cache = tensors
    if plan.zero_pages == 0:
        result = torch.zeros(plan.page_shape, dtype=torch.uint8, device=state_cache.device)
    elif plan.contiguous_pages:
        result = torch.empty_like(kv_cache)
    else:
        result = torch.empty(plan.page_shape, dtype=torch.uint8, device=state_cache.device)
    stream = stream_getter()(state_cache.get_device()) if state_cache.is_cuda else None
    arrivals, compressed = workspace(state_cache, stream, plan.num_outputs)
    arguments = (
        boundaries, token_to_req, positions, block_table, state_cache, weight, cos_sin_cache, slots, result, arrivals, compressed,
    )  # fmt: skip
    pointers = tuple(map(DATA_PTR, arguments))
    aligned = plan.strides[1] % 4 == plan.strides[2] % 4 == pointers[4] % 16 == 0
    launch, constants = plan.launches.get(aligned, (None, ()))
    if launch:
        launch(*pointers, *constants, stream=stream)
    else:
        plan.launches[aligned] = compile_and_launch(plan, aligned, arguments)
    return result


def compile_and_launch(plan, aligned, arguments):
    """The ordinary launch -> (launch, constants): launch(*pointers, *constants, stream=) runs the same compiled kernel again.

    (None, ()) where Triton returns no compiled kernel, as its interpreter: then every launch is an ordinary one.
    """
    tile, kernel = plan.tile, plan.route.kernel
    numbers = (plan.num_outputs, *plan.sizes, *plan.strides, plan.zero_pages, plan.rms_norm_eps)
    constants = dict(
        C=plan.compress_ratio, BLOCK_SIZE=plan.block_size, DIMS=tile.dims, LANES=plan.mean_lanes, ALIGNED=aligned,
        ALIGNED_PAGES=plan.page_shape[1] % 16 == 0,
    )  # fmt: skip
    options = {}
    if "ROWS" in kernel.arg_names:
        constants.update(ROWS=tile.rows)
    else:  # the whole window at once
        target = triton.runtime.driver.active.get_current_target()
        constants.update(EVICTION=plan.route.eviction, NUM_WARPS=tile.num_warps, EARLY=tile.early, OVERLAPS=can_overlap(target))
        if constants["OVERLAPS"]:
            options["launch_pdl"] = True
        if tile.registers and target.arch == 90:
            options["maxnreg"] = tile.registers
    grid = (plan.zero_pages + plan.num_outputs * (512 // tile.dims), 1, 1)
    compiled = kernel[grid](*arguments, *numbers, **constants, num_warps=tile.num_warps, enable_fp_fusion=False, **options)
    if not hasattr(compiled, "src"):
        return None, ()
    takes_constants = len(compiled.src.signature) == len(kernel.arg_names)  # Triton 3.3 and later pass them along
    return compiled[grid], numbers + (tuple(constants.values()) if takes_constants else ())


def can_overlap(target):
    """May programs start while the launch before theirs ends? On compute capability 9.0 and later, if Triton has the option."""
    options = triton.compiler.make_backend(target).parse_options({})
    return target.backend == "cuda" and target.arch >= 90 and hasattr(options, "launch_pdl")


@cache
def stream_getter():
    """-> device index -> handle of its current stream: 0.2 us on an H200's host, where torch.cuda.current_stream() costs 8."""
    return triton.runtime.driver.active.get_current_stream


# Scratch of launch_exact, by device and stream: int32 arrivals[num_outputs], all 0 between launches (whoever arrives last resets
# its own), and float32 compressed[num_outputs, 512]. Launches on one stream follow each other; two streams share nothing.
WORKSPACES = {}
# Arrivals for captured calls, by device: [zeros, how many are given away]. A graph keeps its part for good, so that no other
# launch ever shares it; it is as private to the graph as the result that the graph writes.
GRAPH_ARRIVALS = {}
GRAPH_LOCK = Lock()
GRAPH_ARRIVALS_SIZE = 1 << 20  # outputs of all captured calls of a process, 4 MiB; further ones get a fill in the graph


def workspace(state_cache, stream, num_outputs):
    """-> (arrivals, compressed) that no launch in flight on another stream uses."""
    capturing = bool(stream) and torch.cuda.is_current_stream_capturing()  # stream 0 cannot be captured
    kept = None if capturing else WORKSPACES.get((state_cache.get_device(), stream))
    if kept is None or kept[0].shape[0] < num_outputs:
        device = state_cache.device
        kept = graph_arrivals(device, num_outputs) if capturing else torch.zeros(num_outputs, dtype=torch.int32, device=device)
        kept = kept, torch.empty((num_outputs, 512), dtype=torch.float32, device=device)
        if stream is not None and not capturing:
            WORKSPACES[device.index, stream] = kept
            if device.index not in GRAPH_ARRIVALS:
                GRAPH_ARRIVALS[device.index] = [torch.zeros(GRAPH_ARRIVALS_SIZE, dtype=torch.int32, device=device), 0]
                torch.cuda.synchronize(device)  # once a device: a graph may replay on any stream
    return kept


def graph_arrivals(device, num_outputs):
    with GRAPH_LOCK:
        zeros, given = GRAPH_ARRIVALS.get(device.index, (None, GRAPH_ARRIVALS_SIZE))
        if given + num_outputs > GRAPH_ARRIVALS_SIZE:
            return torch.zeros(num_outputs, dtype=torch.int32, device=device)
        GRAPH_ARRIVALS[device.index][1] += num_outputs
        return zeros[given : given + num_outputs]


# --- routes: a platform's difference is a row's difference ---------------------------------------------------------------
#
# Of the figures, only those for NVIDIA were measured by this project. "published": told of that chip by authors of public
# submissions and reports (June 2026). "derived": by the arithmetic of `python -m harness ledger`, or of the line itself.

# An order of addition of its own, launched the ordinary way: what exactness is measured against (notes/2026-11-30-tiles.md).
NVIDIA_FAST = Route(
    launch_fused,
    tiles=(
        (ANY, 32, Tile(dims=32, rows=128, num_warps=4)),
        (ANY, 64, Tile(dims=32, rows=64, num_warps=2)),
        (ANY, MANY, Tile(dims=64, rows=32, num_warps=2)),
    ),
    eviction="evict_first",
)
# Every byte the reference's, in plain Triton. Interpreted, an operation costs the same whatever its size: fewer, larger ones.
PLAIN_TILE = Tile(dims=256, rows=128, num_warps=1) if INTERPRETED.value else Tile(dims=128, rows=16, num_warps=1)
NVIDIA_PLAIN = Route(launch_exact, tiles=((ANY, MANY, PLAIN_TILE),), kernel=exact_kernel)
# Every byte the reference's, in Triton's Gluon dialect, which lets a kernel lay out its tiles (notes/2026-12-01-exact.md). Measured
# (notes/2026-12-01-l1.md): 96 registers, five programs a multiprocessor, win 5 % over Triton's choice at 131,072 tokens; early
# values, which need 128, win 5 to 7 % at 8,192 tokens and lose 2 % at 65,536.
NVIDIA_GLUON = (
    Route(
        launch_exact,
        tiles=(
            (128, 64, Tile(dims=64, rows=128, num_warps=4, registers=128, early=True)),
            (128, MANY, Tile(dims=64, rows=128, num_warps=4, registers=96)),
            (256, 32, Tile(dims=32, rows=256, num_warps=4, registers=128, early=True)),
            (256, MANY, Tile(dims=32, rows=256, num_warps=4, registers=96)),
            (512, MANY, Tile(dims=32, rows=512, num_warps=4)),
        ),
        eviction="evict_first",
        kernel=exact_gluon_kernel,
    )
    if HAS_GLUON
    else NVIDIA_PLAIN
)

# 64 dims are two lines of 128 bytes a row; 64 x 128 float32 of scores and as many values are 64 registers of 128 threads (derived).
PORTABLE = Route(launch_two_stage, tiles=((ANY, MANY, Tile(dims=64, rows=128, num_warps=4)),))
# 64 dims, a direct online softmax, not NVIDIA's 32 (published). 64 lanes a warp: 4 warps hold 128 rows in 32 registers (derived).
METAX = Route(launch_two_stage, tiles=((ANY, MANY, Tile(dims=64, rows=128, num_warps=4)),))
# 64 dims; at C = 512 tiles of 256 rows (published), 64 registers of 4 x 64 lanes (derived).
HYGON = Route(
    launch_two_stage,
    tiles=((512, MANY, Tile(dims=64, rows=256, num_warps=4)), (ANY, MANY, Tile(dims=64, rows=128, num_warps=4))),
)
# A direct online softmax, 4 warps, 3 stages (published); upstream's Triton pipelines no loop without a dot, so there 3 change
# nothing. Rows: were all 3 stages held in shared memory, 32 x 64 scores and values would take 48 KiB (derived).
THEAD = Route(launch_two_stage, tiles=((ANY, MANY, Tile(dims=64, rows=32, num_warps=4, num_stages=3)),))
# Whole windows of 64, 32 and 16 dims; sensitive to tile and warps (published): 8,192 scores whatever C, as PORTABLE (derived).
WHOLE_WINDOWS = (
    (128, MANY, Tile(dims=64, rows=128, num_warps=4)),
    (256, MANY, Tile(dims=32, rows=256, num_warps=4)),
    (512, MANY, Tile(dims=16, rows=512, num_warps=4)),
)
TIANSHU = Route(launch_two_stage, tiles=WHOLE_WINDOWS)
MOORE = Route(launch_two_stage, tiles=WHOLE_WINDOWS)  # as TianShu; hints to the cache were unstable (published), so none
# Rows: one block of 8, the contest's, or 16 of a larger one: a copy of 2,048 bytes a row at 512 dims (published: 256 to 512 dims
# and 4 warps were best). Fewer dims where outputs are few, so that 48 vector cores have tasks: 16 outputs are 32 tasks of 256
# dims, 32 and 64 outputs are 128 and 256 tasks of 128, rounds that are full to 89 % (derived).
ASCEND_TILES = (
    (ANY, 16, Tile(dims=256, rows=16, num_warps=4)),
    (ANY, 64, Tile(dims=128, rows=16, num_warps=4)),
    (ANY, MANY, Tile(dims=512, rows=8, num_warps=4)),  # 16 rows overflow the UB, or lose their second buffer
)


def ascend_step(dims, num_warps, mask_all=False):
    return Route(launch_ascend, tiles=((ANY, MANY, Tile(dims, rows=8, num_warps=num_warps)),), mask_all=mask_all)


ROUTES = {
    "nvidia": NVIDIA_GLUON,  # NVIDIA_PLAIN here uploads a file whose NVIDIA route is plain Triton
    "metax": METAX,
    "hygon": HYGON,
    "tianshu": TIANSHU,
    "moore": MOORE,
    "thead": THEAD,
    "ascend": Route(launch_ascend, tiles=ASCEND_TILES),
    "portable": PORTABLE,  # whatever no probe knows
    # never chosen by detection
    "nvidia-plain": NVIDIA_PLAIN,
    "nvidia-fast": NVIDIA_FAST,
    # The published ladder of the Ascend route, each step beside its speedup there, all with the finalizer and scatter of today
    "ascend-gather": Route(launch_ascend, tiles=PORTABLE.tiles, kernel=compress_kernel),  # 0.8: a look-up a row, a program a task
    "ascend-blocks": ascend_step(dims=64, num_warps=1, mask_all=True),  # 1.85: one look-up a block
    "ascend-ends": ascend_step(dims=64, num_warps=1),  # 1.93: masks at the ends only
    "ascend-warps": ascend_step(dims=64, num_warps=4),  # 1.97
    "ascend-128": ascend_step(dims=128, num_warps=4),  # 2.02
    "ascend-256": ascend_step(dims=256, num_warps=4),  # 2.28
    "ascend-512": ascend_step(dims=512, num_warps=4),  # 2.35
}


# --- platform ------------------------------------------------------------------------------------------------------------

# What is asked of a device, most telling first. Several vendors call their device "cuda", and some say torch.version.cuda.
SOURCES = (
    ("device type", lambda device, torch, triton: device.type),
    ("device name", lambda device, torch, triton: getattr(torch, device.type).get_device_name(device)),
    ("architecture", lambda device, torch, triton: getattr(torch, device.type).get_device_properties(device).gcnArchName),
    ("torch version", lambda device, torch, triton: torch.__version__),
    ("torch.version", lambda device, torch, triton: " ".join(name for name, is_set in vars(torch.version).items() if is_set)),
    ("Triton target", lambda device, torch, triton: str(triton.runtime.driver.active.get_current_target())),
)
# Row of ROUTES, what one of its device's answers holds: the first row that fits. NVIDIA, whom others resemble, comes last.
PROBES = (
    ("ascend", r"\bnpu\b|ascend"),
    ("moore", r"musa\b|moore|\bmtt\b"),
    ("metax", r"metax|maca\b|\bmxc|\bc5[05]0\b"),
    ("hygon", r"hygon|\bdcu\b|dtk|\bk100|gfx9[23][68]"),
    ("tianshu", r"iluvatar|corex|\bbi-v|\bmr-v"),
    ("thead", r"\bppu|zw810|t-head|zhenwu"),
    ("nvidia", r"nvidia|tesla|geforce|quadro|-sxm\d"),
)


def answers(device, torch, triton):
    """-> [(source, lower-case answer)]; a source that the device does not have is left out."""
    told = []
    for source, ask in SOURCES:
        try:
            told.append((source, ask(device, torch, triton).lower()))
        except Exception:  # a vendor's module may lack anything, and raise anything
            continue
    return told


@cache
def detect_platform(device, torch=torch, triton=triton):
    """torch.device -> (a row of ROUTES, the evidence for it). Unknown devices take the portable route, and say so."""
    if device.type == "cpu":
        return "portable", "cpu device"
    told = answers(device, torch, triton)
    for platform, words in PROBES:
        for source, answer in told:
            if re.search(words, answer):
                return platform, f"{source} {answer!r}"
    return "portable", "no probe knows " + ", ".join(f"{source} {answer!r}" for source, answer in told)


def on_device(device):
    """A context in which launches go to `device`."""
    backend = getattr(torch, device.type)
    return nullcontext() if device.index in (None, backend.current_device()) else backend.device(device.index)


# --- entry ---------------------------------------------------------------------------------------------------------------


def c128_256_512_compress(
    state_cache, token_to_req, positions, boundary_token_indices, block_table, rms_norm_weight,
    cos_sin_cache, kv_slot_mapping, kv_cache, block_size, compress_ratio, rms_norm_eps=1.0e-6,
):  # fmt: skip
    """Compress the windows closed by boundary_token_indices into their slots; the contract is at the head of this file."""
    tensors = (
        state_cache, token_to_req, positions, boundary_token_indices, block_table, rms_norm_weight, cos_sin_cache,
        kv_slot_mapping, kv_cache,
    )  # fmt: skip
    plan = find_plan(tensors, block_size, compress_ratio, float(rms_norm_eps))
    if plan.num_outputs == 0:
        return torch.zeros(plan.page_shape, dtype=torch.uint8, device=kv_cache.device)
    if not plan.unit_strides:
        tensors = [tensor.contiguous() for tensor in tensors[:8]]
        return c128_256_512_compress(*tensors, kv_cache, block_size, compress_ratio, rms_norm_eps)
    if plan.only_device:
        return plan.route.launch(plan, tensors)
    with on_device(state_cache.device):
        return plan.route.launch(plan, tensors)
