"""Score records and platform reports -> tables of plain strings, for the terminal, Markdown and JSON alike. Measures nothing.

Two kinds of figures, never in one number: measured here (records, with conditions), and told by the contest's platform (reports).
"""

import statistics
from dataclasses import dataclass

from harness import platform_reports
from harness.platform_reports import CHIPS
from harness.stats import MODES, difference, ratio_interval, spread

SUMMARY = ("rank", "submission", "sha256", "route", "official", "strict", "ties", *MODES, "of floor", "when")
DETAIL = ("case", "official", "ties", "cold us", "warm us", "device us", "floor us", "cold x", "warm x", "device x", "of floor")
MEASURED, TOLD = "measured here", "told by the platform"  # the two kinds of figures


@dataclass(frozen=True)
class Table:
    """`optional`: columns that a narrow terminal may hide, the first named first."""

    title: str
    columns: tuple
    rows: tuple
    notes: tuple = ()
    optional: tuple = ()


# --- runs ----------------------------------------------------------------------------------------------------------------


def runs(records):
    """[ScoreRecord] -> [[records of one run]], oldest first."""
    grouped = {}
    for record in records:
        grouped.setdefault((record.platform, record.submission_sha256, record.run), []).append(record)
    return sorted(grouped.values(), key=lambda run: run[-1].when)


def latest(records):
    """[ScoreRecord] -> {(platform, sha256): [records of its latest run]}; within a platform more passed cases first, then speed."""
    newest = {(run[0].platform, run[0].submission_sha256): run for run in runs(records)}
    return dict(sorted(newest.items(), key=lambda item: (item[0][0], *_place(item[1]))))


def by_platform(records):
    """[ScoreRecord] -> {platform: [latest run of each submission, best first]}."""
    found = {}
    for (platform, _), run in latest(records).items():
        found.setdefault(platform, []).append(run)
    return found


def _place(run):
    """Sorts runs: outliers last, cases passed (more first), then mean cold speedup to two digits. Equal places share a rank."""
    return is_impossible(run), -len(passed(run)), -round(mean_speedup(run, "cold") or 0, 2)


def is_impossible(run):
    """Faster than memory allows in any case: shown, never ranked."""
    return any(record.impossible for record in run)


def passed(run):
    return [record for record in run if record.status == "pass"]


def speedup(record, mode):
    """Median over median, or None where that mode was not timed."""
    times = record.times(mode)
    return times and times.speedup


def mean_speedup(run, mode, rule="arithmetic"):
    """Mean by `rule` over the run's cases, or None unless every case was timed in that mode."""
    speedups = [speedup(record, mode) for record in run]
    return None if None in speedups else platform_reports.MEANS[rule](speedups)


def floor_share(record):
    """Floor over device time (cold where the backend has no graphs), or None."""
    times = record.times("device") or record.times("cold")
    return times and record.floor_us / statistics.median(times.submission)


def conditions(record):
    """Chip and versions of a record, in a line."""
    return machine(record.environment)


def machine(e):
    """Chip and versions of an environment, in a line."""
    driver = f", driver {e['driver']}" if e.get("driver") else ""
    return f"{e['chip']}{driver}, torch {e['torch']}, triton {e['triton']}, python {e['python']}"


def find(records, name):
    """Runs of the submission of that name, file stem or sha256 prefix; ValueError lists what is known."""
    found = [run for run in runs(records) if run[0].submission == name or run[0].submission_sha256.startswith(name)]
    if not found:
        known = sorted({f"{record.submission} ({record.submission_sha256[:8]})" for record in records})
        raise ValueError(f"no record of {name}; known: {', '.join(known) or 'none'}")
    return found


# --- measured here -------------------------------------------------------------------------------------------------------


def summaries(records, rule="arithmetic"):
    """One table a platform, one row a submission (by content): its latest run."""
    return [_summary(found, rule) for found in by_platform(records).values()]


