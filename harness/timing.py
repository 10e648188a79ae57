"""Reference and submission in turn, in three modes, in microseconds. Never mixed: each mode answers its own question.

cold    the L2 flushed before each call, device events around it. Host time counts only where it is longer than the flush.
warm    back-to-back calls on one input, wall clock a call: what a serving loop sees, host included.
device  graph replay over inputs rotated past the L2: the kernels alone. One sample is one replay, divided by its calls.
"""

import time
from functools import partial

import torch

from harness.stats import Samples

WARM_UP = 5  # rounds whose samples are dropped
COLD_ROUNDS = 50
WARM_ROUNDS, WARM_CALLS = 15, 20  # calls between two readings of the clock
DEVICE_ROUNDS = 30
ROTATED_L2S = 3  # rotated inputs hold at least so many L2s of state


class OutputChanged(Exception):
    """A timed call returned other bytes than the checked one."""


def rotation(chip, state_bytes):
    """How many copies of an input hold ROTATED_L2S times the L2, at least two."""
    return max(2, -(-ROTATED_L2S * chip.l2_bytes // state_bytes))


def measure(chip, reference, submissions, inputs, expected):
    """Time `reference(**arguments)` and each of `submissions` in the same rounds on `inputs`.

    -> ({mode: (Samples of each submission, ...)}, why a mode is left out or "")

    `expected` holds the submissions' checked outputs on the device. Every cold output, the last of each warm round and every
    output of the last replay are compared with them: OutputChanged names the mode.
    """
    calls, expected = (reference, *submissions), (None, *expected)
    sets = [inputs] + [inputs.to(chip.device) for _ in range(rotation(chip, inputs.arguments["state_cache"].nbytes) - 1)]
    measured = {"cold": _cold(chip, calls, sets, expected), "warm": _warm(chip, calls, inputs, expected)}
    if not chip.has_graphs:
        return measured, "mode device left out: this backend has no graphs"
    try:
        graphs = [chip.capture(partial(_each, call, sets)) for call in calls]
    except RuntimeError as error:  # what torch raises for a call that synchronises or copies from the host
        return measured, f"mode device left out: a call cannot be captured: {error}"
    measured["device"] = _device(chip, graphs, len(sets), expected)
    return measured, ""


def in_turn(rounds, count):
    """Round and place, `count` places a round, each round beginning one place further: no call always follows the same one."""
    for turn in range(rounds):
        for step in range(count):
            yield turn, (turn + step) % count


def _cold(chip, calls, sets, expected):
    samples = [[] for _ in calls]
    for turn, place in in_turn(WARM_UP + COLD_ROUNDS, len(calls)):
        chip.flush()
        us, output = chip.timed(partial(calls[place], **sets[turn % len(sets)].arguments))
        samples[place].append(us)
        _check(output, expected[place], "cold")
    return _kept(samples)


def _warm(chip, calls, inputs, expected):
    samples = [[] for _ in calls]
    for _, place in in_turn(WARM_UP + WARM_ROUNDS, len(calls)):
        chip.synchronize()
        start = time.perf_counter()
        for _ in range(WARM_CALLS):
            output = calls[place](**inputs.arguments)
        chip.synchronize()
        samples[place].append((time.perf_counter() - start) * 1e6 / WARM_CALLS)
        _check(output, expected[place], "warm")
    return _kept(samples)


def _device(chip, graphs, calls_a_replay, expected):
    samples = [[] for _ in graphs]
    for _, place in in_turn(WARM_UP + DEVICE_ROUNDS, len(graphs)):
        us, _ = chip.timed(graphs[place][0])
        samples[place].append(us / calls_a_replay)
    for (_, outputs), needed in zip(graphs, expected):
        for output in outputs:
            _check(output, needed, "device")
    return _kept(samples)


def _kept(samples):
    """Times of the reference and of each submission, warm-up rounds dropped -> (Samples of each submission, ...)."""
    reference, *submissions = (tuple(times[WARM_UP:]) for times in samples)
    return tuple(Samples(reference, times) for times in submissions)


def _each(call, sets):
    return [call(**one.arguments) for one in sets]


def _check(output, expected, mode):
    if expected is not None and not torch.equal(output, expected):
        raise OutputChanged(f"a call timed in mode {mode} returned other bytes than the checked call")
