"""Score records -> tables: rows of plain strings, which the terminal, Markdown and JSON all print. Measures nothing."""

import statistics
from dataclasses import dataclass

from harness.stats import MODES, Samples, spread

SUMMARY = ("submission", "sha256", "route", "official", "strict", "ties", "cold", "warm", "device", "of floor", "when")
DETAIL = ("case", "official", "ties", "cold us", "warm us", "device us", "floor us", "cold x", "warm x", "device x", "of floor")


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple
    rows: tuple
    notes: tuple


def latest(records):
    """[ScoreRecord] -> {(platform, sha256): [records of its latest run]}, best mean cold speedup first."""
    runs = {}
    for record in records:
        runs.setdefault((record.platform, record.submission_sha256), {}).setdefault(record.run, []).append(record)
    newest = {key: max(by_run.values(), key=lambda run: run[-1].when) for key, by_run in runs.items()}
    return dict(sorted(newest.items(), key=lambda item: (item[0][0], -len(passed(item[1])), -(mean_speedup(item[1], "cold") or 0))))


def passed(run):
    return [record for record in run if record.status == "pass"]


def speedup(record, mode):
    """Median over median, or None where that mode was not timed."""
    times = record.timings_us.get(mode)
    return Samples(times["reference"], times["submission"]).speedup if times else None


def mean_speedup(run, mode):
    """Arithmetic mean over the run's cases, or None unless every case was timed in that mode."""
    speedups = [speedup(record, mode) for record in run]
    return None if None in speedups else statistics.mean(speedups)


def floor_share(record):
    """Floor over device time (cold where the backend has no graphs), or None."""
    times = record.timings_us.get("device") or record.timings_us.get("cold")
    return record.floor_us / statistics.median(times["submission"]) if times else None


def summaries(records):
    """One table a platform, one row a submission (by content): its latest run."""
    tables = {}
    for (platform, sha), run in latest(records).items():
        verdicts = [record.verdict for record in run if record.verdict]
        shares = [floor_share(record) for record in run if record.timings_us]
        row = (
            run[-1].submission,
            sha[:8],
            run[-1].route or "-",
            f"{sum(v['official'] for v in verdicts)}/{len(run)}",
            f"{sum(v['differing'] == 0 for v in verdicts)}/{len(run)}",
            str(sum(v["ties"] for v in verdicts)),
            *(_times(mean_speedup(run, mode)) for mode in MODES),
            f"{min(shares):.0%}-{max(shares):.0%}" if shares else "-",
            run[-1].when[:10],
        )
        tables.setdefault(platform, []).append((row, run))
    return [
        Table(
            conditions(rows[0][1][-1]),
            SUMMARY,
            tuple(row for row, _ in rows),
            (
                "official, strict: cases that pass the contest's check; that equal every byte. ties: bytes that rounding explains.",
                "cold, warm, device: mean over the cases of reference over submission, medians of one run; - unless all are timed.",
                "of floor: least and greatest share of the copy-bandwidth floor over the cases, by device time.",
            ),
        )
        for rows in tables.values()
    ]


def detail(run):
    """One run, a row a case, and the means."""
    rows = []
    for record in run:
        rows.append(
            (
                record.case["name"],
                ("yes" if record.verdict["official"] else "no") if record.verdict else record.status,
                str(record.verdict["ties"]) if record.verdict else "-",
                *(_spread(record.timings_us.get(mode)) for mode in MODES),
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
    )


def conditions(record):
    """Chip and versions of a record, in a line."""
    e = record.environment
    driver = f", driver {e['driver']}" if e.get("driver") else ""
    return f"{e['chip']}{driver}, torch {e['torch']}, triton {e['triton']}, python {e['python']}"


def markdown(table):
    lines = [f"**{table.title}**", "", "| " + " | ".join(table.columns) + " |", "|" + " --- |" * len(table.columns)]
    lines += ["| " + " | ".join(row) + " |" for row in table.rows]
    return "\n".join(lines + [""] + [f"{note}  " for note in table.notes]).rstrip() + "\n"


def _spread(times):
    if times is None:
        return "-"
    low, median, high = spread(times["submission"])
    return f"{median:.1f} [{low:.1f}, {high:.1f}]"


def _times(ratio):
    return "-" if ratio is None else f"{ratio:.2f}"
