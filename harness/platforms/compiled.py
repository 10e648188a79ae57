"""The compile matrix: every kernel that a route launches, compiled for GPUs that need not be here, within a budget.

    python -m harness.platforms.compiled [--file FILE] [--route ROUTE ...] [--target TARGET ...] [--store]

compiled.json holds what each kernel took when it was stored, and by which Triton: more registers or shared memory than then is a
fail, as are spills and a kernel that the budget has no room for. --store writes it anew.
"""

import argparse
import importlib.util
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness import ROOT
from harness.cases import load_cases
from harness.platforms import Finding, workers
from harness.platforms.environments import variables

STORED = Path(__file__).with_suffix(".json")
TIMEOUT = 1800  # seconds for all routes and targets
KIB = 1024


@dataclass(frozen=True)
class Target:
    """What one multiprocessor (AMD: compute unit) has, for threads in warps of `lanes`.

    NVIDIA: CUDA C++ Programming Guide, Technical Specifications per Compute Capability; 1 KiB of shared memory a program is the
    system's. AMD: CDNA2 and CDNA3 ISA guides, 512 registers a lane of a SIMD in two files, of which gfx906 and its relatives
    (Hygon's) have one of 256; LDS 64 KiB.
    """

    registers: int  # of a thread, at most
    register_file: int  # 32-bit registers
    shared: int  # bytes of one program, at most
    shared_of_all: int  # bytes
    shared_of_system: int  # bytes a program
    lanes: int
    warps: int  # resident at once
    granule: int  # registers of a thread are handed out in multiples of it

    def programs(self, kernel):
        """Programs of a kernel that one multiprocessor holds."""
        registers = -(-max(kernel["registers"], 1) // self.granule) * self.granule * self.lanes * kernel["warps"]
        shared = kernel["shared"] + self.shared_of_system
        by_shared = self.shared_of_all // shared if shared else self.warps
        return min(self.register_file // registers, by_shared, self.warps // kernel["warps"])


TARGETS = {
    "sm_80": Target(255, 1 << 16, 163 * KIB, 164 * KIB, KIB, 32, 64, 8),
    "sm_90": Target(255, 1 << 16, 227 * KIB, 228 * KIB, KIB, 32, 64, 8),
    "sm_100": Target(255, 1 << 16, 227 * KIB, 228 * KIB, KIB, 32, 64, 8),
    "gfx90a": Target(256, 4 * 512 * 64, 64 * KIB, 64 * KIB, 0, 64, 32, 8),
    "gfx942": Target(256, 4 * 512 * 64, 64 * KIB, 64 * KIB, 0, 64, 32, 8),
}
PROGRAMS = 2  # a multiprocessor must hold: one computes while another's loads are on their way
# Which of them stand for a route's chip. Hygon's nearest relatives are AMD's. MetaX, T-Head, TianShu and Moore build their own, to
# CUDA's model: sm_80 stands for it, and for MetaX's warps of 64 lanes gfx90a. None of these proxies is the chip.
TARGETS_OF = {
    "nvidia": ("sm_80", "sm_90", "sm_100"),
    "hygon": ("gfx90a", "gfx942"),
    "metax": ("sm_80", "gfx90a"),
    "thead": ("sm_80",),
    "tianshu": ("sm_80",),
    "moore": ("sm_80",),
    "portable": ("sm_80", "sm_90", "gfx90a", "gfx942"),
}
PROXIES = {
    "hygon": "nearest relatives",
    "metax": "proxies: CUDA's model, warps of 64 lanes",
    **dict.fromkeys(("thead", "tianshu", "moore"), "proxy: CUDA's model"),
}
QUICK = {"sm_80", "sm_90", "gfx90a"}  # targets
MORE_REGISTERS = 8  # than stored, at most: the granule in which they are handed out
MORE_SHARED = KIB  # bytes


def targets_of(route):
    return next((targets for prefix, targets in TARGETS_OF.items() if route.partition("-")[0] == prefix), ())


def launches(routes, targets):
    """(route, target, compress_ratio, num_outputs) of all official cases, which reach every tile that these can."""
    shapes = sorted({(case.compress_ratio, case.total_tokens // case.compress_ratio) for case in load_cases()})
    return [(route, target, *shape) for target in targets for route in routes if target in targets_of(route) for shape in shapes]


def compile_all(wanted, submission=ROOT / "solution.py"):
    """`launches` -> {"triton": version, "kernels": [...]}, compiled by a worker; Crashed if that did."""
    with tempfile.TemporaryDirectory(prefix="compiled-") as folder:
        job = {"submission": str(Path(submission).resolve()), "launches": wanted}
        return workers.run("compile_worker", job, folder, TIMEOUT, variables())


def absent(target):
    """Why this machine cannot compile for a target, or ""."""
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        return "triton is not installed"
    backend = Path(spec.origin).parent / "backends" / ("nvidia" if target.startswith("sm_") else "amd")
    if not (backend / "compiler.py").is_file():
        return f"this triton has no {backend.name} backend"
    if backend.name == "nvidia" and not (backend / "bin" / "cuobjdump").is_file():
        return "this triton has no cuobjdump, which reads registers"
    return ""


def faults(kernel, stored=None):
    """What is wrong with one compiled kernel; `stored`: of `load_stored`, None where there is nothing to compare with."""
    if "error" in kernel:
        return [kernel["error"]]
    target, found = TARGETS[kernel["target"]], []
    if kernel["stack"]:
        found.append(f"{kernel['stack']} bytes a thread spilled")
    if any(kernel["barriers"]):
        found.append("a barrier in a branch that only some warps take")
    if kernel["too_early"]:
        found.append("touches memory before griddepcontrol.wait, while the previous launch may still write it")
    for what in ("registers", "shared"):
        if kernel[what] > getattr(target, what):
            found.append(f"{kernel[what]:,} {what}, {getattr(target, what):,} at most")
    if target.programs(kernel) < PROGRAMS:
        found.append(f"{target.programs(kernel)} programs a multiprocessor, at least {PROGRAMS} needed")
    if stored is not None:
        before = stored.get((kernel["launch"], kernel["target"]))
        if before is None:
            return [*found, f"not in {STORED.name}: python -m harness.platforms.compiled --store"]
        for what, margin in (("registers", MORE_REGISTERS), ("shared", MORE_SHARED)):
            if kernel[what] > before[what] + margin:
                found.append(f"{kernel[what]:,} {what}, {before[what]:,} when stored")
    return found


def load_stored(version, path=STORED):
    """-> {(launch, target): figures} if stored by this Triton, else None: another's figures are no measure."""
    if not path.exists():
        return None
    stored = json.loads(path.read_text())
    if stored["triton"] != version:
        return None
    return {
        (launch, target): dict(zip(stored["columns"], row))
        for launch, of in stored["kernels"].items()
        for target, row in of.items()
    }


def store(result, path=STORED):
    """Write what was compiled, a kernel a line; what the budget has no room for is left out."""
    columns = ("registers", "stack", "shared", "warps")
    kernels = {}
    for kernel in sorted(result["kernels"], key=lambda kernel: (kernel["launch"], kernel["target"])):
        if not faults(kernel):
            kernels.setdefault(kernel["launch"], {})[kernel["target"]] = [kernel[column] for column in columns]
    lines = [f"  {json.dumps(launch)}: {json.dumps(of)}" for launch, of in kernels.items()]
    head = f'"triton": {json.dumps(result["triton"])}, "columns": {json.dumps(columns)}, "kernels"'
    path.write_text("{" + head + ": {\n" + ",\n".join(lines) + "\n}}\n")


def findings(routes, quick, submission=ROOT / "solution.py", stored=STORED):
    """The Findings of the compile matrix: one for each route and target."""
    targets = [target for target in TARGETS if target in QUICK or not quick]
    can = [target for target in targets if not absent(target)]
    result, crashed = {"triton": "", "kernels": []}, ""
    try:
        if wanted := launches(routes, can):
            result = compile_all(wanted, submission)
    except workers.Crashed as error:
        crashed = str(error)
    known = load_stored(result["triton"], stored)
    for route in routes:
        for target in targets_of(route):
            if target in targets:
                yield _finding(route, target, result, known, crashed)


def _finding(route, target, result, known, crashed):
    check, tool = f"compiled for {target}", f"triton {result['triton']}".strip()
    if reason := absent(target):
        return Finding(route, check, tool, "skipped", reason)
    if crashed:
        return Finding(route, check, tool, "fail", crashed)
    kernels = [kernel for kernel in result["kernels"] if kernel["target"] == target and route in kernel["routes"]]
    failed = []
    for kernel in kernels:
        if found := faults(kernel, known):
            failed.append(f"{kernel['launch']}: {', '.join(found)}")
    if failed or not kernels:
        return Finding(route, check, tool, "fail", "; ".join(failed) or "no kernel was launched")
    registers, shared = (max(kernel[what] for kernel in kernels) for what in ("registers", "shared"))
    programs = min(TARGETS[target].programs(kernel) for kernel in kernels)
    detail = (
        f"{len(kernels)} kernels, no spills; at most {registers} registers, {shared:,} bytes shared; {programs} programs or more"
    )
    detail += "" if known is not None else "; not compared: compiled.json is another Triton's"
    if proxy := PROXIES.get(route.partition("-")[0]):
        detail += f" ({proxy})"
    return Finding(route, check, tool, "pass", detail)


def table(result, known):
    """Markdown lines, a kernel and target each."""
    yield f"Triton {result['triton']}"
    yield ""
    yield "| target | kernel | registers | spilled | shared | programs | routes | |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | --- | --- |"
    for kernel in sorted(result["kernels"], key=lambda kernel: (list(TARGETS).index(kernel["target"]), kernel["launch"])):
        found = "; ".join(faults(kernel, known))
        figures = [f"{kernel[what]:,}" if what in kernel else "-" for what in ("registers", "stack", "shared")]
        figures.append("-" if "error" in kernel else str(TARGETS[kernel["target"]].programs(kernel)))
        yield f"| {kernel['target']} | {kernel['launch']} | {' | '.join(figures)} | {', '.join(kernel['routes'])} | {found} |"


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m harness.platforms.compiled", description=__doc__.partition("\n")[0])
    parser.add_argument("--file", default=ROOT / "solution.py", type=Path, help="the submission (solution.py)")
    parser.add_argument("--route", action="append", help="a row of its ROUTES (nvidia, nvidia-plain, nvidia-fast, and each chip's)")
    parser.add_argument("--target", action="append", choices=TARGETS, help="a GPU (all that stand for the route's chip)")
    parser.add_argument("--store", action="store_true", help=f"write {STORED.name} anew, from all of them")
    options = parser.parse_args(arguments)
    if options.store and (options.route or options.target):
        parser.error("--store takes every route and target: leave --route and --target out")
    routes = options.route or ["nvidia", "nvidia-plain", "nvidia-fast", *(route for route in TARGETS_OF if route != "nvidia")]
    can = [target for target in options.target or TARGETS if not absent(target)]
    for target in options.target or TARGETS:
        if reason := absent(target):
            print(f"skipped: {target}: {reason}", file=sys.stderr)
    if not (wanted := launches(routes, can)):
        print(f"nothing to compile: {', '.join(routes)} on {', '.join(can) or 'no target'}", file=sys.stderr)
        return 2 if can else 5
    try:
        result = compile_all(wanted, options.file)
    except workers.Crashed as error:
        print(error, file=sys.stderr)
        return 3
    if options.store:
        store(result)
    known = load_stored(result["triton"])
    print("\n".join(table(result, known)))
    return int(any(faults(kernel, known) for kernel in result["kernels"]))


if __name__ == "__main__":
    sys.exit(main())
