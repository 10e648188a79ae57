"""Submissions, one case, one process of their own -> RunResults. The only module that imports a submission.

The parent is the judge: it draws the same inputs, runs the reference and compares. The worker has no expected bytes at hand
while it is checked, and times nothing until the parent, done with its own work, says that no byte is wrong. A worker that
crashes, hangs or exits takes nothing else with it.

Results come back over a private pipe as JSON and raw bytes: nothing that the submission's process sends is executed. What it
prints goes through another pipe, of which the last characters are kept. Leaving a job kills the worker's process group and its
descendants; a process that left the group and lost its parent is found, when the run ends, by a mark in its environment. One
that also cleared its environment escapes.
"""

import importlib.machinery
import importlib.util
import json
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
import traceback
import uuid
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from multiprocessing import forkserver
from pathlib import Path

import torch

from harness import REFERENCE, interpreter, tamper, timing
from harness.chips import Chip
from harness.guard import MemoryGuard
from harness.inputs import build, roll
from harness.launches import Watch
from harness.preflight import ENTRY
from harness.stats import Samples

LOG_TAIL = 2000  # characters of the submission's own output kept for a crash report
LIMITS = {"first": 600.0, "further": 300.0}  # seconds: import, compilation and first call; each further step
FRESH_ROLL = 37  # columns by which the second call's values and scores are rolled: coprime to 512, so no dim keeps its data
FRESH_TOKENS = 8192  # interpreted, only cases up to this size get the second call: it doubles the time
BUSY_FLUSHES = 20  # of the L2, queued before the second call: 2.6 ms on an H200, so that the host is ahead of the device
MARK = "C128_HARNESS_MARK"  # environment variable of every process that a run starts


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
    omit: bool = False  # compile kernels and launch none: what is right even so is not Triton's work
    guard: bool = False  # interpreted: every access checked for bounds, alignment and races


@dataclass(frozen=True)
class RunResult:
    """status: ok, mismatch (the output breaks the contract), unsafe (an access that the guard refused), crash, timeout,
    usage (no such route), or environment.
    """

    status: str
    message: str = ""
    output: torch.Tensor | None = None  # [kv_blocks, block_stride] uint8 on the CPU
    route: str | None = None
    evidence: str | None = None
    first_call_s: float | None = None  # seconds of import, compilation and first call
    kernels: list | None = None  # names of the Triton kernels that the first call launched, in order
    compute_operators: list | None = None  # PyTorch operators of the first call that do more than allocate, view, copy, convert
    timings: dict = field(default_factory=dict)  # mode -> stats.Samples
    bandwidth: dict | None = None  # bytes a second: copy, measured beside the timings; peak, as the chip tells, or None
    machine: dict | None = None  # clocks, temperature, power before and after the timing, where the chip tells


class ContractBroken(Exception):
    """The returned object or the inputs are not as the contract says."""


class AccessRefused(Exception):
    """The memory guard refused an access of a kernel."""


class SubmissionFailed(Exception):
    """The submission raised; carries its traceback."""


class UnknownRoute(Exception):
    """--route names no row of the submission's ROUTES."""


class TimerBroken(Exception):
    """The timer self-test failed: nothing can be timed here."""


# --- in the parent -------------------------------------------------------------------------------------------------------


class Workers:
    """Starts one process a job. `interpreted` decides, for all of them, whether Triton interprets its kernels."""

    _mark = None  # of this process's fork server and all that it starts

    def __init__(self, interpreted):
        if interpreted:
            os.environ["TRITON_INTERPRET"] = "1"  # read when triton is first imported, which only workers do
        else:
            os.environ.pop("TRITON_INTERPRET", None)
        self._context = multiprocessing.get_context("forkserver")
        dispatch = (
            ["torch._dynamo"] if interpreted else []
        )  # what a dispatch mode imports, a second a worker; it may look for a GPU
        self._context.set_forkserver_preload(["torch", "triton", "numpy", *dispatch])
        if Workers._mark is None:
            Workers._mark = os.environ[MARK] = uuid.uuid4().hex
            forkserver.ensure_running()
            del os.environ[MARK]
        self._running = []

    def start(self, job, limits=LIMITS):
        self._running.append(Running(self._context, job, limits))
        return self._running[-1]

    def stop(self):
        """Kill every worker that is still running, and what a worker left behind; what waits for one gets its end as a crash."""
        for running in self._running:
            running.kill()
        for pid in _marked(f"{MARK}={Workers._mark}"):
            _kill(pid)


