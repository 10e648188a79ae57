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
from pathlib import Path

import torch

from harness import REFERENCE, interpreter, timing
from harness.chips import Chip
from harness.inputs import build
from harness.preflight import ENTRY

LOG_TAIL = 2000  # characters of the submission's own output kept for a crash report
REPEATS = 2  # further calls on an accelerator, whose bytes must be the first call's


@dataclass(frozen=True)
class Job:
    submission: Path
    case: object
    seed: int
    device: str
    route: str | None = None  # force a row of the submission's ROUTES


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

    `check` waits for the checked call's output; then `time`, at most once and only if that was ok, has it timed.
    """

    def __init__(self, context, job):
        self._log = tempfile.NamedTemporaryFile(mode="r", suffix=".log", encoding="utf-8", errors="replace")
        self._ended = False
        self._pipe, workers_end = context.Pipe()
        self._process = context.Process(target=_work, args=(workers_end, job, self._log.name), daemon=True)
        self._process.start()
        workers_end.close()

    def check(self, timeout):
        """Wait up to `timeout` seconds for the checked call -> RunResult with its output."""
        return self._receive(timeout)

    def time(self, timeout):
        """Have the checked call timed against the reference -> RunResult with timings."""
        self._pipe.send("time")
        return self._receive(timeout)

    def _receive(self, timeout):
        try:
            if not self._pipe.poll(timeout):
                return RunResult("timeout", f"no result within {timeout:g} s; --timeout raises the limit{self._log_tail()}")
            result = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join(5)
            code = self._process.exitcode
            how = f"by {signal.Signals(-code).name}" if code and code < 0 else f"with exit code {code}"
            return RunResult("crash", f"the process ended {how} without a result{self._log_tail()}")
        return result if result.output is None else replace(result, output=torch.from_numpy(result.output))

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
    steps = _run(job)
    while True:
        result = _next_result(steps)
        if result.output is not None:
            result = replace(result, output=result.output.numpy())  # a tensor would travel as a handle to this process's memory
        pipe.send(result)
        pipe.recv()  # "time", or the end of this process


def _next_result(steps):
    try:
        return next(steps)
    except ContractBroken as error:
        return RunResult("mismatch", str(error))
    except SubmissionFailed as error:
        return RunResult("crash", str(error))
    except UnknownRoute as error:
        return RunResult("usage", str(error))
    except Exception:
        return RunResult("environment", traceback.format_exc())


def _run(job):
    """Two steps: the checked calls -> RunResult with the output; the timing -> RunResult with timings."""
    chip = Chip(torch.device(job.device))
    if chip.interpreted:
        torch.set_num_threads(1)
        interpreter.repair()
    module = _load(job.submission, "submission")
    route, evidence = _route(module, chip.device, job.route)
    submission = getattr(module, ENTRY)

    original = build(job.case, job.seed)
    inputs = original.to(chip.device)
    output = _checked_call(chip, submission, inputs)
    changed = inputs.same_bytes(original)
    if changed:
        raise ContractBroken(f"the call changed its input {changed}")
    for _ in range(0 if chip.interpreted else REPEATS):
        if not torch.equal(_checked_call(chip, submission, inputs), output):
            raise ContractBroken("a second call on the same inputs returned other bytes")
    yield RunResult("ok", "", output.cpu(), route, evidence)

    bandwidth = chip.copy_bandwidth()
    reference = getattr(_load(REFERENCE, "reference"), ENTRY)
    try:
        timings, left_out = timing.measure(chip, reference, submission, inputs, output)
    except timing.OutputChanged as error:
        raise ContractBroken(str(error)) from error
    except Exception:
        raise SubmissionFailed(f"while it was timed: {traceback.format_exc()}") from None
    yield RunResult("ok", left_out, None, route, evidence, timings, bandwidth)


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
