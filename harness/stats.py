"""Statistics of timed samples: medians, quartiles, the speedup and its bootstrap interval. No torch: the board opens fast."""

import random
import statistics
from dataclasses import dataclass

MODES = ("cold", "warm", "device")  # of timing; what each means: harness/timing.py
RESAMPLES = 1000  # of the bootstrap
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Samples:
    """Microseconds a call, reference and submission alternating in one run."""

    reference: tuple
    submission: tuple

    @property
    def speedup(self):
        """Median over median; more than 1 where the submission is faster."""
        return statistics.median(self.reference) / statistics.median(self.submission)


def spread(samples):
    """(first quartile, median, third quartile) of at least two samples."""
    return tuple(statistics.quantiles(samples, n=4, method="inclusive"))


def ratio_interval(numerator, denominator, seed=0):
    """Bootstrap interval (low, high), of CONFIDENCE, for median(numerator) / median(denominator); seeded, so repeatable."""
    draw = random.Random(seed)
    ratios = sorted(
        statistics.median(draw.choices(numerator, k=len(numerator)))
        / statistics.median(draw.choices(denominator, k=len(denominator)))
        for _ in range(RESAMPLES)
    )
    tail = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return ratios[tail], ratios[-1 - tail]
