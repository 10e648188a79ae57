"""Reference and submissions in turn, in three modes, in microseconds. Never mixed: each mode answers its own question.

cold    the L2 flushed before each call, device events around it. Host time counts only where it is longer than the flush.
warm    back-to-back calls on one input, wall clock a call: what a serving loop sees, host included.
device  graph replay over inputs rotated past the L2: the kernels alone. One sample is one replay, divided by its calls.

Every round has other contents in the same memory, written in stream order just before it: a kept answer is a wrong one, and work on
a stream that does not wait reads what is no longer there. Every timed output is compared, after the clock has stopped.
"""

import time
from functools import partial
from time import perf_counter

import torch
from torch import equal

from harness.inputs import roll
from harness.stats import Samples

WARM_UP = 5  # rounds whose samples are dropped
COLD_ROUNDS = 50
WARM_ROUNDS, WARM_CALLS = 15, 20  # calls between two readings of the clock
DEVICE_ROUNDS = 30
ROTATED_L2S = 3  # rotated inputs hold at least so many L2s of state
# One replay reads so many bytes of state, unless its calls become too many: its start, 6 to 10 us on an H200, is charged to them
# (notes/2026-12-07-replay.md).
REPLAYED_BYTES, REPLAYED_CALLS = 4 << 30, 128
KNOWN_EVERY = 5  # rounds: one of so many has the checked contents, whose output is known to the byte
FRESH_TIES = 0.01  # share of the written bytes in which a fresh output may differ from the reference's; a stale one differs in most


class OutputChanged(Exception):
    """A timed call returned what the checked one, or the reference on the same contents, did not."""