def _summary(found, rule):
    rows, rank = [], 0
    for place, run in enumerate(found, 1):
        rank = rank if rows and _place(run) == _place(found[place - 2]) else place
        rows.append(("impossible" if is_impossible(run) else str(rank), *_run_row(run, rule)))
    return Table(
        f"measured here: {conditions(found[0][-1])}",
        SUMMARY,
        tuple(rows),
        (
            "official, strict: cases that pass the contest's check; that equal every byte. ties: bytes that rounding explains.",
            f"cold, warm, device: {rule} mean over the cases of reference over submission, medians; - unless all are timed.",
            "of floor: least and greatest share of the copy-bandwidth floor over the cases, by device time.",
            "rank: cases passed, then cold. impossible: faster than memory allows in some case, so an artefact; not ranked.",
        ),
        ("when", "strict", "sha256", "of floor"),
    )


def _run_row(run, rule):
    verdicts = [record.verdict for record in run if record.verdict]
    shares = [floor_share(record) for record in run if record.timings_us]
    return (
        run[-1].submission,
        run[-1].submission_sha256[:8],
        run[-1].route or "-",
        f"{sum(v['official'] for v in verdicts)}/{len(run)}",
        f"{sum(v['differing'] == 0 for v in verdicts)}/{len(run)}",
        str(sum(v["ties"] for v in verdicts)) if verdicts else run[-1].status,
        *(_times(mean_speedup(run, mode, rule)) for mode in MODES),
        f"{min(shares):.0%}-{max(shares):.0%}" if shares else "-",
        run[-1].when[:10],
    )


def grid(records, mode="cold"):
    """Submission x platform: mean speedup of the latest run, or how far it failed, or a gap."""
    newest = latest(records)
    platforms = sorted({platform for platform, _ in newest})
    names = {sha: run[-1].submission for (_, sha), run in newest.items()}
    rows = [
        (f"{name} {sha[:8]}", *(_grid_cell(newest.get((platform, sha)), mode) for platform in platforms))
        for sha, name in sorted(names.items(), key=lambda item: item[1])
    ]
    rows.append(("best", *(_times(_best(newest, platform, mode)) for platform in platforms)))
    return Table(
        f"measured here: mean {mode} speedup by submission and platform",
        ("submission", *platforms),
        tuple(rows),
        ("blank: not run there. n/12: cases that passed, where not all did; its speed follows if it has no wrong byte.",),
    )


def _best(newest, platform, mode):
    """Highest mean of the platform's runs, outliers left out, or None."""
    honest = [run for (p, _), run in newest.items() if p == platform and not is_impossible(run)]
    return max((mean for run in honest if (mean := mean_speedup(run, mode))), default=None)


def _grid_cell(run, mode):
    if run is None:
        return ""
    mean = mean_speedup(run, mode)
    return _times(mean) if passed(run) == run else f"{len(passed(run))}/{len(run)} {_times(mean)}"


def detail(run):
    """One run, a row a case, and the means."""
    rows = []
    for record in run:
        rows.append(
            (
                record.case["name"],
                ("yes" if record.verdict["official"] else "no") if record.verdict else record.status,
                str(record.verdict["ties"]) if record.verdict else "-",
                *(_spread(record.times(mode)) for mode in MODES),
                f"{record.floor_us:.1f}" if record.copy_bandwidth else "-",
                *(_times(speedup(record, mode)) for mode in MODES),
                f"{floor_share(record):.0%}" if record.timings_us else "-",
            )
        )
    means = tuple(_times(mean_speedup(run, mode)) for mode in MODES)
    rows.append(("mean", "", "", "", "", "", "", *means, ""))
    last = run[-1]
    return Table(
        f"{last.submission} ({last.submission_sha256[:8]}), route {last.route or '-'}: {conditions(last)}",
        DETAIL,
        tuple(rows),
        (
            "us: microseconds a call of the submission, median [first, third quartile]. x: reference over submission, medians.",
            "floor: every state row read once at the copy bandwidth measured beside it; of floor: its share of the device time.",
        ),
        ("warm us", "cold us", "floor us", "device us", "ties"),
    )


def history(records, name, mode="cold"):
    """Every run of one submission, oldest first -> (table of runs, table of cases with a column a run)."""
    found = find(records, name)
    moments = [run[-1].when[:16] for run in found]
    by_case = [{record.case["name"]: record for record in run} for run in found]
    cases = dict.fromkeys(case for run in by_case for case in run)
    of_runs = Table(
        f"history of {name}",
        ("when", "platform", *SUMMARY[1:-1]),
        tuple((when, run[-1].platform, *_run_row(run, "arithmetic")[:-1]) for when, run in zip(moments, found)),
        (),
        ("submission", "strict", "of floor", "platform"),
    )
    of_cases = Table(
        f"{mode} speedup of {name} by case and run",
        ("case", *moments),
        tuple((case, *(_case_cell(run.get(case), mode) for run in by_case)) for case in cases),
        ("blank: not run. A word: how the case ended, where it has no speed.",),
        tuple(moments[:-1]),
    )
    return of_runs, of_cases


