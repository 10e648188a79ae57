"""Results and tables on a terminal, through rich. Decides nothing and computes nothing."""

import os
import re
import sys

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from harness import board

COLOURS = {"pass": "green", "skipped": "yellow"}
PIPE_WIDTH = 160  # columns where standard output is no terminal and COLUMNS is not set
NUMBER = re.compile(r"[-\d.,/%()\[\] ]*|fail|yes|no|outlier|impossible")  # cells of a column that is set to the right


def console(no_color=False, **options):
    width = None if sys.stdout.isatty() else int(os.environ.get("COLUMNS") or PIPE_WIDTH)
    return Console(no_color=no_color or None, highlight=False, width=width, **options)


def print_table(out, table):
    """A board.Table, cut to the console's width by hiding optional columns."""
    table = board.fit(table, out.width, cell_len)
    out.print(f"[bold]{escape(table.title)}[/]", soft_wrap=True)
    numeric = [all(NUMBER.fullmatch(row[i]) for row in table.rows) for i in range(len(table.columns))]
    _print_rows(out, table.columns, [tuple(map(escape, row)) for row in table.rows], numeric)
    for note in table.notes:
        out.print(note, markup=False, soft_wrap=True)
    out.print()


def print_results(out, submission, results, conditions, status, seed, guarded=False):
    """What `check` says: a row a case, then the first difference of each case that has one, then the sum."""
    routes = sorted({r.run.route for r in results if r.run.route})
    out.print(f"{os.path.relpath(submission)}: {conditions}", markup=False, soft_wrap=True)
    if routes:
        evidence = next(r.run.evidence for r in results if r.run.route)
        out.print(f"route {', '.join(routes)} ({evidence})", markup=False, soft_wrap=True)
    kernels = {tuple(r.run.kernels) for r in results if r.run.kernels is not None}
    if kernels:
        told = "; or ".join(sorted(", ".join(names) or "none" for names in kernels))
        out.print(f"Triton kernels a call launched: {told}", markup=False, soft_wrap=True)
    computing = sorted({name for r in results for name in r.run.compute_operators or ()})
    if computing:
        out.print(f"PyTorch operators that compute, in a call: {', '.join(computing)}", markup=False, soft_wrap=True)
    for line in _machine_lines(results):
        out.print(line, markup=False, soft_wrap=True)
    out.print()
    columns = ("case", "status", "official", "strict", "outputs", "bytes", "ties", "wrong")
    _print_rows(out, columns, [_result_row(r) for r in results], [c not in ("case", "status") for c in columns])
    out.print()
    for r in results:
        if r.message:
            regions = r.verdict.regions if r.verdict and r.message == r.verdict.first else {}
            counts = ", ".join(f"{count} {region}" for region, count in regions.items() if count)
            out.print(f"{r.case.name}: {counts and counts + '; first '}{r.message}", markup=False, soft_wrap=True)
    ties = sum(r.verdict.ties for r in results if r.verdict)
    if ties:
        out.print(
            f"{ties} differing bytes are rounding ties: float64 lies within float32 error of a bfloat16 boundary.", soft_wrap=True
        )
    if guarded:
        out.print("Guarded: every load, store and atomic was checked for bounds, alignment and races.", soft_wrap=True)
    if results[0].interpreted:
        out.print("Interpreted on a CPU, where the reference adds in another order: ties do not fail this run.", soft_wrap=True)
    passed = sum(r.status == "pass" for r in results)
    out.print(f"[bold]{status}[/]: {passed} of {len(results)} cases passed; seed {seed}", soft_wrap=True)


def _machine_lines(results):
    """What the runs tell of compilation and of the machine; nothing of an interpreter."""
    seconds = [r.run.first_call_s for r in results if r.run.first_call_s and not r.interpreted]
    if seconds:
        yield f"import, compilation and first call: {max(seconds):.1f} s at most"
    states = [state for r in results if r.run.machine for state in (r.run.machine["before"], r.run.machine["after"]) if state]
    for name in states[0] if states else ():
        told = [state[name] for state in states if state.get(name) is not None]
        if told:
            yield f"{name} while it was timed: {min(told):g} to {max(told):g}"


def _result_row(r):
    told = ("-",) * 6
    if r.verdict is not None:
        verdicts = ("yes" if holds else "no" for holds in (r.verdict.official, r.verdict.strict))
        told = (*verdicts, f"{r.num_outputs:,}", f"{r.verdict.compared:,}", str(r.verdict.ties), str(r.verdict.wrong))
    return escape(r.case.name), f"[{COLOURS.get(r.status, 'red')}]{r.status}[/]", *told


def _print_rows(out, columns, rows, to_the_right):
    rich = RichTable(box=None, padding=(0, 2, 0, 0))
    for column, right in zip(columns, to_the_right):
        rich.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in rows:
        rich.add_row(*row)
    out.print(rich)
