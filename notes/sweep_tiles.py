"""Device time of every tile of solution.py's nvidia route, on all official cases: python notes/sweep_tiles.py [OUT.json]

Graph replay over inputs rotated past the L2 (as mode `device` of the harness), median of 10 replays. A tile whose bytes differ
from the default tile's in more than ten places is reported, not timed. Needs an accelerator with graphs.
"""

import dataclasses
import itertools
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
import solution  # noqa: E402
from harness import cases, chips, inputs, timing  # noqa: E402

chip = chips.Chip(chips.choose_device())
route = solution.ROUTES["nvidia"]
solution.detect_platform = lambda device: ("nvidia", "forced by the sweep")
bandwidth = chip.copy_bandwidth()
print(f"{chip.environment()}; copy {bandwidth / 1e12:.3f} TB/s", flush=True)
measured = []
for case in cases.load_cases():
    drawn = inputs.build(case).to(chip.device)
    sets = [drawn] + [drawn.to(chip.device) for _ in range(timing.rotation(chip, drawn.arguments["state_cache"].nbytes) - 1)]
    expected = solution.c128_256_512_compress(**drawn.arguments)
    C, found = case.compress_ratio, []
    for dims, rows, warps, stages in itertools.product((32, 64, 128), (32, 64, 128, 256), (2, 4, 8), (1, 2, 3)):
        if rows > C or dims * rows > 16384 or dims * rows < 32 * 32 * warps or (rows == C and stages > 1):
            continue
        tile = solution.Tile(dims, rows, warps, stages)
        solution.ROUTES["nvidia"] = dataclasses.replace(route, tiles={**route.tiles, C: tile})
        if int((solution.c128_256_512_compress(**drawn.arguments) != expected).sum()) > 10:
            print(f"{case.name}: {tile}: wrong bytes")
            continue
        replay, _ = chip.capture(lambda: [solution.c128_256_512_compress(**one.arguments) for one in sets])
        times = []
        for _ in range(13):
            start, end = chip.event(), chip.event()
            start.record()
            replay()
            end.record()
            chip.synchronize()
            times.append(start.elapsed_time(end) * 1e3 / len(sets))
        found.append((statistics.median(times[3:]), (dims, rows, warps, stages)))
    solution.ROUTES["nvidia"] = route
    found.sort()
    floor = case.total_tokens * 4096 / bandwidth * 1e6
    shown = ", ".join(f"{time:.1f} {tile}" for time, tile in found[:6])
    print(f"{case.name}: floor {floor:.1f}; {shown}; worst {found[-1][0]:.1f} {found[-1][1]}", flush=True)
    measured += [{"case": case.name, "tile": tile, "us": round(time, 2)} for time, tile in found]
    del sets, drawn
if len(sys.argv) > 1:
    Path(sys.argv[1]).write_text("\n".join(map(json.dumps, measured)) + "\n")
