"""What a call does, seen from below: the Triton kernels it launches and the PyTorch operators it runs; or none of the kernels.

Launches are caught at the launcher that Triton makes for each compiled kernel, the last Python object before the driver: JIT
dispatch, compiled[grid](...), compiled.run(...) and a kept launcher all pass through it. Interpreted, it is the grid's
execution. Hooked before the submission is imported. Tried with Triton 3.5 to 3.7; a submission that calls the driver by its own
C binding is not seen, and then the proof by omission shows it.
"""

import functools

from torch.utils._python_dispatch import TorchDispatchMode

# Operators that allocate, view, copy or convert: what the contest leaves to PyTorch. By their ATen base names.
ALLOWED = frozenset((
    "alias", "arange", "as_strided", "clone", "contiguous", "copy_", "detach", "empty", "empty_like", "empty_strided", "expand",
    "fill_", "full", "full_like", "lift_fresh", "narrow", "new_empty", "new_empty_strided", "new_full", "new_zeros", "permute",
    "reshape", "select", "slice", "split", "squeeze", "t", "to", "transpose", "unbind", "unfold", "unsqueeze", "view", "zero_",
    "zeros", "zeros_like", "_local_scalar_dense", "_reshape_alias", "_to_copy", "_unsafe_view",
))  # fmt: skip


class Watch:
    """Names of the launched kernels and of the operators while `watching`; with `omit`, kernels are compiled and not launched."""

    def __init__(self, interpreted, omit=False):
        self.kernels, self.operators = [], []
        self.omit, self.watching = omit, False
        self._inside = False  # a launch: what the interpreter does with PyTorch is not the submission's doing
        self._launchers = []
        self.hooked = self._hook_interpreter() if interpreted else self._hook_launchers()

    def __enter__(self):
        self.kernels.clear()
        self.operators.clear()
        self.watching = True
        self._mode = _Operators(self)
        self._mode.__enter__()

    def __exit__(self, *_):
        self._mode.__exit__(None, None, None)
        self.watching = False

    def release(self):
        """Take the hooks out of every launcher: a timed call runs through Triton's own."""
        for launcher, launch in self._launchers:
            launcher.launch = launch

    @property
    def compute_operators(self):
        """Operators that do more than allocate, view, copy or convert."""
        return sorted({name for name in self.operators if name not in ALLOWED})

    def _launch(self, name, launch, *args, **kwargs):
        if self.watching:
            self.kernels.append(name)
        if self.omit:
            return None
        self._inside = True
        try:
            return launch(*args, **kwargs)
        finally:
            self._inside = False

    def _hook_interpreter(self):
        from triton.runtime import interpreter

        execute = interpreter.GridExecutor.__call__

        @functools.wraps(execute)
        def hooked(grid, *args, **kwargs):
            return self._launch(grid.fn.__name__, execute, grid, *args, **kwargs)

        interpreter.GridExecutor.__call__ = hooked
        return True

    def _hook_launchers(self):
        from triton.runtime import driver

        launcher_class = getattr(driver.active, "launcher_cls", None)
        if launcher_class is None:
            return False
        make = launcher_class.__init__

        @functools.wraps(make)
        def hooked(launcher, source, metadata, *args, **kwargs):
            make(launcher, source, metadata, *args, **kwargs)
            launch = getattr(launcher, "launch", None)
            if launch is not None:
                launcher.launch = functools.partial(self._launch, metadata.name, launch)
                self._launchers.append((launcher, launch))

        launcher_class.__init__ = hooked
        return True


class _Operators(TorchDispatchMode):
    def __init__(self, watch):
        super().__init__()
        self._watch = watch

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if not self._watch._inside:
            self._watch.operators.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))
