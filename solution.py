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

Rounding: bfloat16, exponent and packing are done on integer bits, so they are exact on every backend. The softmax and the mean
add in an order of their own, so a value within float32 error of a bfloat16 boundary may round to the neighbour.

Layouts: nothing is assumed of the block table; every row is looked up. Negative indices count from the end, as in PyTorch. An
index past the end is held inside its tensor (a slot past the end is not written): that slot's bytes are unspecified, as are
those of a window with NaN, +inf, or a column that is all -inf. Two outputs with one slot: unspecified which stays.

Errors: TypeError or ValueError before any launch, naming the argument, what came, what is needed.

Sections: constants | types | numerics | kernels | arguments | launchers | routes | platform | entry
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache

import torch
import triton
import triton.language as tl

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
SCALES_AT = tl.constexpr(36864)  # 64 * 576: column of the first scale byte of a page
FAR = tl.constexpr(1 << 30)  # blocks; farther than any table reaches
MIN_EXPONENT = tl.constexpr(-20)  # ceil(log2(1e-4 / 127)): the clamp of the group maximum at 1e-4
PAGE_BYTES = 37376  # 64 * (576 + 8): least block_stride
MANY = float("inf")  # outputs


# --- types ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tile:
    """What one program of the compression streams: `rows` of the window at a time, over `dims` of the 512 dimensions."""

    dims: int
    rows: int
    num_warps: int
    num_stages: int

    def __post_init__(self):
        if 512 % self.dims or 128 % self.rows:
            raise ValueError(f"{self}: dims must be a power of two up to 512, rows one up to 128 (the shortest window)")


@dataclass(frozen=True)
class Route:
    """How a platform computes the operator."""

    launch: Callable
    tiles: tuple  # ((most outputs, Tile), ..., (MANY, Tile)): the first that holds them
    eviction: str  # cache policy of the state loads: "" or "evict_first"

    def tile(self, num_outputs):
        return next(tile for most, tile in self.tiles if num_outputs <= most)


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
    unit_strides: bool  # every last dimension is contiguous, as the kernels need it


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
def quantise(z_bits, exponent):
    """bfloat16 bits and the group's exponent -> int8 by truncation toward zero."""
    scaled = bf16_value(z_bits) * power_of_two(-exponent)
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


# --- kernels -------------------------------------------------------------------------------------------------------------

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
    token = inside(tl.load(boundary_token_indices + n).to(tl.int64), num_tokens)
    req = inside(tl.load(token_to_req + token).to(tl.int64), num_reqs)
    first = tl.load(positions + token).to(tl.int64) - (C - 1)
    first_block = floor_div(first, BLOCK_SIZE)
    first_row = (first - first_block * BLOCK_SIZE).to(tl.int32)
    first_block = tl.minimum(tl.maximum(first_block, -FAR), FAR).to(tl.int32)  # 32-bit arithmetic on vectors
    table = block_table + req * table_stride

    top = tl.full([DIMS], float("-inf"), tl.float32)
    total = tl.zeros([DIMS], tl.float32)
    weighted = tl.zeros([DIMS], tl.float32)
    for start in range(0, C, ROWS):
        row = first_row + start + tl.arange(0, ROWS)  # from the start of the window's first block
        block = row // BLOCK_SIZE
        physical = inside(tl.load(table + inside(first_block + block, blocks_per_req)), num_blocks).to(tl.int64)
        offset = physical * block_stride + (row - block * BLOCK_SIZE).to(tl.int64) * row_stride
        state = state_cache + offset[:, None] + dims[None, :]
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


