"""What a submission may not touch in its own process: the functions that call, compare and time it, and the reference's text.

A process that runs foreign code cannot be made safe from it. This names the ways that have been tried; the verdict on the bytes
does not rest on it, since the parent judges them in another process.
"""

import os
import sys
import time

import torch

from harness import REFERENCE, ROOT

TIMED_BY = ((time, ("perf_counter", "perf_counter_ns", "monotonic", "time", "sleep")),)
JUDGED_BY = (
    (torch, ("equal", "empty", "zeros", "empty_like", "zeros_like", "use_deterministic_algorithms")),
    (torch.Tensor, ("clone", "cpu", "copy_", "data_ptr", "untyped_storage", "roll", "__eq__", "__ne__", "__getattribute__")),
)
DEVICE_TIMED_BY = ("Event", "synchronize", "current_stream", "CUDAGraph", "graph")
EVENT_METHODS = ("record", "elapsed_time", "synchronize")


class Watched:
    """The functions as they were before the submission was imported; `replaced()` names those that are another's now."""

    def __init__(self, device_type, modules=()):
        owners = [*TIMED_BY, *JUDGED_BY]
        backend = getattr(torch, device_type)
        owners.append((backend, DEVICE_TIMED_BY))
        if hasattr(backend, "Event"):
            owners.append((backend.Event, EVENT_METHODS))
        if hasattr(backend, "CUDAGraph"):
            owners.append((backend.CUDAGraph, ("replay", "capture_begin", "capture_end")))
        owners += [(module, _functions(module)) for module in modules]
        self._before = {
            f"{owner.__name__}.{name}": (owner, name, getattr(owner, name))
            for owner, names in owners
            for name in names
            if hasattr(owner, name)
        }

    def replaced(self):
        """Names of what is no longer as it was."""
        return [text for text, (owner, name, before) in self._before.items() if getattr(owner, name, None) is not before]


def _functions(module):
    """Names of what can be called in a module, or in a class."""
    return [name for name, value in vars(module).items() if callable(value) and not name.startswith("__")]


class ReferenceGuard:
    """From now on this process may not open or import reference.py; `read` says whether it tried. Audit hooks cannot be removed."""

    def __init__(self):
        self.read, self.lifted = False, False
        self._names = {str(REFERENCE), os.path.realpath(REFERENCE)}
        sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry or ".") != str(ROOT)]
        sys.addaudithook(self._hook)

    def _hook(self, event, arguments):
        if self.lifted or event not in ("open", "import"):
            return
        named = (
            arguments[0] == REFERENCE.stem
            if event == "import"
            else isinstance(arguments[0], str) and self._is_reference(arguments[0])
        )
        if named:
            self.read = True
            raise PermissionError(f"{REFERENCE.name}: a submission may not read it while it is checked")

    def _is_reference(self, path):
        return path.endswith(REFERENCE.name) and (path in self._names or os.path.realpath(path) in self._names)
