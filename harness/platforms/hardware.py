"""What scores/ holds of runs on chips: the only place from which the word "passes" may come."""

from harness import ROOT, board, records
from harness.platforms import Finding

CHECK = "run on hardware"


def findings(routes, quick=False, submission=ROOT / "solution.py", scores=records.SCORES):
    """One Finding for each route and chip that it was timed on, of its latest run there; a skipped one where it never ran."""
    now = records.sha256(submission)
    runs = {}
    for run in board.runs(records.read(scores)):
        if run[0].route in routes and run[0].submission == submission.stem:
            runs[run[0].route, run[0].environment["chip"]] = run
    for route in routes:
        found = {chip: run for (of, chip), run in runs.items() if of == route}
        if not found:
            yield Finding(route, CHECK, "none", "skipped", "no run in scores/")
        for chip, run in found.items():
            sha = run[0].submission_sha256
            tool = chip if sha == now else f"{chip}, as {sha[:8]}"
            passed = len(board.passed(run))
            detail = f"{passed} of {len(run)} cases passed, {run[-1].when[:10]}, {board.conditions(run[-1])}"
            yield Finding(route, CHECK, tool, "pass" if passed == len(run) else "fail", detail)
