"""What Triton can say of each technique: three classes, as data, checked against the installed Triton.

A: said directly in the tile language. B: said with its lower-level or backend-specific primitives. C: needs the vendor's own
intrinsics. The test of a class: if this primitive were swapped for a similar one, would the conclusion still hold? The sorting is
that of a textbook chapter on the Ascend sparse attention kernel, made for Triton here. `ascend` names what Ascend's own Triton
(triton-ascend 3.2.0) has instead; a technique of class C with such names is class B there.
"""

import importlib
import importlib.util
import inspect
import json
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("primitives.json")
CLASSES = {"A": "said in the language", "B": "said with lower-level primitives", "C": "needs the vendor's intrinsics"}


@dataclass(frozen=True)
class Technique:
    name: str
    klass: str
    triton: tuple  # primitives, dotted below triton; "name:argument" where an argument is what counts
    ascend: tuple  # those of Ascend's Triton
    holds: str  # what decides whether the conclusion survives a swap

    def __post_init__(self):
        if self.klass not in CLASSES or (self.klass == "C") != (not self.triton):
            raise ValueError(f"{self}: class A or B names its primitives, class C has none")


def load(path=FILE):
    """-> [Technique]"""
    rows = json.loads(Path(path).read_text(encoding="utf-8"))
    return [Technique(r["technique"], r["class"], tuple(r["triton"]), tuple(r["ascend"]), r["holds"]) for r in rows]


def exists(primitive, package="triton"):
    """Whether `package` has the primitive, by its dotted name (modules are imported), and the argument after a colon."""
    path, _, argument = primitive.partition(":")
    found = importlib.import_module(package)
    for name in path.split("."):
        if not hasattr(found, name):
            module = f"{found.__name__}.{name}" if inspect.ismodule(found) else ""
            if not module or importlib.util.find_spec(module) is None:
                return False
            importlib.import_module(module)
        found = getattr(found, name)
    return not argument or argument in inspect.signature(inspect.unwrap(getattr(found, "fn", found))).parameters


def is_ascend():
    """Whether the installed Triton is Ascend's."""
    return importlib.util.find_spec("triton.backends.ascend") is not None


def check(technique):
    """Technique -> {primitive: whether the installed Triton has it}, of the primitives that are this Triton's."""
    return {primitive: exists(primitive) for primitive in (technique.ascend if is_ascend() else technique.triton)}