@triton.jit
def finalize_output(
    n, compressed, boundary_token_indices, positions, rms_norm_weight, cos_sin_cache, kv_slot_mapping, kv_cache,
    num_tokens, max_pos, kv_blocks, cos_sin_stride, page_stride, rms_norm_eps, C: tl.constexpr,
):  # fmt: skip
    """compressed[n, :512] float32 -> RMSNorm, int8 groups, rotary pairs -> the 584 bytes of output n's slot."""
    x = compressed + n * HEAD_DIM
    group = tl.arange(0, GROUPS)
    lane = tl.arange(0, GROUP_DIM)
    dim = group[:, None] * GROUP_DIM + lane[None, :]
    raw = tl.load(x + dim)
    rrms = tl.rsqrt(tl.sum(tl.sum(raw * raw, axis=1), axis=0) * (1.0 / HEAD_DIM) + rms_norm_eps)

    boundary = from_end(tl.load(boundary_token_indices + n).to(tl.int64), num_tokens)
    token = inside(boundary, num_tokens)
    slot = tl.load(kv_slot_mapping + token).to(tl.int64)
    page = floor_div(slot, PAGE_SLOTS)
    slot = slot - page * PAGE_SLOTS
    page = from_end(page, kv_blocks)
    writes = (boundary >= 0) & (boundary < num_tokens) & (page >= 0) & (page < kv_blocks)
    payload = kv_cache + page * page_stride + slot * PAYLOAD_BYTES
    scales = kv_cache + page * page_stride + SCALES_AT + slot * SCALE_BYTES

    z_bits = bf16_bits(raw * rrms * load_bf16(rms_norm_weight + dim))
    exponent = group_exponent(tl.max(z_bits & 0x7FFF, axis=1))
    int8 = quantise(z_bits, exponent[:, None])
    is_int8 = group < INT8_GROUPS
    tl.store(payload + dim, int8.to(tl.uint8, bitcast=True), mask=is_int8[:, None] & writes)
    tl.store(scales + group, tl.where(is_int8, exponent + 127, 0).to(tl.uint8), mask=writes)

    pair = tl.arange(0, ROPE_PAIRS)
    even_dim = INT8_DIM + 2 * pair
    even = tl.load(x + even_dim) * rrms * load_bf16(rms_norm_weight + even_dim)
    odd = tl.load(x + even_dim + 1) * rrms * load_bf16(rms_norm_weight + even_dim + 1)
    window = floor_div(tl.load(positions + token).to(tl.int64), C) * C
    angle = cos_sin_cache + inside(window, max_pos) * cos_sin_stride + pair
    cos = tl.load(angle)
    sin = tl.load(angle + ROPE_PAIRS)
    store_bf16(payload + INT8_DIM + 4 * pair, bf16_bits(even * cos - odd * sin), writes)
    store_bf16(payload + INT8_DIM + 4 * pair + 2, bf16_bits(odd * cos + even * sin), writes)


@triton.jit(do_not_specialize=PER_CALL)
def finalize_kernel(
    compressed, boundary_token_indices, positions, rms_norm_weight, cos_sin_cache, kv_slot_mapping, kv_cache,
    num_tokens, max_pos, kv_blocks, cos_sin_stride, page_stride, rms_norm_eps, C: tl.constexpr,
):  # fmt: skip
    """One program: one output, from compressed[num_outputs, 512] float32 to its slot."""
    finalize_output(
        tl.program_id(0).to(tl.int64), compressed, boundary_token_indices, positions, rms_norm_weight, cos_sin_cache,
        kv_slot_mapping, kv_cache, num_tokens, max_pos, kv_blocks, cos_sin_stride, page_stride, rms_norm_eps, C,
    )  # fmt: skip


