"""Device time of every tile of solution.py's nvidia route on the official cases: python notes/sweep_tiles.py [OUT.jsonl]

Graph replay over inputs rotated past the L2, as mode `device` of the harness; median of 10 replays. Times only: whether the
bytes are right is what `python -m harness check` shows. Needs an accelerator with graphs; about a second a tile and case.
"""

import dataclasses
import itertools
import json
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
            found.append((device_us(chip, sets, solution.Tile(dims, rows, warps, num_stages=1)), (dims, rows, warps)))
    best = ", ".join(f"{us:.1f} {tile}" for us, tile in sorted(found)[:6])
    print(f"{case.name}: floor {floor_us:.1f} us; best (dims, rows, warps): {best}", flush=True)
    return [{"case": case.name, "tile": tile, "us": round(us, 2)} for us, tile in found]


def device_us(chip, sets, tile):
    solution.ROUTES["nvidia"] = dataclasses.replace(solution.ROUTES["nvidia"], tiles=((solution.MANY, tile),))
    solution.make_plan.cache_clear()
    solution.c128_256_512_compress(**sets[0].arguments)  # compiles
    replay, _ = chip.capture(lambda: [solution.c128_256_512_compress(**one.arguments) for one in sets])
    times = []
    for _ in range(13):
        start, end = chip.event(), chip.event()
        start.record()
        replay()
        end.record()
        chip.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / len(sets))
    return statistics.median(times[3:])


if __name__ == "__main__":
    chip = chips.Chip(chips.choose_device())
    bandwidth = chip.copy_bandwidth()
    print(f"{chip.environment()}; copy {bandwidth / 1e12:.2f} TB/s")
    solution.detect_platform = lambda device: ("nvidia", "forced by the sweep")
    lines = [line for case in cases.load_cases() for line in sweep(case, chip, case.total_tokens * 4096 / bandwidth * 1e6)]
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text("".join(json.dumps(line) + "\n" for line in lines))
