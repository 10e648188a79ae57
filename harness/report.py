"""Records and platform reports -> a page (report.html) and two pictures (roofline.svg, chips.svg). Measures nothing.

The page is one file: no script, no network, light and dark, for screens of 360 px and for paper. What was measured here and what
the platform told stay in sections of their own. The same input gives the same bytes: no clock, no random ids.
"""

import html
import math
import os
import re
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness import board, platform_reports
from harness.platform_reports import CHIPS
from harness.stats import MODES, spread

SHAPES = ("circle", "square", "diamond", "triangle")  # of points, by compress ratio
EMPTY_ELEMENTS = {"meta", "line", "rect", "circle", "path"}
NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # control characters, lone surrogates


def write_report(records, reports, folder):
    """[ScoreRecord], [PlatformReport] -> [paths] of the page and the pictures in `folder`; all rendered before one is written."""
    texts = {
        "report.html": page(records, reports),
        "roofline.svg": standalone(roofline(newest_run(records))),
        "chips.svg": standalone(chip_bars(reports, measured_names(records))),
    }
    Path(folder).mkdir(parents=True, exist_ok=True)
    return [write_whole(Path(folder) / name, text) for name, text in texts.items()]


def write_whole(path, text):
    """Write `path` at once: a reader, or a failure, finds the old file or the new one, never a part."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path


# --- markup --------------------------------------------------------------------------------------------------------------


class Markup(str):
    """Markup already; every other value is escaped where it is put in."""


def escaped(value):
    """Any value -> text that HTML and XML hold; numbers to a tenth, the pixel's share that shows."""
    if isinstance(value, Markup):
        return value
    text = f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
    return html.escape(NOT_XML.sub("\ufffd", text))


def join(*parts):
    return Markup("".join(escaped(part) for part in parts))


def el(name, /, *children, **attributes):
    """An element: `class_` is class, `stroke_width` is stroke-width; attributes that are None are left out."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"' for key, value in attributes.items() if value is not None
    )
    return Markup(f"<{name}{shown}/>" if name in EMPTY_ELEMENTS else f"<{name}{shown}>{join(*children)}</{name}>")


def label(x, y, text, class_="", anchor="start", **attributes):
    return el("text", text, x=float(x), y=float(y), class_=class_ or None, text_anchor=anchor, **attributes)


def segment(x1, y1, x2, y2, class_):
    return el("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)


def picture(width, height, title, *parts, class_=""):
    """<svg> on a card of its own; `title` is what a screen reader says."""
    card = el("rect", x=0.5, y=0.5, width=width - 1, height=height - 1, rx=8, class_="card")
    return el(
        "svg", card, *parts, class_=f"picture {class_}".strip(), viewBox=f"0 0 {width} {height}", role="img", aria_label=title
    )


def standalone(svg):
    """An inline <svg> -> a file: its namespace, size and style inside."""
    width, height = re.search(r'viewBox="0 0 (\d+) (\d+)"', svg).groups()
    start, rest = svg.split(">", 1)
    namespace = f' xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
    return f"{start}{namespace}><style>{THEME}{PICTURE_STYLE}</style>{rest}\n"


def mark(shape, x, y, size, class_, title=None):
    """A point of half-width `size` pixels; `title` shows under the pointer."""
    path = {
        "circle": f"M{x - size:.1f} {y:.1f}a{size} {size} 0 1 0 {2 * size} 0a{size} {size} 0 1 0 {-2 * size} 0z",
        "square": f"M{x - size * 0.9:.1f} {y - size * 0.9:.1f}h{size * 1.8:.1f}v{size * 1.8:.1f}h{-size * 1.8:.1f}z",
        "diamond": f"M{x:.1f} {y - size * 1.25:.1f}l{size * 1.25:.1f} {size * 1.25:.1f}l{-size * 1.25:.1f} {size * 1.25:.1f}"
        f"l{-size * 1.25:.1f} {-size * 1.25:.1f}z",
        "triangle": f"M{x:.1f} {y - size * 1.2:.1f}l{size * 1.2:.1f} {size * 2.1:.1f}h{-size * 2.4:.1f}z",
    }[shape]
    return el("path", d=path, class_=class_) if title is None else el("g", el("title", title), el("path", d=path, class_=class_))


def shortened(text, length):
    return text if len(text) <= length else text[: length - 3].rstrip() + "..."


# --- scales --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LogScale:
    """Values low..high -> pixels start..end, by logarithm."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value):
        return self.start + (self.end - self.start) * math.log(value / self.low) / math.log(self.high / self.low)

    def value(self, pixel):
        return self.low * (self.high / self.low) ** ((pixel - self.start) / (self.end - self.start))


def log_scale(values, start, end):
    """A scale whose least and greatest value fall on start and end; one value alone falls between."""
    low, high = min(values), max(values)
    return LogScale(low, high, start, end) if high > low * 1.05 else LogScale(low / 3, high * 3, start, end)


