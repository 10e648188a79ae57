"""What the contest's platform said of a submission: seven chips, passed or failed, speedups. Told, never measured here.

Kept in scores/platform_reports.jsonl, apart from the records that this harness measures, and ranked by the contest's rule: chips
passed, then the mean speedup over the passed chips, then the earlier submission.
"""

import json
import re
import statistics
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from harness.records import SCORES, append_lines

FILE = "platform_reports.jsonl"
SCHEMA = 1
MEANS = {"arithmetic": statistics.mean, "geometric": statistics.geometric_mean}  # Beijing's rule; that of later rounds

# chip -> words by which its column is known, lower case; the first is the one shown
CHIPS = {
    "ascend": ("ascend", "huawei", "昇腾", "华为", "910"),
    "tianshu": ("tianshu", "iluvatar", "天数"),
    "hygon": ("hygon", "dcu", "海光"),
    "moore": ("moore", "musa", "摩尔"),
    "metax": ("metax", "沐曦"),
    "thead": ("thead", "t-head", "ppu", "平头哥"),
    "nvidia": ("nvidia", "international", "英伟达", "国际"),
}
FAILED = ("failed", "fail", "error", "wrong", "timeout", "失败", "错误", "超时", "未通过", "x", "✗", "❌")
UNKNOWN = ("", "-", "--", "—", "/", "n/a", "none", "null")


@dataclass(frozen=True)
class PlatformReport:
    """One submission as the platform reported it. A chip that is in neither `speedups` nor `failed` is not known."""

    name: str
    speedups: dict  # chip -> times the reference
    failed: list = field(default_factory=list)  # chips
    passed: int | None = None  # chips; counted from speedups where all seven are known
    mean: float | None = None  # as reported
    submission_id: str | None = None
    submitted: str | None = None  # ISO 8601
    official_rank: int | None = None  # on the contest's final board
    outlier: bool = False  # an artefact of a checker or a timer: shown, never ranked
    note: str = ""
    source: str = ""
    schema: int = SCHEMA

    def __post_init__(self):
        for chip in (*self.speedups, *self.failed):
            if chip not in CHIPS:
                raise ValueError(f"report {self.name}: chip {chip!r}; known: {', '.join(CHIPS)}")
        for chip, speedup in self.speedups.items():
            if not isinstance(speedup, (int, float)) or not 0 < speedup < float("inf"):
                raise ValueError(f"report {self.name}: {chip} = {speedup!r}; a positive number is needed")
            if chip in self.failed:
                raise ValueError(f"report {self.name}: {chip} has a speedup and failed too")

    @property
    def complete(self):
        return len(self.speedups) + len(self.failed) == len(CHIPS)

    @property
    def chips_passed(self):
        return len(self.speedups) if self.complete else self.passed

    def mean_speedup(self, rule="arithmetic"):
        """The reported mean (arithmetic, of unrounded speedups), else the one of the passed chips by `rule`, or None."""
        if rule == "arithmetic" and self.mean is not None:
            return self.mean
        return MEANS[rule](self.speedups.values()) if self.complete and self.speedups else None


def rank(reports, rule="arithmetic"):
    """[PlatformReport] -> [(rank, report)], best first; ties share a rank only where the time of submission does not decide.

    Outliers and reports without passed chips or mean are left out.
    """
    known = [r for r in reports if not r.outlier and r.chips_passed is not None and r.mean_speedup(rule) is not None]
    keys = {id(r): (-r.chips_passed, -round(r.mean_speedup(rule), 2), r.submitted or "9") for r in known}
    ordered = sorted(known, key=lambda r: keys[id(r)])
    ranked = []
    for place, report in enumerate(ordered, 1):
        shared = bool(ranked) and keys[id(ranked[-1][1])] == keys[id(report)]
        ranked.append((ranked[-1][0] if shared else place, report))
    return ranked


def place(report, others, rule="arithmetic"):
    """The rank that `report` would take among `others`, or None where it cannot be ranked."""
    return next((place for place, ranked in rank([*others, report], rule) if ranked is report), None)


def read(folder=SCORES):
    """[PlatformReport] in the order of entry; ValueError names the file and line that cannot be read."""
    path = Path(folder) / FILE
    reports = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else (), 1):
        try:
            values = json.loads(line)
            reports.append(PlatformReport(**{f.name: values[f.name] for f in fields(PlatformReport) if f.name in values}))
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}, line {number}: not a platform report: {error!r}") from error
    return reports


def append(reports, folder=SCORES):
    append_lines(Path(folder) / FILE, [json.dumps(asdict(report), ensure_ascii=False) for report in reports])


# --- entry by hand -------------------------------------------------------------------------------------------------------


def chip_of(text):
    """A column's title, English or Chinese -> chip, or None."""
    title = text.strip().lower()
    return next((chip for chip, words in CHIPS.items() if any(word in title for word in words)), None)


def parse_result(text):
    """A cell -> a speedup, "failed", or None where it says nothing: `15.29`, `15.29x`, `通过 15.29`, `failed`, `-`."""
    cell = text.strip().strip("*` ").lower()
    if cell in UNKNOWN:
        return None
    number = re.search(r"\d+(\.\d+)?", cell)
    if any(word == cell or (len(word) > 1 and word in cell) for word in FAILED):
        return "failed"
    if not number:
        raise ValueError(f"result {text.strip()!r}: a speedup, 'failed' or '-' is needed")
    return float(number.group())


def parse_results(items):
    """["nvidia=15.29", "ascend=failed"] -> (speedups, failed); ValueError names what is not of that form."""
    columns, cells = [], []
    for item in items:
        chip, equals, result = item.partition("=")
        if not equals or chip_of(chip) is None:
            raise ValueError(f"{item!r}: CHIP=RESULT is needed, CHIP one of {', '.join(CHIPS)} or its Chinese name")
        columns.append(chip_of(chip))
        cells.append(result)
    if not items:
        raise ValueError("CHIP=RESULT or --paste FILE is needed")
    return _report_of(cells, columns, "")[1:]


def parse_table(text):
    """A table as pasted (Markdown, tabs or commas) -> [(name, speedups, failed)]: a row a submission, or a row a chip.

    ValueError says what could not be read.
    """
    rows = [_cells(line) for line in text.splitlines() if line.strip()]
    rows = [row for row in rows if not all(re.fullmatch(r":?-+:?", cell.strip()) for cell in row)]
    if len(rows) < 2:
        raise ValueError("table: a title row and at least one more are needed, in Markdown, tabs or commas")
    columns = [chip_of(cell) for cell in rows[0]]
    if sum(chip is not None for chip in columns) >= 2:
        found = [_report_of(row, columns, row[0].strip()) for row in rows[1:]]
    else:
        body = [row for row in rows if len(row) >= 2 and chip_of(row[0])]
        found = [_report_of([row[-1] for row in body], [chip_of(row[0]) for row in body], "")]
    if not any(speedups or failed for _, speedups, failed in found):
        raise ValueError(f"table: no chip found; known names: {', '.join(words[0] for words in CHIPS.values())}, or in Chinese")
    return found


def _cells(line):
    if "|" in line:
        return line.strip().strip("|").split("|")
    return line.split("\t") if "\t" in line else line.replace("，", ",").split(",")


def _report_of(cells, columns, name):
    speedups, failed = {}, []
    for chip, cell in zip(columns, cells):
        result = parse_result(cell) if chip else None
        if result == "failed":
            failed.append(chip)
        elif result is not None:
            speedups[chip] = result
    return name, speedups, failed