def _case_cell(record, mode):
    if record is None:
        return ""
    return _times(speedup(record, mode)) if mode in record.timings_us else record.status


def compare(records, first, second, mode="device"):
    """Latest runs of two submissions on each platform that both have -> tables, case by case, with an interval of the ratio.

    Each is divided by the reference of its own run first: two runs may have met different machines and clocks.
    """
    ours, theirs = ({run[0].platform: run for run in find(records, name)} for name in (first, second))
    shared = sorted(set(ours) & set(theirs))
    if not shared:
        raise ValueError(f"{first} and {second} share no platform: {', '.join(sorted(ours))}; {', '.join(sorted(theirs))}")
    return [compare_runs(ours[platform], theirs[platform], first, second, mode) for platform in shared]


def compare_runs(ours, theirs, first, second, mode):
    """Two runs on one platform -> Table, case by case, and the geometric mean of the cases that both timed."""
    by_case = {record.case["name"]: record for record in theirs}
    rows, pairs = [], []
    for a in ours:
        b = by_case.get(a.case["name"])
        if b is None or mode not in a.timings_us or mode not in b.timings_us:
            rows.append((a.case["name"], *("-",) * 6, _untimed(a, b)))
            continue
        pairs.append((_relative(a, mode), _relative(b, mode)))
        medians = (f"{statistics.median(record.times(mode).submission):.1f}" for record in (a, b))
        rows.append((a.case["name"], *medians, _times(speedup(a, mode)), _times(speedup(b, mode)), *_ratio_cells(*pairs[-1:])))
    if len(pairs) > 1:
        rows.append((f"geometric mean of {len(pairs)}", *("",) * 4, *_ratio_cells(*pairs)))
    return Table(
        f"{first} against {second}, mode {mode}: {conditions(ours[-1])}",
        ("case", f"{first} us", f"{second} us", f"{first} x", f"{second} x", "time ratio", "95 % interval", f"{first} is"),
        tuple(rows),
        ("us: microseconds a call, median. x: speedup over the reference. time ratio: below 1, the first is faster.",),
        (f"{first} x", f"{second} x", f"{first} us", f"{second} us", "95 % interval"),
    )


def _ratio_cells(*pairs):
    ratio = statistics.geometric_mean(statistics.median(first) / statistics.median(second) for first, second in pairs)
    low, high = ratio_interval(*pairs)
    return f"{ratio:.3f}", f"[{low:.3f}, {high:.3f}]", difference(low, high)


def _untimed(*records):
    """Why two records of a case have no times to compare."""
    worst = next((record.status for record in records if record and record.status != "pass"), "")
    return f"not timed in both{worst and ': ' + worst}"


def _relative(record, mode):
    """Times of the submission in units of the reference's median of the same run."""
    times = record.times(mode)
    unit = statistics.median(times.reference)
    return [t / unit for t in times.submission]


# --- told by the platform ------------------------------------------------------------------------------------------------


def reported(reports, rule="arithmetic", of_best=False):
    """The contest's board, a column a chip; other reports stand where they would rank among it, the unranked below.

    `of_best` shows each chip's speedup as a share of the best told of that chip: the distance to it.
    """
    official = [report for report in reports if report.official_rank]
    places = {id(report): str(place) for place, report in platform_reports.rank(official, rule)}
    ordered = [report for _, report in platform_reports.rank(reports, rule)]
    for report in ordered:
        if not report.official_rank:
            places[id(report)] = f"({platform_reports.place(report, official, rule)})"
    ordered += [report for report in reports if id(report) not in places]
    best = best_of_chips(reports)
    rows = [_report_row(places.get(id(report), ""), report, rule, best if of_best else None) for report in ordered]
    rows.append(("", "best of each chip", "", "", *(_times(best[chip]) for chip in CHIPS)))
    return Table(
        f"told by the contest's platform; rank by chips passed, then {rule} mean, then earlier submission",
        ("rank", "submission", "passed", "mean", *CHIPS),
        tuple(rows),
        (
            "(n): not on the final board; where it would have stood. fail: the chip failed. blank: not known.",
            "outlier: an artefact of a checker or a timer, never ranked.",
            *(["chips: share of the best of each chip, the last row."] if of_best else []),
        ),
        ("tianshu", "moore", "hygon", "thead", "metax", "ascend", "nvidia"),
    )


