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
from contextlib import contextmanager
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

from harness import REFERENCE, ROOT, board, dialect, platform_reports, preflight, records
from harness.cases import OFFICIAL, load_cases, select_cases
from harness.platforms.matrix import CHECKS
from harness.stats import MODES

EXIT = {
    "pass": 0, "skipped": 0, "mismatch": 1, "unsafe": 1, "impossible": 1, "usage": 2, "crash": 3, "timeout": 4,
    "environment": 5, "preflight": 6, "not-triton": 6,
}  # fmt: skip
WORST_FIRST = ("usage", "environment", "crash", "timeout", "unsafe", "mismatch", "not-triton", "impossible", "pass", "skipped")
SOLUTION = ROOT / "solution.py"
EXACT_ON_A_CHIP = "no accelerator here; exactness is a matter of the chip's own reference. Use: python -m harness check"
GUARD_ON_A_CHIP = "--guard: the guard sees the accesses of Triton's interpreter alone, not those of {}. Use: --device cpu --guard"
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

    def verb(name, run, what, scores=True):
        sub = verbs.add_parser(name, help=what, description=what)
        sub.set_defaults(run=run)
        sub.add_argument("--json", action="store_true", help="one JSON document on standard output")
        sub.add_argument("--no-color", action="store_true")
        if scores:
            sub.add_argument(
                "--scores", type=Path, default=records.SCORES, metavar="FOLDER", help="folder of the records; default: scores/"
            )
        return sub

    sub = verb("check", check, "compare a submission's bytes with the reference's", scores=False)
    add_submission(sub)
    sub.add_argument(
        "--prove-triton", action="store_true", help="run each case again with every Triton launch left out: it must then be wrong"
    )
    sub.add_argument(
        "--guard", action="store_true", help="interpreted: check every access of every kernel for bounds, alignment and races"
    )
    sub = verb(
        "exhaust", exhaust, "every byte of every case, distribution, block table and seed against the reference", scores=False
    )
    add_submission(sub)
    sub.add_argument(
        "--seeds", type=int, default=4, metavar="N", help="seeds of each (default 4: 109 million bytes of official cases)"
    )

    sub = verb("time", check, "check, then time reference and submission in turn, and record the result in scores/")
    add_submission(sub)
    sub.add_argument("--name", help="name on the scoreboard; default: the file's name")
    sub.add_argument("--no-record", action="store_true", help="do not write to scores/")

    sub = verb(
        "lint",
        lint,
        "a submission's text against the platform's rules (exit 6 if one forbids it) and the vendors' Tritons",
        scores=False,
    )
    sub.add_argument("submission", nargs="?", type=Path, default=SOLUTION, metavar="SUBMISSION.py", help="default: solution.py")

    sub = verb("fuzz", fuzz, "random cases; the first that fails is shrunk to a small case file", scores=False)
    sub.add_argument("submission", nargs="?", type=Path, default=SOLUTION, metavar="SUBMISSION.py", help="default: solution.py")
    sub.add_argument("--route", help="force a row of the submission's ROUTES")
    sub.add_argument("--minutes", type=float, default=1.0, help="time in which new cases are begun (default 1)")
    sub.add_argument("--to", type=Path, default=ROOT / "cases" / "found", metavar="FOLDER", help="default: cases/found/")
    add_machine_options(sub)

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

    sub = verb(
        "compare",
        compare,
        "submissions case by case, with intervals: files in one run, or two names on the board",
    )
    sub.add_argument("first", help="FILE or FILE@ROUTE, checked and timed now; or a name on the scoreboard")
    sub.add_argument("others", nargs="+", metavar="second", help="of the same kind; more than two files: each against the next")
    sub.add_argument("--mode", choices=MODES, action="append", help="(repeatable; default: all for files, device for names)")
    sub.add_argument("--markdown", action="store_true", help="Markdown tables")
    add_run_options(sub)

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

    sub = verb("platforms", platforms, "solution.py's routes checked by every means short of their chips", scores=False)
    sub.add_argument("--route", action="append", default=[], help="a row of its ROUTES (repeatable; default: all)")
    sub.add_argument("--check", action="append", default=[], metavar="NAME", help=f"one of {', '.join(CHECKS)} (repeatable)")
    sub.add_argument("--quick", action="store_true", help="a few cases and targets each: minutes")
    sub.add_argument("--markdown", action="store_true", help="Markdown tables")

    add_submission(verb("upload-check", upload_check, "everything to know before an upload"))

    sub = verb("ledger", show_ledger, "what each route moves and computes, the floor by each resource, and what explains a time")
    sub.add_argument("--chip", action="append", default=[], metavar="CHIP", help="a chip of harness/ledger/chips.json (repeatable)")
    sub.add_argument("--case", action="append", default=[], metavar="NAME", help="case or pattern, as r1_* (repeatable)")
    sub.add_argument("--cases", type=Path, default=OFFICIAL, metavar="FILE", help="case file; default: cases/official.json")
    sub.add_argument("--route", action="append", default=[], help="a bill of harness/ledger/routes.json (repeatable)")
    sub.add_argument("--sparse-attention", action="store_true", help="the cost model of sparse attention on Ascend 950")
    sub.add_argument("--primitives", action="store_true", help="what Triton can say of each technique, checked here")
    sub.add_argument("--markdown", action="store_true", help="Markdown tables")

    sub = verb("attend", attend, "compress, then attend over the packed cache: the error by cause", scores=False)
    add_submission(sub)
    sub.add_argument("--heads", type=int, default=64, metavar="N", help="heads of a query token (default 64)")
    sub.add_argument("--topk", type=int, default=512, metavar="N", help="slots a query token attends to (default 512)")
    sub.add_argument("--time", action="store_true", help="also the time of the reader on an accelerator, against its bytes")
    sub.add_argument("--markdown", action="store_true", help="Markdown tables")
    return parser.parse_args(argv)


