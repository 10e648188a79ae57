"""The Ascend routes without an Ascend: lowered to linalg, planned into UB, and the lowered code run on this CPU.

    python -m harness.platforms.ascend [--file FILE] [--route ROUTE] [--case NAME ...] [--cases FILE] [--set FIELD=VALUE ...]

The route's own launcher runs, under Triton's dispatch for a 910B; each of its launches is executed by what triton-ascend lowered.
The bytes must be those of the same route interpreted (with the exponential of the C library, as the lowered code has it), and
none may be wrong against the reference. Not covered: hivmc and the chip itself; programs run one after another.
"""

import argparse
import importlib.util
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import torch

import reference
from harness import ROOT
from harness.cases import CaseSpec, load_cases, select_cases
from harness.inputs import build
from harness.platforms import Finding, environments, workers
from harness.platforms.ascend_toolchain import missing_tools
from harness.preflight import ENTRY
from harness.verdict import judge

ENVIRONMENT = environments.FOLDER / "triton-ascend-3.2.0"  # made by `make platforms`
TOOL = "triton-ascend 3.2.0, ascendnpu-ir 1.2.0"
UB_BYTES = 192 * 1024  # of a vector core of a 910B: what the planner says is available
OFFICIAL_TOKENS = 32768  # the interpreter, which the bytes are held to, takes half a minute for such a case
TIMEOUT = 1800  # seconds for one route with all its cases


class Absent(Exception):
    """What the check needs is not on this machine."""


def cases(quick):
    """Windows aligned to a block and not, block sizes that 8 rows divide and not, every C, layouts that no order helps.

    Not quick: also official cases up to 32,768 tokens, whose outputs are enough for the tiles of the large ones.
    """
    shapes = [
        CaseSpec("aligned_bs8", 2, 2048, 128),
        CaseSpec("unaligned_bs8", 2, 2048, 128, first_position=5, block_table="permuted", slots="shuffled"),
        CaseSpec("unaligned_bs16", 2, 2048, 128, first_position=9, block_size=16, block_table="permuted", boundaries="shuffled"),
        CaseSpec("unaligned_bs7", 2, 2048, 128, first_position=3, block_size=7, block_table="permuted", lengths="unequal"),
        CaseSpec("masked_int32", 2, 2048, 128, distribution="masked", index_dtype="int32", slots="page_ends", page_padding=64),
        CaseSpec("negative", 2, 2048, 128, first_position=5, indices="negative", distribution="heavy_tails", kv_pages=3),
    ]
    tokens = {128: 2048, 256: 2048, 512: 4096}
    small = [
        replace(shape, name=f"{shape.name}_c{ratio}", compress_ratio=ratio, total_tokens=tokens[ratio])
        for shape in (shapes[:3] if quick else shapes)
        for ratio in tokens
    ]
    return small if quick else small + [case for case in load_cases() if case.total_tokens <= OFFICIAL_TOKENS]


def smaller(case):
    """A case as it is where an interpreter runs it."""
    return replace(case, interpreted=None, **case.interpreted or {})


def environment(mode="run"):
    """-> environment variables under which this Python's triton does what `mode` asks; Absent where it cannot be had."""
    if mode == "interpret":
        return environments.variables(TRITON_INTERPRET="1")
    if mode == "run" and (missing := missing_tools()):
        raise Absent(f"{', '.join(missing)} not found; Debian has them as mlir-19-tools, llvm-19, gcc")
    spec = importlib.util.find_spec("triton")
    if spec and spec.origin and (Path(spec.origin).parent / "backends" / "ascend").is_dir():
        return environments.variables()
    if not (ENVIRONMENT / "triton" / "backends" / "ascend").is_dir():
        raise Absent(f"{TOOL} are not installed; make platforms puts them into {ENVIRONMENT.relative_to(ROOT)}")
    return environments.variables(ENVIRONMENT.name)


def work(submission, route, cases, mode, seed=0):
    """Run the worker in `mode` (plan, run, interpret) -> its result, with the bytes of each case, uint8 tensors or None."""
    variables = environment(mode)
    job = {"submission": str(Path(submission).resolve()), "route": route, "seed": seed, "mode": mode,
           "cases": [asdict(case) for case in cases]}  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="ascend-") as folder:
        result = workers.run("ascend_worker", job, folder, TIMEOUT, variables)
        for place, case in enumerate(result["cases"]):
            file = Path(folder, f"{place}.bytes")
            case["bytes"] = torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8) if file.exists() else None
    return result


