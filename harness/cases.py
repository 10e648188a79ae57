"""What a case is: a frozen, self-checking description. The data lies in cases/*.json; harness/inputs.py draws its tensors."""

import json
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path

from harness import ROOT

OFFICIAL = ROOT / "cases" / "official.json"
QUICK_TOKENS = 8192  # --quick takes the cases up to this size

DISTRIBUTIONS = ("normal", "uniform", "peaked", "shared_scores", "heavy_tails", "tiny", "zero")
CHOICES = {
    "compress_ratio": (128, 256, 512),
    "distribution": DISTRIBUTIONS,
    "block_table": ("identity", "permuted", "shared"),
    "slots": ("dense", "shuffled", "gaps"),
    "lengths": ("equal", "unequal"),
    "boundaries": ("sorted", "shuffled"),
    "index_dtype": ("contract", "int32", "int64"),
    "memory": ("packed", "strided"),
}
LEAST = {"num_reqs": 1, "total_tokens": 0, "block_size": 1, "first_position": 0, "page_padding": 0}


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
    slots: str = "dense"  # output n in slot n, in a shuffled one, or shuffled over three times the slots
    lengths: str = "equal"  # tokens of a request
    first_position: int = 0  # of each request: shifts the windows against the blocks
    boundaries: str = "sorted"
    index_dtype: str = "contract"  # or every index tensor of one type
    memory: str = "packed"  # or every tensor a view into a larger one, strides and offsets uneven
    page_padding: int = 0  # bytes of a page past its 37,376

    def __post_init__(self):
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"case {self.name}: {name} = {getattr(self, name)!r}; known: {', '.join(map(str, known))}")
        for name, least in LEAST.items():
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(f"case {self.name}: {name} = {value!r}; an int of at least {least} is needed")
        if self.lengths == "equal" and self.total_tokens % self.num_reqs:
            raise ValueError(f"case {self.name}: {self.total_tokens} tokens do not split evenly over {self.num_reqs} requests")


def load_cases(path=OFFICIAL):
    """Read a JSON array of cases; ValueError names the file and the entry that is wrong."""
    path = Path(path)
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
    kinds = {field.name: field.type for field in fields(CaseSpec) if field.name != "name"}
    name, equals, value = setting.partition("=")
    if name not in kinds or not equals:
        raise ValueError(f"--set {setting}: FIELD=VALUE is needed, FIELD one of {', '.join(kinds)}")
    return name, kinds[name](value)
