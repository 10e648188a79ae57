"""Submissions and cases -> CaseResults: the worker runs a submission while the parent computes the reference, then judges."""

import os
import statistics
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import reference
from harness.inputs import bad_indices, build, roll
from harness.preflight import ENTRY
from harness.runner import FRESH_ROLL, FRESH_TOKENS, LIMITS, Job, RunResult, Workers
from harness.stats import FLOOR_MODES, least_us, rows_read
from harness.verdict import Verdict, judge

MEMORY_PER_JOB = 6 << 30  # bytes; the largest official case on a CPU: 2 copies in the worker, inputs and temporaries here


@dataclass(frozen=True)
class CaseResult:
    """One case of one submission.

    status: pass, skipped (too little memory), mismatch, unsafe (an access that the memory guard refused), impossible (faster
    than memory allows), not-triton, crash, timeout, usage (no such route), environment.
    """

    case: object
    seed: int
    digest: str  # SHA-256 of the inputs
    num_outputs: int
    run: RunResult
    verdict: Verdict | None  # None where there was no output to judge
    interpreted: bool
    proof: str = ""  # why the work is not Triton's, where that was asked

    @property
    def status(self):
        """Pass: no wrong byte, and on an accelerator the official verdict holds. Interpreted, ties do not count."""
        if self.run.status != "ok":
            return self.run.status
        if self.verdict.wrong or not (self.verdict.official or self.interpreted):
            return "mismatch"
        return "not-triton" if self.proof else "impossible" if self.impossible else "pass"

    @property
    def impossible(self):
        """Which median of mode cold or device is shorter than memory allows, in words, or ""."""
        if self.run.bandwidth:
            rows = rows_read(self.num_outputs, self.case.compress_ratio, self.case.num_reqs, self.case.block_table)
            least = least_us(rows, **self.run.bandwidth)
            for mode in FLOOR_MODES:
                if mode in self.run.timings and (us := statistics.median(self.run.timings[mode].submission)) < least:
                    return f"mode {mode}: {us:.3g} us a call, where reading the state alone takes {least:.3g}"
        return ""

    @property
    def message(self):
        return self.run.message or self.proof or self.impossible or (self.verdict.first if self.verdict else "")


def default_jobs(interpreted):
    """Cases at a time: one on an accelerator; interpreted, one a core as far as memory goes."""
    if not interpreted:
        return 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), memory // MEMORY_PER_JOB))


def run_cases(
    entrants, cases, chip, seed=0, timed=False, limits=LIMITS, jobs=None, prove=False, guard=False, again=True,
    done=lambda results: None,
):  # fmt: skip
    """Run every entrant on every case -> [(CaseResult of each entrant, ...)], a case each, in order. `done` has it as it ends.

    Timed cases run one at a time, all entrants in the same rounds, and only if none has a wrong byte. `prove`: each case is run
    once more with every Triton launch left out, and must then be wrong. `guard`: interpreted, every access of every kernel is
    checked (harness/guard.py). `again`: small cases have a further call on other contents. An exception, Ctrl-C included, ends
    all workers before it goes on.
    """
    workers = Workers(chip.interpreted)
    memory_gib = chip.memory_gib()

    def run(case):
        if chip.interpreted and case.interpreted:
            case = replace(case, interpreted=None, **case.interpreted)
        if case.memory_gib > memory_gib:
            why = RunResult("skipped", f"{case.memory_gib} GiB of memory are needed, host and device; {memory_gib:.0f} here")
            results = tuple(CaseResult(case, seed, "", 0, why, None, chip.interpreted) for _ in entrants)
            done(results)
            return results
        with workers.start(Job(entrants, case, seed + case.seed, str(chip.device), guard=guard), limits) as running:
            results = _run_case(running, entrants, case, chip, seed + case.seed, timed, again)
        if prove:
            results = tuple(
                replace(result, proof=_proof(workers, entrant, result, limits, chip)) for entrant, result in zip(entrants, results)
            )
        done(results)
        return results

    pool = ThreadPoolExecutor(1 if timed else jobs or default_jobs(chip.interpreted))
    futures = [pool.submit(run, case) for case in cases]
    try:
        return [future.result() for future in futures]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        workers.stop()


def _run_case(running, entrants, case, chip, seed, timed, again):
    inputs = build(case, seed)
    faults = bad_indices(inputs.arguments)
    if faults:
        raise ValueError(f"case {case.name}: {'; '.join(faults)}")
    digest = inputs.digest()
    try:
        expected = _expected(inputs, chip)
    except (RuntimeError, MemoryError) as error:  # what torch raises where memory does not suffice
        ran = [RunResult("environment", f"the reference: {error}")] * len(entrants)
        return tuple(CaseResult(case, seed, digest, inputs.num_outputs, r, None, chip.interpreted) for r in ran)
    ran = [running.first(place) for place in range(len(entrants))]
    verdicts = [judge(inputs, expected, result.output) if result.status == "ok" else None for result in ran]
    if again and (not chip.interpreted or case.total_tokens <= FRESH_TOKENS):
        roll(inputs, FRESH_ROLL)
        expected = _expected(inputs, chip)
        for place, verdict in enumerate(verdicts):
            if verdict is not None and verdict.wrong == 0:
                further = _same_on_other_contents(running.again(place), inputs, expected)
                ran[place] = replace(further, output=ran[place].output)
    if timed and all(result.status == "ok" and verdict.wrong == 0 for result, verdict in zip(ran, verdicts)):
        ran = running.time()
        ran *= len(entrants) // len(ran)  # one result where it failed for all
    return tuple(
        CaseResult(case, seed, digest, inputs.num_outputs, result, verdict, chip.interpreted)
        for result, verdict in zip(ran, verdicts)
    )


def _expected(inputs, chip):
    expected = getattr(reference, ENTRY)(**inputs.to(chip.device).arguments).cpu()
    chip.empty_cache()
    return expected


def _same_on_other_contents(result, inputs, expected):
    """The result of a further call on other contents, which must be as right as the first. Its output is theirs."""
    if result.status != "ok":
        return result
    verdict = judge(inputs, expected, result.output)
    if verdict.wrong == 0:
        return result
    return replace(result, status="mismatch", message=f"a further call, on other contents in the same memory: {verdict.first}")


def _proof(workers, entrant, result, limits, chip):
    """Why the work of a right result is not Triton's, or "": run again with no kernel launched, it must not be right."""
    if result.status != "pass" or result.num_outputs == 0:
        return ""
    if not result.run.kernels:
        return "not Triton's work: no Triton kernel was launched"
    if result.run.compute_operators:
        return f"not Triton's work alone: PyTorch computes with {', '.join(result.run.compute_operators)}"
    with workers.start(Job((entrant,), result.case, result.seed, str(chip.device), omit=True), limits) as running:
        without = running.first(0)
    if without.status == "environment":
        return f"not proven to be Triton's work: {without.message}"
    if without.status != "ok":
        return ""
    inputs = build(result.case, result.seed)
    if judge(inputs, _expected(inputs, chip), without.output).wrong:
        return ""
    return "not Triton's work: with every Triton launch left out the bytes are still right"