def add_submission(sub):
    sub.add_argument("submission", nargs="?", type=Path, default=SOLUTION, metavar="SUBMISSION.py", help="default: solution.py")
    sub.add_argument("--route", help="force a row of the submission's ROUTES")
    add_run_options(sub)


def add_run_options(sub):
    add_case_options(sub)
    add_machine_options(sub)
    sub.add_argument("--jobs", type=int, help="cases at a time (default: 1 on an accelerator, else by cores and memory)")


def add_case_options(sub):
    sub.add_argument("--case", action="append", default=[], metavar="NAME", help="case or pattern, as r1_* (repeatable)")
    sub.add_argument(
        "--cases", type=Path, default=OFFICIAL, metavar="FILE", help="case file, or official or edge; default: official"
    )
    sub.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="change every case, as block_table=permuted")
    sub.add_argument("--quick", action="store_true", help="the smallest cases only")


def add_machine_options(sub):
    sub.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, npu, musa; auto: an accelerator if there is one")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument(
        "--compile-timeout",
        type=float,
        default=600.0,
        metavar="S",
        help="seconds for import, compilation and first call (default 600)",
    )
    sub.add_argument("--timeout", type=float, default=300.0, metavar="S", help="seconds for each further step (default 300)")


# --- lint, check, time, fuzz, upload-check -------------------------------------------------------------------------------


def lint(arguments):
    found = linted(arguments.submission)
    forbidden = sum(finding.level == "forbidden" for finding in found)
    if arguments.json:
        print(json.dumps({"submission": str(arguments.submission), "findings": [asdict(finding) for finding in found]}))
    else:
        for finding in found:
            print(f"{arguments.submission}, {finding}")
        print(f"{arguments.submission}: {forbidden} forbidden, {len(found) - forbidden} warnings")
    return EXIT["preflight" if forbidden else "pass"]


def linted(path):
    """Findings of both kinds: the platform's rules, and the language of the vendors' Tritons."""
    source = path.read_bytes()
    return preflight.findings(source) + ([] if preflight.refusals(source) else dialect.findings(source))


def check(arguments):
    cases = chosen_cases(arguments)
    if refused(arguments, [arguments.submission]):
        return EXIT["preflight"]
    timed = arguments.verb == "time"
    entrants = [(arguments.submission, arguments.route, getattr(arguments, "name", None) or arguments.submission.stem)]
    status, results, made = run_and_record(arguments, entrants, cases, timed)
    if not made:
        return EXIT[status]
    (results,), (made,) = results, made
    if timed and not arguments.no_record:  # a wrong option or a broken machine says nothing of the submission
        records.append([record for record in made if record.status not in ("usage", "environment", "skipped")], arguments.scores)
    if arguments.json:
        print(json.dumps({"status": status, "records": [asdict(record) for record in made]}))
    else:
        show_results(arguments, status, results, made)
    return EXIT[status]


def exhaust(arguments):
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    cases = chosen_cases(arguments)
    if refused(arguments, [arguments.submission]):
        return EXIT["preflight"]
    from harness import chips, exhaustive
    from harness.terminal import console

    chip = chips.Chip(chips.choose_device(arguments.device))
    if chip.interpreted:
        print(f"harness exhaust: {EXACT_ON_A_CHIP}", file=sys.stderr)
        return EXIT["environment"]
    runs = exhaustive.runs(cases, arguments.seeds)
    columns = TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console(arguments.no_color, stderr=True), transient=True) as progress:
        task = progress.add_task(f"exhaust on {chip.name}", total=len(runs))
        found = exhaustive.compare_all(
            arguments.submission, arguments.route, runs, str(chip.device), arguments.jobs or 8,
            done=lambda: progress.advance(task),
        )  # fmt: skip
    told = f"{arguments.submission.name}, route {arguments.route or 'its own'}"
    show_tables(arguments, [exhaustive.table(found, told, chip.environment())])
    return EXIT["mismatch" if any(comparison.differing for comparison in found) else "pass"]


