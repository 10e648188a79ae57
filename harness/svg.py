"""SVG and HTML markup by hand: escaped elements, points, scales and ticks, and the colours that page and pictures share."""

import html
import math
import re
from dataclasses import dataclass

SHAPES = ("circle", "square", "diamond", "triangle")  # of points
EMPTY_ELEMENTS = {"meta", "line", "rect", "circle", "path"}
NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # control characters, lone surrogates


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


# --- style -----------------------------------------------------------------------------------------------------------

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
