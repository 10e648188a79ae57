"""Controls: each bad submission ends with its own status and reason; honest ones that look odd pass; nothing is left behind.

What goes wrong in harnesses, each with its control: an unwritten result that freed memory made right (unwritten), an answer
kept from the call before (replays_by_pointer, replays_by_shape), only one output checked (wrong_last_slot), exit code 0 taken
for a pass (exits), a verdict read from standard output (forges_stdout), a pipe read only after the end (loud), a timeout that
kills the parent and leaves children (forks), compilation inside the run budget (slow_to_compile), a timer that the submission
patched (patches_clock, patches_events, patches_harness), NaN as wildcard (nan_rope).
"""

import contextlib
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from harness import check, chips, runner
from harness.cases import CaseSpec

HERE = Path(__file__).parent
CASE = CaseSpec("control", 1, 256, 128, block_table="permuted")
LIMITS = {"first": 120.0, "further": 60.0}
AGAIN = "a further call, on other contents in the same memory: wrong: output 0"

# name -> (status, what its message begins with or holds)
BAD = {
    "aliases_state": ("mismatch", "returned memory of the input state_cache; a new tensor is needed"),
    "decoy_kernel": ("not-triton", "not Triton's work alone: PyTorch computes with _softmax"),
    "exits": ("crash", "the process ended with exit code 0 without a result"),
    "falls_back": ("not-triton", "not Triton's work"),
    "first_call_only": ("mismatch", "a further call"),  # on the same inputs where there is an accelerator, on others here
    "forges_result": ("mismatch", "wrong: output 0"),
    "forges_stdout": ("crash", "the process ended with exit code 0 without a result; the end of its 34 bytes of output:"),
    "identity_only": ("mismatch", "wrong: output 0"),
    "late_thread": ("mismatch", "wrong: output 0"),
    "mutates": ("mismatch", "the call changed its input positions"),
    "nan_rope": ("mismatch", "wrong: output 0, slot 0, rope pair 0 even (dim 448), low byte"),
    "not_contiguous": ("mismatch", "returned a tensor whose is_contiguous() is False; True is needed"),
    "numpy_work": ("not-triton", "not Triton's work: with every Triton launch left out the bytes are still right"),
    "one_seed": ("mismatch", AGAIN),
    "patches_clock": ("mismatch", "replaced time.perf_counter, on which the harness relies"),
    "patches_equal": ("mismatch", "replaced torch.equal, on which the harness relies"),
    "patches_harness": ("mismatch", "replaced harness.timing.equal, on which the harness relies"),
    "plain": ("not-triton", "not Triton's work: no Triton kernel was launched"),
    "raises": ("crash", "RuntimeError: the submission gave up"),
    "reads_reference": ("mismatch", "tried to read reference.py while it was checked"),
    "replays_by_pointer": ("mismatch", AGAIN),
    "replays_by_shape": ("mismatch", AGAIN),
    "returns_input": ("mismatch", "returned memory of the input kv_cache; a new tensor is needed"),
    "same_buffer": ("mismatch", "a second call returned the memory of the first result"),
    "segfaults": ("crash", "the process ended by SIGSEGV without a result"),
    "tensor_subclass": ("mismatch", "returned Parameter; a torch.Tensor is needed"),
    "unwritten": ("mismatch", "got 0xff"),
    "wrong_byte": ("mismatch", "int8 dim 1 (group 0): expected"),
    "wrong_dtype": ("mismatch", "returned a tensor whose dtype is torch.int8; torch.uint8 is needed"),
    "wrong_last_slot": ("mismatch", "wrong: output 1"),
    "wrong_rope": ("mismatch", "rope pair 0 even (dim 448)"),
    "wrong_scale": ("mismatch", "scale of group 0: expected"),
    "wrong_shape": ("mismatch", "returned a tensor whose shape is (37376,); (1, 37376) is needed"),
    "wrong_slot": ("mismatch", "wrong: output 0"),
    "zeros": ("mismatch", "got 0x00"),
}
ON_AN_ACCELERATOR = {
    "patches_events": ("mismatch", "replaced Event.elapsed_time, on which the harness relies"),
    "side_stream": ("mismatch", "complete neither then nor in the order of the stream"),
}
UNSAFE = {  # right bytes, with an access that a chip may not forgive: passes, and fails under the guard
    "races": "kernel relay_kernel, program 1: load of 4 bytes at byte 4 of scratch, which program 0 wrote in the same launch",
    "reads_past_end": "kernel angle_kernel, program 0: load of 4 bytes at byte 65,536 of cos_sin_cache, which has 65,536",
    "writes_past_end": "kernel shift_kernel, program 0: store of 4 bytes at byte 256 of scratch, which has 256 (1 of 64 lanes)",
}
ELSEWHERE = {"hangs", "wrong_signature"}  # below; and never run: test_cli