def best_of_chips(reports):
    """chip -> highest speedup that the platform told of any submission, outliers left out, or None."""
    return {chip: max((r.speedups[chip] for r in reports if chip in r.speedups and not r.outlier), default=None) for chip in CHIPS}


def _report_row(rank, report, rule, best):
    shown = {chip: f"{speedup / best[chip]:.0%}" if best else _times(speedup) for chip, speedup in report.speedups.items()}
    cells = {**shown, **dict.fromkeys(report.failed, "fail")}
    chips = "" if report.chips_passed is None else f"{report.chips_passed}/7"
    mean = report.mean_speedup(rule)
    return (
        "outlier" if report.outlier else rank,
        report.name,
        chips,
        "" if mean is None else f"{mean:.2f}",
        *(cells.get(c, "") for c in CHIPS),
    )


def expected_place(reports, name, run):
    """Where a submission would stand on the final board if each chip did as last known -> (Table of its chips, rank or None).

    A chip's figure is the last that the platform told of `name`; else, for nvidia, the mean cold speedup of `run`, measured here.
    """
    known = {}
    if run and run[0].platform.startswith("nvidia") and mean_speedup(run, "cold"):
        known["nvidia"] = (mean_speedup(run, "cold"), f"measured here, {run[0].environment['chip']}, cold")
    for report in reports:
        if report.name == name:
            known.update({chip: (speedup, TOLD) for chip, speedup in report.speedups.items()})
            known.update({chip: (None, TOLD) for chip in report.failed})
    speedups = {chip: figure for chip, (figure, _) in known.items() if figure}
    ours = platform_reports.PlatformReport(name, speedups, [chip for chip in CHIPS if chip not in speedups])
    place = platform_reports.place(ours, [report for report in reports if report.official_rank])
    best = best_of_chips(reports)
    rows = tuple((chip, *_expected(known.get(chip), best[chip])) for chip in CHIPS)
    return Table(f"{name}, chip by chip", ("chip", "speedup", "best told", "of best", "from"), rows), place


def _expected(figure, best):
    """(speedup or None, source) or None where nothing is known, and the chip's best -> cells."""
    if figure is None:
        return "", _times(best), "", "not known: counted as not passed"
    speedup, source = figure
    share = f"{speedup / best:.0%}" if speedup and best and source == TOLD else ""  # never across the two kinds of figures
    return "fail" if speedup is None else _times(speedup), _times(best), share, source


# --- formats -------------------------------------------------------------------------------------------------------------


def markdown(table):
    lines = [f"**{table.title}**", "", "| " + " | ".join(table.columns) + " |", "|" + " --- |" * len(table.columns)]
    lines += ["| " + " | ".join(row) + " |" for row in table.rows]
    return "\n".join(lines + [""] + [f"{note}  " for note in table.notes]).rstrip() + "\n"


def fit(table, width, cell_width=len):
    """Table -> Table no wider than `width` where hiding optional columns can do it; a note says what was hidden."""
    hidden = []
    kept = list(range(len(table.columns)))
    for name in table.optional:
        if _width(table, kept, cell_width) <= width:
            break
        kept.remove(table.columns.index(name))
        hidden.append(name)
    if not hidden:
        return table
    note = f"hidden at {width} columns: {', '.join(hidden)}; COLUMNS=200 or --json shows all"
    rows = tuple(tuple(row[i] for i in kept) for row in table.rows)
    return Table(table.title, tuple(table.columns[i] for i in kept), rows, (*table.notes, note))


def _width(table, kept, cell_width):
    """Columns of the terminal that the kept columns take, two blanks after each."""
    return sum(2 + max(cell_width(row[i]) for row in (table.columns, *table.rows)) for i in kept)


def _spread(times):
    if times is None:
        return "-"
    low, median, high = spread(times.submission)
    return f"{median:.1f} [{low:.1f}, {high:.1f}]"


def _times(ratio):
    return "-" if ratio is None else f"{ratio:.2f}"
