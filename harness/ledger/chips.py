"""Chips as data: chips.json, each figure with its unit, its kind and its source.

Kinds: measured (here, by this harness), published (the vendor, or its toolchain), reported (a third party), assumed (a bound or
a guess, said with the figure). A figure that nobody published is absent, and every floor that needs it stays blank.
"""

import json
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("chips.json")
KINDS = ("measured", "published", "reported", "assumed")


@dataclass(frozen=True)
class Figure:
    value: float
    unit: str
    kind: str
    source: str

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"{self}: kind must be one of {', '.join(KINDS)}")
        if not (self.unit and self.source and self.value > 0):
            raise ValueError(f"{self}: a positive value, a unit and a source are needed")


@dataclass(frozen=True)
class Chip:
    key: str  # lower-case letters, digits and hyphens, as the chip's file in scores/
    name: str
    short: str  # as a column's head
    route: str  # of solution.py on this chip
    figures: dict  # name -> Figure

    def value(self, name):
        """A figure's value, or None where it is not known."""
        return self.figures[name].value if name in self.figures else None

    def rate(self, name):
        """Operations a second of the whole chip, or None."""
        parts = [self.value(part) for part in (name, "cores", "clock")]
        return None if None in parts else parts[0] * parts[1] * parts[2]


def load(path=FILE):
    """-> {key: Chip}; ValueError names the chip and the figure that is wrong."""
    chips = {}
    for key, entry in json.loads(Path(path).read_text(encoding="utf-8")).items():
        try:
            figures = {name: Figure(**figure) for name, figure in entry["figures"].items()}
            chips[key] = Chip(key, entry["name"], entry["short"], entry["route"], figures)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: {key}: {error}") from error
    return chips


def choose(keys):
    """[Chip] of those keys, all without one."""
    chips = load()
    for key in keys:
        if key not in chips:
            raise ValueError(f"--chip {key}: known: {', '.join(chips)}")
    return [chips[key] for key in keys or chips]
