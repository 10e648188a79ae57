"""Command line: `python -m harness VERB`. Parse, call, print, exit; no logic.

Results go to standard output, progress to standard error. Exit codes: 0 pass, 1 mismatch, 2 usage, 3 crash of the submission,
4 timeout, 5 environment, 6 preflight finding, 130 interrupted.
"""

import argparse
import datetime
import json
import os
import sys
import uuid
from dataclasses import asdict
from pathlib import Path

from harness import REFERENCE, ROOT, board, platform_reports, preflight, records
from harness.cases import OFFICIAL, load_cases, select_cases
from harness.stats import MODES

EXIT = {"pass": 0, "mismatch": 1, "usage": 2, "crash": 3, "timeout": 4, "environment": 5, "preflight": 6}
WORST_FIRST = ("usage", "environment", "crash", "timeout", "mismatch", "pass")
SOLUTION = ROOT / "solution.py"
NO_ACCELERATOR = "no accelerator here; interpreted runs are checked, never timed. Use: python -m harness check"


def main(argv=None):
    arguments = parse(argv)
    try:
        return arguments.run(arguments)
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

    def verb(name, run, what):
        sub = verbs.add_parser(name, help=what, description=what)
        sub.set_defaults(run=run)
        sub.add_argument("--json", action="store_true", help="one JSON document on standard output")
        sub.add_argument("--no-color", action="store_true")
        sub.add_argument(
            "--scores", type=Path, default=records.SCORES, metavar="FOLDER", help="folder of the records; default: scores/"
        )
        return sub

    add_run_options(verb("check", check, "compare a submission's bytes with the reference's"))
    sub = verb("time", check, "check, then time reference and submission in turn, and record the result in scores/")
    add_run_options(sub)
    sub.add_argument("--name", help="name on the scoreboard; default: the file's name")
    sub.add_argument("--no-record", action="store_true", help="do not write to scores/")

    sub = verb("board", show_board, "the scoreboard: what the platform told, and what was measured here")
    sub.add_argument("--platform", help="one platform's file of scores/, as nvidia-h200")
    sub.add_argument("--submission", help="the history of one submission: its name, or the start of its sha256")
    sub.add_argument("--detail", action="store_true", help="each submission's latest run, case by case")
    sub.add_argument(
        "--mean", choices=tuple(platform_reports.MEANS), default="arithmetic", help="rule of the means (Beijing: arithmetic)"
    )
    sub.add_argument("--of-best", action="store_true", help="the platform's speedups as shares of each chip's best")
    sub.add_argument("--verify", action="store_true", help="name every damaged or edited record; exit 1 if there is one")
    sub.add_argument("--markdown", action="store_true", help="Markdown tables")

    sub = verb("compare", compare, "two submissions on the scoreboard, case by case, with intervals")
    sub.add_argument("first")
    sub.add_argument("second")
    sub.add_argument("--mode", choices=MODES, default="device")
    sub.add_argument("--markdown", action="store_true", help="Markdown tables")

    sub = verb("report", report, "write the scoreboard as one HTML page, and its two pictures as SVG")
    sub.add_argument("--to", type=Path, default=ROOT / "report", metavar="FOLDER", help="default: report/")

    sub = verb("record", record, "enter what the contest's platform reported for a submission")
    sub.add_argument("name", help="name of the submission")
    sub.add_argument("results", nargs="*", metavar="CHIP=RESULT", help="as nvidia=15.29 ascend=failed")
    sub.add_argument(
        "--paste", type=Path, metavar="FILE", help="the platform's table (Markdown, tabs, commas); - for standard input"
    )
    sub.add_argument("--submission-id")
    sub.add_argument("--submitted", help="time of submission, ISO 8601; default: now")
    sub.add_argument("--outlier", action="store_true", help="an artefact: kept, shown, never ranked")
    sub.add_argument("--note", default="")

    add_run_options(verb("upload-check", upload_check, "everything to know before an upload"))

    sub = verb("ledger", show_ledger, "what each route moves and computes, the floor by each resource, and what explains a time")
    sub.add_argument("--chip", action="append", default=[], metavar="CHIP", help="a chip of harness/ledger/chips.json (repeatable)")
    sub.add_argument("--case", action="append", default=[], metavar="NAME", help="case or pattern, as r1_* (repeatable)")
    sub.add_argument("--cases", type=Path, default=OFFICIAL, metavar="FILE", help="case file; default: cases/official.json")
    sub.add_argument("--route", action="append", default=[], help="a bill of harness/ledger/routes.json (repeatable)")
    sub.add_argument("--sparse-attention", action="store_true", help="the cost model of sparse attention on Ascend 950")
    sub.add_argument("--primitives", action="store_true", help="what Triton can say of each technique, checked here")
    sub.add_argument("--markdown", action="store_true", help="Markdown tables")

    sub = verb("attend", attend, "compress, then attend over the packed cache: the error by cause")
    add_run_options(sub)
    sub.add_argument("--heads", type=int, default=64, metavar="N", help="heads of a query token (default 64)")
    sub.add_argument("--topk", type=int, default=512, metavar="N", help="slots a query token attends to (default 512)")
    sub.add_argument("--time", action="store_true", help="also the time of the reader on an accelerator, against its bytes")
    sub.add_argument("--markdown", action="store_true", help="Markdown tables")
    return parser.parse_args(argv)


