"""What a case is: a frozen, self-checking description. The data lies in cases/*.json; harness/inputs.py draws its tensors."""

import json
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path

from harness import ROOT

OFFICIAL = ROOT / "cases" / "official.json"
SHIPPED = ("official", "edge")  # files of cases/ that go by name
QUICK_TOKENS = 8192  # --quick takes the cases up to this size

DISTRIBUTIONS = ("normal", "uniform", "peaked", "shared_scores", "heavy_tails", "tiny", "zero")
HARD = ("knife_edge", "huge", "huge_scores", "denormal", "signed_zero", "masked", "undefined")  # of the edge suite
CHOICES = {
    "compress_ratio": (128, 256, 512),
    "distribution": DISTRIBUTIONS + HARD,
    "block_table": ("identity", "permuted", "shared"),
    "slots": ("dense", "shuffled", "gaps", "page_ends"),
    "lengths": ("equal", "unequal"),
    "boundaries": ("sorted", "shuffled"),
    "index_dtype": ("contract", "int32", "int64"),
    "indices": ("positive", "negative", "negative_positions"),
    "memory": ("packed", "strided", "guarded"),
}
LEAST = {"num_reqs": 1, "total_tokens": 0, "block_size": 1, "first_position": 0, "page_padding": 0,
         "kv_pages": 0, "spare_blocks": 0, "seed": 0, "memory_gib": 0}  # fmt: skip


@dataclass(frozen=True)
class CaseSpec:
    """One case. The defaults are what the official cases leave unsaid."""

    name: str
    num_reqs: int
    total_tokens: int  # of all requests together
    compress_ratio: int
    block_size: int = 8  # rows of a state_cache block
    distribution: str = "normal"
    block_table: str = "identity"  # physical blocks in order, permuted, or shared by all requests
    slots: str = "dense"  # output n in slot n, a shuffled one, one of three times as many, or a page's last and the next's first
    lengths: str = "equal"  # tokens of a request
    first_position: int = 0  # of each request: shifts the windows against the blocks
    boundaries: str = "sorted"
    index_dtype: str = "contract"  # or every index tensor of one type
    indices: str = "positive"  # or each written as its twin from the end; or positions alone, before zero
    memory: str = "packed"  # or views into larger tensors: strides and offsets uneven, or packed between guards (NaN, far indices)
    page_padding: int = 0  # bytes of a page past its 37,376
    kv_pages: int = 0  # at least so many; the slots then lie in the last
    spare_blocks: int = 0  # of the state, all NaN, before those in use
    seed: int = 0  # added to the run's
    memory_gib: int = 0  # a machine (host, device) with less skips the case
    interpreted: dict | None = None  # fields that are smaller where an interpreter runs it

    def __post_init__(self):
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"case {self.name}: {name} = {getattr(self, name)!r}; known: {', '.join(map(str, known))}")
        for name, least in LEAST.items():
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(f"case {self.name}: {name} = {value!r}; an int of at least {least} is needed")
        if self.interpreted:
            replace(self, interpreted=None, **self.interpreted)  # as self-checking as the rest
        if self.lengths == "equal" and self.total_tokens % self.num_reqs:
            raise ValueError(f"case {self.name}: {self.total_tokens} tokens do not split evenly over {self.num_reqs} requests")


def load_cases(path=OFFICIAL):
    """Read a JSON array of cases, from a file or a shipped one by name (official, edge). ValueError names file and entry."""
    path = OFFICIAL.with_name(f"{path}.json") if str(path) in SHIPPED else Path(path)
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return [CaseSpec(**entry) for entry in entries]
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error


def select_cases(cases, patterns=(), quick=False, settings=()):
    """The cases whose names match any pattern (all without one; `*` and `?` as in a shell), each with `field=value` settings."""
    chosen = [case for case in cases if not patterns or any(fnmatchcase(case.name, pattern) for pattern in patterns)]
    if quick:
        chosen = [case for case in chosen if case.total_tokens <= QUICK_TOKENS]
    if not chosen:
        raise ValueError(f"no case matches {' '.join(patterns) or '--quick'}; known: {', '.join(case.name for case in cases)}")
    changes = dict(parse_setting(setting) for setting in settings)
    suffix = "".join(f"+{value}" if isinstance(value, str) else f"+{name}={value}" for name, value in changes.items())
    return [replace(case, name=case.name + suffix, **changes) for case in chosen]


def parse_setting(setting):
    """`field=value` -> (field, value), the value of the field's own type."""
    kinds = {field.name: field.type for field in fields(CaseSpec) if field.type in (int, str) and field.name != "name"}
    name, equals, value = setting.partition("=")
    if name not in kinds or not equals:
        raise ValueError(f"--set {setting}: FIELD=VALUE is needed, FIELD one of {', '.join(kinds)}")
    return name, kinds[name](value)