def run(path, limits=LIMITS, **options):
    ((result,),) = check.run_cases([runner.Entrant(path)], [CASE], chips.Chip(chips.choose_device()), limits=limits, **options)
    return result


def test_every_bad_submission_is_a_control():
    assert {path.stem for path in (HERE / "bad_submissions").glob("*.py")} == {*BAD, *ON_AN_ACCELERATOR, *UNSAFE} | ELSEWHERE


@pytest.mark.parametrize("name", BAD)
def test_a_bad_submission_fails_for_its_own_reason(name):
    status, said = BAD[name]
    result = run(HERE / "bad_submissions" / f"{name}.py", prove=status == "not-triton")
    assert result.status == status and said in result.message, (result.status, result.message)


@pytest.mark.parametrize("name", ON_AN_ACCELERATOR)
def test_a_bad_submission_on_an_accelerator_fails_for_its_own_reason(name, cuda):
    status, said = ON_AN_ACCELERATOR[name]
    result = run(HERE / "bad_submissions" / f"{name}.py")
    assert result.status == status and said in result.message, result.message


@pytest.mark.skipif(chips.choose_device().type != "cpu", reason="the guard sees the interpreter's accesses alone")
@pytest.mark.parametrize("name", UNSAFE)
def test_an_unsafe_submission_passes_and_fails_under_the_guard(name):
    path = HERE / "bad_submissions" / f"{name}.py"
    unguarded, guarded = run(path), run(path, guard=True)
    assert (unguarded.status, guarded.status) == ("pass", "unsafe") and guarded.message.startswith(UNSAFE[name])


@pytest.mark.parametrize("name", ["loud", "slow_to_compile", "hungry"])
def test_an_odd_but_honest_submission_passes(name):
    limits = {"first": 120.0, "further": 2.5} if name == "slow_to_compile" else LIMITS
    result = run(HERE / "honest_submissions" / f"{name}.py", limits)
    assert result.status == "pass", result.message
    assert name != "slow_to_compile" or result.run.first_call_s > 3


def test_compilation_does_not_borrow_from_the_run_budget():
    result = run(HERE / "honest_submissions" / "slow_to_compile.py", {"first": 2.0, "further": 60.0})
    assert (result.status, result.verdict) == ("timeout", None)


def sleepers():
    """Processes `sleep 600` that carry this run's mark."""
    mark = f"{runner.MARK}={runner.Workers._mark}".encode()
    found = []
    for pid, _ in runner._parents():
        try:
            if Path(f"/proc/{pid}/comm").read_text() == "sleep\n" and mark in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for left-over processes in /proc")
def test_no_child_outlives_its_case():
    """A child in the group, one in a session of its own, and one that lost its parent: all end with the run."""
    assert run(HERE / "honest_submissions" / "forks.py").status == "pass"
    end = time.monotonic() + 3
    while sleepers() and time.monotonic() < end:
        time.sleep(0.05)
    assert sleepers() == []


def test_a_case_that_hangs_takes_no_other_with_it():
    """Partial results are kept: the second of three cases hangs, the first and the third are judged."""
    cases = [replace(CASE, name=name, total_tokens=tokens) for name, tokens in (("one", 128), ("two", 256), ("none", 0))]
    chip = chips.Chip(chips.choose_device())
    seconds = 5.0 if chip.interpreted else 30.0
    limits = {"first": seconds, "further": seconds}
    results = check.run_cases([runner.Entrant(HERE / "bad_submissions" / "hangs.py")], cases, chip, limits=limits, jobs=1)
    (one,), (two,), (none,) = results
    assert [one.status, two.status, none.status] == ["mismatch", "timeout", "pass"]
    assert (
        two.message == f"no result of import, compilation and first call within {seconds:g} s; --compile-timeout raises the limit"
    )


def test_two_entrants_are_judged_apart():
    paths = [HERE / "bad_submissions" / f"{name}.py" for name in ("zeros", "plain")]
    chip = chips.Chip(chips.choose_device())
    (results,) = check.run_cases([runner.Entrant(path) for path in paths], [CASE], chip)
    assert [result.status for result in results] == ["mismatch", "pass"]
    assert [result.run.kernels for result in results] == [[], []] and "_softmax" in results[1].run.compute_operators


def test_nothing_sent_from_a_worker_is_executed():
    """The pipe carries JSON and bytes; a pickle that would run code is no result."""
    running = object.__new__(runner.Running)
    running._printed = type("Silent", (), {"tail": lambda self: ""})()
    running._limits, running._asked = LIMITS, time.monotonic()
    running._pipe, worker = torch.multiprocessing.Pipe()
    worker.send(os.getcwd)  # a pickle
    (result,) = running._receive("first")
    assert (result.status, result.message[:40]) == ("crash", "what came over the pipe of results is no")


# --- timing, in this process, on a chip whose clock the test turns ---------------------------------------------------------


