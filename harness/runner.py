"""One submission, one case, one process of its own -> RunResult. The only module that imports a submission.

The parent is the judge: it draws the same inputs, runs the reference and compares. The worker has no expected bytes at hand
while it is checked, and times nothing until the parent, done with its own work, says that no byte is wrong. A worker that
crashes, hangs or exits takes nothing else with it.
"""

import importlib.machinery
import importlib.util
import multiprocessing
import os
import signal
import sys
import tempfile
import traceback
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import torch

from harness import REFERENCE, interpreter, timing
from harness.chips import Chip
from harness.inputs import build
from harness.preflight import ENTRY

LOG_TAIL = 2000  # characters of the submission's own output kept for a crash report
REPEATS = 2  # further calls on an accelerator, whose bytes must be the first call's


@dataclass(frozen=True)
class Entrant:
    """A file to run, and the row of its ROUTES to force; None leaves the choice to the file."""

    path: Path
    route: str | None = None


@dataclass(frozen=True)
class Job:
    entrants: tuple  # of Entrant: one, or several to be timed in the same rounds
    case: object
    seed: int
    device: str


@dataclass(frozen=True)
class RunResult:
    """status: ok, mismatch (the output breaks the contract), crash, timeout, usage (no such route), or environment."""

    status: str
    message: str = ""
    output: torch.Tensor | None = None  # [kv_blocks, block_stride] uint8 on the CPU
    route: str | None = None
    evidence: str | None = None
    timings: dict = field(default_factory=dict)  # mode -> stats.Samples
    copy_bandwidth: float | None = None  # bytes a second, measured beside the timings


class ContractBroken(Exception):
    """The returned object or the inputs are not as the contract says."""


class SubmissionFailed(Exception):
    """The submission raised; carries its traceback."""


class UnknownRoute(Exception):
    """--route names no row of the submission's ROUTES."""


class Workers:
    """Starts one process a job. `interpreted` decides, for all of them, whether Triton interprets its kernels."""

    def __init__(self, interpreted):
        if interpreted:
            os.environ["TRITON_INTERPRET"] = "1"  # read when triton is first imported, which only workers do
        else:
            os.environ.pop("TRITON_INTERPRET", None)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["torch", "triton", "numpy"])
        self._running = []

    def start(self, job):
        self._running.append(Running(self._context, job))
        return self._running[-1]

    def stop(self):
        """Kill every worker that is still running; what waits for one gets its end as a crash."""
        for running in self._running:
            running.kill()


class Running:
    """A job under way: `with workers.start(job) as running`. Leaving the block ends the worker's whole process group.

    The first entrant is called at once. `check` each in turn; then `time`, at most once and only if all were ok, has them timed
    against the reference.
    """

    def __init__(self, context, job):
        self._log = tempfile.NamedTemporaryFile(mode="r", suffix=".log", encoding="utf-8", errors="replace")
        self._ended = False
        self._pipe, workers_end = context.Pipe()
        self._process = context.Process(target=_work, args=(workers_end, job, self._log.name), daemon=True)
        self._process.start()
        workers_end.close()
        self._pipe.send(0)

    def check(self, place, timeout):
        """Wait up to `timeout` seconds for the checked call of the entrant at `place` -> RunResult with its output."""
        (result,) = self._ask(place or None, 1, timeout)
        return result if result.output is None else replace(result, output=torch.from_numpy(result.output))

    def time(self, entrants, timeout):
        """Have all entrants timed, up to `timeout` seconds -> a RunResult with timings for each."""
        return self._ask("time", entrants, timeout)

    def _ask(self, what, answers, timeout):
        try:
            if what is not None:
                self._pipe.send(what)
            if self._pipe.poll(timeout):
                return self._pipe.recv()
            message = f"no result within {timeout:g} s; --timeout raises the limit{self._log_tail()}"
            return [RunResult("timeout", message)] * answers
        except (EOFError, OSError):
            self._process.join(5)
            code = self._process.exitcode
            how = f"by {signal.Signals(-code).name}" if code and code < 0 else f"with exit code {code}"
            return [RunResult("crash", f"the process ended {how} without a result{self._log_tail()}")] * answers

    def __enter__(self):
        return self

    def _log_tail(self):
        text = self._log.read()[-LOG_TAIL:].strip()
        return f"; its output ended:\n{text}" if text else ""

    def __exit__(self, *_):
        self.kill()
        self._process.join()
        self._ended = True
        self._pipe.close()
        self._log.close()

    def kill(self):
        if self._ended:  # its number may be another process's by now
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)  # the worker leads a group of its own, once it runs
        except (ProcessLookupError, PermissionError):
            self._process.kill()


# --- in the worker -------------------------------------------------------------------------------------------------------


