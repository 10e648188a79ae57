"""Device time of every tile of solution.py's nvidia-fast route: python notes/sweep_tiles.py [CASE ...]; all if none.

Graph replay over inputs rotated past the L2, as mode `device` of the harness; median of 10 replays. Times only: whether the
bytes are right is what `python -m harness check` shows. Needs an accelerator with graphs; about a second a tile and case.
"""

import dataclasses
import itertools
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
import solution
from harness import cases, chips, inputs, timing

DIMS, ROWS, WARPS = (16, 32, 64, 128), (16, 32, 64, 128), (1, 2, 4)
PER_THREAD = (16, 64)  # elements of the state a thread holds at a time, least and most: less starves, more spills


def sweep(case, chip, floor_us):
    drawn = inputs.build(case).to(chip.device)
    sets = [drawn] + [drawn.to(chip.device) for _ in range(timing.rotation(chip, drawn.arguments["state_cache"].nbytes) - 1)]
    found = []
    for dims, rows, warps in itertools.product(DIMS, ROWS, WARPS):
        if PER_THREAD[0] <= dims * rows / (32 * warps) <= PER_THREAD[1]:
            found.append((device_us(chip, sets, solution.Tile(dims, rows, warps)), (dims, rows, warps)))
    told = ", ".join(f"{us:.1f} {tile}" for us, tile in sorted(found))
    print(f"{case.name}: floor {floor_us:.1f} us; us (dims, rows, warps), best first: {told}", flush=True)


def device_us(chip, sets, tile):
    solution.ROUTES["nvidia-fast"] = dataclasses.replace(solution.NVIDIA_FAST, tiles=((solution.ANY, solution.MANY, tile),))
    solution.forget_plans()
    solution.c128_256_512_compress(**sets[0].arguments)  # compiles
    replay, _ = chip.capture(lambda: [solution.c128_256_512_compress(**one.arguments) for one in sets])
    times = [chip.timed(replay)[0] / len(sets) for _ in range(13)]
    return statistics.median(times[3:])


if __name__ == "__main__":
    chip = chips.Chip(chips.choose_device())
    bandwidth = chip.copy_bandwidth()
    print(f"{chip.environment()}; copy {bandwidth / 1e12:.2f} TB/s", flush=True)
    solution.detect_platform = lambda device: ("nvidia-fast", "forced by the sweep")
    for case in cases.select_cases(cases.load_cases(), sys.argv[1:]):
        sweep(case, chip, case.total_tokens * 4096 / bandwidth * 1e6)
