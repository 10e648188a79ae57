"""Run a route's own launcher; in the environment of triton-ascend each launch is lowered, planned and executed by the lowered code.

A worker; its job: submission, route, cases, seed, and mode: plan, where nothing is executed and only the sizes of the cases count;
run; or interpret, which is Triton's interpreter instead and needs no environment of its own. Its result: the kernels seen and, for
each case, why the call did not come to its end; with each case's bytes in folder/PLACE.bytes.
"""

import ctypes
import tempfile
from pathlib import Path

import numpy as np
import torch
import triton.compiler
from triton.backends.compiler import GPUTarget

from harness.cases import CaseSpec
from harness.inputs import build
from harness.platforms import ascend_toolchain as toolchain
from harness.platforms import workers
from harness.platforms.dispatch import dispatch_for, untouched_arguments
from harness.runner import Entrant, load_entry


class Chain:
    """Stands for triton.compile: (source, target, options) -> a kernel whose run is the lowered code's."""

    def __init__(self, run):
        self.run = run
        self.kernels = []  # a dict each, in the order of compilation
        self.stopped = ""  # why a launch of the present case was left out
        self._folder = tempfile.TemporaryDirectory(prefix="ascend-")

    def compile(self, source, target=None, options=None):
        folder = Path(self._folder.name, str(len(self.kernels)))
        folder.mkdir()
        told = {"kernel": source.fn.__name__, "constants": dict(source.constants), "refused": "", "ub": None, "given_up": ""}
        self.kernels.append(told)
        kernel = None
        try:
            linalg = toolchain.lower(source, options, target)
            plan = toolchain.plan_ub(linalg, folder)
            told |= {"refused": plan.error, "ub": plan.used, "given_up": plan.given_up}
            if self.run:
                kernel = toolchain.CpuKernel(linalg, folder)
        except toolchain.Refused as refused:
            told["refused"] = "; ".join(filter(None, (told["refused"], str(refused))))
        names = [name for name in source.signature if name not in source.constants]
        return Launchable(self, kernel, told, names, source.fn)


class Launchable:
    """What Triton's dispatch expects of a compiled kernel."""

    function = packed_metadata = None

    def __init__(self, chain, kernel, told, names, fn):
        self._chain, self._kernel, self._told = chain, kernel, told
        present = [parameter.name for parameter in fn.params if not parameter.is_constexpr]
        self._places = [present.index(name) for name in names]

    def _init_handles(self):
        pass

    def launch_metadata(self, *_):
        return None

    def run(self, x, y, z, stream, function, metadata, launch_metadata, enter, leave, *values):
        self._told["grid"] = [x, y, z]
        if not self._chain.run or self._chain.stopped:
            return
        if self._kernel is None:
            self._chain.stopped = f"{self._told['kernel']} was not lowered"
            return
        self._kernel((x, y, z), [values[place] for place in self._places])


def interpret_as_lowered(folder):
    """The interpreter, with the exponential of this machine's C library, which the lowered code calls; numpy's is another."""
    from triton.runtime.interpreter import InterpreterBuilder

    from harness import interpreter

    interpreter.repair()
    library = toolchain.link(Path(folder, "runtime.so"))
    library.exponentials.argtypes = [ctypes.c_void_p, ctypes.c_int64]

    def exponentials(data):
        data = np.array(data, np.float32, order="C")
        library.exponentials(data.ctypes.data, data.size)
        return data

    InterpreterBuilder.create_exp = lambda self, x: self.unary_op(x, exponentials)


def run_route(job, folder):
    torch.set_num_threads(1)
    chain = Chain(job["mode"] == "run")
    if job["mode"] == "interpret":
        interpret_as_lowered(folder)
    else:
        dispatch_for(GPUTarget("npu", toolchain.ARCH, 0))
        triton.compiler.compile = chain.compile  # where JITFunction finds it
    entry = load_entry(Entrant(Path(job["submission"]), job["route"]), torch.device("cpu"))
    cases = []
    for place, case in enumerate(job["cases"]):
        case = CaseSpec(**case)
        chain.stopped = ""
        try:
            if job["mode"] == "plan":
                entry(**untouched_arguments(case.total_tokens // case.compress_ratio, case.compress_ratio, case.block_size))
            else:
                result = entry(**build(case, job["seed"] + case.seed).arguments)
        except Exception as error:  # a submission's fault, or a grid that triton-ascend refuses: told, not raised
            chain.stopped = f"{type(error).__name__}: {error}"
        if job["mode"] != "plan" and not chain.stopped:
            (folder / f"{place}.bytes").write_bytes(result.contiguous().numpy().tobytes())
        cases.append({"case": case.name, "stopped": chain.stopped})
    return {"triton": triton.__version__, "kernels": chain.kernels, "cases": cases}


if __name__ == "__main__":
    workers.serve(run_route)
