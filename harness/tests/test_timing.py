"""The timing loops on a fake chip whose clock the test turns; the statistics on known samples."""

from types import SimpleNamespace

import pytest
import torch

from harness import stats, timing
from harness.cases import CaseSpec
from harness.check import CaseResult
from harness.inputs import build
from harness.runner import RunResult
from harness.verdict import Verdict


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
    assert chip.flushes == 2 * (3 * timing.WARM_UP + timing.COLD_ROUNDS + timing.WARM_ROUNDS + timing.DEVICE_ROUNDS)


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
    assert [places for _, places in timing.rounds(3, 3, [])] == [[0, 1, 2], [1, 2, 0], [2, 0, 1]]


def bytes_of(inputs):
    """A stand-in of the operator: some bytes that follow the contents of the state."""
    return inputs["state_cache"][0, 0, :64].contiguous().view(torch.uint8).clone()


@pytest.mark.parametrize("key", ["address", "first number"])
def test_an_answer_kept_from_another_round_is_found(inputs, key):
    """Every round has other contents at the same address; the tensors end as they began."""
    chip, kept = FakeChip(), {}

    def replay(**arguments):
        state = arguments["state_cache"]
        at = state.data_ptr() if key == "address" else float(state[0, 0, 0].abs() > 1e-3)
        return kept.setdefault(at, bytes_of(arguments)).clone()

    def honest(**arguments):
        return bytes_of(arguments)

    before, known = inputs.to("cpu"), bytes_of(inputs.arguments)
    timing.measure(chip, honest, [honest], inputs, [known])
    assert inputs.same_bytes(before) is None
    with pytest.raises(timing.OutputChanged, match="on fresh contents differs from the reference in"):
        timing.measure(chip, honest, [replay], inputs, [known])


@pytest.mark.parametrize(
    ("us_a_copy", "wall", "said"),
    [
        (lambda count: 500.0 * count, 1.05, ""),
        (lambda count: 0.0, 1.0, "copies took 0 us"),
        (lambda count: 1.0, 1.0, "times as long"),  # one event pair that does not see the work
        (lambda count: 0.5 * count, 1000.0, "by the wall clock"),  # milliseconds taken for microseconds
    ],
)
def test_a_broken_device_clock_is_found_before_it_times(us_a_copy, wall, said):
    chip = SimpleNamespace(timed_copies=lambda count: (us_a_copy(count), wall * us_a_copy(count)))
    told = timing.self_test(chip)
    assert said in told if said else told == ""


def test_a_broken_wall_clock_is_found_before_it_times(monkeypatch):
    real = timing.perf_counter
    monkeypatch.setattr(timing, "perf_counter", lambda: real() / 1000)
    assert "a sleep of 20 ms took" in timing.self_test(None)


@pytest.mark.parametrize(
    ("us", "peak", "status"),
    [
        (0.001, None, "impossible"),
        (0.79, None, "impossible"),
        (0.81, None, "pass"),
        (0.95, 4.3e12, "impossible"),
        (0.99, 4.3e12, "pass"),
    ],
)
def test_a_time_below_the_memory_floor_is_impossible(us, peak, status):
    """1,024 rows at 2^22 MB a second take 1 us; a quarter more is granted, or what the chip's peak allows."""
    timings, bandwidth = {"device": stats.Samples((9.0,), (us,))}, {"copy": 2.0**22 * 1e6, "peak": peak}
    run = RunResult("ok", timings=timings, bandwidth=bandwidth)
    result = CaseResult(CaseSpec("timed", 1, 1024, 128), 0, "", 8, run, Verdict(1, 0, 0, True, {}, 0, ""), False)
    assert stats.floor_us(1024, 2.0**22 * 1e6) == pytest.approx(1.0) and result.status == status
    assert status == "pass" or result.message.startswith(f"mode device: {us:.3g} us a call, where reading the state alone takes")


def test_rows_that_requests_share_are_read_once():
    assert stats.rows_read(8, 128, num_reqs=4, block_table="shared") == 256
    assert stats.rows_read(8, 128, num_reqs=4, block_table="permuted") == 1024


@pytest.mark.parametrize("mode", stats.MODES)
def test_a_changed_output_stops_every_mode(inputs, mode):
    """A submission that is right until that mode begins, then returns a stale or wrong answer."""
    chip, output = FakeChip(), torch.ones(3)
    calls_before = {"cold": 0, "warm": 55, "device": 55 + 420}[mode]
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


def test_the_start_of_a_replay_is_shared_by_many_calls(inputs):
    """A replay that takes 6 us to begin makes a call of 20 us no tenth of a us longer."""
    chip, output = FakeChip(), torch.ones(3)
    capture = chip.capture

    def slow_to_begin(call):
        replay, returned = capture(call)

        def late():
            chip.clock_us += 6.0
            replay()

        return late, returned

    chip.capture = slow_to_begin
    measured, _ = timing.measure(chip, chip.spend(300.0, output), [chip.spend(20.0, output)], inputs, [output])
    assert 20.0 < min(measured["device"][0].submission) <= max(measured["device"][0].submission) < 20.1


@pytest.mark.parametrize(("state_mib", "sets", "times"), [(32, 5, 26), (128, 2, 16), (512, 2, 4), (1 << 14, 2, 1)])
def test_a_replay_goes_round_its_inputs(state_mib, sets, times):
    """The official sizes on an H200: 4 GiB of state a replay, at most 128 calls, whole rounds."""
    assert timing.repeats(sets, state_mib << 20) == times


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
