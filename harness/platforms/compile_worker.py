"""Compile what routes launch, for GPUs that need not be here, and read what the machine code takes.

A worker; its job: submission, launches: (route, target, compress_ratio, num_outputs), ...; target: sm_90 or gfx942. The route's
own launcher runs under Triton's dispatch for the target; each launch is compiled with the signature and options found there, and
left out. Its result: a list of kernels, each with the routes that launch it and registers, stack, shared, or an error.
"""

import re
import subprocess
import tempfile
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from harness.platforms import workers
from harness.platforms.dispatch import dispatch_for, untouched_arguments
from harness.runner import Entrant, load_entry

FEWEST_TERMS = 64  # additions in a branch of exact_gluon_kernel's first warps: half a window of 128
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


def gpu_target(name):
    """sm_90 or gfx942 -> Triton's target."""
    if name.startswith("sm_"):
        return GPUTarget("cuda", int(name.removeprefix("sm_")), 32)
    return GPUTarget("hip", name, 32 if name.startswith(("gfx10", "gfx11", "gfx12")) else 64)


def usage(kernel):
    """Triton's compiled kernel -> registers and bytes of stack of a thread (0: nothing spilled), bytes of shared memory, warps."""
    warps, shared = kernel.metadata.num_warps, kernel.metadata.shared
    if "cubin" in kernel.asm:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            Path(file.name).write_bytes(kernel.asm["cubin"])
            told = subprocess.run([CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
        registers, stack, local = map(int, re.search(r"REG:(\d+) STACK:(\d+) .*?LOCAL:(\d+)", told).groups())
        barriers = barriers_of_sums(kernel.asm["ptx"], FEWEST_TERMS)
        return {"registers": registers, "stack": stack + local, "shared": shared, "warps": warps, "barriers": barriers}
    field = {name: int(value) for name, value in re.findall(r"\.(\w+):\s+(\d+)\s*$", kernel.asm["amdgcn"], re.M)}
    registers, stack = field["vgpr_count"], field["private_segment_fixed_size"]  # of both files of gfx90a and later; scratch
    return {"registers": registers, "stack": stack, "shared": shared, "warps": warps, "barriers": []}


def barriers_of_sums(ptx, terms):
    """PTX -> barriers in each block that does `terms` additions of floats or more, and multiplies none.

    Such are the branches of exact_gluon_kernel's first warps. A barrier there would wait for ever for the warps that skip it.
    """
    blocks = re.split(r"\n\$L__BB\w+:|\bbra(?:\.uni)?\s[^;]+;", ptx)
    sums = [block for block in blocks if len(re.findall(r"\badd(?:\.rn)?\.f32", block)) >= terms]
    return [
        len(re.findall(r"\bbar(?:rier)?(?:\.cta)?\.(?:sync|red|arrive)", block))
        for block in sums
        if not re.search(r"\b(mul|fma)\.(rn\.)?f32", block)
    ]


def touches_before_waiting(ptx):
    """PTX -> does it read or write global memory before griddepcontrol.wait? The previous launch may still write there."""
    return re.search(r"\b(ld|st|atom|red)\.(\w+\.)*global\b", ptx.partition("griddepcontrol.wait")[0]) is not None


def signature(source):
    """Triton's source -> {parameter: its type, with ", 16" where Triton compiles in that 16 divides it}, constants left out."""
    divided = {path[0] for path, properties in source.attrs.items() if ["tt.divisibility", 16] in properties}
    kinds = zip(source.fn.arg_names, source.signature.values())
    return {name: f"{kind}, 16" if i in divided else kind for i, (name, kind) in enumerate(kinds) if kind != "constexpr"}


class Recorder:
    """Stands for JITFunction.run: compiles as Triton would, notes the kernel, launches nothing."""

    def __init__(self):
        self.seen = {}  # (launch, target) -> its row
        self.route = self.target = None
        self._run = JITFunction.run

    def __enter__(self):
        JITFunction.run = lambda kernel, *args, grid, warmup, **kwargs: self.note(kernel, args, grid, kwargs)
        return self

    def __exit__(self, *_):
        JITFunction.run = self._run

    def note(self, kernel, args, grid, kwargs):
        constants = {p.name: v for p, v in zip(kernel.params, args) if p.is_constexpr}
        constants |= {p.name: kwargs[p.name] for p in kernel.params if p.is_constexpr and p.name in kwargs}
        options = {name: value for name, value in kwargs.items() if name not in kernel.arg_names}
        launch = " ".join([kernel.fn.__name__, *(f"{name}={value}" for name, value in (constants | options).items())])
        row = self.seen.setdefault((launch, self.target), {"launch": launch, "target": self.target, "routes": []})
        if self.route not in row["routes"]:
            row["routes"].append(self.route)
        if "registers" in row or "error" in row:
            return
        try:
            compiled = self._run(kernel, *args, grid=grid, warmup=True, **kwargs)
            row |= {"signature": signature(compiled.src), **usage(compiled)}
            row["too_early"] = bool(options.get("launch_pdl")) and touches_before_waiting(compiled.asm["ptx"])
        except Exception as error:  # whatever Triton, ptxas or LLVM has against it: told, not raised
            row["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def compile_launches(job, folder):
    entries = {}
    with Recorder() as recorder:
        targets = []
        for route, target, compress_ratio, num_outputs in job["launches"]:
            if target not in targets:
                targets.append(target)
            dispatch_for(gpu_target(target), targets.index(target))
            if route not in entries:
                entries[route] = load_entry(Entrant(Path(job["submission"]), route), torch.device("cpu"))
            recorder.route, recorder.target = route, target
            entries[route](**untouched_arguments(num_outputs, compress_ratio))
    return {"triton": triton.__version__, "kernels": list(recorder.seen.values())}


if __name__ == "__main__":
    workers.serve(compile_launches)