class ClockedChip(chips.Chip):
    """The CPU, taken for an accelerator: no interpreter, graphs that run the call again, 100 microseconds a call."""

    l2_bytes, has_graphs, us_a_copy, name = 1 << 10, True, 500.0, "Clocked"

    def __init__(self, device):
        super().__init__(device)
        self.interpreted = False

    def synchronize(self):
        pass

    def flush(self):
        pass

    def timed(self, call):
        return 100.0, call()

    def capture(self, call):
        returned = call()

        def replay():
            for mine, new in zip(returned, call()):
                mine.copy_(new)

        return replay, returned

    def timed_copies(self, count):
        return self.us_a_copy * count, 500.0 * count

    def peak_bandwidth(self):
        return None

    def state(self):
        return {"sm_mhz": 1980.0}


class NoWatch(contextlib.nullcontext):
    kernels, compute_operators, hooked = [], [], True

    def release(self):
        pass


@pytest.fixture
def bench(monkeypatch):
    if chips.choose_device().type != "cpu":
        pytest.skip("takes the CPU for an accelerator")
    monkeypatch.setattr(runner, "Chip", ClockedChip)
    monkeypatch.setattr(runner, "Watch", lambda *_: NoWatch())
    monkeypatch.setattr(runner.tamper, "ReferenceGuard", lambda: SimpleNamespace(read=False, lifted=False))
    for name in ("WARM_UP", "COLD_ROUNDS", "WARM_ROUNDS", "WARM_CALLS", "DEVICE_ROUNDS"):
        monkeypatch.setattr(runner.timing, name, 2)

    def make(*names):
        made = runner._Bench(runner.Job([runner.Entrant(HERE / f"{name}.py") for name in names], CASE, 0, "cpu"))
        for place in range(len(names)):
            assert [made.first(place)[0].status, made.again(place)[0].status] == ["ok", "ok"]
        return made

    return make


def test_two_entrants_are_timed_in_the_same_rounds(bench):
    first, second = bench("bad_submissions/plain", "honest_submissions/hungry").time()
    for result in (first, second):
        assert (result.status, result.message, result.output) == ("ok", "", None)
        assert {mode: len(samples.submission) for mode, samples in result.timings.items()} == {"cold": 2, "warm": 2, "device": 2}
        assert result.machine == {"before": {"sm_mhz": 1980.0}, "after": {"sm_mhz": 1980.0}}
        assert result.bandwidth == {"copy": 2 * chips.COPY_BYTES / 500e-6, "peak": None} and result.first_call_s > 0
    assert first.timings["cold"].reference == second.timings["cold"].reference


def test_a_clock_that_fails_its_test_times_nothing(bench, monkeypatch):
    monkeypatch.setattr(ClockedChip, "us_a_copy", 0.5)  # milliseconds, told as microseconds
    with pytest.raises(runner.TimerBroken, match="by the wall clock; nothing is timed"):
        bench("bad_submissions/plain").time()


def test_a_submission_that_replays_only_while_it_is_timed_gets_no_time(bench, tmp_path):
    """Honest for the three checked calls, then one kept answer."""
    path = HERE / "bad_submissions" / "plain.py"
    late = tmp_path / "late.py"
    late.write_text(
        path.read_text()
        + "\n\nright, kept, calls = c128_256_512_compress, [], []\n\n\ndef c128_256_512_compress(*arguments, **named):\n"
        + "    calls.append(1)\n    if len(calls) < 4 or not kept:\n        kept[:] = [right(*arguments, **named)]\n"
        + "    return kept[0].clone()\n"
    )
    with pytest.raises(runner.ContractBroken, match="an answer kept from other contents"):
        bench(late.with_suffix("")).time()


# --- cases that this machine cannot run ------------------------------------------------------------------------------------


def test_a_case_that_needs_more_memory_is_skipped_with_the_reason():
    path = HERE / "bad_submissions" / "plain.py"
    chip = chips.Chip(chips.choose_device())
    small = {"memory_gib": 0, "num_reqs": 1}
    cases = [replace(CASE, name="large", memory_gib=10**6), replace(CASE, name="stand-in", memory_gib=10**6, interpreted=small)]
    (large,), (stand_in,) = (results for results in check.run_cases([runner.Entrant(path)], cases, chip))
    assert (large.status, large.verdict) == ("skipped", None)
    assert large.message.startswith("1000000 GiB of memory are needed, host and device; ")
    assert stand_in.status == ("pass" if chip.interpreted else "skipped")


def test_a_reference_that_memory_does_not_allow_is_the_machines_fault(monkeypatch):
    def refuse(inputs, chip):
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(check, "_expected", refuse)
    result = run(HERE / "bad_submissions" / "plain.py")
    assert (result.status, result.message) == ("environment", "the reference: CUDA out of memory")
