"""The timing loops on a fake chip whose clock the test turns; the statistics on known samples."""

from types import SimpleNamespace

import pytest
import torch

from harness import stats, timing
from harness.cases import CaseSpec
from harness.inputs import build


class FakeChip:
    """Counts microseconds that calls spend; events read the count."""

    device = torch.device("cpu")
    has_graphs = True
    l2_bytes = 1 << 20

    def __init__(self):
        self.clock_us, self.flushes = 0.0, 0

    def spend(self, us, output):
        def call(**arguments):
            self.clock_us += us
            return output.clone()

        return call

    def timed(self, call):
        start = self.clock_us
        returned = call()
        return self.clock_us - start, returned

    def flush(self):
        self.clock_us += 1000.0
        self.flushes += 1

    def synchronize(self):
        pass

    def capture(self, call):
        returned = call()

        def replay():
            for mine, new in zip(returned, call()):
                mine.copy_(new)

        return replay, returned


@pytest.fixture
def inputs():
    return build(CaseSpec("timed", 1, 256, 128))


def test_cold_and_device_samples_hold_the_call_alone(inputs):
    chip, output = FakeChip(), torch.ones(3)
    measured, left_out = timing.measure(chip, chip.spend(300.0, output), [chip.spend(20.0, output)], inputs, [output])
    assert set(measured) == set(stats.MODES) and left_out == ""
    measured = {mode: samples for mode, (samples,) in measured.items()}
    for mode, count in (("cold", timing.COLD_ROUNDS), ("device", timing.DEVICE_ROUNDS)):
        assert measured[mode].reference == pytest.approx([300.0] * count)
        assert measured[mode].submission == pytest.approx([20.0] * count)
        assert measured[mode].speedup == pytest.approx(15.0)
    assert len(measured["warm"].submission) == timing.WARM_ROUNDS
    assert chip.flushes == 2 * (timing.WARM_UP + timing.COLD_ROUNDS)


def test_two_submissions_share_the_rounds_of_one_reference(inputs):
    """Places change from round to round, so that no call always follows the same one; each output is held to its own bytes."""
    chip, ones, twos = FakeChip(), torch.ones(3), torch.full((3,), 2.0)
    submissions = chip.spend(20.0, ones), chip.spend(40.0, twos)
    measured, _ = timing.measure(chip, chip.spend(300.0, ones), submissions, inputs, (ones, twos))
    for mode in ("cold", "device"):
        first, second = measured[mode]
        assert first.reference == second.reference and len(first.submission) == len(second.submission)
        assert (first.speedup, second.speedup) == pytest.approx((15.0, 7.5))
    with pytest.raises(timing.OutputChanged):
        timing.measure(chip, chip.spend(300.0, ones), submissions, inputs, (twos, ones))
    assert [place for _, place in timing.in_turn(3, 3)] == [0, 1, 2, 1, 2, 0, 2, 0, 1]


@pytest.mark.parametrize("mode", stats.MODES)
def test_a_changed_output_stops_every_mode(inputs, mode):
    """A submission that is right until that mode begins, then returns a stale or wrong answer."""
    chip, output = FakeChip(), torch.ones(3)
    calls_before = {"cold": 0, "warm": 55, "device": 55 + 400}[mode]
    count = iter(range(10**6))

    def drifting(**arguments):
        return output if next(count) < calls_before else torch.zeros(3)

    with pytest.raises(timing.OutputChanged, match=mode):
        timing.measure(chip, chip.spend(1.0, output), [drifting], inputs, [output])


def test_a_call_that_cannot_be_captured_is_timed_in_the_other_modes(inputs):
    chip, output = FakeChip(), torch.ones(3)

    def refuse(call):
        raise RuntimeError("operation not permitted when stream is capturing")

    chip.capture = refuse
    measured, left_out = timing.measure(chip, chip.spend(300.0, output), [chip.spend(20.0, output)], inputs, [output])
    assert set(measured) == {"cold", "warm"} and "operation not permitted" in left_out


def test_rotated_inputs_leave_the_l2():
    chip = SimpleNamespace(l2_bytes=60 << 20)
    for state_bytes in (1 << 20, 32 << 20, 512 << 20):
        count = timing.rotation(chip, state_bytes)
        assert count >= 2 and count * state_bytes >= timing.ROTATED_L2S * chip.l2_bytes


def test_quartiles_and_speedup():
    assert stats.spread([1, 2, 3, 4, 5]) == (2, 3, 4)
    assert stats.Samples((10, 30, 20), (1, 4, 2)).speedup == 10


def test_interval_of_a_ratio_covers_it_and_narrows_with_the_spread():
    wide = stats.ratio_interval(([90, 100, 110] * 10, [9, 10, 11] * 10))
    narrow = stats.ratio_interval(([99, 100, 101] * 10, [9.9, 10, 10.1] * 10))
    assert wide[0] < narrow[0] <= 10 <= narrow[1] < wide[1]
    assert stats.ratio_interval(([1.0, 2.0] * 9, [1.0] * 9)) == stats.ratio_interval(([1.0, 2.0] * 9, [1.0] * 9))


def test_an_interval_says_faster_slower_or_neither():
    same, slow = [99, 100, 101] * 10, [109, 110, 111] * 10
    said = [stats.difference(*stats.ratio_interval(pair)) for pair in ((same, slow), (slow, same), (same, same))]
    assert said == ["faster", "slower", "indistinguishable"]
    low, high = stats.ratio_interval((same, slow), (slow, same))  # the geometric mean of a ratio and its inverse
    assert low <= 1 <= high
