"""Skip-scale online softmax inside the compression kernel: python notes/skip_scale.py [CASE ...]; three official cases by default.

Three rules of moving the shift, in one kernel: "plain" at every tile, as solution.py; "branch" when some dim's maximum has run
away from it by more than 6, as DeepSeek's Ascend attention kernel does; "select" dim by dim, without a branch. Each is timed alone
(graph replay over inputs rotated past the L2, median of 20), and its bytes are compared with the reference's, after solution.py's
finalizer. Without an accelerator: one small case, interpreted, its bytes only. Half a minute on an H200.
"""

import os
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from harness import cases, chips, inputs, interpreter, timing

CHIP = chips.Chip(chips.choose_device())
if CHIP.interpreted:
    os.environ["TRITON_INTERPRET"] = "1"
    interpreter.repair()

import torch
import triton
import triton.language as tl

import reference
import solution
from solution import HEAD_DIM, floor_div, inside

RULES = ("plain", "branch", "select")
CASES = ("r1_t8192_c512", "r4_t32768_c128", "r8_t131072_c512")
PLAIN, BRANCH = tl.constexpr(0), tl.constexpr(1)
THRESHOLD = tl.constexpr(6.0)


@triton.jit
def compress_kernel(
    boundary_token_indices, token_to_req, positions, block_table, state_cache, compressed,
    num_tokens, num_reqs, blocks_per_req, num_blocks, table_stride, block_stride, row_stride,
    C: tl.constexpr, BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr, DIMS: tl.constexpr, RULE: tl.constexpr,
):  # fmt: skip
    """solution.py's compress_kernel, the shift moved by RULE: DIMS dims of one output to compressed[num_outputs, 512] float32."""
    n = (tl.program_id(0) // (HEAD_DIM // DIMS)).to(tl.int64)
    dims = (tl.program_id(0) % (HEAD_DIM // DIMS)) * DIMS + tl.arange(0, DIMS)
    token = inside(tl.load(boundary_token_indices + n).to(tl.int64), num_tokens)
    req = inside(tl.load(token_to_req + token).to(tl.int64), num_reqs)
    first = tl.load(positions + token).to(tl.int64) - (C - 1)
    first_block = floor_div(first, BLOCK_SIZE)
    first_row = (first - first_block * BLOCK_SIZE).to(tl.int32)
    first_block = first_block.to(tl.int32)
    table = block_table + req * table_stride

    running = tl.full([DIMS], float("-inf"), tl.float32)
    kept = running  # the shift
    total = tl.zeros([DIMS], tl.float32)
    weighted = tl.zeros([DIMS], tl.float32)
    for start in range(0, C, ROWS):
        row = first_row + start + tl.arange(0, ROWS)
        block = row // BLOCK_SIZE
        physical = inside(tl.load(table + inside(first_block + block, blocks_per_req)), num_blocks).to(tl.int64)
        offset = physical * block_stride + (row - block * BLOCK_SIZE).to(tl.int64) * row_stride
        state = state_cache + offset[:, None] + dims[None, :]
        score = tl.load(state + HEAD_DIM, eviction_policy="evict_first")
        value = tl.load(state, eviction_policy="evict_first")

        running = tl.maximum(running, tl.max(score, axis=0))
        if RULE == PLAIN:
            shift = tl.where(running == float("-inf"), 0.0, running)
            rescale = tl.exp(kept - shift)
            total = total * rescale
            weighted = weighted * rescale
            kept = running
        else:
            ran_away = tl.where(running == float("-inf"), 0.0, running - kept)
            if RULE == BRANCH:
                if tl.max(ran_away, axis=0) > THRESHOLD:
                    rescale = tl.exp(kept - tl.where(running == float("-inf"), 0.0, running))
                    total = total * rescale
                    weighted = weighted * rescale
                    kept = running
                shift = tl.where(kept == float("-inf"), 0.0, kept)
            else:
                moved = tl.where(ran_away > THRESHOLD, running, kept)
                shift = tl.where(moved == float("-inf"), 0.0, moved)
                rescale = tl.exp(kept - shift)
                total = total * rescale
                weighted = weighted * rescale
                kept = moved
        weight = tl.exp(score - shift[None, :])
        total += tl.sum(weight, axis=0)
        weighted += tl.sum(weight * value, axis=0)
    tl.store(compressed + n * HEAD_DIM + dims, weighted / total)


def compress(arguments, compressed, rule):
    """One launch on the tile that the first version of solution.py's nvidia route took for these outputs."""
    a, outputs = arguments, compressed.shape[0]
    dims, rows, warps = (32, 128, 4) if outputs <= 32 else (32, 64, 2) if outputs <= 64 else (64, 32, 2)
    state, table = a["state_cache"], a["block_table"]
    return compress_kernel[(outputs * (512 // dims),)](
        a["boundary_token_indices"], a["token_to_req"], a["positions"], table, state, compressed,
        a["positions"].shape[0], *table.shape, state.shape[0], table.stride(0), state.stride(0), state.stride(1),
        C=a["compress_ratio"], BLOCK_SIZE=a["block_size"], ROWS=rows, DIMS=dims, RULE=RULES.index(rule),
        num_warps=warps, num_stages=1,
    )  # fmt: skip


def finalized(arguments, compressed):
    """[num_outputs, 512] float32 -> the cache, by solution.py's finalizer."""
    a, result = arguments, torch.zeros_like(arguments["kv_cache"])
    solution.finalize_kernel[(compressed.shape[0],)](
        compressed, a["boundary_token_indices"], a["positions"], a["rms_norm_weight"], a["cos_sin_cache"], a["kv_slot_mapping"],
        result, a["positions"].shape[0], a["cos_sin_cache"].shape[0], result.shape[0],
        a["cos_sin_cache"].stride(0), result.stride(0),
        a["rms_norm_eps"], C=a["compress_ratio"], LANES=32 if compressed.shape[0] >= 16 else 128, num_warps=4,
    )  # fmt: skip
    return result


def device_us(sets, compressed, rule):
    replay, _ = CHIP.capture(lambda: [compress(one.arguments, compressed, rule) for one in sets])
    return statistics.median([CHIP.timed(replay)[0] / len(sets) for _ in range(23)][3:])


def study(case):
    drawn = inputs.build(case).to(CHIP.device)
    expected = reference.c128_256_512_compress(**drawn.arguments)
    compressed = {rule: torch.empty((drawn.num_outputs, 512), device=CHIP.device) for rule in RULES}
    told = []
    for rule, result in compressed.items():
        kernel = compress(drawn.arguments, result, rule)
        apart = int((finalized(drawn.arguments, result) != expected).sum())
        same = int((result != compressed["plain"]).sum())
        told.append(f"| {case.name}, {case.distribution} | {rule} | {apart} | {same} |")
        if not CHIP.interpreted:
            told[-1] += f" {kernel.n_regs} |"
    if not CHIP.interpreted:
        copies = timing.rotation(CHIP, drawn.arguments["state_cache"].nbytes) - 1
        sets = [drawn] + [drawn.to(CHIP.device) for _ in range(copies)]
        for turn, rule in enumerate(RULES):
            told[turn] += f" {device_us(sets, compressed[rule], rule):.1f} |"
    print("\n".join(told), flush=True)


if __name__ == "__main__":
    print(f"{CHIP.environment()}\n")
    timed = " registers | us |" if not CHIP.interpreted else ""
    print(f"| case | rule | bytes unlike the reference's | float32 results unlike plain's |{timed}")
    print("| --- | --- | --- | --- |" + (" --- | --- |" if timed else ""))
    if CHIP.interpreted:
        print("no accelerator: bytes only, of one small case", file=sys.stderr)
        chosen = [cases.CaseSpec("small", 1, 2048, 512)]
    else:
        chosen = cases.select_cases(cases.load_cases(), sys.argv[1:] or CASES)
    for case in chosen:
        for distribution in ("normal", "peaked") if case.total_tokens <= 32768 else ("normal",):  # drawing takes seconds
            study(cases.replace(case, distribution=distribution))
