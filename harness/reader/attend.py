"""Compress -> attend: how much of the attention's error is int8, how much bfloat16, how much the kernel; and its time.

Four attentions of the same queries over the same slots, in float64 but for the last:
    exact      the float32 vectors that compression would store without rounding (after RMSNorm and rotation)
    bfloat16   those vectors rounded to bfloat16
    packed     what the cache decodes to
    kernel     the Triton reader on the cache
Neighbours differ by one cause: bfloat16, int8, kernel (its bfloat16 weights and output included); first against last is the
total. The other formats stand beside the packed vectors: those rounded to bfloat16, encoded and decoded, attended in float64.
"""

import statistics
from dataclasses import dataclass

import torch

import reference
from harness import interpreter
from harness.board import Table
from harness.diff import PAGE_BYTES, output_slots
from harness.inputs import Draws, build
from harness.reader import formats
from harness.stats import spread

HEADS, TOPK = 64, 512  # of a query token
CHUNK = 16  # windows at a time: bounds the temporaries to 16 * 512 * 1024 * 4 bytes each
SM_SCALE = 512**-0.5
CAUSES = ("bfloat16", "int8", "kernel", "total")
NEAREST = "int8 if nearest"  # what int8 would cost if the operator did not truncate
TIMED = ((1, 512), (1, 1024), (16, 512), (16, 1024), (128, 512), (128, 1024))  # (query tokens, topk)
CACHE_BYTES = 1 << 30  # of the timed cache: its slots are drawn at random, far past any L2
ROTATED_L2S = 3  # bytes of the slots read by one replay, in L2s