class Running:
    """A job under way: `with workers.start(job) as running`. Leaving the block ends the worker and all that it started.

    The first entrant is called at once. `first` and then `again` for each in turn; then `time`, at most once and only if all
    were ok, has them timed against the reference.
    """

    def __init__(self, context, job, limits):
        self._limits = limits
        self._ended = False
        self._pipe, workers_end = context.Pipe()
        printed, prints_to = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(workers_end, prints_to, job), daemon=True)
        self._process.start()
        workers_end.close()
        prints_to.close()
        self._printed = _Printed(printed)
        self._asked = time.monotonic()
        self._send("first", 0)

    def first(self, place):
        """Import and first call of the entrant at `place` -> RunResult with its output."""
        if place:
            self._send("first", place)
        return self._receive("first")[0]

    def again(self, place):
        """A further call of it, on other contents in the same memory (see FRESH_ROLL) -> RunResult with its output."""
        self._send("again", place)
        return self._receive("further")[0]

    def time(self):
        """All entrants timed -> a RunResult with timings for each."""
        self._send("time")
        return self._receive("further")

    def _send(self, *what):
        self._asked = time.monotonic()
        with suppress(OSError):  # the worker has ended: _receive tells how
            self._pipe.send_bytes(json.dumps(what).encode())

    def _receive(self, limit):
        try:
            if not self._pipe.poll(max(0.0, self._asked + self._limits[limit] - time.monotonic())):
                return [RunResult("timeout", f"{self._overdue(limit)}{self._printed.tail()}")]
            return self._results()
        except (EOFError, OSError):
            self._process.join(5)
            code = self._process.exitcode
            how = f"by {signal.Signals(-code).name}" if code and code < 0 else f"with exit code {code}"
            return [RunResult("crash", f"the process ended {how} without a result{self._printed.tail()}")]
        except (ValueError, KeyError, TypeError, RuntimeError) as error:  # the submission wrote to the pipe
            return [RunResult("crash", f"what came over the pipe of results is no result: {error!r}")]

    def _results(self):
        found = []
        for values in json.loads(self._pipe.recv_bytes()):
            shape = values.pop("output")
            if shape:
                values["output"] = torch.frombuffer(bytearray(self._pipe.recv_bytes()), dtype=torch.uint8).view(shape)
            values["timings"] = {mode: Samples(*map(tuple, sides)) for mode, sides in values["timings"].items()}
            found.append(RunResult(**values))
        return found

    def _overdue(self, limit):
        seconds = f"{self._limits[limit]:g} s"
        if limit == "first":
            return f"no result of import, compilation and first call within {seconds}; --compile-timeout raises the limit"
        return f"no result of a further call within {seconds}; --timeout raises the limit"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self._process.join()
        self._ended = True
        self._pipe.close()

    def kill(self):
        if self._ended:  # its number may be another process's by now
            return
        left_group = _descendants(self._process.pid)
        try:
            os.killpg(self._process.pid, signal.SIGKILL)  # the worker leads a group of its own, once it runs
        except (ProcessLookupError, PermissionError):
            self._process.kill()
        for pid in left_group:
            _kill(pid)


class _Printed:
    """Reads what a worker prints, however much, and keeps the end of it."""

    def __init__(self, pipe):
        self._pipe, self._kept, self._count = pipe, b"", 0
        self._done = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        while data := os.read(self._pipe.fileno(), 1 << 16):
            self._count += len(data)
            self._kept = (self._kept + data)[-4 * LOG_TAIL :]  # a character is at most four bytes
        self._pipe.close()
        self._done.set()

    def tail(self):
        """As the end of a message: the last LOG_TAIL characters, or nothing."""
        self._done.wait(0.2)  # a worker that has ended: what it printed last
        text = self._kept.decode("utf-8", "replace")[-LOG_TAIL:].strip()
        return f"; the end of its {self._count:,} bytes of output:\n{text}" if text else ""


def _kill(pid):
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _descendants(pid):
    """Children of a process and theirs, by /proc; [] where there is none."""
    parents = {}
    for child, parent in _parents():
        parents.setdefault(parent, []).append(child)
    found = parents.get(pid, [])
    for child in found:
        found.extend(parents.get(child, []))
    return found


