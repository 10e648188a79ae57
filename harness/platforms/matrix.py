"""All checks of all routes, and their table: chip by (interpreted, guarded, compiled, lowered code run, run on hardware)."""

import importlib
import importlib.util

from harness.board import Table
from harness.platform_reports import CHIPS
from harness.platforms import Finding
from harness.platforms.environments import Unavailable, environment

CHECKS = ("interpreted", "compiled", "ascend", "hardware")  # modules of this package, by the name of --check
NEEDS = {"ascend": "triton-ascend-3.2.0"}  # module -> its environment
CHIP_NAMES = {
    "ascend": "Huawei Ascend", "tianshu": "TianShu (Iluvatar)", "hygon": "Hygon DCU", "moore": "Moore Threads",
    "metax": "MetaX", "thead": "T-Head PPU", "nvidia": "NVIDIA",
}  # fmt: skip
# How a check's name begins -> its column, and what it may say where nothing failed. "passes" is the hardware's word alone.
COLUMNS = {
    "interpreted": ("interpreted", "0 wrong"),
    "guarded": ("guarded", "clean"),
    "compiled": ("compiled", "no spills"),
    "lowered, UB plan": ("lowered code run", "UB fits"),
    "lowered code run": ("lowered code run", "0 wrong"),
    "run on hardware": ("run on hardware", "passes"),
}
HEADS = tuple(dict.fromkeys(head for head, _ in COLUMNS.values()))


def findings(routes, quick=False, chosen=CHECKS):
    """Every Finding of the chosen checks, each check run now."""
    for name in chosen:
        if importlib.util.find_spec(f"harness.platforms.{name}") is None:
            yield from (
                Finding(route, _first(name), "none", "skipped", f"harness/platforms/{name}.py is not there") for route in routes
            )
            continue
        if name in NEEDS:
            try:
                environment(NEEDS[name])
            except Unavailable as why:
                yield from (Finding(r, _first(name), NEEDS[name], "skipped", str(why)) for r in routes if r.startswith(name))
                continue
        yield from importlib.import_module(f"harness.platforms.{name}").findings(routes, quick)


def _first(name):
    return {"ascend": "lowered code run", "hardware": "run on hardware"}.get(name, name)


def tables(found, routes):
    """[Finding] -> [Table]: the chips, then the rows that no detection chooses; then, in words, what failed or was skipped."""
    chips = [route for route in (*CHIPS, "portable") if route in routes]
    others = [route for route in routes if route not in chips]
    names = {route: f"{CHIP_NAMES[route]} ({route})" if route in CHIP_NAMES else "any other (portable)" for route in chips}
    made = [_table("chips", "chip (route)", chips, names, found), _table("other routes", "route", others, {}, found)]
    return [table for table in made if table.rows] + _told(found)


def _table(title, head, routes, names, found):
    rows = [
        (names.get(route, route), *(_cell([f for f in found if f.route == route], column) for column in HEADS)) for route in routes
    ]
    tools = {column: _tools(f.tool for f in found if f.route in routes and _column(f)[0] == column) for column in HEADS}
    notes = [f"{column}: {'; '.join(tools[column])}" for column in ("compiled", "lowered code run") if tools[column]]
    notes += ["interpreted, guarded: by Triton's version"] if tools["interpreted"] else []
    if tools["compiled"]:
        notes.append("sm_: NVIDIA's, gfx: AMD's; for another chip the nearest relatives that a public Triton compiles for")
    return Table(title, (head, *HEADS), tuple(rows), tuple(notes))


def _tools(names):
    """Each once, without those that begin a longer one."""
    names = sorted(set(names))
    return [name for name in names if not any(longer != name and longer.startswith(name) for longer in names)]


def _column(finding):
    return next(told for start, told in COLUMNS.items() if finding.check.startswith(start))


def _cell(found, column):
    told = {}
    for finding in found:
        head, word = _column(finding)
        if head == column and not (head == "run on hardware" and finding.status == "skipped"):
            word = word if finding.status == "pass" else {"fail": "FAILS", "skipped": "skipped"}[finding.status]
            told.setdefault(word, []).append(_by(finding, head))
    nothing = "not run" if column == "run on hardware" else "-"
    return "; ".join(word + ": " * bool("".join(by)) + ", ".join(filter(None, by)) for word, by in told.items()) or nothing


def _by(finding, head):
    """What tells this finding from its neighbours in one cell: a version, a target, a chip."""
    if head in ("interpreted", "guarded"):
        return finding.tool.removeprefix("triton ")
    if head == "compiled":
        return finding.check.removeprefix("compiled").removeprefix(" for ")
    return finding.tool if head == "run on hardware" else ""


def _told(found):
    rows = [
        (f.route, f.check, f.tool, f.status, f.detail)
        for f in found
        if f.status == "fail" or (f.status == "skipped" and not f.check.startswith("run on hardware"))
    ]
    return [Table("what failed or was skipped", ("route", "check", "tool", "status", "why"), tuple(rows))] if rows else []
