"""The page and its pictures: whole, self-contained, escaped, written at once; looked at in a browser where there is one."""

import html
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from harness import pictures, platform_reports, records, report
from harness.platform_reports import CHIPS, PlatformReport
from harness.records import ScoreRecord

FILES = ["report.html", "roofline.svg", "chips.svg"]
HOSTILE = "<b>&\"'\x00</script>"
CASES = [(f"r{r}_t{t}_c{c}", c, t // c) for r, t in ((1, 8192), (4, 32768), (8, 65536), (8, 131072)) for c in (128, 256, 512)]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
VOID = {"meta", "line", "rect", "circle", "path"}


def record(case=0, **changes):
    name, ratio, outputs = CASES[case]
    floor = outputs * ratio * 4096 / 4e12 * 1e6
    timings = {
        mode: {"reference": f"{floor * 20} {floor * 21}", "submission": f"{floor * k} {floor * k * 1.2}"}
        for mode, k in (("cold", 1.6), ("warm", 2.5), ("device", 1.2))
    }
    made = ScoreRecord(
        when="2026-01-01T00:00:00+00:00", run="r1", platform="a-chip",
        environment={"chip": "A", "torch": "2", "triton": "3", "python": "3"},
        submission="ours", submission_sha256="a" * 64, reference_sha256="b" * 64, route="nvidia", evidence="",
        case={"name": name, "compress_ratio": ratio}, seed=0, input_sha256="c" * 64, num_outputs=outputs, status="pass",
        message="", verdict={"compared": 9, "differing": 0, "ties": 0, "official": True, "regions": {}},
        timings_us=timings, copy_bandwidth=4.0e12,
    )  # fmt: skip
    return replace(made, **changes)


def run_of(**changes):
    return [record(case, **changes) for case in range(len(CASES))]


HOSTILE_RECORDS = run_of(submission=HOSTILE, platform=HOSTILE, route=HOSTILE)
HOSTILE_REPORTS = [
    PlatformReport(HOSTILE, dict.fromkeys(CHIPS, 2.0), note=HOSTILE, submitted=HOSTILE, official_rank=1, source=HOSTILE)
]
INPUTS = {
    "stored": lambda: (records.read(), platform_reports.read()),
    "empty": lambda: ([], []),
    "records": lambda: (run_of(), []),
    "reports": lambda: ([], platform_reports.read()),
    "failed": lambda: ([record(status="crash", verdict=None, timings_us={}, copy_bandwidth=None)], []),
    "outliers": lambda: ([], [r for r in platform_reports.read() if r.outlier]),
    "no graphs": lambda: ([replace(r, timings_us={"cold": r.timings_us["cold"]}) for r in run_of()], []),
    "one case": lambda: ([record()], [PlatformReport("ours", {"metax": 3.0})]),
    "two": lambda: (run_of() + run_of(run="r2", when="2026-01-02T00:00:00+00:00") + run_of(platform="b", submission="x"), []),
    "also told": lambda: (run_of(), [PlatformReport("ours, v2", dict.fromkeys(CHIPS, 2.0)), *platform_reports.read()]),
    "hostile": lambda: (HOSTILE_RECORDS, HOSTILE_REPORTS),
}


@pytest.fixture(params=INPUTS)
def written(request, tmp_path):
    paths = report.write_report(*INPUTS[request.param](), tmp_path / "report")
    assert [path.name for path in paths] == FILES and sorted(FILES) == sorted(p.name for p in (tmp_path / "report").iterdir())
    return paths


class Page(HTMLParser):
    """Counts what is open; remembers the text and the attributes."""

    def __init__(self, text):
        super().__init__()
        self.open, self.texts, self.attributes, self.tags = [], [], [], set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes += attributes
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        assert tag in VOID
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_page_is_well_formed_and_loads_nothing(written):
    text = written[0].read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == [] and text.startswith("<!DOCTYPE html>")
    assert not page.tags & {"script", "link", "img", "iframe", "object", "b<"}
    assert not re.search(r"https?:|//[a-z]|url\(|@import", text)
    assert {value[0] for name, value in page.attributes if name in ("href", "src")} == {"#"}
    assert not any(name.startswith("on") for name, _ in page.attributes)


def test_page_links_lead_to_sections(written):
    attributes = Page(written[0].read_text(encoding="utf-8")).attributes
    ids = [value for name, value in attributes if name == "id"]
    assert len(ids) == len(set(ids)) == 5
    assert {value[1:] for name, value in attributes if name == "href"} == set(ids)


def test_pictures_are_xml_with_size_style_and_text(written):
    for path in written[1:]:
        text = path.read_text(encoding="utf-8")
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and float(root.get("width")) > 0 and root.get("aria-label")
        assert "prefers-color-scheme:dark" in text and "system-ui" in text
        assert text.count("http") == 1  # the namespace: a name, never loaded
        assert root.find(".//{*}text") is not None and "NaN" not in text and "inf" not in text


def test_every_report_and_every_case_is_shown(tmp_path):
    stored, told = records.read(), platform_reports.read()
    page = Page(report.write_report(stored, told, tmp_path)[0].read_text(encoding="utf-8"))
    for one in told:
        assert page.texts.count(one.name) >= 1
        assert all(f"{speedup:.2f}x" in page.texts for speedup in one.speedups.values())
    assert {r.case["name"] for r in stored} <= set(page.texts)
    assert page.texts.count("failed") == sum(len(r.failed) for r in told)
    assert page.texts.count("outlier") - 1 == sum(r.outlier for r in told)  # one more in the explanations


def test_official_rows_stand_in_their_order():
    """The final board's own ranks, with what was told later below it, whatever the rule makes of that."""
    told = platform_reports.read()
    rows = re.findall(r'<tr[^>]*><td class="[^"]*">([^<]*)</td><th', report.ranking(list(reversed(told))))
    official = [str(n) for n in range(1, 12)]
    assert rows == official + ["-"] * sum(r.official_rank is None and not r.outlier for r in told) + ["outlier"] * 2


def test_outliers_never_reach_the_scale_or_the_best():
    outlier = PlatformReport("odd", {"metax": 277.0}, outlier=True)
    told = [PlatformReport("even", dict.fromkeys(CHIPS, 2.0)), outlier]
    assert pictures.chip_bars(told).count("277") == 1 and "Outliers, not drawn: metax 277x" in pictures.chip_bars(told)
    assert "277.00x, odd" not in pictures.chip_bars(told)
    assert 'best">277' not in report.ranking(told)


def test_data_are_escaped(tmp_path):
    for path in report.write_report(HOSTILE_RECORDS, HOSTILE_REPORTS, tmp_path):
        text = path.read_text(encoding="utf-8")
        assert "<b>&" not in text and "\x00" not in text and "</script>" not in text
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert HOSTILE.replace("\x00", "\ufffd") in page.texts


def test_empty_inputs_say_so(tmp_path):
    page, roofline, chips = (path.read_text() for path in report.write_report([], [], tmp_path))
    assert "No record yet." in page and "No platform report yet." in page
    assert "No timed case yet." in roofline and "No platform report yet." in chips


def test_same_input_same_bytes(tmp_path):
    first = [path.read_bytes() for path in report.write_report(run_of(), platform_reports.read(), tmp_path)]
    assert first == [path.read_bytes() for path in report.write_report(run_of(), platform_reports.read(), tmp_path)]


def test_a_failed_rendering_leaves_the_old_files(tmp_path, monkeypatch):
    old = [path.read_bytes() for path in report.write_report([], [], tmp_path)]
    monkeypatch.setattr(report, "chip_bars", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        report.write_report(run_of(), [], tmp_path)
    assert [(tmp_path / name).read_bytes() for name in FILES] == old


def test_a_failed_write_leaves_the_old_file_and_no_part(tmp_path, monkeypatch):
    path = tmp_path / "page"
    path.write_text("old")

    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr(report.os, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        report.write_whole(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_history_draws_only_runs_over_the_same_cases():
    whole, part, later = run_of(), [record(run="r2", when="2026-01-02")], run_of(run="r3", when="2026-01-03")
    (runs,) = pictures.histories(later + part + whole).values()
    assert [run[0].run for run in runs] == ["r1", "r2", "r3"]
    assert [run[0].run for run in pictures.comparable(runs)] == ["r1", "r3"]


def luminance(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
    parts = [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_text_has_contrast_in_both_themes():
    """WCAG AA, 4.5 to 1: every colour of text on every ground."""
    themes = [dict(re.findall(r"--(\w+):(#\w+)", part)) for part in report.THEME.split("@media")]
    assert len(themes) == 2 and themes[0].keys() == themes[1].keys()
    for theme in themes:
        for text in ("ink", "muted", "device", "cold", "warm", "bad"):
            for ground in ("page", "card", "shade"):
                light, dark = sorted((luminance(theme[text]), luminance(theme[ground])), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground, theme)


LOOK = """
<!DOCTYPE html><meta charset="utf-8"><body>%s<script>
function overlaps(svg) {
  const card = svg.getBoundingClientRect(), found = [];
  const texts = [...svg.querySelectorAll("text:not([transform])")];
  const boxes = texts.map(text => [text.textContent, text.getBoundingClientRect()]);
  const inside = b => b.left >= card.left && b.right <= card.right + 0.5 && b.top >= card.top && b.bottom <= card.bottom + 0.5;
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3;
  boxes.forEach(([text, box], n) => {
    if (!inside(box)) found.push("outside: " + text);
    boxes.slice(n + 1).forEach(([other, its]) => meet(box, its) && found.push(text + " on " + other));
  });
  return found;
}
window.onload = () => {
  const seen = [...document.querySelectorAll("iframe")].map(frame => {
    const root = frame.contentDocument.documentElement;
    const svgs = [...root.querySelectorAll("svg")].filter(svg => svg.getBoundingClientRect().width > 0);
    const widths = {client: root.clientWidth, scroll: root.scrollWidth};
    return {frame: frame.title, ...widths, svgs: svgs.length, overlaps: svgs.flatMap(overlaps)};
  });
  document.body.textContent = "SEEN" + JSON.stringify(seen) + "END";
};
</script>"""


@pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome here: layout is checked only where a browser is")
def test_layout_in_a_browser(tmp_path):
    """No sideways scrolling at 360, 800, 1600 px, no text on text or outside its picture, nothing on the console."""
    frames = ""
    for name in ("stored", "empty", "two", "no graphs", "one case", "also told"):
        page = report.page(*INPUTS[name]())
        for width in (360, 800, 1600):
            style = f"width:{width}px;height:600px;border:0"
            frames += f'<iframe title="{name}, {width}" style="{style}" srcdoc="{html.escape(page)}"></iframe>'
    (tmp_path / "look.html").write_text(LOOK % frames, encoding="utf-8")
    shown = browse(tmp_path)
    seen = json.loads(html.unescape(re.search("SEEN(.*)END", shown.stdout).group(1)))
    assert len(seen) == 18
    for frame in seen:
        assert frame["scroll"] <= frame["client"], frame
        assert frame["overlaps"] == [], frame
        assert frame["svgs"] >= 1, frame
    assert "CONSOLE" not in shown.stderr, shown.stderr


def browse(folder):
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
        "--disable-background-networking", "--disable-component-update", f"--user-data-dir={folder / 'profile'}",
        "--enable-logging=stderr", "--window-size=1700,900", "--dump-dom", (folder / "look.html").as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=60)