def add_run_options(sub):
    sub.add_argument("submission", nargs="?", type=Path, default=SOLUTION, metavar="SUBMISSION.py", help="default: solution.py")
    sub.add_argument("--case", action="append", default=[], metavar="NAME", help="case or pattern, as r1_* (repeatable)")
    sub.add_argument("--cases", type=Path, default=OFFICIAL, metavar="FILE", help="case file; default: cases/official.json")
    sub.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="change every case, as block_table=permuted")
    sub.add_argument("--quick", action="store_true", help="the smallest cases only")
    sub.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, npu, musa; auto: an accelerator if there is one")
    sub.add_argument("--route", help="force a row of the submission's ROUTES")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--timeout", type=float, default=600.0, metavar="S", help="seconds a case may take (default 600)")
    sub.add_argument("--jobs", type=int, help="cases at a time (default: 1 on an accelerator, else by cores and memory)")


# --- check, time, upload-check -------------------------------------------------------------------------------------------


def check(arguments):
    cases = chosen_cases(arguments)
    found = preflight.findings(arguments.submission.read_bytes())
    if found:
        report = {"submission": str(arguments.submission), "status": "preflight", "findings": [asdict(f) for f in found]}
        print(json.dumps(report) if arguments.json else "\n".join(f"{arguments.submission}, {f}" for f in found))
        return EXIT["preflight"]
    status, results, made = run_and_record(arguments, cases, timed=arguments.verb == "time")
    if arguments.json:
        print(json.dumps({"status": status, "records": [asdict(record) for record in made]}))
    elif made:
        show_results(arguments, status, results, made)
    return EXIT[status]


def chosen_cases(arguments):
    if arguments.seed < 0:
        raise ValueError(f"--seed {arguments.seed}: a number of at least 0 is needed")
    return select_cases(load_cases(arguments.cases), arguments.case, arguments.quick, arguments.set)


def run_and_record(arguments, cases, timed):
    """-> (worst status, [CaseResult], [ScoreRecord]); a timed run's records go to scores/ unless --no-record."""
    from rich.markup import escape
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from harness import check, chips  # torch takes seconds to import: not for a usage error, a finding or the board
    from harness.terminal import console

    chip = chips.Chip(chips.choose_device(arguments.device))
    if timed and chip.interpreted:
        print(f"harness {arguments.verb}: {NO_ACCELERATOR}", file=sys.stderr)
        return "environment", [], []
    about = {
        "run": uuid.uuid4().hex[:12],
        "platform": chip.platform,
        "submission": getattr(arguments, "name", None) or arguments.submission.stem,
        "submission_sha256": records.sha256(arguments.submission),  # before it runs: the file may be edited meanwhile
        "reference_sha256": records.sha256(REFERENCE),
    }
    shown = console(arguments.no_color, stderr=True)
    columns = SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=shown, transient=True) as progress:
        task = progress.add_task(f"{arguments.verb} on {escape(chip.name)}", total=len(cases))
        results = check.run_cases(
            arguments.submission, cases, chip, arguments.seed, arguments.route, timed, arguments.timeout, arguments.jobs,
            done=lambda result: progress.advance(task),
        )  # fmt: skip
    about = {"when": now(), "environment": chip.environment(), **about}
    made = [records.from_result(result, about) for result in results]
    if timed and not arguments.no_record:  # a wrong option or a broken machine says nothing of the submission
        records.append([record for record in made if record.status not in ("usage", "environment")], arguments.scores)
    return next(s for s in WORST_FIRST if any(r.status == s for r in results)), results, made


def show_results(arguments, status, results, made):
    from harness.terminal import console, print_results, print_table

    out = console(arguments.no_color)
    print_results(out, arguments.submission, results, board.conditions(made[0]), status, arguments.seed)
    if arguments.verb == "time":
        print_table(out, board.detail(made))


def upload_check(arguments):
    from harness.terminal import console, print_table

    path, reports = arguments.submission, platform_reports.read(arguments.scores)
    status = check(arguments)
    if arguments.json or status == EXIT["preflight"]:
        return status
    out = console(arguments.no_color)
    out.print()
    sha = records.sha256(path)
    out.print(f"{path.name}: {path.stat().st_size:,} bytes, sha256 {sha}", markup=False, soft_wrap=True)
    measured = [run for run in board.runs(records.read(arguments.scores)) if run[0].submission_sha256 == sha]
    print_table(out, board.summaries(measured[-1])[0]) if measured else out.print("no timed record of this content in scores/")
    table, place = board.expected_place(reports, path.stem, measured[-1] if measured else None)
    print_table(out, table)
    where = f"rank {place}" if place else "not ranked, since no chip is known"
    out.print(f"on the contest's final board, if each chip did so: {where}", soft_wrap=True)
    last = max((r.submitted for r in reports if r.name == path.stem and r.submitted), default=None)
    out.print(f"two submissions lie at least 2 minutes apart; last entered for {path.stem}: {last or 'none'}", soft_wrap=True)
    return status


