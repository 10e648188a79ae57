"""Command line: `python -m harness check|time|board`. Parse, call, print, exit; no logic.

Results go to standard output, progress to standard error. Exit codes: 0 pass, 1 mismatch, 2 usage, 3 crash of the submission,
4 timeout, 5 environment, 6 preflight finding.
"""

import argparse
import datetime
import json
import os
import sys
import uuid
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

from harness import board, preflight, records
from harness.cases import OFFICIAL, load_cases, select_cases

EXIT = {"pass": 0, "mismatch": 1, "usage": 2, "crash": 3, "timeout": 4, "environment": 5, "preflight": 6}
WORST_FIRST = ("usage", "environment", "crash", "timeout", "mismatch", "pass")
SOLUTION = Path(__file__).parent.parent / "solution.py"
REFERENCE = Path(__file__).parent.parent / "reference.py"


def main(argv=None):
    arguments = parse(argv)
    try:
        return {"check": check, "time": check, "board": show_board}[arguments.verb](arguments)
    except (ValueError, OSError) as error:
        print(f"harness {arguments.verb}: {error}", file=sys.stderr)
        return EXIT["usage"]
    except KeyboardInterrupt:
        print(f"harness {arguments.verb}: interrupted", file=sys.stderr, flush=True)
        os._exit(130)  # a thread may still be computing a reference; nothing is half written