def stored_vectors(arguments):
    """The operator's arguments -> [num_outputs, 512] float32: what compression rounds and packs."""
    a = arguments
    tokens = a["boundary_token_indices"].long()
    last, C = a["positions"][tokens].long(), a["compress_ratio"]
    reqs = a["token_to_req"][tokens].long()
    chunks = [slice(at, at + CHUNK) for at in range(0, tokens.shape[0], CHUNK)]
    parts = [reference.compress_windows(a["state_cache"], reqs[c], last[c], a["block_table"], a["block_size"], C) for c in chunks]
    compressed = torch.cat(parts)
    rrms = torch.rsqrt(compressed.square().mean(-1, keepdim=True) + a["rms_norm_eps"])
    normed = compressed * rrms * a["rms_norm_weight"].float()
    return torch.cat([normed[:, :448], reference.rotate_pairs(normed[:, 448:], a["cos_sin_cache"][last // C * C])], dim=1)


@dataclass(frozen=True)
class Errors:
    """Of one case: cause -> (relative error of the outputs' norm, largest absolute error), and of the other formats' totals."""

    case: str
    keys: int  # valid slots a query attends to
    scale: float  # root mean square of the exact outputs
    errors: dict


def draw_queries(slots, num_heads, topk, seed):
    """-> query [1, num_heads, 512] bfloat16, indices [1, topk] int32: distinct slots in no order, -1 where there are too few."""
    draws = Draws(seed, "attend")
    query = torch.from_numpy(draws.normal(1, num_heads, 512)).to(torch.bfloat16)
    chosen = slots[torch.from_numpy(draws.permutation(slots.shape[0])[:topk])]
    return query, torch.nn.functional.pad(chosen, (0, topk - chosen.shape[0]), value=-1).int()[None]


def measure_errors(inputs, cache, device, num_heads=HEADS, topk=TOPK, seed=0):
    """Inputs on the CPU and the compressed cache -> Errors; the kernel runs on `device`."""
    from harness.reader import sparse_attention  # imports triton, once it is known whether it interprets

    slots = output_slots(inputs)
    query, indices = draw_queries(slots, num_heads, topk, seed)
    place = torch.full((cache.shape[0] * 64,), -1)
    place[slots] = torch.arange(slots.shape[0])  # slot -> output; the truth attends over outputs
    outputs = torch.where(indices < 0, -1, place[indices.clamp(min=0).long()])

    def truth(vectors):
        return sparse_attention.attend_truth(query, vectors, outputs, SM_SCALE)[0].out

    vectors = stored_vectors(inputs.arguments)
    rounded = vectors.to(torch.bfloat16).float()
    steps = [truth(vectors), truth(rounded), truth(formats.decode_slots(cache, slots))]
    steps.append(sparse_attention.attend(query.to(device), cache.to(device), indices.to(device), SM_SCALE).out[0].cpu().double())
    pairs = {"bfloat16": steps[:2], "int8": steps[1:3], "kernel": steps[2:], "total": steps[::3]}
    pairs[NEAREST] = (steps[1], truth(formats.round_to_nearest(cache, slots, rounded)))
    for name, other in formats.FORMATS.items():
        pairs[name] = (steps[0], truth(other.decode(other.encode(rounded))))
    size = steps[0].square().mean().sqrt().item()
    errors = {
        cause: ((after - before).square().mean().sqrt().item() / (size or 1.0), (after - before).abs().max().item())
        for cause, (before, after) in pairs.items()
    }
    return Errors(inputs.case.name, min(topk, slots.shape[0]), size, errors)


def error_table(found, num_heads, topk, conditions):
    """[Errors] -> Table."""
    names = (*CAUSES, NEAREST, *formats.FORMATS)
    rows = tuple((e.case, str(e.keys), f"{e.scale:.3f}", *(_error(e.errors[name]) for name in names)) for e in found)
    return Table(
        f"attention over the packed cache: error of the output by cause; {num_heads} heads, topk {topk}; {conditions}",
        ("case", "keys", "output rms", *names),
        rows,
        (
            "a / b: root mean square of the error as a share of the output's, and the largest absolute error (no unit).",
            "bfloat16, int8: rounding of the stored vectors. kernel: its bfloat16 weights and output. total: all three.",
            f"{NEAREST}: the operator truncates toward zero; the same bytes rounded to nearest.",
            "V41 (528 bytes a token) and V41_FP4 (288): what the same vectors lose in those formats; ours has 584.",
        ),
        ("output rms", *formats.FORMATS, NEAREST),
    )


def _error(error):
    relative, largest = error
    return f"{relative:.2%} / {largest:.4f}"


# --- time ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timed:
    """Microseconds a call, by graph replay over index sets rotated past the L2."""

    num_queries: int
    topk: int
    tile: object
    times_us: tuple
    bytes_moved: int
    flops: int

    def share(self, bandwidth):
        """Of the time, what moving the bytes alone would take."""
        return self.bytes_moved / bandwidth * 1e6 / statistics.median(self.times_us)


def timed_cache(device, seed=0):
    """A cache of CACHE_BYTES whose slots are all valid: noise, scale bytes near 1, finite bfloat16."""
    generator = torch.Generator(device).manual_seed(seed)
    cache = torch.randint(0, 256, (CACHE_BYTES // PAGE_BYTES, PAGE_BYTES), dtype=torch.uint8, device=device, generator=generator)
    payload = cache[:, : 64 * 576].unflatten(1, (64, 576))
    payload[..., 449::2] = payload[..., 449::2] & 0xBF  # magnitudes below 2
    cache[:, 64 * 576 :] = 120
    return cache


def measure_time(chip, cache, num_queries, topk, tile=None, num_heads=HEADS, rounds=30, seed=0):
    """The kernel on a device with graphs -> Timed."""
    from harness.reader import sparse_attention

    read, written = sparse_attention.bytes_needed(num_queries, num_heads, topk)
    count = max(2, -(-ROTATED_L2S * chip.l2_bytes // (num_queries * topk * 584)))
    generator = torch.Generator(chip.device).manual_seed(seed)
    shape = (count, num_queries, topk)
    indices = torch.randint(0, cache.shape[0] * 64, shape, dtype=torch.int32, device=chip.device, generator=generator)
    query = torch.randn((num_queries, num_heads, 512), device=chip.device, generator=generator).to(torch.bfloat16)
    sparse_attention.attend(query, cache, indices[0], SM_SCALE, tile=tile)  # compiles
    chip.synchronize()
    replay, _ = chip.capture(lambda: [sparse_attention.attend(query, cache, some, SM_SCALE, tile=tile) for some in indices])
    times = [chip.timed(replay)[0] / count for _ in range(rounds + 3)][3:]
    used = tile or sparse_attention.choose_tile(num_queries, num_heads, topk, sparse_attention.multiprocessors(chip.device))
    return Timed(num_queries, topk, used, tuple(times), read + written, sparse_attention.flops(num_queries, num_heads, topk))


def time_table(timed, bandwidth, num_heads, conditions):
    """[Timed] -> Table."""
    rows = []
    for one in timed:
        low, median, high = spread(one.times_us)
        t = one.tile
        rows.append(
            (
                str(one.num_queries),
                str(one.topk),
                f"{t.heads} x {t.keys}, {t.splits} splits, {t.num_warps} warps",
                f"{median:.1f} [{low:.1f}, {high:.1f}]",
                f"{one.bytes_moved / 1e6:.2f}",
                f"{one.bytes_moved / bandwidth * 1e6:.2f}",
                f"{one.share(bandwidth):.0%}",
                f"{one.flops / median / 1e6:.1f}",
            )
        )
    return Table(
        f"attention over the packed cache: time; {num_heads} heads; {conditions}",
        ("queries", "topk", "tile: heads x keys", "us", "MB", "floor us", "of floor", "TFLOP/s"),
        tuple(rows),
        (
            "us: microseconds a call, median [first, third quartile]; graph replay, index sets rotated past the L2.",
            "MB: slots, indices, queries and outputs, each once.",
            f"floor: these at the copy bandwidth measured beside it, {bandwidth / 1e12:.2f} TB/s; of floor: its share of the time.",
            "TFLOP/s: 2 x topk x heads x (512 + 512) a query, invalid indices counted.",
        ),
    )


def check_sizes(num_heads, topk):
    if num_heads < 1 or topk < 1:
        raise ValueError(f"--heads {num_heads}, --topk {topk}: at least 1 of each is needed")


def all_errors(results, chip, num_heads=HEADS, topk=TOPK):
    """[CaseResult] -> [Errors] of those with slots written and no wrong byte."""
    if chip.interpreted:
        interpreter.repair()  # TRITON_INTERPRET is set where workers were started; triton is imported only now
    sound = [r for r in results if r.verdict is not None and r.verdict.wrong == 0 and r.num_outputs]
    return [measure_errors(build(r.case, r.seed), r.run.output, chip.device, num_heads, topk, r.seed) for r in sound]


def all_times(chip, num_heads=HEADS):
    """-> ([Timed] of the sizes of TIMED, copy bandwidth in bytes a second)."""
    bandwidth, cache = chip.copy_bandwidth(), timed_cache(chip.device)
    return [measure_time(chip, cache, *size, num_heads=num_heads) for size in TIMED], bandwidth