def _parents():
    """(process, parent) of every process."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text(errors="replace")
            yield int(path.parent.name), int(text.rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):  # ended meanwhile
            continue


def _marked(mark):
    """Processes that carry `mark` in their environment, children of this process (fork server, resource tracker) left out."""
    for pid, parent in _parents():
        try:
            if parent != os.getpid() and mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                yield pid
        except OSError:
            continue


# --- in the worker -------------------------------------------------------------------------------------------------------


def _work(pipe, prints_to, job):
    os.setsid()
    for descriptor in (1, 2):
        os.dup2(prints_to.fileno(), descriptor)
    prints_to.close()
    threading.Thread(target=_end_with_parent, args=(pipe.fileno(),), daemon=True).start()
    bench = None
    while True:
        step, *place = json.loads(pipe.recv_bytes())  # EOFError at the end of the job
        try:
            bench = bench or _Bench(job)
            results = getattr(bench, step)(*place)
        except ContractBroken as error:
            results = [RunResult("mismatch", str(error))]
        except AccessRefused as error:
            results = [RunResult("unsafe", str(error))]
        except SubmissionFailed as error:
            results = [RunResult("crash", str(error))]
        except UnknownRoute as error:
            results = [RunResult("usage", str(error))]
        except TimerBroken as error:
            results = [RunResult("environment", str(error))]
        except Exception:
            results = [RunResult("environment", traceback.format_exc())]
        _answer(pipe, results)


def _end_with_parent(descriptor):
    """Wait until the other end of the pipe is gone, however the parent ended, then kill this process group."""
    poller = select.poll()
    poller.register(descriptor, 0)  # nothing but its end
    poller.poll()
    os.killpg(0, signal.SIGKILL)


def _answer(pipe, results):
    """One message of JSON, then the bytes of each output."""
    shapes = [None if r.output is None else list(r.output.shape) for r in results]
    values = [{**asdict(replace(r, output=None, timings={})), "output": shape} for r, shape in zip(results, shapes)]
    for value, result in zip(values, results):
        value["timings"] = {mode: (samples.reference, samples.submission) for mode, samples in result.timings.items()}
    pipe.send_bytes(json.dumps(values).encode())
    for result in results:
        if result.output is not None:
            pipe.send_bytes(result.output.flatten().numpy())


class _Bench:
    """One case on its device, and the entrants that were called with it."""

    def __init__(self, job):
        self.job = job
        self.chip = Chip(torch.device(job.device))
        if self.chip.interpreted:
            torch.set_num_threads(1)
            interpreter.repair()
        self.memory = MemoryGuard() if job.guard else nullcontext()
        self.watch = Watch(self.chip.interpreted, job.omit)
        self.watched = tamper.Watched(job.device.partition(":")[0], (timing, Chip))
        self.guard = tamper.ReferenceGuard()
        self.called = {}  # place -> (entry point, first output on the device, RunResult)

    @cached_property
    def original(self):
        return build(self.job.case, self.job.seed)

    @cached_property
    def inputs(self):
        return self.original.to(self.chip.device)

    def first(self, place):
        entrant, chip, inputs = self.job.entrants[place], self.chip, self.inputs
        begin = timing.perf_counter()
        module = _load(entrant.path, f"submission_{place}")
        route, evidence = _route(module, chip.device, entrant.route)
        submission = getattr(module, ENTRY)
        output, returned = self._call(submission, self.watch)
        self._must_be_untouched(inputs)
        result = RunResult(
            "ok", route=route, evidence=evidence, first_call_s=timing.perf_counter() - begin,
            kernels=list(self.watch.kernels) if self.watch.hooked else None, compute_operators=self.watch.compute_operators,
        )  # fmt: skip
        self.called[place] = submission, output, result
        return [replace(result, output=returned.cpu())]

    def again(self, place):
        """Other contents in the same memory; on an accelerator queued behind other work, to be right in the order of the stream."""
        submission, first, result = self.called[place]
        chip, inputs = self.chip, self.inputs
        for _ in range(0 if chip.interpreted else BUSY_FLUSHES):
            chip.flush()
        roll(inputs, FRESH_ROLL)
        output, returned = self._call(submission)
        if output.numel() and output.untyped_storage().data_ptr() == first.untyped_storage().data_ptr():
            raise ContractBroken("a second call returned the memory of the first result; a new tensor is needed")
        roll(inputs, -FRESH_ROLL)
        self._must_be_untouched(inputs)
        if not chip.interpreted and not timing.equal(self._call(submission)[1], first):
            raise ContractBroken("a further call on the same inputs returned other bytes")
        return [replace(result, output=returned.cpu())]

    def time(self):
        self.watch.release()
        self.guard.lifted = True
        reference = getattr(_load(REFERENCE, "reference"), ENTRY)
        before = self.chip.state()
        fault = timing.self_test(self.chip)
        if fault:
            raise TimerBroken(f"timer self-test: {fault}; nothing is timed")
        bandwidth = {"copy": self.chip.copy_bandwidth(), "peak": self.chip.peak_bandwidth()}
        submissions, outputs, results = zip(*(self.called[place] for place in sorted(self.called)))
        try:
            timings, left_out = timing.measure(self.chip, reference, submissions, self.inputs, outputs)
        except timing.OutputChanged as error:
            raise ContractBroken(str(error)) from error
        except Exception:
            raise SubmissionFailed(f"while it was timed: {traceback.format_exc()}") from None
        self._must_be_honest()
        machine = {"before": before, "after": self.chip.state()} if before else None
        return [
            replace(
                result, message=left_out, timings={mode: timed[place] for mode, timed in timings.items()},
                bandwidth=bandwidth, machine=machine,
            )
            for place, result in enumerate(results)
        ]  # fmt: skip

    def _call(self, submission, watch=None):
        """-> (the result, a copy made behind the call in stream order, before anything waits for the device).

        All memory that torch.empty returns is filled with 0xFF or NaN; the result must be what the contract says.
        """
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = True
        with watch or nullcontext(), self.memory:
            output = self._guarded(lambda: submission(**self.inputs.arguments))
        self._must_be_honest()
        _must_be_a_cache(output, self.inputs)
        returned = output.clone()
        _guard(self.chip.synchronize)  # an error of the device shows here
        torch.use_deterministic_algorithms(False)
        if not timing.equal(returned, output):
            raise ContractBroken("the result changed after it was returned: complete neither then nor in the order of the stream")
        return output, returned

    def _guarded(self, call):
        """`call()`; what the memory guard found comes first, whatever the submission made of it."""
        try:
            return _guard(call)
        finally:
            if getattr(self.memory, "finding", ""):
                raise AccessRefused(self.memory.finding)

    def _must_be_honest(self):
        replaced = self.watched.replaced()
        if replaced:
            raise ContractBroken(f"replaced {', '.join(replaced)}, on which the harness relies")
        if self.guard.read:
            raise ContractBroken(f"tried to read {REFERENCE.name} while it was checked")

    def _must_be_untouched(self, inputs):
        changed = inputs.same_bytes(self.original)
        if changed:
            raise ContractBroken(f"the call changed its input {changed}")


def _must_be_a_cache(output, inputs):
    kv_cache = inputs.arguments["kv_cache"]
    if type(output) is not torch.Tensor:
        raise ContractBroken(f"returned {type(output).__name__}; a torch.Tensor is needed")
    for what, given, needed in (
        ("dtype", output.dtype, torch.uint8),
        ("shape", tuple(output.shape), tuple(kv_cache.shape)),
        ("device", output.device, kv_cache.device),
        ("layout", output.layout, torch.strided),
        ("is_contiguous()", output.is_contiguous(), True),
    ):
        if given != needed:
            raise ContractBroken(f"returned a tensor whose {what} is {given}; {needed} is needed")
    for name, tensor in inputs.tensors.items():
        if output.numel() and tensor.untyped_storage().data_ptr() == output.untyped_storage().data_ptr():
            raise ContractBroken(f"returned memory of the input {name}; a new tensor is needed")


def _load(path, name):
    """Import the file at `path` as module `name`: its kernels find their own source by it."""
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module
    _guard(lambda: loader.exec_module(module))
    return module


def load_entry(entrant, device):
    """The entry point of a submission, its route forced if the entrant says so, for a process that guards nothing."""
    module = _load(entrant.path, "submission")
    _route(module, device, entrant.route)
    return getattr(module, ENTRY)


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