# --- board, compare, record ----------------------------------------------------------------------------------------------


def show_board(arguments):
    if arguments.verify:
        faults = records.verify(arguments.scores)
        print(json.dumps(faults) if arguments.json else "\n".join(faults) or "every record is sound")
        return EXIT["mismatch" if faults else "pass"]
    found, reports = records.read(arguments.scores), platform_reports.read(arguments.scores)
    if arguments.platform:
        known = sorted({record.platform for record in found})
        if arguments.platform not in known:
            raise ValueError(f"--platform {arguments.platform}: no record; known: {', '.join(known) or 'none'}")
        found = [record for record in found if record.platform == arguments.platform]
    if arguments.submission:
        tables = board.history(found, arguments.submission)
    elif arguments.detail:
        tables = [board.detail(run) for run in board.latest(found).values()]
    elif arguments.platform:
        tables = board.summaries(found, arguments.mean)
    else:
        tables = [
            board.reported(reports, arguments.mean, arguments.of_best),
            board.grid(found),
            *board.summaries(found, arguments.mean),
        ]
    return show_tables(arguments, tables)


def compare(arguments):
    return show_tables(arguments, board.compare(records.read(arguments.scores), arguments.first, arguments.second, arguments.mode))


def report(arguments):
    from harness.report import write_report

    written = write_report(records.read(arguments.scores), platform_reports.read(arguments.scores), arguments.to)
    print(json.dumps([str(path) for path in written]) if arguments.json else "\n".join(map(str, written)))
    return EXIT["pass"]


def record(arguments):
    """One report a row of the table, or one from CHIP=RESULT."""
    submitted = arguments.submitted or now()
    datetime.datetime.fromisoformat(submitted)  # ValueError says what is wrong with it
    if arguments.paste:
        text = sys.stdin.read() if str(arguments.paste) == "-" else arguments.paste.read_text(encoding="utf-8")
        tables = platform_reports.parse_table(text)
    else:
        tables = [("", *platform_reports.parse_results(arguments.results))]
    made = [
        platform_reports.PlatformReport(
            name=arguments.name if len(tables) == 1 else row or arguments.name, speedups=speedups, failed=failed,
            submission_id=arguments.submission_id, submitted=submitted, outlier=arguments.outlier, note=arguments.note,
            source="entered by hand",
        )
        for row, speedups, failed in tables
    ]  # fmt: skip
    platform_reports.append(made, arguments.scores)
    return show_tables(arguments, [board.reported(made)])


# --- ledger, attend ------------------------------------------------------------------------------------------------------


def show_ledger(arguments):
    from harness.ledger import tables

    cases = select_cases(load_cases(arguments.cases), arguments.case)
    if arguments.sparse_attention:
        return show_tables(arguments, tables.sparse_attention())
    if arguments.primitives:
        return show_tables(arguments, [tables.primitives_table()])
    return show_tables(arguments, tables.ledger(cases, arguments.chip, arguments.route, records.read(arguments.scores)))


def attend(arguments):
    cases = chosen_cases(arguments)
    from harness import chips  # torch takes seconds to import: not for a usage error
    from harness.reader import attend as reader

    reader.check_sizes(arguments.heads, arguments.topk)
    chip = chips.Chip(chips.choose_device(arguments.device))
    if arguments.time and not chip.has_graphs:
        print(f"harness attend --time: {chip.name}: an accelerator with graphs is needed", file=sys.stderr)
        return EXIT["environment"]
    status, results, made = run_and_record(arguments, cases, timed=False)
    errors = reader.all_errors(results, chip, arguments.heads, arguments.topk)
    about = board.conditions(made[0])
    shown = [reader.error_table(errors, arguments.heads, arguments.topk, about)] if errors else []
    if arguments.time:
        shown.append(reader.time_table(*reader.all_times(chip, arguments.heads), arguments.heads, about))
    show_tables(arguments, shown)
    for r in results:
        if r.status != "pass" or not r.num_outputs:
            print(f"{r.case.name}: {r.status}: {r.message or 'no slot is written'}", file=sys.stderr)
    return EXIT["pass" if len(errors) == len(results) else status]  # a tie does not spoil what was attended to


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def show_tables(arguments, tables):
    if arguments.json:
        print(json.dumps([asdict(table) for table in tables], ensure_ascii=False))
    elif getattr(arguments, "markdown", False):
        print("\n".join(board.markdown(table) for table in tables), end="")
    else:
        from harness.terminal import console, print_table

        out = console(arguments.no_color)
        for table in tables:
            print_table(out, table)
    return EXIT["pass"]


if __name__ == "__main__":
    sys.exit(main())
