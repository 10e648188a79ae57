"""Every route interpreted under this Python's Triton, 3.2.0 and 3.5.1, guarded, against the reference's bytes.

All routes are called on one case in one worker, so that its inputs and its reference are made once. Rows that differ only in
what an interpreter does not know (warps, stages, Gluon) are run all the same: which rows do is the submission's affair.
"""

import tempfile
from collections import defaultdict
from dataclasses import asdict, replace

from harness import ROOT
from harness.cases import DISTRIBUTIONS, HARD, CaseSpec, load_cases, select_cases
from harness.platforms import Finding, workers
from harness.platforms.environments import Unavailable, own_triton, variables

ENVIRONMENTS = (None, "triton-3.2.0", "triton-3.5.1")  # None: this Python's own
RATIOS = (128, 256, 512)
LAYOUTS = {
    "plain": {},
    "unaligned": {"first_position": 5, "block_table": "permuted", "slots": "gaps", "boundaries": "shuffled"},
    "odd": {
        "first_position": 4, "block_size": 12, "block_table": "permuted", "slots": "page_ends", "indices": "negative",
        "index_dtype": "int32", "memory": "guarded", "page_padding": 7,
    },
    "large_blocks": {"first_position": 11, "block_size": 16, "block_table": "permuted", "memory": "strided", "slots": "shuffled"},
}  # fmt: skip
QUICK = {"plain": "normal", "unaligned": "masked", "odd": "heavy_tails", "large_blocks": "knife_edge"}
STEPS = "ascend-"  # rows that detection never chooses, kept to tell steps apart, slow to interpret: one distribution is enough
SMALL = 1024  # tokens of an official case where 8,192 would take long
TIMEOUT = 7200  # seconds for all cases under one Triton


def matrix(pairs):
    """(layout, distribution) -> a case of one window for each and each C, since an interpreter takes 0.4 ms a row."""
    return [
        CaseSpec(f"{layout}_{distribution}_c{ratio}", 1, ratio, ratio, distribution=distribution, seed=seed, **LAYOUTS[layout])
        for seed, (layout, distribution) in enumerate(pairs)
        for ratio in RATIOS
    ]


def cases(name, quick, step):
    """The cases of a route, or a step, under one environment. The edge suite and 8,192 tokens: under this Python's own Triton."""
    official = select_cases(load_cases(), quick=True)
    small = [replace(case, name=f"{case.name}_of_{SMALL}", total_tokens=SMALL) for case in official]
    if step:
        return matrix([("unaligned", "masked")]) if quick else [*small, *matrix(QUICK.items())]
    if quick:
        return [*small, *matrix(QUICK.items())]
    chosen = [*official, *load_cases("edge")] if name is None else small
    return [*chosen, *matrix((layout, distribution) for layout in LAYOUTS for distribution in DISTRIBUTIONS + HARD)]


def findings(routes, quick, submission=ROOT / "solution.py", environments=ENVIRONMENTS):
    """Two Findings a route and Triton: `interpreted`, whether every byte is the reference's or a tie; `guarded`, the accesses."""
    for name in environments:
        try:
            results = defaultdict(list)
            for step in (False, True):
                chosen = [route for route in routes if route.startswith(STEPS) == step]
                if chosen:
                    version, ran = run(name, submission, chosen, cases(name, quick, step))
                    for route, result in ran:
                        results[route].append(result)
        except Unavailable as why:
            yield from without_results(routes, name, "skipped", str(why))
            continue
        except workers.Crashed as crashed:
            yield from without_results(routes, name, "fail", str(crashed))
            continue
        for route in routes:
            yield from judged(route, f"triton {version}", results[route])


def without_results(routes, name, status, why):
    """Both Findings of each route, where the environment `name` gave no results."""
    tool = f"triton {name.rpartition('-')[2]}" if name else "this Python's triton"
    return [Finding(route, check, tool, status, why) for route in routes for check in ("interpreted", "guarded")]


def run(name, submission, routes, chosen):
    """-> (version of Triton, [(route, result)]) in the environment `name`; a result is a dict as `check_cases` makes it."""
    if name is None and own_triton() is None:
        raise Unavailable("triton is not installed under that name")
    job = {"submission": str(submission), "routes": list(routes), "cases": [asdict(case) for case in chosen]}
    with tempfile.TemporaryDirectory(prefix="interpreted-") as folder:
        result = workers.run("interpreted", job, folder, TIMEOUT, variables(name))
    return result["triton"], [(case["route"], case) for case in result["cases"]]


def judged(route, tool, results):
    """The results of one route under one Triton -> its two Findings."""
    ran = [result for result in results if result["status"] != "skipped"]
    wrong = [result for result in ran if result["status"] != "pass"]
    unsafe = [result for result in ran if result["status"] == "unsafe"]
    seen = [result for result in ran if result["status"] in ("pass", "mismatch", "unsafe")]  # to their end, or to what was refused
    ties = sum(result["ties"] for result in results)
    compared = sum(result["compared"] for result in results)
    told = f"{len(ran)} cases, 0 of {compared:,} bytes wrong, {ties} ties"
    yield Finding(route, "interpreted", tool, *_status(ran, wrong, told))
    yield Finding(route, "guarded", tool, *_status(seen, unsafe, f"{len(seen)} cases, no access refused"))


def _status(ran, failed, told):
    if failed:
        first = failed[0]
        message = first["message"].strip().splitlines()[-1] if first["message"] else ""
        return "fail", f"{len(failed)} of {len(ran)} cases: {first['case']}: {first['status']}: {message}"
    return ("pass", told) if ran else ("skipped", "no case came to its end")


def check_cases(job, folder):
    import triton

    from harness import check, chips
    from harness.runner import Entrant

    cases = []
    entrants = [Entrant(job["submission"], route) for route in job["routes"]]

    def done(results):
        for route, result in zip(job["routes"], results):
            verdict = result.verdict
            cases.append({
                "route": route, "case": result.case.name, "status": result.status, "message": result.message,
                "compared": verdict.compared if verdict else 0, "ties": verdict.ties if verdict else 0,
            })  # fmt: skip

    check.run_cases(
        entrants,
        [CaseSpec(**case) for case in job["cases"]],
        chips.Chip(chips.choose_device("cpu")),
        again=False,
        guard=True,
        done=done,
    )
    return {"triton": triton.__version__, "cases": cases}


if __name__ == "__main__":
    workers.serve(check_cases)
