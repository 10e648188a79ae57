"""Records and platform reports -> a page (report.html) and two pictures (roofline.svg, chips.svg). Measures nothing.

The page is one file: no script, no network, light and dark, for screens of 360 px and for paper. What was measured here and what
the platform told stay in sections of their own. The same input gives the same bytes: no clock, no random ids.
"""

import math
import os
import tempfile
from pathlib import Path

from harness import board, platform_reports
from harness.board import MEASURED, TOLD
from harness.pictures import chip_bars, comparable, histories, history_picture, measured_names, newest_run, roofline
from harness.platform_reports import CHIPS
from harness.stats import MODES
from harness.svg import PICTURE_STYLE, THEME, Markup, el, join, standalone, times_text


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
        first = el("th", row[0], scope="row", class_=None if table.columns[0] in WORDS else "number")
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
    best = board.best_of_chips(reports)
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
        "the device time, of the cold time where the backend has no graphs. A little over 100%: reading alone ran "
        "faster than the copy, which also writes.",
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
    parts = []
    for (platform, runs), summary in zip(board.by_platform(records).items(), board.summaries(records)):
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


# --- style of the page -----------------------------------------------------------------------------------------------

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