@triton.jit(do_not_specialize=PER_CALL)
def fused_kernel(
    boundary_token_indices, token_to_req, positions, block_table, state_cache, compressed, arrivals,
    rms_norm_weight, cos_sin_cache, kv_slot_mapping, kv_cache,
    num_tokens, num_reqs, blocks_per_req, num_blocks, max_pos, kv_blocks,
    table_stride, block_stride, row_stride, cos_sin_stride, page_stride, rms_norm_eps,
    C: tl.constexpr, BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr, DIMS: tl.constexpr, EVICTION: tl.constexpr,
):  # fmt: skip
    """compress_kernel; then the last program of an output to arrive (arrivals[num_outputs] int32, zeros) finalizes it."""
    compress_kernel(
        boundary_token_indices, token_to_req, positions, block_table, state_cache, compressed,
        num_tokens, num_reqs, blocks_per_req, num_blocks, table_stride, block_stride, row_stride,
        C, BLOCK_SIZE, ROWS, DIMS, EVICTION,
    )  # fmt: skip
    tl.debug_barrier()  # the stores of all the program's threads, before the release by one of them
    n = (tl.program_id(0) // (HEAD_DIM // DIMS)).to(tl.int64)
    if tl.atomic_add(arrivals + n, 1, sem="acq_rel") == HEAD_DIM // DIMS - 1:
        finalize_output(
            n, compressed, boundary_token_indices, positions, rms_norm_weight, cos_sin_cache, kv_slot_mapping, kv_cache,
            num_tokens, max_pos, kv_blocks, cos_sin_stride, page_stride, rms_norm_eps, C,
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


def kind(argument):
    """All that a plan needs to know of a tensor."""
    if isinstance(argument, torch.Tensor):
        return argument.dtype, argument.device, argument.shape, argument.stride()
    return type(argument)


def check_kinds(kinds, block_size, compress_ratio):
    """Raise TypeError or ValueError unless the tensors are as ARGUMENTS says, on one device, not empty where they are indexed."""
    if type(block_size) is not int or block_size < 1:
        raise ValueError(f"block_size: {block_size!r} given; an int of at least 1 is needed (rows of a state_cache block)")
    if compress_ratio not in (128, 256, 512):
        raise ValueError(f"compress_ratio: {compress_ratio!r} given; 128, 256 or 512 is needed")
    for given, (name, dtypes, _) in zip(kinds, ARGUMENTS):
        if isinstance(given, type):
            raise TypeError(f"{name}: {given.__name__} given; a torch.Tensor is needed")
        if given[0] not in dtypes:
            raise TypeError(f"{name}: {given[0]} given; {' or '.join(map(str, dtypes))} is needed")
        if given[1] != kinds[0][1]:
            raise ValueError(f"{name}: on {given[1]}, state_cache on {kinds[0][1]}; one device is needed")
    sizes = {"block_size": block_size}
    for (_, _, shape, _), (name, _, needed) in zip(kinds, ARGUMENTS):
        fits = len(shape) == len(needed)
        for size, wanted in zip(shape, needed):
            wanted = sizes.setdefault(wanted, size) if isinstance(wanted, str) else wanted
            fits = fits and wanted in (None, size)
        if not fits:
            described = ", ".join("any" if n is None else f"{n} = {sizes[n]}" if n in sizes else str(n) for n in needed)
            raise ValueError(f"{name}: shape {list(shape)} given; [{described}] is needed")
    num_outputs, block_stride = kinds[3][2][0], kinds[8][2][1]
    if block_stride < PAGE_BYTES:
        raise ValueError(f"kv_cache: {block_stride} bytes a page given; at least {PAGE_BYTES} are needed (64 slots of 584)")
    for (_, _, shape, _), (name, _, _) in zip(kinds[:8], ARGUMENTS):
        if num_outputs and 0 in shape:
            raise ValueError(f"{name}: shape {list(shape)} given; {num_outputs} outputs need at least one element")


@lru_cache(maxsize=4096)
def make_plan(kinds, block_size, compress_ratio):
    """Kinds of the nine tensors -> Plan, checked; looked up from the second time on (cache_clear() after a change of ROUTES)."""
    check_kinds(kinds, block_size, compress_ratio)
    shapes, strides = [kind[2] for kind in kinds], [kind[3] for kind in kinds]
    route = ROUTES[detect_platform(kinds[0][1])[0]]
    return Plan(
        route=route,
        tile=route.tile(shapes[3][0]),
        num_outputs=shapes[3][0],
        page_shape=tuple(shapes[8]),
        block_size=block_size,
        compress_ratio=compress_ratio,
        sizes=(shapes[2][0], *shapes[4], shapes[0][0], shapes[6][0], shapes[8][0]),
        strides=(strides[4][0], *strides[0][:2], strides[6][0], shapes[8][1]),
        unit_strides=all(stride[-1] == 1 or shape[-1] <= 1 for shape, stride in zip(shapes[:8], strides)),
    )


# --- launchers: (plan, the eight input tensors) -> result ----------------------------------------------------------------


def launch_two_stage(plan, inputs, rms_norm_eps):
    """Two launches: compress every output to float32, then finalize every output. Plain loads and stores only."""
    state_cache, token_to_req, positions, boundaries, block_table, weight, cos_sin_cache, slots = inputs
    num_tokens, num_reqs, blocks_per_req, num_blocks, max_pos, kv_blocks = plan.sizes
    table_stride, block_stride, row_stride, cos_sin_stride, page_stride = plan.strides
    device, tile = state_cache.device, plan.tile
    result = torch.zeros(plan.page_shape, dtype=torch.uint8, device=device)
    compressed = torch.empty((plan.num_outputs, 512), dtype=torch.float32, device=device)
    compress_kernel[(plan.num_outputs * (512 // tile.dims),)](
        boundaries, token_to_req, positions, block_table, state_cache, compressed,
        num_tokens, num_reqs, blocks_per_req, num_blocks, table_stride, block_stride, row_stride,
        C=plan.compress_ratio, BLOCK_SIZE=plan.block_size, ROWS=tile.rows, DIMS=tile.dims, EVICTION=plan.route.eviction,
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip
    finalize_kernel[(plan.num_outputs,)](
        compressed, boundaries, positions, weight, cos_sin_cache, slots, result,
        num_tokens, max_pos, kv_blocks, cos_sin_stride, page_stride, rms_norm_eps,
        C=plan.compress_ratio, num_warps=4,
    )  # fmt: skip
    return result


def launch_fused(plan, inputs, rms_norm_eps):
    """One launch: the last program of an output to arrive finalizes it. Needs device-wide acquire-release atomics.

    The arrival counters lie behind the result, so that one fill zeroes both.
    """
    state_cache, token_to_req, positions, boundaries, block_table, weight, cos_sin_cache, slots = inputs
    device, tile = state_cache.device, plan.tile
    result_bytes = plan.page_shape[0] * plan.page_shape[1]
    zeros = torch.zeros((result_bytes + 3) // 4 + plan.num_outputs, dtype=torch.int32, device=device)
    result, arrivals = zeros.view(torch.uint8)[:result_bytes].view(plan.page_shape), zeros[-plan.num_outputs :]
    compressed = torch.empty((plan.num_outputs, 512), dtype=torch.float32, device=device)
    fused_kernel[(plan.num_outputs * (512 // tile.dims),)](
        boundaries, token_to_req, positions, block_table, state_cache, compressed, arrivals,
        weight, cos_sin_cache, slots, result,
        *plan.sizes, *plan.strides, rms_norm_eps,
        C=plan.compress_ratio, BLOCK_SIZE=plan.block_size, ROWS=tile.rows, DIMS=tile.dims, EVICTION=plan.route.eviction,
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip
    return result


# --- routes: a platform's difference is a row's difference ---------------------------------------------------------------

PORTABLE = Route(launch_two_stage, tiles=((MANY, Tile(dims=64, rows=128, num_warps=4, num_stages=2)),), eviction="")

ROUTES = {
    # Measured on an H200 (notes/2026-11-30-tiles.md): few outputs fill the chip with narrow tiles, many stream best with flat ones.
    "nvidia": Route(
        launch_fused,
        tiles=(
            (32, Tile(dims=32, rows=128, num_warps=4, num_stages=1)),
            (64, Tile(dims=32, rows=64, num_warps=2, num_stages=1)),
            (MANY, Tile(dims=64, rows=32, num_warps=2, num_stages=1)),
        ),
        eviction="evict_first",
    ),
    "metax": PORTABLE,
    "hygon": PORTABLE,
    "thead": PORTABLE,
    "tianshu": PORTABLE,
    "moore": PORTABLE,
    "ascend": PORTABLE,
    "portable": PORTABLE,
}


# --- platform ------------------------------------------------------------------------------------------------------------

# platform, device type, words of which one is in the lower-case device name. Several vendors call their device "cuda".
PROBES = (
    ("ascend", "npu", ("",)),
    ("moore", "musa", ("",)),
    ("metax", "cuda", ("metax", "mxc", "c500")),
    ("hygon", "cuda", ("hygon", "dcu", "k100")),
    ("tianshu", "cuda", ("iluvatar", "bi-v", "mr-v")),
    ("thead", "cuda", ("ppu", "zw810", "zhenwu")),
    ("nvidia", "cuda", ("nvidia", "tesla", "geforce", "quadro")),
)


@cache
def detect_platform(device):
    """torch.device -> (a name of ROUTES, the evidence for it). Unknown devices take the portable route, and say so."""
    if device.type == "cpu":
        return "portable", "cpu device"
    name = getattr(torch, device.type).get_device_name(device)
    for platform, device_type, words in PROBES:
        if device.type == device_type and any(word in name.lower() for word in words):
            return platform, f"device type {device.type}, name {name!r}"
    return "portable", f"no probe knows device type {device.type}, name {name!r}"


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
    inputs = (
        state_cache, token_to_req, positions, boundary_token_indices, block_table, rms_norm_weight,
        cos_sin_cache, kv_slot_mapping,
    )  # fmt: skip
    plan = make_plan((*map(kind, inputs), kind(kv_cache)), block_size, compress_ratio)
    if plan.num_outputs == 0:
        return torch.zeros(plan.page_shape, dtype=torch.uint8, device=kv_cache.device)
    if not plan.unit_strides:
        inputs = [tensor.contiguous() for tensor in inputs]
        return c128_256_512_compress(*inputs, kv_cache, block_size, compress_ratio, rms_norm_eps)
    with on_device(state_cache.device):
        return plan.route.launch(plan, inputs, float(rms_norm_eps))
