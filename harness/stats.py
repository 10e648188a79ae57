"""Statistics of timed samples: medians, quartiles, ratios and their bootstrap intervals. No torch: the board opens fast."""

import math
import random
import statistics
from dataclasses import dataclass

MODES = ("cold", "warm", "device")  # of timing; what each means: harness/timing.py
RESAMPLES = 1000  # of the bootstrap
CONFIDENCE = 0.95
ROW_BYTES = 4096  # of the state: 512 values and 512 scores
FLOOR_MODES = ("cold", "device")  # in which every byte comes from memory; a warm call may find it in the L2
MARGIN = (
    1.25  # over the copy bandwidth: pure reading reached 1.01 of it on an H200; where the chip tells its peak, that is the limit
)


@dataclass(frozen=True)
class Samples:
    """Microseconds a call, reference and submission alternating in one run."""

    reference: tuple
    submission: tuple

    @property
    def speedup(self):
        """Median over median; more than 1 where the submission is faster."""
        return statistics.median(self.reference) / statistics.median(self.submission)


def floor_us(rows, bandwidth):
    """Microseconds to read `rows` state rows at `bandwidth` bytes a second."""
    return rows * ROW_BYTES / bandwidth * 1e6


def rows_read(num_outputs, compress_ratio, num_reqs, block_table):
    """State rows that a call must read, each once: requests that share all blocks share their rows."""
    return num_outputs * compress_ratio // (num_reqs if block_table == "shared" else 1)


def least_us(rows, copy, peak=None):
    """Microseconds below which memory allows no call: at the chip's peak, or at MARGIN times the copy bandwidth if it is silent."""
    return floor_us(rows, peak or MARGIN * copy)


def spread(samples):
    """(first quartile, median, third quartile) of at least two samples."""
    return tuple(statistics.quantiles(samples, n=4, method="inclusive"))


def ratio_interval(*pairs, seed=0):
    """Bootstrap interval (low, high), of CONFIDENCE, for the geometric mean over `pairs` of median(first) / median(second).

    Each pair is two lists of samples, resampled on their own. Seeded, so repeatable.
    """
    draw = random.Random(seed)
    means = sorted(
        math.exp(statistics.fmean(math.log(_resampled(draw, first) / _resampled(draw, second)) for first, second in pairs))
        for _ in range(RESAMPLES)
    )
    tail = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return means[tail], means[-1 - tail]


def _resampled(draw, samples):
    return statistics.median(draw.choices(samples, k=len(samples)))


def difference(low, high):
    """What an interval of the time ratio first / second says of the first."""
    return "indistinguishable" if low <= 1 <= high else "faster" if high < 1 else "slower"
