"""The Ascend routes without an Ascend: lowered to linalg, planned into UB, and the lowered code run on this CPU.

    python -m harness.platforms.ascend [--file FILE] [--route ROUTE] [--case NAME ...] [--cases FILE] [--set FIELD=VALUE ...]

The route's own launcher runs, under Triton's dispatch for a 910B; each of its launches is executed by what triton-ascend lowered.
The bytes are compared with the reference's and with those of the same route interpreted. `--no-run` lowers and plans only.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import torch

import reference
from harness import ROOT
from harness.cases import CaseSpec, load_cases, parse_setting, select_cases
from harness.chips import Chip
from harness.inputs import build
from harness.platforms import Finding
from harness.preflight import ENTRY
from harness.runner import LIMITS, Entrant, Job, Workers
from harness.verdict import judge

ENVIRONMENT = ROOT / ".envs" / "triton-ascend-3.2.0"  # made by `make platforms`
TOOL = "triton-ascend 3.2.0, ascendnpu-ir 1.2.0"
UB_BYTES = 192 * 1024  # of a vector core of a 910B, as the planner has it
TIMEOUT = 1800  # seconds for one route with all its cases


class Absent(Exception):
    """What the check needs is not on this machine."""


def cases(quick):
    """Windows aligned to a block and not, block sizes that divide 8 rows and do not, every C, layouts that no order helps."""
    shapes = [
        CaseSpec("aligned_bs8", 2, 2048, 128),
        CaseSpec("unaligned_bs8", 2, 2048, 128, first_position=5, block_table="permuted", slots="shuffled"),
        CaseSpec("unaligned_bs16", 2, 2048, 128, first_position=9, block_size=16, block_table="permuted", boundaries="shuffled"),
        CaseSpec("unaligned_bs7", 2, 2048, 128, first_position=3, block_size=7, block_table="permuted", lengths="unequal"),
        CaseSpec("masked_int32", 2, 2048, 128, distribution="masked", index_dtype="int32", slots="page_ends", page_padding=64),
        CaseSpec("negative", 2, 2048, 128, first_position=5, indices="negative", distribution="heavy_tails", kv_pages=3),
    ]
    ratios = (128, 256, 512)
    chosen = shapes[:3] if quick else shapes
    return [replace(s, name=f"{s.name}_c{c}", compress_ratio=c, total_tokens=2048 if c < 512 else 4096) for s in chosen for c in ratios]


def environment():
    """-> environment variables under which this Python's triton is triton-ascend; Absent where there is none."""
    variables = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    places = [str(ROOT)]
    spec = importlib.util.find_spec("triton")
    if not (spec and spec.origin and (Path(spec.origin).parent / "backends" / "ascend").is_dir()):
        if not (ENVIRONMENT / "triton" / "backends" / "ascend").is_dir():
            raise Absent(f"{TOOL} are not installed; make platforms puts them into {ENVIRONMENT.relative_to(ROOT)}")
        places.insert(0, str(ENVIRONMENT))
    return {**variables, "PYTHONPATH": os.pathsep.join(places)}


def work(submission, route, cases, seed=0, run=True):
    """-> (the worker's result, {place of a case: its bytes as a flat uint8 tensor}); Absent, or RuntimeError if it crashed."""
    variables = environment()
    with tempfile.TemporaryDirectory(prefix="ascend-") as folder:
        job = Path(folder, "job.json")
        variables["TRITON_CACHE_DIR"] = folder
        job.write_text(
            json.dumps(
                {
                    "submission": str(Path(submission).resolve()), "route": route, "cases": [asdict(case) for case in cases],
                    "seed": seed, "run": run, "folder": folder,
                }
            )
        )  # fmt: skip
        command = [sys.executable, "-m", "harness.platforms.ascend_worker", str(job)]
        ran = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=ROOT, timeout=TIMEOUT)
        result = Path(folder, "result.json")
        if not result.exists():
            raise RuntimeError(f"exit {ran.returncode}: {(ran.stdout + ran.stderr)[-1500:]}")
        files = {place: Path(folder, f"{place}.bytes") for place in range(len(cases))}
        read = {p: torch.frombuffer(bytearray(f.read_bytes()), dtype=torch.uint8) for p, f in files.items() if f.exists()}
        return json.loads(result.read_text()), read