def rotation(chip, state_bytes):
    """How many copies of an input hold ROTATED_L2S times the L2, at least two."""
    return max(2, -(-ROTATED_L2S * chip.l2_bytes // state_bytes))


def repeats(sets, state_bytes):
    """How many times a replay goes round `sets` inputs of `state_bytes` each."""
    return -(-min(REPLAYED_CALLS, -(-REPLAYED_BYTES // state_bytes)) // sets)


def measure(chip, reference, submissions, inputs, expected):
    """Time `reference(**arguments)` and each of `submissions` in the same rounds on `inputs`.

    -> ({mode: (Samples of each submission, ...)}, why a mode is left out or "")

    `expected` holds the submissions' checked outputs on the device. OutputChanged names the mode in which an output was another.
    """
    calls = (reference, *submissions)
    check = _Check(expected, inputs.num_outputs)
    state_bytes = inputs.arguments["state_cache"].nbytes
    sets = [inputs] + [inputs.to(chip.device) for _ in range(rotation(chip, state_bytes) - 1)]
    measured = {"cold": _cold(chip, calls, inputs, check), "warm": _warm(chip, calls, inputs, check)}
    if not chip.has_graphs:
        return measured, "mode device left out: this backend has no graphs"
    try:
        graphs = [chip.capture(partial(_each, call, sets * repeats(len(sets), state_bytes))) for call in calls]
    except RuntimeError as error:  # what torch raises for a call that synchronises or copies from the host
        return measured, f"mode device left out: a call cannot be captured: {error}"
    measured["device"] = _device(chip, graphs, sets, check)
    return measured, ""


def rounds(count, places, sets):
    """(round, order of the places) of each round, its contents written to `sets`, which end as they began.

    Each round begins one place further: no call always follows the same one.
    """
    rolled = 0
    for turn in range(count):
        target = 0 if turn % KNOWN_EVERY == 0 else turn
        for one in sets:
            roll(one, target - rolled)
        rolled = target
        yield turn, [(turn + step) % places for step in range(places)]
    for one in sets:
        roll(one, -rolled)


class _Check:
    """Holds every timed output of a round to the checked bytes, or to the reference's on fresh contents."""

    def __init__(self, expected, num_outputs):
        self.expected = expected
        self.slack = [int(FRESH_TIES * num_outputs * 584)] * len(expected)  # bytes of a slot

    def __call__(self, mode, turn, outputs):
        """`outputs`: the reference's and each submission's of one round, in lists of one length."""
        theirs, *ours = outputs
        for place, (mine, known) in enumerate(zip(ours, self.expected)):
            for output, reference in zip(mine, theirs):
                if turn % KNOWN_EVERY == 0:
                    if not equal(output, known):
                        raise OutputChanged(f"a call timed in mode {mode} returned other bytes than the checked call")
                    if turn == 0:  # twice the ties, or unspecified bytes, of the checked contents are granted to others
                        self.slack[place] = max(self.slack[place], 2 * differing(output, reference))
                elif (count := differing(output, reference)) > self.slack[place]:
                    raise OutputChanged(
                        f"a call timed in mode {mode} on fresh contents differs from the reference in {count} bytes, "
                        f"{self.slack[place]} allowed: an answer kept from other contents, or not complete in stream order"
                    )


def differing(first, second):
    """Bytes that differ between two outputs of one shape."""
    return int(torch.count_nonzero(first != second))


def _cold(chip, calls, inputs, check):
    samples = [[] for _ in calls]
    for turn, places in rounds(WARM_UP + COLD_ROUNDS, len(calls), [inputs]):
        outputs = [None] * len(calls)
        for place in places:
            chip.flush()
            us, output = chip.timed(partial(calls[place], **inputs.arguments))
            samples[place].append(us)
            outputs[place] = [output]
        check("cold", turn, outputs)
    return _kept(samples)


def _warm(chip, calls, inputs, check):
    samples = [[] for _ in calls]
    for turn, places in rounds(WARM_UP + WARM_ROUNDS, len(calls), [inputs]):
        outputs = [[] for _ in calls]
        for place in places:
            chip.flush()  # of what the new contents left to write back
            calls[place](**inputs.arguments)
            chip.synchronize()
            start = perf_counter()
            for _ in range(WARM_CALLS):
                outputs[place].append(calls[place](**inputs.arguments))
            chip.synchronize()
            samples[place].append((perf_counter() - start) * 1e6 / WARM_CALLS)
        check("warm", turn, outputs)
    return _kept(samples)


def _device(chip, graphs, sets, check):
    samples = [[] for _ in graphs]
    for turn, places in rounds(WARM_UP + DEVICE_ROUNDS, len(graphs), sets):
        for place in places:
            chip.flush()  # of what the new contents left to write back
            us, _ = chip.timed(graphs[place][0])
            samples[place].append(us / len(graphs[place][1]))
        check("device", turn, [outputs for _, outputs in graphs])
    return _kept(samples)


def _kept(samples):
    """Times of the reference and of each submission, warm-up rounds dropped -> (Samples of each submission, ...)."""
    reference, *submissions = (tuple(times[WARM_UP:]) for times in samples)
    return tuple(Samples(reference, times) for times in submissions)


def _each(call, sets):
    return [call(**one.arguments) for one in sets]


# --- the timer itself ----------------------------------------------------------------------------------------------------

SLEEP_S = 0.02  # of the wall clock's test
SLEEP_EXCESS_S = 0.2  # a loaded machine wakes late, never early
COPIES = 8, 32  # of the event's test: four times the copies take four times as long
COPY_TOLERANCE = 0.25  # relative; launches and the first copy's ramp are in it, a wrong unit or a dead event is not


def self_test(chip):
    """What is wrong with the clocks by which `chip` is timed, in words; "" if a known sleep and known copies come out right."""
    start = perf_counter()
    time.sleep(SLEEP_S)
    slept = perf_counter() - start
    if not SLEEP_S <= slept < SLEEP_S + SLEEP_EXCESS_S:
        return f"a sleep of {SLEEP_S * 1e3:g} ms took {slept * 1e3:.3g} ms by the wall clock"
    few, many = (chip.timed_copies(count) for count in COPIES)
    if few[0] <= 0:
        return f"{COPIES[0]} copies took {few[0]:g} us by the device's events"
    ratio, needed = many[0] / few[0], COPIES[1] / COPIES[0]
    if abs(ratio / needed - 1) > COPY_TOLERANCE:
        return f"{COPIES[1]} copies took {ratio:.3g} times as long as {COPIES[0]} by the device's events; {needed:g} is right"
    if abs(many[0] / many[1] - 1) > COPY_TOLERANCE:
        return f"{COPIES[1]} copies took {many[0]:.4g} us by the device's events and {many[1]:.4g} us by the wall clock"
    return ""
