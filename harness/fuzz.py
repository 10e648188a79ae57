"""Random cases until one fails, then the smallest that still fails, as a case file that anyone can run again."""

import json
import random
import time
from dataclasses import dataclass, fields, replace

from harness import ROOT
from harness.cases import CHOICES, CaseSpec

FOUND = ROOT / "cases" / "found"
MOST_WINDOWS = 6  # of a request: enough for every layout, quick to interpret
BLOCK_SIZES = (1, 2, 3, 7, 8, 16, 64, 100)
SHRINKS = 60  # tries at most; each costs what a case costs


@dataclass(frozen=True)
class Failure:
    case: CaseSpec  # the smallest that failed
    status: str
    message: str
    drawn: CaseSpec  # as it was drawn


def draw_case(draw, name):
    """A random small case; `draw` is a random.Random."""
    ratio = draw.choice(CHOICES["compress_ratio"])
    reqs = draw.randint(1, 4)
    tokens = reqs * draw.randint(0, MOST_WINDOWS * 128 // reqs + ratio)
    chosen = {field: draw.choice(known) for field, known in CHOICES.items() if field != "compress_ratio"}
    return CaseSpec(
        name, reqs, tokens, ratio, block_size=draw.choice(BLOCK_SIZES), first_position=draw.choice((0, 0, draw.randint(1, 999))),
        page_padding=draw.choice((0, 0, 8, draw.randint(1, 99))), spare_blocks=draw.choice((0, 0, 3)),
        kv_pages=draw.choice((0, 0, 5)), seed=draw.randrange(1 << 20), **chosen,
    )  # fmt: skip


def fuzz(run, seconds, seed=0, seen=lambda case, result: None, clock=time.monotonic):
    """Draw and run cases for `seconds` -> (number run, Failure or None). `run(case)` gives a result with status and message."""
    draw, end, count = random.Random(seed), clock() + seconds, 0
    while clock() < end:
        case = draw_case(draw, f"fuzz_{seed}_{count}")
        result = run(case)
        count += 1
        seen(case, result)
        if result.status in ("usage", "environment"):  # says nothing of the submission
            raise ValueError(f"case {case.name}: {result.message}")
        if result.status != "pass":
            smallest, result = shrink(case, result, run)
            return count, Failure(smallest, result.status, result.message, case)
    return count, None


def shrink(case, result, run):
    """Make `case` plainer and smaller as long as it ends in the status of `result` -> (case, its result)."""
    tries, shrunk = 0, True
    while shrunk:
        shrunk = False
        for step in STEPS:
            while (plainer := _changed(case, step)) != case and tries < SHRINKS:
                tries += 1
                found = run(plainer)
                if found.status != result.status:
                    break
                case, result, shrunk = plainer, found, True
    return case, result


def _changed(case, step):
    try:
        return replace(case, **step(case))
    except ValueError:  # requests that do not split evenly
        return case


def _at_default(field):
    return lambda case: {field.name: field.default}


# What makes a case plainer, each tried until it no longer fails in the same way: first everything at once.
STEPS = (
    lambda case: vars(CaseSpec(case.name, 1, 128, 128)),
    lambda case: {"num_reqs": 1, "total_tokens": min(case.total_tokens, case.compress_ratio)},
    lambda case: {"num_reqs": 1, "total_tokens": case.total_tokens // case.num_reqs},
    lambda case: {"total_tokens": case.total_tokens // 2},
    lambda case: {"compress_ratio": 128},
    *(_at_default(field) for field in fields(CaseSpec)[4:]),
    lambda case: {"first_position": case.first_position // 2},
)


def write(failure, folder=FOUND):
    """Write the case to a file of its own -> its path. Fields at their defaults are left out."""
    kept = {
        field.name: getattr(failure.case, field.name)
        for field in fields(CaseSpec)
        if getattr(failure.case, field.name) != field.default
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{failure.case.name}.json"
    path.write_text(f"[\n  {json.dumps(kept)}\n]\n", encoding="utf-8")
    return path