def refused(arguments, paths):
    """Print what the platform would refuse in the files at `paths` -> whether there is anything."""
    found = {path: preflight.refusals(path.read_bytes()) for path in paths}
    for path, findings in found.items():
        if findings:
            report = {"submission": str(path), "status": "preflight", "findings": [asdict(f) for f in findings]}
            print(json.dumps(report) if arguments.json else "\n".join(f"{path}, {f}" for f in findings))
    return any(found.values())


def chosen_cases(arguments):
    if arguments.seed < 0:
        raise ValueError(f"--seed {arguments.seed}: a number of at least 0 is needed")
    return select_cases(load_cases(arguments.cases), arguments.case, arguments.quick, arguments.set)


def run_and_record(arguments, entrants, cases, timed):
    """[(path, route, name)] -> (worst status, [CaseResult of each case], [ScoreRecord]) for each entrant, in two lists."""
    from rich.markup import escape
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from harness import check, chips  # torch takes seconds to import: not for a usage error, a finding or the board
    from harness.runner import Entrant
    from harness.terminal import console

    chip = chips.Chip(chips.choose_device(arguments.device))
    guard = getattr(arguments, "guard", False)
    if guard and not chip.interpreted:
        raise ValueError(GUARD_ON_A_CHIP.format(chip.name))
    if timed and chip.interpreted:
        print(f"harness {arguments.verb}: {NO_ACCELERATOR}", file=sys.stderr)
        return "environment", [], []
    run, reference_sha256 = uuid.uuid4().hex[:12], records.sha256(REFERENCE)
    hashes = [records.sha256(path) for path, _, _ in entrants]  # before they run: a file may be edited meanwhile
    shown = console(arguments.no_color, stderr=True)
    columns = SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn()
    finished = []
    with Progress(*columns, console=shown, transient=True) as progress, say_what_is_done(arguments, finished, cases):
        task = progress.add_task(f"{arguments.verb} on {escape(chip.name)}", total=len(cases))

        def done(results):
            finished.append(results)
            progress.advance(task)

        ran = check.run_cases(
            [Entrant(path, route) for path, route, _ in entrants], cases, chip, arguments.seed, timed,
            limits_of(arguments), arguments.jobs,
            prove=getattr(arguments, "prove_triton", False), guard=guard, done=done,
        )  # fmt: skip
    about = {
        "when": now(), "run": run, "platform": chip.platform, "environment": chip.environment(),
        "reference_sha256": reference_sha256,
    }  # fmt: skip
    results = list(zip(*ran))
    made = [
        [records.from_result(result, {**about, "submission": name, "submission_sha256": sha}) for result in its]
        for its, (_, _, name), sha in zip(results, entrants, hashes)
    ]
    return next(s for s in WORST_FIRST if any(r.status == s for its in results for r in its)), results, made


@contextmanager
def say_what_is_done(arguments, finished, cases):
    """On Ctrl-C, say on standard error how the cases ended that did end."""
    try:
        yield
    except KeyboardInterrupt:
        told = "".join(f"\n  {r.case.name}: {r.status}" for results in finished for r in results)
        print(f"harness {arguments.verb}: {len(finished)} of {len(cases)} cases done{told and ':' + told}", file=sys.stderr)
        raise


def show_results(arguments, status, results, made):
    from harness.terminal import console, print_results, print_table

    out = console(arguments.no_color)
    print_results(
        out, arguments.submission, results, board.conditions(made[0]), status, arguments.seed, getattr(arguments, "guard", False)
    )
    if arguments.verb == "time":
        print_table(out, board.detail(made))


def fuzz(arguments):
    from harness import check, chips, fuzz
    from harness.runner import Entrant

    if refused(arguments, [arguments.submission]):
        return EXIT["preflight"]
    chip = chips.Chip(chips.choose_device(arguments.device))
    entrants, limits = [Entrant(arguments.submission, arguments.route)], limits_of(arguments)

    def run(case):
        ((result,),) = check.run_cases(entrants, [case], chip, limits=limits)
        return result

    def seen(case, result):
        print(f"{case.name}: {result.status}", file=sys.stderr)

    count, failure = fuzz.fuzz(run, arguments.minutes * 60, arguments.seed, seen)
    path = failure and fuzz.write(failure, arguments.to)
    if arguments.json:
        print(json.dumps({"cases": count, "failure": failure and {**asdict(failure), "file": str(path)}}))
    elif failure:
        print(f"{failure.status} after {count} cases: {failure.message}")
        print(f"python -m harness check {arguments.submission} --cases {path}")
    else:
        print(f"pass: {count} random cases; seed {arguments.seed}")
    return EXIT[failure.status if failure else "pass"]