def parse(argv):
    parser = argparse.ArgumentParser(
        prog="python -m harness", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, what in (
        ("check", "compare a submission's bytes with the reference's"),
        ("time", "check, then time reference and submission in turn, and record the result in scores/"),
    ):
        sub = verbs.add_parser(verb, help=what, description=what)
        sub.add_argument("submission", nargs="?", type=Path, default=SOLUTION, metavar="SUBMISSION.py", help="default: solution.py")
        sub.add_argument("--case", action="append", default=[], metavar="NAME", help="case or pattern, as r1_* (repeatable)")
        sub.add_argument("--cases", type=Path, default=OFFICIAL, metavar="FILE", help="case file; default: cases/official.json")
        sub.add_argument(
            "--set", action="append", default=[], metavar="FIELD=VALUE", help="change every case, as block_table=permuted"
        )
        sub.add_argument("--quick", action="store_true", help="the smallest cases only")
        sub.add_argument(
            "--device", default="auto", help="auto, cpu, cuda, cuda:1, npu, musa; auto: an accelerator if there is one"
        )
        sub.add_argument("--route", help="force a row of the submission's ROUTES")
        sub.add_argument("--seed", type=int, default=0)
        sub.add_argument("--timeout", type=float, default=600.0, metavar="S", help="seconds a case may take (default 600)")
        sub.add_argument("--jobs", type=int, help="cases at a time (default: 1 on an accelerator, else by cores and memory)")
    sub.add_argument("--name", help="name on the scoreboard; default: the file's name")
    sub.add_argument("--no-record", action="store_true", help="do not write to scores/")
    sub = verbs.add_parser("board", help="the scoreboard, from scores/", description="the scoreboard, from scores/")
    sub.add_argument("--detail", action="store_true", help="each submission's latest run, case by case")
    sub.add_argument("--markdown", action="store_true", help="Markdown tables")
    for sub in verbs.choices.values():
        sub.add_argument("--json", action="store_true", help="one JSON document on standard output")
        sub.add_argument("--no-color", action="store_true")
    return parser.parse_args(argv)


def console(arguments, **options):
    width = None if sys.stdout.isatty() else int(os.environ.get("COLUMNS") or 160)
    return Console(no_color=arguments.no_color or None, highlight=False, width=width, **options)


# --- check and time ------------------------------------------------------------------------------------------------------


def check(arguments):
    timed = arguments.verb == "time"
    if arguments.seed < 0:
        raise ValueError(f"--seed {arguments.seed}: a number of at least 0 is needed")
    cases = select_cases(load_cases(arguments.cases), arguments.case, arguments.quick, arguments.set)
    found = preflight.findings(arguments.submission.read_bytes())
    if found:
        report = {"submission": str(arguments.submission), "status": "preflight", "findings": [asdict(f) for f in found]}
        print(json.dumps(report) if arguments.json else "\n".join(f"{arguments.submission}, {f}" for f in found))
        return EXIT["preflight"]

    from harness import check, chips  # torch takes seconds to import: not for a usage error or a finding

    chip = chips.Chip(chips.choose_device(arguments.device))
    if timed and chip.interpreted:
        print(
            "harness time: no accelerator here; interpreted runs are checked, never timed. Use: python -m harness check",
            file=sys.stderr,
        )
        return EXIT["environment"]

    progress = Progress(SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn(),
                        console=console(arguments, stderr=True), transient=True)  # fmt: skip
    with progress:
        task = progress.add_task(f"{arguments.verb} on {escape(chip.name)}", total=len(cases))
        results = check.run_cases(
            arguments.submission, cases, chip, arguments.seed, arguments.route, timed, arguments.timeout, arguments.jobs,
            done=lambda result: progress.advance(task),
        )  # fmt: skip

    name = getattr(arguments, "name", None) or arguments.submission.stem
    when = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    run, environment = uuid.uuid4().hex[:12], chip.environment()
    made = [records.from_result(r, when, run, chip, environment, name, arguments.submission, REFERENCE) for r in results]
    if timed and not arguments.no_record:
        records.append(made)
    status = next(s for s in WORST_FIRST if any(r.status == s for r in results))
    if arguments.json:
        print(json.dumps({"status": status, "records": [asdict(record) for record in made]}))
    else:
        print_results(arguments, results, made, status, timed)
    return EXIT[status]


def print_results(arguments, results, made, status, timed):
    out = console(arguments)
    routes = sorted({r.run.route for r in results if r.run.route})
    out.print(f"{os.path.relpath(arguments.submission)}: {board.conditions(made[0])}", markup=False, soft_wrap=True)
    if routes:
        evidence = next(r.run.evidence for r in results if r.run.route)
        out.print(f"route {', '.join(routes)} ({evidence})", markup=False, soft_wrap=True)
    out.print()
    table = RichTable(box=None, padding=(0, 2, 0, 0))
    for column in ("case", "status", "official", "strict", "outputs", "bytes", "ties", "wrong"):
        table.add_column(column, justify="left" if column in ("case", "status") else "right", overflow="fold")
    for r in results:
        told = ("-",) * 6
        if r.verdict is not None:
            v = r.verdict
            verdicts = ("yes" if holds else "no" for holds in (v.official, v.strict))
            told = (*verdicts, f"{r.num_outputs:,}", f"{v.compared:,}", str(v.ties), str(v.wrong))
        table.add_row(escape(r.case.name), f"[{'green' if r.status == 'pass' else 'red'}]{r.status}[/]", *told)
    out.print(table)
    out.print()
    for r in results:
        if r.message:
            regions = r.verdict.regions if r.verdict and not r.run.message else {}
            counts = ", ".join(f"{count} {region}" for region, count in regions.items() if count)
            out.print(f"{r.case.name}: {counts and counts + '; first '}{r.message}", markup=False, soft_wrap=True)
    if timed:
        print_table(out, board.detail(made))
    ties = sum(r.verdict.ties for r in results if r.verdict)
    if ties:
        out.print(
            f"{ties} differing bytes are rounding ties: float64 lies within float32 error of a bfloat16 boundary.", soft_wrap=True
        )
    if results[0].interpreted:
        out.print("Interpreted on a CPU, where the reference adds in another order: ties do not fail this run.", soft_wrap=True)
    passed = sum(r.status == "pass" for r in results)
    out.print(f"[bold]{status}[/]: {passed} of {len(results)} cases passed; seed {arguments.seed}", soft_wrap=True)


# --- board ---------------------------------------------------------------------------------------------------------------


def show_board(arguments):
    found = records.read()
    if not found:
        print("scores/ holds no record yet; python -m harness time SUBMISSION.py adds some", file=sys.stderr)
    tables = [board.detail(run) for run in board.latest(found).values()] if arguments.detail else board.summaries(found)
    if arguments.json:
        print(json.dumps([asdict(table) for table in tables]))
    elif arguments.markdown:
        print("\n".join(board.markdown(table) for table in tables), end="")
    else:
        for table in tables:
            print_table(console(arguments), table)
    return EXIT["pass"]


def print_table(out, table):
    rich = RichTable(title=escape(table.title), title_justify="left")
    for i, column in enumerate(table.columns):
        rich.add_column(column, justify="right" if i else "left", overflow="fold")
    for row in table.rows:
        rich.add_row(*map(escape, row))
    out.print(rich)
    for note in table.notes:
        out.print(note, markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
