"""Time of every tile of the cache's reader: python notes/sweep_reader.py. Needs an accelerator with graphs; half a minute.

64 heads; 1, 4, 16 and 128 query tokens, topk 512 and 1,024; tiles of heads x keys, splits, warps and stages, best first. Times
only: that every tile gives the same is what harness/tests/test_reader_attention.py shows.
"""

import itertools
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from harness import chips
from harness.reader import attend
from harness.reader.sparse_attention import Tile

FEW = ((16, 16, 4), (16, 32, 4), (16, 32, 8), (16, 64, 8), (32, 32, 8), (64, 16, 8), (64, 32, 8))  # heads, keys, warps
SOME = ((16, 32, 4), (16, 64, 8), (64, 32, 8), (64, 64, 8))
MANY = (
    (16, 32, 8, 1),
    (16, 32, 8, 2),
    (64, 16, 8, 2),
    (64, 32, 8, 1),
    (64, 32, 8, 2),
    (64, 32, 8, 3),
    (64, 64, 8, 1),
    (64, 64, 8, 2),
)
TILES = {  # by query tokens
    1: [Tile(heads, keys, splits, warps) for (heads, keys, warps), splits in itertools.product(FEW, (8, 16, 32, 64))],
    4: [Tile(heads, keys, splits, warps) for (heads, keys, warps), splits in itertools.product(SOME, (4, 8, 16, 32))],
    16: [Tile(heads, keys, splits, warps) for (heads, keys, warps), splits in itertools.product(SOME, (1, 2, 4, 8, 16))],
    128: [Tile(heads, keys, 1, warps, stages) for heads, keys, warps, stages in MANY],
}


def sweep(chip, cache, num_queries, topk, bandwidth):
    found, refused = [], []
    for tile in TILES[num_queries]:
        if tile.splits * tile.keys > topk:
            continue
        try:
            timed = attend.measure_time(chip, cache, num_queries, topk, tile, rounds=10)
        except Exception as error:  # more shared memory or registers than there are: told, not hidden
            refused.append(f"    {tile}: {error!r:.100}")
            continue
        found.append((statistics.median(timed.times_us), timed.share(bandwidth), tile))
    print(f"{num_queries} queries, topk {topk}:")
    for us, share, tile in sorted(found, key=lambda one: one[0])[:12]:
        print(f"    {us:7.1f} us, {share:5.1%} of floor: {tile}")
    print(*refused, sep="\n", flush=True)


if __name__ == "__main__":
    chip = chips.Chip(chips.choose_device())
    if chip.interpreted:
        sys.exit("no accelerator here: nothing to time")
    bandwidth = chip.copy_bandwidth()
    print(f"{chip.environment()}; copy {bandwidth / 1e12:.2f} TB/s", flush=True)
    cache = attend.timed_cache(chip.device)
    for num_queries, topk in itertools.product(TILES, (512, 1024)):
        sweep(chip, cache, num_queries, topk, bandwidth)
