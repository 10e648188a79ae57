"""Records and platform reports -> the three pictures: time against bytes, speedup by chip, history. Measures nothing."""

import math
import os
import statistics

from harness import board
from harness.platform_reports import CHIPS
from harness.stats import MODES, spread
from harness.svg import (
    SHAPES,
    Markup,
    bytes_text,
    el,
    join,
    label,
    linear_ticks,
    log_scale,
    log_ticks,
    mark,
    picture,
    quantity,
    segment,
    shortened,
    times_text,
    us_text,
)

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
    times = record.times(mode)
    return spread(times.submission) if times else None


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
    for run in board.runs(records):
        found.setdefault((run[-1].platform, run[-1].submission), []).append(run)
    return dict(sorted(found.items()))


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