def limits_of(arguments):
    return {"first": arguments.compile_timeout, "further": arguments.timeout}


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
    measured = [run for run in board.runs(stored(arguments)) if run[0].submission_sha256 == sha]
    found = linted(path)
    out.print(f"lint: {len(found)} findings" + "".join(f"\n  {finding}" for finding in found), markup=False, soft_wrap=True)
    print_table(out, board.summaries(measured[-1])[0]) if measured else out.print("no timed record of this content in scores/")
    table, place = board.expected_place(reports, path.stem, measured[-1] if measured else None)
    print_table(out, table)
    where = f"rank {place}" if place else "not ranked, since no chip is known"
    out.print(f"on the contest's final board, if each chip did so: {where}", soft_wrap=True)
    last = max((r.submitted for r in reports if r.name == path.stem and r.submitted), default=None)
    out.print(f"two submissions lie at least 2 minutes apart; last entered for {path.stem}: {last or 'none'}", soft_wrap=True)
    return status


def platforms(arguments):
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from harness.platforms import matrix
    from harness.terminal import console

    known = preflight.routes(SOLUTION.read_bytes())
    for given, names, option in ((arguments.route, known, "--route"), (arguments.check, CHECKS, "--check")):
        if unknown := set(given) - set(names):
            raise ValueError(f"{option} {min(unknown)}: known: {', '.join(names)}")
    routes, found = [route for route in known if route in (arguments.route or known)], []
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console(arguments.no_color, stderr=True), transient=True) as progress:
        task = progress.add_task("platforms", total=None)
        for finding in matrix.findings(routes, arguments.quick, arguments.check or CHECKS):
            found.append(finding)
            progress.update(task, description=f"platforms: {finding.check}, {finding.tool}; {len(found)} findings")
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in found]))
    else:
        show_tables(arguments, matrix.tables(found, routes))
    return EXIT["mismatch" if any(finding.status == "fail" for finding in found) else "pass"]


# --- board, compare, record ----------------------------------------------------------------------------------------------


def stored(arguments):
    """The records of --scores; says once on standard error that damaged lines were passed over."""
    damaged = []
    found = records.read(arguments.scores, damaged=lambda path, line: damaged.append(line))
    if damaged:
        told = f"damaged lines of {arguments.scores} passed over: {len(damaged)}; python -m harness board --verify names them"
        print(f"harness {arguments.verb}: {told}", file=sys.stderr)
    return found


def show_board(arguments):
    if arguments.verify:
        faults = records.verify(arguments.scores)
        print(json.dumps(faults) if arguments.json else "\n".join(faults) or "every record is sound")
        return EXIT["mismatch" if faults else "pass"]
    found, reports = stored(arguments), platform_reports.read(arguments.scores)
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
    named = [arguments.first, *arguments.others]
    sides = [entrant(text) for text in named]
    if not any(sides):
        if len(named) != 2:
            raise ValueError(f"{', '.join(named)}: two names of the board are compared at a time")
        found, modes = stored(arguments), arguments.mode or ["device"]
        return show_tables(arguments, [table for mode in modes for table in board.compare(found, *named, mode)])
    if not all(sides):
        raise ValueError(f"{', '.join(named)}: files or names of the board are needed, not some of each")
    cases = chosen_cases(arguments)
    if refused(arguments, [path for path, _, _ in sides]):
        return EXIT["preflight"]
    status, results, made = run_and_record(arguments, sides, cases, timed=True)
    for (_, _, name), its in zip(sides, results):
        for result in its:
            if result.status != "pass":
                print(f"{name}, {result.case.name}: {result.status}: {result.message}", file=sys.stderr)
    tables = []
    for (ours, (_, _, first)), (theirs, (_, _, second)) in pairwise(zip(made, sides)):
        tables += [board.compare_runs(ours, theirs, first, second, mode) for mode in arguments.mode or MODES]
    if tables:
        show_tables(arguments, tables)
    return EXIT[status]


def entrant(text):
    """FILE or FILE@ROUTE -> (path, route or None, name), or None if there is no such file."""
    for path, route in ((text, None), text.rpartition("@")[::2]):
        if path and Path(path).is_file():
            return Path(path), route, Path(path).name + (f"@{route}" if route else "")
    return None


def report(arguments):
    from harness.report import write_report

    written = write_report(stored(arguments), platform_reports.read(arguments.scores), arguments.to)
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
    entrants = [(arguments.submission, arguments.route, arguments.submission.stem)]
    status, (results,), (made,) = run_and_record(arguments, entrants, cases, timed=False)
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
