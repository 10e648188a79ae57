"""Submissions and cases -> CaseResults: the worker runs a submission while the parent computes the reference, then judges."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import reference
from harness.inputs import bad_indices, build
from harness.preflight import ENTRY
from harness.runner import Job, RunResult, Workers
from harness.verdict import Verdict, judge

MEMORY_PER_JOB = 6 << 30  # bytes; the largest official case on a CPU: 2 copies in the worker, inputs and temporaries here


@dataclass(frozen=True)
class CaseResult:
    """One case of one submission. status: pass, mismatch, crash, timeout, usage (no such route) or environment."""

    case: object
    seed: int
    digest: str  # SHA-256 of the inputs
    num_outputs: int
    run: RunResult
    verdict: Verdict | None  # None where there was no output to judge
    interpreted: bool

    @property
    def status(self):
        """Pass: no wrong byte, and on an accelerator the official verdict holds. Interpreted, ties do not count."""
        if self.run.status != "ok":
            return self.run.status
        return "pass" if self.verdict.wrong == 0 and (self.verdict.official or self.interpreted) else "mismatch"

    @property
    def message(self):
        return self.run.message or (self.verdict.first if self.verdict else "")


def default_jobs(interpreted):
    """Cases at a time: one on an accelerator; interpreted, one a core as far as memory goes."""
    if not interpreted:
        return 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), memory // MEMORY_PER_JOB))


def run_cases(entrants, cases, chip, seed=0, timed=False, timeout=600.0, jobs=None, done=lambda results: None):
    """Run every entrant on every case -> [(CaseResult of each entrant, ...)], a case each, in order. `done` has it as it ends.

    Timed cases run one at a time, all entrants in the same rounds, and only if none has a wrong byte. An exception, Ctrl-C
    included, ends all workers before it goes on.
    """
    workers = Workers(chip.interpreted)

    def run(case):
        with workers.start(Job(entrants, case, seed, str(chip.device))) as running:
            inputs = build(case, seed)
            faults = bad_indices(inputs.arguments)
            if faults:
                raise ValueError(f"case {case.name}: {'; '.join(faults)}")
            expected = getattr(reference, ENTRY)(**inputs.to(chip.device).arguments).cpu()
            chip.empty_cache()
            digest = inputs.digest()
            ran = [running.check(place, timeout) for place in range(len(entrants))]
            verdicts = [judge(inputs, expected, result.output) if result.status == "ok" else None for result in ran]
            if timed and all(verdict is not None and verdict.wrong == 0 for verdict in verdicts):
                ran = running.time(len(entrants), timeout)
        results = tuple(
            CaseResult(case, seed, digest, inputs.num_outputs, result, verdict, chip.interpreted)
            for result, verdict in zip(ran, verdicts)
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