def interpreted(submission, route, case, seed=0):
    """-> RunResult of the same route under this environment's interpreter."""
    workers = Workers(True)
    try:
        with workers.start(Job((Entrant(Path(submission), route),), case, seed + case.seed, "cpu"), LIMITS) as running:
            return running.first(0)
    finally:
        workers.stop()


def compare(submission, route, cases, got, seed=0, interpret=True):
    """-> [(case, verdict against the reference, verdict against the interpreter, or why there is none)] of the cases that ran."""
    told = []
    for place, case in enumerate(cases):
        if place in got:
            inputs = build(case, seed + case.seed)
            expected = getattr(reference, ENTRY)(**inputs.arguments)
            lowered = got[place].view(expected.shape)
            ran = interpreted(submission, route, case, seed) if interpret else None
            twin = "not asked" if ran is None else ran.message.strip().rpartition("\n")[2]
            if ran is not None and ran.status == "ok":
                twin = judge(inputs, ran.output, lowered)
            told.append((case, judge(inputs, expected, lowered), twin))
    return told


def describe_kernel(kernel):
    constants = " ".join(f"{name}={value}" for name, value in kernel["constants"].items())
    if kernel["ub"] is None:
        fate = f"refused: {kernel['refused']}"
    else:
        given_up = f", without {kernel['given_up']}" if kernel["given_up"] else ""
        fate = f"UB {kernel['ub']:,} of {UB_BYTES:,} bytes ({100 * kernel['ub'] / UB_BYTES:.0f} %){given_up}"
        fate += f"; {kernel['refused']}" if kernel["refused"] else ""
    return f"{kernel['kernel']} [{constants}] grid {kernel.get('grid')}: {fate}; run on this CPU: {'yes' if kernel['ran'] else 'no'}"


def describe_twin(twin):
    if isinstance(twin, str):
        return twin
    return "equal" if twin.strict else f"{twin.differing} differ, {twin.wrong} of them no tie; {twin.first}"


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m harness.platforms.ascend", description=__doc__.partition("\n")[0])
    parser.add_argument("--file", default=ROOT / "solution.py", type=Path, help="the submission (solution.py)")
    parser.add_argument("--route", default="ascend", help="a row of its ROUTES (ascend)")
    parser.add_argument("--case", action="append", default=[], help="a case's name or pattern; from the check's own, or --cases")
    parser.add_argument("--cases", help="a file of cases, or official, edge")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a case's field, as of harness check")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-run", action="store_true", help="lower and plan only")
    parser.add_argument("--no-interpreter", action="store_true", help="compare with the reference only")
    options = parser.parse_args(arguments)
    try:
        known = load_cases(options.cases) if options.cases else cases(quick=not options.case)
        chosen = select_cases(known, options.case, settings=options.set)
        result, got = work(options.file, options.route, chosen, options.seed, not options.no_run)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except Absent as absent:
        print(f"skipped: {absent}", file=sys.stderr)
        return 5
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 3
    for kernel in result["kernels"]:
        print(describe_kernel(kernel))
    for case in result["cases"]:
        if case["stopped"]:
            print(f"{case['case']}: not run: {case['stopped']}")
    failed = any(case["stopped"] for case in result["cases"]) or any(kernel["refused"] for kernel in result["kernels"])
    for case, verdict, twin in compare(options.file, options.route, chosen, got, options.seed, not options.no_interpreter):
        first = f"; {verdict.first}" if verdict.first else ""
        print(f"{case.name}: {verdict.wrong} wrong, {verdict.ties} ties of {verdict.compared:,} bytes{first}")
        print(f"  interpreted: {describe_twin(twin)}")
        failed |= verdict.wrong > 0 or not isinstance(twin, str) and twin.wrong > 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