def compare(cases, lowered, interpreted, seed=0):
    """Cases, and `work`'s results of modes run and interpret -> (status, ties, detail) of each case."""
    for case, low, twin in zip(cases, lowered["cases"], interpreted["cases"]):
        if low["stopped"] or twin["stopped"]:
            yield "fail", 0, f"{case.name}: {low['stopped'] or 'interpreted: ' + twin['stopped']}"
            continue
        inputs = build(case, seed + case.seed)
        expected = getattr(reference, ENTRY)(**inputs.arguments)
        got, twin = (each["bytes"].view(expected.shape) for each in (low, twin))
        verdict, against_twin = judge(inputs, expected, got), judge(inputs, twin, got)
        told = f"{case.name}: {verdict.wrong} wrong, {verdict.ties} ties of {verdict.compared:,} bytes"
        if verdict.wrong:
            told += f"; {verdict.first}"
        told += (
            "; the interpreter's bytes"
            if against_twin.strict
            else f"; interpreted: {against_twin.differing} others, {against_twin.first}"
        )
        yield "fail" if verdict.wrong or against_twin.differing else "pass", verdict.ties, told


def describe(kernel):
    """One kernel of a worker's result, in words."""
    constants = " ".join(f"{name}={value}" for name, value in kernel["constants"].items())
    if kernel["ub"] is None:
        fate = "refused"
    else:
        given_up = f", without {kernel['given_up']}" if kernel["given_up"] else ""
        fate = f"UB {kernel['ub']:,} of {UB_BYTES:,} bytes ({kernel['ub'] / UB_BYTES:.0%}){given_up}"
    refused = f": {kernel['refused']}" if kernel["refused"] else ""
    return f"{kernel['kernel']} [{constants}] grid {kernel.get('grid')}: {fate}{refused}"


def findings(routes, quick, submission=ROOT / "solution.py"):
    """The Findings of the Ascend routes among `routes`: UB plan, then the lowered code run on this CPU."""
    for route in routes:
        if route == "ascend" or route.startswith("ascend-"):
            yield from _findings_of(route, quick, submission)


def _findings_of(route, quick, submission):
    chosen = cases(quick) if route == "ascend" else cases(True)[::4]  # of the ladder's steps one shape a ratio: other each time
    try:
        plan = work(submission, route, [*load_cases(), *chosen], "plan")  # the official grids too
        refused = [describe(kernel) for kernel in plan["kernels"] if kernel["refused"]]
        refused += [f"{case['case']}: {case['stopped']}" for case in plan["cases"] if case["stopped"]]
        most = max((kernel["ub"] for kernel in plan["kernels"] if kernel["ub"]), default=0)
        given_up = sorted({kernel["kernel"] for kernel in plan["kernels"] if kernel["given_up"]})
        detail = f"{len(plan['kernels'])} kernels lowered, at most {most:,} of {UB_BYTES:,} bytes of UB"
        detail += f"; without multi-buffering: {', '.join(given_up)}" if given_up else ""
        yield Finding(route, "lowered, UB plan", TOOL, "fail" if refused else "pass", "; ".join(refused) or detail)
    except Absent as absent:
        yield Finding(route, "lowered, UB plan", TOOL, "skipped", str(absent))
    except workers.Crashed as crashed:
        yield Finding(route, "lowered, UB plan", TOOL, "fail", str(crashed))
    check, tool = "lowered code run on a CPU", f"{TOOL}, LLVM 19"
    try:
        result = work(submission, route, chosen, "run")
        told = list(compare(chosen, result, work(submission, route, chosen, "interpret")))
        failed = [detail for status, _, detail in told if status == "fail"]
        detail = f"{len(told)} cases: all bytes as interpreted; 0 wrong, {sum(ties for _, ties, _ in told)} ties"
        yield Finding(route, check, tool, "fail" if failed else "pass", "; ".join(failed) or detail)
    except Absent as absent:
        yield Finding(route, check, tool, "skipped", str(absent))
    except workers.Crashed as crashed:
        yield Finding(route, check, tool, "fail", str(crashed))


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m harness.platforms.ascend", description=__doc__.partition("\n")[0])
    parser.add_argument("--file", default=ROOT / "solution.py", type=Path, help="the submission (solution.py)")
    parser.add_argument("--route", default="ascend", help="a row of its ROUTES (ascend)")
    parser.add_argument("--case", action="append", default=[], help="a case's name or pattern; of this check's own, or of --cases")
    parser.add_argument("--cases", help="a file of cases, or official, edge")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a case's field, as of harness check")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-run", action="store_true", help="lower and plan only")
    options = parser.parse_args(arguments)
    try:
        known = load_cases(options.cases) if options.cases else cases(quick=not options.case)
        chosen = select_cases([smaller(case) for case in known], options.case, settings=options.set)
        result = work(options.file, options.route, chosen, "plan" if options.no_run else "run", options.seed)
        for line in dict.fromkeys(map(describe, result["kernels"])):
            print(line)
        failed = any(kernel["refused"] for kernel in result["kernels"])
        if options.no_run:
            told = [("fail", 0, f"{case['case']}: {case['stopped']}") for case in result["cases"] if case["stopped"]]
        else:
            twin = work(options.file, options.route, chosen, "interpret", options.seed)
            told = compare(chosen, result, twin, options.seed)
        for status, _, line in told:
            failed |= status == "fail"
            print(f"{status}: {line}")
        return int(failed)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except Absent as absent:
        print(f"skipped: {absent}", file=sys.stderr)
        return 5
    except workers.Crashed as crashed:
        print(crashed, file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