def _work(pipe, job, log):
    os.setsid()
    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    bench = _Bench(job)
    while True:
        what = pipe.recv()  # "time", the place of an entrant, or the end of this process
        if what == "time":
            pipe.send(_answers(len(job.entrants), bench.time))
        else:
            pipe.send(_answers(1, bench.check, what))


def _answers(count, ask, *arguments):
    """What `ask(*arguments)` returns, or `count` times the RunResult of what it raises."""
    try:
        return ask(*arguments)
    except ContractBroken as error:
        result = RunResult("mismatch", str(error))
    except SubmissionFailed as error:
        result = RunResult("crash", str(error))
    except UnknownRoute as error:
        result = RunResult("usage", str(error))
    except Exception:
        result = RunResult("environment", traceback.format_exc())
    return [result] * count


class _Bench:
    """One case on its device, and the entrants that were called with it."""

    def __init__(self, job):
        self.job = job
        self.chip = Chip(torch.device(job.device))
        if self.chip.interpreted:
            torch.set_num_threads(1)
            interpreter.repair()
        self.checked = []  # (entry point, output on the device, RunResult) of each entrant

    @cached_property
    def original(self):
        return build(self.job.case, self.job.seed)

    @cached_property
    def inputs(self):
        return self.original.to(self.chip.device)

    def check(self, place):
        """Import the entrant and call it -> [RunResult with the output]."""
        entrant, chip = self.job.entrants[place], self.chip
        module = _load(entrant.path, f"submission_{place}")
        route, evidence = _route(module, chip.device, entrant.route)
        submission = getattr(module, ENTRY)
        output = _checked_call(chip, submission, self.inputs)
        changed = self.inputs.same_bytes(self.original)
        if changed:
            raise ContractBroken(f"the call changed its input {changed}")
        for _ in range(0 if chip.interpreted else REPEATS):
            if not torch.equal(_checked_call(chip, submission, self.inputs), output):
                raise ContractBroken("a second call on the same inputs returned other bytes")
        result = RunResult("ok", "", None, route, evidence)
        self.checked.append((submission, output, result))
        return [replace(result, output=output.cpu().numpy())]  # a tensor would travel as a handle to this process's memory

    def time(self):
        """Time the reference and all entrants in the same rounds -> a RunResult with timings for each entrant."""
        bandwidth = self.chip.copy_bandwidth()
        reference = getattr(_load(REFERENCE, "reference"), ENTRY)
        submissions, outputs, results = zip(*self.checked)
        try:
            timings, left_out = timing.measure(self.chip, reference, submissions, self.inputs, outputs)
        except timing.OutputChanged as error:
            raise ContractBroken(str(error)) from error
        except Exception:
            raise SubmissionFailed(f"while it was timed: {traceback.format_exc()}") from None
        return [
            replace(result, message=left_out, timings={m: timed[place] for m, timed in timings.items()}, copy_bandwidth=bandwidth)
            for place, result in enumerate(results)
        ]  # fmt: skip


def _load(path, name):
    """Import the file at `path` as module `name`: its kernels find their own source by it."""
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module
    _guard(lambda: loader.exec_module(module))
    return module


def _guard(call):
    try:
        return call()
    except Exception:
        raise SubmissionFailed(traceback.format_exc()) from None


def _route(module, device, forced):
    """What the submission says of its route, if it says anything; `forced` replaces its detection by that row of ROUTES."""
    if forced is not None:
        if forced not in getattr(module, "ROUTES", ()):
            known = ", ".join(getattr(module, "ROUTES", ())) or "none: the file has no ROUTES"
            raise UnknownRoute(f"--route {forced}: not a route of this submission; its routes: {known}")
        module.detect_platform = lambda device: (forced, "forced by --route")
    detect = getattr(module, "detect_platform", None)
    return _guard(lambda: detect(device)) if detect else (None, None)


def _checked_call(chip, submission, inputs):
    """Call with all memory that torch.empty returns filled with 0xFF or NaN; the result must be what the contract says."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    output = _guard(lambda: submission(**inputs.arguments))
    _guard(chip.synchronize)  # an error of the device shows here
    torch.use_deterministic_algorithms(False)

    kv_cache = inputs.arguments["kv_cache"]
    if type(output) is not torch.Tensor:
        raise ContractBroken(f"returned {type(output).__name__}; a torch.Tensor is needed")
    for what, given, needed in (
        ("dtype", output.dtype, torch.uint8),
        ("shape", tuple(output.shape), tuple(kv_cache.shape)),
        ("device", output.device, kv_cache.device),
        ("is_contiguous()", output.is_contiguous(), True),
    ):
        if given != needed:
            raise ContractBroken(f"returned a tensor whose {what} is {given}; {needed} is needed")
    for name, tensor in inputs.tensors.items():
        if output.numel() and tensor.untyped_storage().data_ptr() == output.untyped_storage().data_ptr():
            raise ContractBroken(f"returned memory of the input {name}; a new tensor is needed")
    return output