def log_ticks(low, high):
    """1, 2, 5 times powers of ten within low..high."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [m * 10.0**p for p in powers for m in (1, 2, 5) if low <= m * 10.0**p <= high]


def linear_ticks(high):
    """0 and four or so round steps, the last at or above `high`."""
    step = next(tick for tick in log_ticks(high / 50, high * 2) if high / tick <= 5)
    return [step * n for n in range(math.ceil(high / step) + 1)]


def quantity(value, units):
    """12e6, ("B", "kB", "MB") -> "12 MB": the unit that leaves 1 to 999 before the point."""
    power = min(len(units) - 1, max(0, math.floor(math.log10(value) / 3 + 1e-9)))
    return f"{value / 1000**power:.3g} {units[power]}"


def bytes_text(value):
    return quantity(value, ("B", "kB", "MB", "GB", "TB"))


def us_text(value):
    return f"{value:,.3g} us" if value < 1000 else f"{value:,.0f} us"


def times_text(value):
    return f"{value:.2f}x"


# --- picture: time against bytes -----------------------------------------------------------------------------------------


ROOFLINE_SIZE = (900, 580)
PLOT = (94, 100, 878, 512)  # left, top, right, bottom
BLOCK = (138, 17)  # pixels of a group's labels: width, height of a line


def state_bytes(record):
    """Bytes of state that a call reads once."""
    return round(record.floor_us * record.copy_bandwidth / 1e6)


def newest_run(records):
    """The latest of the latest runs, the better one of two of that time; [] without records."""
    return max(board.latest(records).values(), key=lambda run: run[-1].when, default=[])


def roofline(run):
    """One run -> picture of microseconds a call (cold, device) against bytes of state, over the floor at the copy bandwidth."""
    width, height = ROOFLINE_SIZE
    timed = [record for record in run if record.copy_bandwidth and record.timings_us.keys() & {"cold", "device"}]
    if not timed:
        return picture(width, 120, "No timed case yet", label(width / 2, 64, "No timed case yet.", "muted", "middle"))
    x, y = roofline_scales(timed)
    bandwidth = statistics.median(record.copy_bandwidth for record in timed)
    shapes = {c: SHAPES[n % len(SHAPES)] for n, c in enumerate(sorted({record.case["compress_ratio"] for record in timed}))}
    title = f"{run[-1].submission} on {run[-1].environment['chip']}: time of a call against the memory floor"
    return picture(
        width,
        height,
        title,
        label(24, 34, shortened(title, 90), "title"),
        roofline_legend(shapes, run[-1]),
        roofline_axes(x, y),
        floor_line(x, y, bandwidth, sorted({state_bytes(record) for record in timed})),
        *(roofline_points(record, mode, x, y, shapes) for mode in ("cold", "device") for record in timed),
        *roofline_labels(timed, x, y, shapes),
        class_="wide",
    )


def roofline_scales(timed):
    left, top, right, bottom = PLOT
    times = [record.floor_us for record in timed]
    times += [t for record in timed for mode in ("cold", "device") for t in quartiles(record, mode) or ()]
    return log_scale([state_bytes(record) for record in timed], left + 52, right - BLOCK[0] - 26), log_scale(
        times, bottom - 88, top + 20
    )


def quartiles(record, mode):
    """(first quartile, median, third quartile) in us, or None where that mode was not timed."""
    times = record.timings_us.get(mode)
    return spread(times["submission"]) if times else None


def roofline_axes(x, y):
    left, top, right, bottom = PLOT
    parts = []
    for tick in log_ticks(x.value(left), x.value(right)):
        parts += [segment(x(tick), top, x(tick), bottom, "grid"), label(x(tick), bottom + 18, bytes_text(tick), "muted", "middle")]
    for tick in log_ticks(y.value(bottom), y.value(top)):
        parts += [segment(left, y(tick), right, y(tick), "grid"), label(left - 8, y(tick) + 4, us_text(tick), "muted", "end")]
    parts += [segment(left, bottom, right, bottom, "axis"), segment(left, top, left, bottom, "axis")]
    parts.append(label((left + right) / 2, bottom + 44, "bytes of state read per call (log scale)", "", "middle"))
    middle = (top + bottom) / 2
    parts.append(label(26, middle, "microseconds per call (log scale)", "", "middle", transform=f"rotate(-90 26 {middle:.0f})"))
    return join(*parts)


def floor_line(x, y, bandwidth, groups):
    """bytes / bandwidth across the plot, what lies below it shaded, its name in the widest gap between the groups of points."""
    left, top, right, bottom = PLOT

    def height(pixel):
        return y(x.value(pixel) / bandwidth * 1e6)

    slope = (height(right) - height(left)) / (right - left)
    start = max(left, left + (bottom - height(left)) / slope)
    end = min(right, left + (top - height(left)) / slope)
    stops = [start, *(x(group) for group in groups), end]
    gap = max(range(len(stops) - 1), key=lambda n: stops[n + 1] - stops[n])
    middle = (stops[gap] + stops[gap + 1]) / 2
    corner = f"L{right} {top}" if end < right else ""
    area = f"M{start:.1f} {height(start):.1f}L{end:.1f} {height(end):.1f}{corner}L{right} {bottom}L{start:.1f} {bottom}z"
    turn = f"translate({middle:.1f} {height(middle):.1f}) rotate({math.degrees(math.atan(slope)):.1f})"
    name = f"memory floor: one read at {quantity(bandwidth, ('B/s', 'kB/s', 'MB/s', 'GB/s', 'TB/s'))}"
    return join(
        el("path", d=area, class_="below"),
        segment(start, height(start), end, height(end), "floor"),
        label(0, -9, name, "floor-name", "middle", transform=turn),
    )


def roofline_points(record, mode, x, y, shapes):
    """One case in one mode: its median, a whisker between its quartiles."""
    times = quartiles(record, mode)
    if times is None:
        return Markup()
    low, median, high = times
    at = x(state_bytes(record))
    title = f"{record.case['name']}, {mode}: {median:.1f} us [{low:.1f}, {high:.1f}] us"
    shape = shapes[record.case["compress_ratio"]]
    return join(
        segment(at, y(low), at, y(high), f"whisker {mode}"),
        mark(shape, at, y(median), 4 if mode == "device" else 7, f"point {mode}", title),
    )


def roofline_labels(timed, x, y, shapes):
    """A block of lines right of and below each group of cases that read as many bytes, moved down until it is free."""
    groups, taken, blocks = {}, [], []
    for record in timed:
        groups.setdefault(state_bytes(record), []).append(record)
    for size, group in sorted(groups.items()):
        block = (x(size) + 14, y(min(record.floor_us for record in group)) + 8, (len(group) + 1) * BLOCK[1])
        while any(overlap(block, other) for other in taken):
            block = (block[0], block[1] + 4, block[2])
        taken.append(block)
        blocks.append(label_block(block, group, shapes))
    return blocks


def overlap(a, b):
    """Whether two blocks (left, top, height) share a pixel."""
    return abs(a[0] - b[0]) < BLOCK[0] and a[1] < b[1] + b[2] and b[1] < a[1] + a[2]


def label_block(block, group, shapes):
    left, top, _ = block
    names = [record.case["name"] for record in group]
    common = os.path.commonprefix(names)
    common = common[: common.rfind("_") + 1] if len(group) > 1 else ""
    parts = [label(left, top + 11, shortened(common.strip("_") or bytes_text(state_bytes(group[0])), 20), "strong small")]
    for n, (record, name) in enumerate(zip(group, names), 1):
        line = top + 11 + n * BLOCK[1]
        median = (quartiles(record, "device") or quartiles(record, "cold"))[1]
        text = f"{shortened(name[len(common) :], 14)}: {median:.1f} us, {board.floor_share(record):.0%}"
        parts += [
            mark(shapes[record.case["compress_ratio"]], left + 4, line - 4, 3.2, "point plain"),
            label(left + 13, line, text, "small"),
        ]
    return join(*parts)


def roofline_legend(shapes, record):
    parts, at = [], 24
    mode = "device" if "device" in record.timings_us else "cold"
    entries = [("circle", 4, "point device", "device"), ("circle", 7, "point cold", "cold, L2 flushed")]
    entries += [(shape, 4, "point plain", f"C = {c} rows") for c, shape in shapes.items()]
    for shape, size, class_, text in entries:
        parts += [mark(shape, at + 7, 57, size, class_), label(at + 20, 61, text, "small")]
        at += 34 + 6.6 * len(text)
    said = f"Points: medians; whiskers: quartiles. Beside a group: {mode} median and the floor's share of it."
    parts.append(label(24, 83, said, "small muted"))
    return join(*parts)


# --- picture: chips ------------------------------------------------------------------------------------------------------


def measured_names(records):
    return {record.submission for record in records}


def is_ours(report, names):
    """Whether a report is of a submission that is measured here too, by its name: `solution`, or `solution, a version`."""
    return report.name.split(",")[0] in names


def chip_bars(reports, names=(), width=760):
    """Reports -> picture: a chip a row, the best speedup a bar, every report a dot; of `names`, measured here too, a diamond."""
    told = [report for report in reports if not report.outlier]
    known = [speedup for report in told for speedup in report.speedups.values()]
    class_ = "narrow" if width < 500 else "wide"
    if not known:
        empty = "No platform report yet."
        return picture(width, 120, empty, label(width / 2, 64, empty, "muted", "middle"), class_=class_)
    ticks = [tick for tick in linear_ticks(max(known)) if tick <= max(known) * 1.03]
    left, right, top, row = 18, width - 22, 84, 52
    bottom = top + row * len(CHIPS)
    ours = any(is_ours(report, names) for report in told)
    notes = chip_notes(reports, ours, width)

    def x(speedup):
        return left + (right - left) * speedup / max(known) / 1.03

    return picture(
        width,
        bottom + 34 + 18 * len(notes),
        "Speedup over the reference by chip, as the platform told it",
        label(left, 32, "Speedup by chip" + ", told by the platform" * (width >= 500), "title"),
        chip_legend(left),
        *(segment(x(at), top + row * n + 18, x(at), top + row * n + 46, "grid") for n in range(len(CHIPS)) for at in ticks),
        *(label(x(tick), bottom + 16, f"{tick:g}x", "muted small", "middle") for tick in ticks),
        *(segment(x(1), top + row * n + 18, x(1), top + row * n + 46, "reference") for n in range(len(CHIPS))),
        *(chip_row(chip, told, names, x, top + row * n, width) for n, chip in enumerate(CHIPS)),
        *(label(left, bottom + 40 + 18 * n, note, "small muted") for n, note in enumerate(notes)),
        class_=class_,
    )


def chip_row(chip, told, names, x, top, width):
    """A line of words, the bar of the best, the dots."""
    found = [report for report in told if chip in report.speedups]
    failed = sum(chip in report.failed for report in told)
    counts = f"{len(found)} told" + (f", {failed} failed" if failed else "")
    parts = [el("text", el("tspan", chip, class_="strong"), el("tspan", counts, dx=8, class_="small muted"), x=18, y=top + 14)]
    if not found:
        return join(*parts)
    best = max(found, key=lambda report: report.speedups[chip])
    value = best.speedups[chip]
    who = f"{times_text(value)}, {shortened(best.name, 20 if width < 500 else 48)}"
    bar = el("rect", x=x(0.0), y=top + 20.0, width=x(value) - x(0), height=11, rx=2, class_="bar")
    parts += [label(width - 22, top + 14, who, "small", "end"), bar]
    for report in sorted(found, key=lambda report: is_ours(report, names)):
        ours = is_ours(report, names)
        title = f"{report.name}, {chip}: {times_text(report.speedups[chip])}"
        parts.append(
            mark("diamond" if ours else "circle", x(report.speedups[chip]), top + 39, 4, "dot ours" if ours else "dot", title)
        )
    return join(*parts)


def chip_legend(left):
    parts = [
        el("rect", x=left, y=48, width=16, height=11, rx=2, class_="bar"), label(left + 22, 58, "best", "small"),
        mark("circle", left + 64, 54, 4, "dot"), label(left + 74, 58, "each report", "small"),
        segment(left + 156, 46, left + 156, 62, "reference"), label(left + 163, 58, "1x: reference", "small"),
    ]  # fmt: skip
    return join(*parts)


def chip_notes(reports, ours_told, width):
    """What the picture leaves out, in lines."""
    outliers = [f"{chip} {value:g}x" for report in reports if report.outlier for chip, value in report.speedups.items()]
    notes = [f"Outliers, not drawn: {', '.join(outliers)}"] if outliers else []
    notes.append("Diamonds: submissions measured here too." if ours_told else "No report is of a submission measured here.")
    return [shortened(note, width // 6) for note in notes]


# --- picture: history ----------------------------------------------------------------------------------------------------


def histories(records):
    """{(platform, submission): [runs, oldest first]}."""
    found = {}
    for record in records:
        found.setdefault((record.platform, record.submission), {}).setdefault(record.run, []).append(record)
    return {key: sorted(runs.values(), key=lambda run: run[-1].when) for key, runs in sorted(found.items())}


def comparable(runs):
    """The runs over the same cases as the fullest one, the latest of them: means over other cases are other numbers."""
    cases = [sorted(str(sorted(record.case.items())) for record in run) for run in runs]
    fullest = max(range(len(runs)), key=lambda n: (len(cases[n]), n), default=None)
    return [run for run, its in zip(runs, cases) if its == cases[fullest] and any(board.mean_speedup(run, mode) for mode in MODES)]


def history_picture(key, runs):
    """Mean speedups of a submission over its runs, a line a mode."""
    width, height, left, right, top, bottom = 380, 220, 46, 254, 24, 178
    title = f"{key[1]} on {key[0]}: mean speedup by run"
    if not runs:
        return picture(width, 90, title, label(width / 2, 50, "No run with every case timed.", "muted", "middle"))
    means = {mode: [board.mean_speedup(run, mode) for run in runs] for mode in MODES}
    ticks = linear_ticks(max(mean for line in means.values() for mean in line if mean))
    step = (right - left - 60) / max(1, len(runs) - 1)
    xs = [left + 30 + step * n for n in range(len(runs))] if len(runs) > 1 else [(left + right) / 2]

    def y(value):
        return bottom - (bottom - top) * value / ticks[-1]

    parts = [segment(left, y(tick), right, y(tick), "grid") for tick in ticks]
    parts += [label(left - 8, y(tick) + 4, f"{tick:g}x", "muted small", "end") for tick in ticks]
    parts += [label(at, bottom + 20, runs[n][-1].when[:10], "muted small", "middle") for n, at in shown_dates(xs)]
    ends = []
    for mode, shape in zip(MODES, SHAPES):
        points = [(at, y(mean), mean) for at, mean in zip(xs, means[mode]) if mean]
        parts += [segment(a[0], a[1], b[0], b[1], f"track {mode}") for a, b in zip(points, points[1:])]
        parts += [mark(shape, at, h, 4.5, f"point {mode} solid", f"{mode}: {times_text(mean)}") for at, h, mean in points]
        ends += [(points[-1][1], f"{mode} {times_text(points[-1][2])}", mode)] if points else []
    for height_, text, mode in apart(ends, 16):
        parts.append(label(right + 10, height_ + 4, text, f"small {mode}-text"))
    return picture(width, height, title, *parts)


def shown_dates(xs):
    """(index, pixel) of the runs whose date is written: those 80 pixels apart."""
    shown = []
    for n, at in enumerate(xs):
        if not shown or at - shown[-1][1] >= 80:
            shown.append((n, at))
    return shown


def apart(ends, least):
    """[(height, ...)] -> the same, top to bottom, each at least `least` pixels below the last."""
    placed = []
    for height, *rest in sorted(ends):
        placed.append((max(height, placed[-1][0] + least) if placed else height, *rest))
    return placed


# --- tables --------------------------------------------------------------------------------------------------------------


WORDS = {
    "name",
    "submission",
    "sha256",
    "route",
    "official",
    "case",
    "when",
    "when, UTC",
    "run",
    "submitted",
}  # columns that stand left
BAD = {"no", "failed", "mismatch", "crash", "timeout", "error"}
NOT_KNOWN = {"unknown", "-"}


def cell(column, text, *more):
    """A cell: what fails is marked by word and colour, what is not known is muted, all but words stand right."""
    kinds = ("bad" if text in BAD else None, "muted" if text in NOT_KNOWN else None, None if column in WORDS else "number", *more)
    return el("td", text, class_=" ".join(filter(None, kinds)) or None)


def scrolled(name, *rows):
    """A table that scrolls inside its own box, by keyboard too."""
    return el("div", el("table", *rows), class_="scroll", tabindex=0, role="region", aria_label=name)


def heads(columns):
    return el(
        "thead", el("tr", *(el("th", column, scope="col", class_=None if column in WORDS else "number") for column in columns))
    )


def board_table(table):
    """board.Table -> its title, table and notes."""
    rows = []
    for row in table.rows:
        first = el("th", row[0], scope="row")
        rows.append(el("tr", first, *map(cell, table.columns[1:], row[1:]), class_="mean" if row[0] == "mean" else None))
    notes = (el("p", note, class_="note") for note in table.notes)
    return join(el("h4", table.title), scrolled(table.title, heads(table.columns), el("tbody", *rows)), *notes)


RANKING = ("rank", "name", "passed", "mean", *CHIPS, "by rule", "submitted")


def ranking(reports):
    """One table: each final board in its order, then what was told apart from it, then the outliers."""
    if not reports:
        return el("p", "No platform report yet.", class_="none")
    places = {id(report): place for place, report in platform_reports.rank(reports)}
    official = [report for report in reports if report.official_rank is not None and not report.outlier]
    later = [report for report in reports if report.official_rank is None and not report.outlier]
    groups = [
        (source or "Final board", sorted((r for r in official if r.source == source), key=lambda r: r.official_rank))
        for source in dict.fromkeys(r.source for r in official)
    ]
    groups += [
        ("Told apart from a final board", sorted(later, key=lambda r: places.get(id(r), math.inf))),
        ("Outliers: an artefact of a checker or a timer, shown, never ranked", [r for r in reports if r.outlier]),
    ]
    best = {chip: max((r.speedups[chip] for r in reports if chip in r.speedups and not r.outlier), default=None) for chip in CHIPS}
    bodies = (ranking_group(title, group, places, best) for title, group in groups if group)
    return scrolled("Ranking as the platform told it", heads(RANKING), *bodies)


def ranking_group(title, group, places, best):
    head = el("tr", el("th", el("span", title), colspan=len(RANKING), scope="rowgroup"), class_="group")
    return el("tbody", head, *(ranking_row(report, places.get(id(report)), best) for report in group))


def ranking_row(report, place, best):
    """Cells in the order of RANKING."""
    notes = [el("small", report.note)] if report.note else []
    mean = report.mean_speedup()
    rank = "outlier" if report.outlier else "-" if report.official_rank is None else str(report.official_rank)
    return el(
        "tr",
        cell("rank", rank),
        el("th", report.name, *notes, scope="row"),
        cell("passed", "unknown" if report.chips_passed is None else f"{report.chips_passed} of {len(CHIPS)}"),
        cell("mean", "unknown" if mean is None else times_text(mean)),
        *(chip_cell(report, chip, best[chip]) for chip in CHIPS),
        cell("by rule", "never" if report.outlier else "-" if place is None else str(place)),
        cell("submitted", (report.submitted or "unknown")[:16].replace("T", " ")),
        class_="outlier" if report.outlier else None,
    )


def chip_cell(report, chip, best):
    if chip in report.failed:
        return cell(chip, "failed")
    if chip not in report.speedups:
        return cell(chip, "unknown")
    return cell(chip, times_text(report.speedups[chip]), "best" if report.speedups[chip] == best and not report.outlier else None)


def run_table(runs):
    """History in figures, newest first."""
    columns = ("when, UTC", "run", "sha256", "cases passed", *(f"{mode} x" for mode in MODES))
    rows = []
    for run in reversed(runs):
        last = run[-1]
        means = (board.mean_speedup(run, mode) for mode in MODES)
        cells = (last.run, last.submission_sha256[:8], f"{len(board.passed(run))} of {len(run)}")
        cells += tuple("-" if mean is None else times_text(mean) for mean in means)
        rows.append(el("tr", el("th", last.when[:16].replace("T", " "), scope="row"), *map(cell, columns[1:], cells)))
    return scrolled(f"Runs of {runs[-1][-1].submission}", heads(columns), el("tbody", *rows))


# --- page ----------------------------------------------------------------------------------------------------------------


MEASURED, TOLD = "measured here", "told by the platform"

HOW = (
    ("cold", "The L2 flushed before each call, device events around it. Host time counts only where it is longer than the flush."),
    ("warm", "Back-to-back calls on one input, wall clock a call: what a serving loop sees, host included."),
    ("device", "Graph replay over inputs rotated past the L2: the kernels alone. One sample is one replay, divided by its calls."),
    (
        "speedup, x",
        "Reference over submission, medians of one run in one mode, both timed in turn. Means are arithmetic, over the cases, "
        "and given only where every case was timed. Modes are never mixed: each answers its own question.",
    ),
    ("official", "The contest's check: int8 and scale bytes equal, rotary part within 1e-2."),
    ("strict", "Every byte equal."),
    (
        "tie",
        "A byte that differs, but lies inside the interval that float32 rounding leaves around the float64 value, as the "
        "reference's byte does.",
    ),
    ("wrong", "A byte that no order of addition explains. One is enough to fail, and a file with one never gets a speed."),
    (
        "floor",
        "Every state row read once, 4,096 bytes a row, at the copy bandwidth measured beside the case. Of floor: its share of "
        "the device time, of the cold time where the backend has no graphs. A little over 100% is the scatter of two "
        "measurements.",
    ),
    (MEASURED, "Bytes and times that this harness took on a machine at hand, from the records in scores/."),
    (
        TOLD,
        "Speedups and failures as the contest's platform showed them, entered by hand. No figure joins the two: the chips, the "
        "timer and the run of the reference are others.",
    ),
    (
        "rank",
        "As on the final board. By rule: the contest's rule over every report known, also those told apart from a final board: "
        "chips passed, then the mean speedup over the passed chips, then the earlier submission.",
    ),
    (
        "outlier",
        "An artefact of a checker or a timer, faster than memory allows. Shown and marked; never ranked, never a best, never in "
        "a mean, never drawn.",
    ),
    ("unknown", "Not told: neither a failure nor a pass."),
)


def page(records, reports):
    """The whole page as text."""
    sections = (
        ("ranking", "Ranking", TOLD, ranking(reports)),
        ("chips", "Speedup by chip", TOLD, chips_section(records, reports)),
        ("measured", "Submissions, latest runs", MEASURED, measured_section(records)),
        ("history", "History", MEASURED, history_section(records)),
        ("how", "How each figure was taken", None, el("dl", *(join(el("dt", term), el("dd", text)) for term, text in HOW))),
    )
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'"),
        el("title", "c128_256_512_compress: report"),
        el("style", Markup(THEME + PICTURE_STYLE + PAGE_STYLE)),
    )
    body = el("body", header(records, reports, sections), el("main", *(section(*values) for values in sections)))
    return f"<!DOCTYPE html>\n{el('html', head, body, lang='en')}\n"


def section(name, title, source, content):
    return el("section", el("h2", title, *([source_tag(source)] if source else [])), content, id=name)


def source_tag(source):
    return el("span", source, class_="tag here" if source == MEASURED else "tag told")


def header(records, reports, sections):
    links = (el("a", title, href=f"#{name}") for name, title, *_ in sections)
    what = "KV-cache compression in Triton: 128, 256 or 512 state rows become one packed slot of 584 bytes."
    tiles = el("div", *measured_tiles(newest_run(records)), *told_tiles(reports), class_="tiles")
    return el("header", el("h1", "c128_256_512_compress"), el("p", what), tiles, el("nav", *links, aria_label="Sections"))


def tile(figure, text, source):
    return el("div", el("b", figure), el("span", text), source_tag(source), class_="tile")


def measured_tiles(run):
    """The newest run in three figures."""
    if not run:
        return [tile("none yet", "no record", MEASURED)]
    last = run[-1]
    name = f"{last.submission} on {last.environment['chip']}"
    tiles = [tile(f"{len(board.passed(run))} of {len(run)}", f"cases passed, {byte_counts(run)}; {name}", MEASURED)]
    mode = next((mode for mode in ("device", "cold") if board.mean_speedup(run, mode)), None)
    if mode:
        tiles.append(
            tile(times_text(board.mean_speedup(run, mode)), f"mean speedup over the reference, mode {mode}; {name}", MEASURED)
        )
    shares = [board.floor_share(record) for record in run if record.timings_us and record.copy_bandwidth]
    if shares:
        tiles.append(tile(f"{min(shares):.0%} to {max(shares):.0%}", "of the memory floor, least and greatest case", MEASURED))
    return tiles


def byte_counts(run):
    verdicts = [record.verdict for record in run if record.verdict]
    compared, differing, ties = (sum(verdict[key] for verdict in verdicts) for key in ("compared", "differing", "ties"))
    return f"{differing - ties:,} wrong bytes and {ties:,} ties in {compared:,}"


def told_tiles(reports):
    """The first of the final board, or of the rule where there is none."""
    official = sorted((r for r in reports if r.official_rank and not r.outlier), key=lambda r: r.official_rank)
    first = official[0] if official else next((report for _, report in platform_reports.rank(reports)), None)
    if first is None:
        return [tile("none yet", "no ranked report", TOLD)]
    where = "first of the final board" if official else "first by the contest's rule"
    mean = first.mean_speedup()
    figure = "-" if mean is None else times_text(mean)
    return [tile(figure, f"mean over {first.chips_passed} of {len(CHIPS)} chips, {where}: {first.name}", TOLD)]


def chips_section(records, reports):
    names = measured_names(records)
    return el("figure", chip_bars(reports, names), chip_bars(reports, names, 340))


def measured_section(records):
    """A platform: its summary, the picture of its best submission, every latest run by case."""
    if not records:
        return el("p", "No record yet.", class_="none")
    platforms = {}
    for (platform, _), run in board.latest(records).items():
        platforms.setdefault(platform, []).append(run)
    parts = []
    for (platform, runs), summary in zip(platforms.items(), board.summaries(records)):
        best = el(
            "figure", el("div", roofline(runs[0]), class_="scroll", tabindex=0, role="region", aria_label=f"Picture: {platform}")
        )
        parts += [el("h3", platform), board_table(summary), best, *(board_table(board.detail(run)) for run in runs)]
    return join(*parts)


def history_section(records):
    if not records:
        return el("p", "No record yet.", class_="none")
    parts = []
    for key, runs in histories(records).items():
        chart = el("figure", history_picture(key, comparable(runs)))
        parts += [el("h3", f"{key[1]} on {key[0]}"), el("div", chart, run_table(runs), class_="beside")]
    note = "Drawn: mean speedups of the runs over the same cases as the fullest run; the table has all runs."
    return join(*parts, el("p", note, class_="note"))


# --- style ---------------------------------------------------------------------------------------------------------------
# Blue, vermilion and purple of the Okabe-Ito palette, darkened or lightened until each reads as text (4.5 to 1) on its ground.

THEME = """
:root{color-scheme:light dark;--page:#f5f7f9;--card:#fff;--ink:#1b2129;--muted:#55606c;--line:#d5dbe1;--shade:#eef1f4;
  --device:#0067a3;--cold:#b34a00;--warm:#9b2f76;--bad:#b3261e;--bar:#0067a3}
@media screen and (prefers-color-scheme:dark){
  :root{--page:#0e1318;--card:#161d25;--ink:#e6ebf0;--muted:#a2adb8;--line:#323c47;--shade:#1e2731;--device:#5cb6f2;
    --cold:#f2a65a;--warm:#e893c4;--bad:#ff9d94;--bar:#3f8fc4}
}
"""

PICTURE_STYLE = """
.picture{font:13px system-ui,-apple-system,"Segoe UI",sans-serif;font-variant-numeric:tabular-nums}
.picture text{fill:var(--ink)}
.picture .card{fill:var(--card);stroke:var(--line)}
.picture .title{font-size:16px;font-weight:600}
.picture .strong{font-weight:600}
.picture .small{font-size:12px}
.picture .muted{fill:var(--muted)}
.picture .grid{stroke:var(--line);stroke-width:1}
.picture .axis{stroke:var(--muted);stroke-width:1}
.picture .floor{stroke:var(--ink);stroke-width:2}
.picture .below{fill:var(--shade)}
.picture .floor-name{font-weight:600}
.picture .whisker{stroke-width:1.5}
.picture .device{stroke:var(--device)}
.picture .cold{stroke:var(--cold)}
.picture .warm{stroke:var(--warm)}
.picture .point{stroke-width:1.8;fill:none}
.picture .point.device{fill:var(--device)}
.picture .point.plain{fill:var(--muted);stroke:none}
.picture .point.cold.solid{fill:var(--cold)}
.picture .point.warm{fill:var(--warm)}
.picture .track{stroke-width:2}
.picture .device-text{fill:var(--device)}
.picture .cold-text{fill:var(--cold)}
.picture .warm-text{fill:var(--warm)}
.picture .bar{fill:var(--bar)}
.picture .reference{stroke:var(--ink);stroke-dasharray:4 3}
.picture .dot{fill:var(--muted);stroke:var(--card);stroke-width:1}
.picture .dot.ours{fill:var(--cold)}
"""

PAGE_STYLE = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
header,main{max-width:1360px;margin:0 auto;padding:0 20px}
header{padding-top:28px}
h1{font-size:clamp(19px,5.8vw,26px);line-height:1.2;margin:0;overflow-wrap:anywhere}
header p{color:var(--muted);margin:6px 0 18px}
h2{font-size:20px;margin:44px 0 14px;display:flex;flex-wrap:wrap;gap:6px 12px;align-items:center}
h3{font-size:16px;margin:24px 0 8px}
h4{font-size:14px;font-weight:600;margin:20px 0 8px;overflow-wrap:anywhere}
.tag{font-size:12px;font-weight:600;line-height:1;padding:5px 9px;border-radius:99px;border:1px solid;white-space:nowrap;
  align-self:start}
h2 .tag{align-self:center}
.here{color:var(--device)}
.told{color:var(--warm)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:12px}
.tile{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px 16px;display:flex;
  flex-direction:column;gap:6px}
.tile b{font-size:24px;line-height:1.2;font-variant-numeric:tabular-nums}
.tile span:not(.tag){color:var(--muted);font-size:14px;flex:1;overflow-wrap:anywhere}
nav{display:flex;flex-wrap:wrap;gap:4px 18px;margin-top:18px}
nav a{color:var(--device);padding:4px 0}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:8px;position:relative}
.scroll:focus-visible,a:focus-visible{outline:2px solid var(--device);outline-offset:2px}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{padding:6px 9px;text-align:left;white-space:nowrap;border-top:1px solid var(--line);vertical-align:baseline}
thead th{border-top:0;color:var(--muted);font-weight:600;background:var(--shade)}
tbody th{font-weight:500}
tbody th small{display:block;color:var(--muted);font-weight:400;font-size:12px;white-space:normal;min-width:180px;max-width:280px}
.group th{background:var(--shade);font-weight:600;padding-top:9px}
.group th span{position:sticky;left:10px;display:inline-block;max-width:min(80vw,1100px);white-space:normal}
.number{text-align:right}
.muted{color:var(--muted)}
.bad{color:var(--bad);font-weight:600}
.best{font-weight:700;color:var(--device)}
.outlier td,.outlier th{color:var(--muted);font-style:italic}
.mean td,.mean th{font-weight:700;border-top:2px solid var(--line)}
.note{color:var(--muted);font-size:13px;margin:6px 0 0}
.none{color:var(--muted)}
figure{margin:16px 0}
.picture{display:block;width:100%;height:auto}
figure .scroll{border:0;background:none}
figure .scroll .picture{min-width:720px;max-width:1040px;margin:0 auto}
figure>.picture{max-width:900px}
.narrow{display:none}
.beside{display:grid;grid-template-columns:minmax(0,440px) minmax(0,1fr);gap:16px;align-items:start}
.beside figure{margin:0;max-width:440px}
dl{display:grid;grid-template-columns:minmax(90px,auto) minmax(0,1fr);gap:8px 20px;max-width:900px;margin:0 0 60px}
dt{font-weight:600}
dd{margin:0}
@media (max-width:900px){
  .beside{grid-template-columns:minmax(0,1fr)}
}
@media (max-width:560px){
  header,main{padding-left:14px;padding-right:14px}
  .picture.wide{display:none}
  .scroll .picture.wide,.narrow{display:block}
  dl{grid-template-columns:minmax(0,1fr);gap:2px}
  dd{margin-bottom:10px}
  tbody th{white-space:normal}
  tbody th small{min-width:110px}
}
@media print{
  @page{size:A4 landscape;margin:12mm}
  body{background:#fff;font-size:11pt}
  nav{display:none}
  header,main{max-width:none;padding:0}
  .scroll{overflow:visible}
  table{font-size:8.5pt}
  th,td{padding:2.5pt 5pt}
  thead{display:table-header-group}
  tr,figure,.tile,dt,dd{break-inside:avoid}
  h2,h3,h4{break-after:avoid}
  .picture.wide{display:block}
  .picture.narrow{display:none}
  tbody th small{max-width:230px;min-width:120px;font-size:7pt}
  figure .scroll .picture,figure>.picture{min-width:0;max-width:620px;margin:0}
}
"""
