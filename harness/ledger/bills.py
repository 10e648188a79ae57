"""Bills: what a route moves and computes on a case, from the few facts of routes.json and the shapes alone.

A route is a row of routes.json:
    what            in words                      launches       of a call, in order; "fill" among them if it is one of its own
    tiles           [most outputs or null, dims, rows of the window at a time], the first row that holds the outputs counts
    lookups         "row" or "block": block table entries read for each row, or each block, and program
    value_passes, score_passes   times the state's values and scores are read        exponentials   of each score
    rescales        one exponential a dim and tile for the running maximum (true, false)
    counters        arrival counters and atomics (true, false)     fill   zeroing the result: "launch", "kernel" or "none"
    scratch         [read, written], bytes an output: by default its float32 result, read twice and its rotary part once more
    pieces          contiguous runs of the state: a "row" of a tile, values and scores apart (by default), or a whole "block"
    metered         false if the interpreter cannot run it
The interpreter counts the same things of solution.py's routes, and the tests hold these bills to it (harness/ledger/meter.py).
A route that is not in routes.json has no bill; its records are shown without an explanation.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from harness.cases import CaseSpec

ROUTES, LADDER = (Path(__file__).with_name(name) for name in ("routes.json", "ladder.json"))
ROW_BYTES = 4096  # of the state: 512 float32 values, 512 scores
HEAD_DIM = 512
PAGE_BYTES, PAGE_SLOTS, SLOT_BYTES = 37376, 64, 584  # as harness/diff.py, which imports torch; the ledger opens without
LOOKUP_OPERATIONS = 18  # on integers, from a row's number to its address, counted in an interpreted compress_kernel of solution.py
LANE_DIMS = 4  # neighbouring dims of a GPU lane, one 16-byte load: every lane of a row works out the row's address again


@dataclass(frozen=True)
class Route:
    """A row of routes.json, checked."""

    name: str
    what: str
    launches: tuple
    tiles: tuple
    lookups: str
    value_passes: int
    score_passes: int
    exponentials: int
    rescales: bool
    counters: bool
    fill: str
    scratch: tuple = (4352, 2048)  # 2 x 2,048 + 256; 2,048
    pieces: str = "row"
    metered: bool = True

    def __post_init__(self):
        for field, known in (("lookups", ("row", "block")), ("fill", ("launch", "kernel", "none")), ("pieces", ("row", "block"))):
            if getattr(self, field) not in known:
                raise ValueError(f"route {self.name}: {field} = {getattr(self, field)!r}; known: {', '.join(known)}")
        if (self.fill == "launch") != ("fill" in self.launches):
            raise ValueError(f"route {self.name}: fill = {self.fill}, launches {', '.join(self.launches)}: they must agree")

    def tile(self, num_outputs):
        """(dims, rows) of the first tile that holds the outputs."""
        return next((dims, rows) for most, dims, rows in self.tiles if most is None or num_outputs <= most)


def load_routes(path=ROUTES):
    """-> {name: Route}"""
    rows = json.loads(Path(path).read_text(encoding="utf-8"))
    try:
        return {
            name: Route(name, **{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}) for name, row in rows.items()
        }
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from error


def choose_routes(names):
    """[Route] of those names, all without one."""
    routes = load_routes()
    for name in names:
        if name not in routes:
            raise ValueError(f"--route {name}: no bill; known: {', '.join(routes)}")
    return [routes[name] for name in names or routes]


# --- the bill ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Account:
    """Bytes of one purpose. `compulsory`: no route can do without them."""

    purpose: str
    read: int
    written: int
    compulsory: bool


@dataclass(frozen=True)
class Bill:
    """One call of one route on one case."""

    num_outputs: int
    accounts: tuple
    exponentials: int
    lookups: int  # block table entries read, and addresses worked out from them, once for each program that needs them
    lane_rows: int  # rows x GPU lanes that work out a row's address
    runs: int  # contiguous pieces of the state that are read
    run_bytes: int
    atomics: int
    programs: int  # of the widest launch
    launches: tuple

    def bytes(self, *purposes):
        """Read and written, of these purposes or of all."""
        return sum(a.read + a.written for a in self.accounts if not purposes or a.purpose in purposes)

    @property
    def other_bytes(self):
        """All but the state."""
        return self.bytes() - self.bytes("state")


def outputs_of(case):
    """Outputs of a case with requests of equal length."""
    if case.lengths != "equal":
        raise ValueError(f"case {case.name}: the outputs of unequal requests depend on the seed; a case of equal lengths is needed")
    return case.num_reqs * (case.total_tokens // case.num_reqs // case.compress_ratio)


def bill(route, case, num_outputs=None):
    """Route and CaseSpec (and its outputs, if they are known otherwise) -> Bill."""
    n, C = outputs_of(case) if num_outputs is None else num_outputs, case.compress_ratio
    rows, pages = n * C, max(1, -(-n * (3 if case.slots == "gaps" else 1) // PAGE_SLOTS))
    dims, tile_rows = route.tile(n)
    parts = HEAD_DIM // dims  # programs of an output
    whole = route.pieces == "block"
    lookups = parts * (rows if route.lookups == "row" else rows // case.block_size)
    half = ROW_BYTES // 2
    index_bytes = {"contract": (8, 4, 8, 4), "int32": (4,) * 4, "int64": (8,) * 4}
    boundary, req, position, entry = index_bytes[case.index_dtype]
    accounts = (
        Account("state", rows * half * (route.value_passes + route.score_passes), 0, True),
        Account("block table", -(-rows // case.block_size) * entry, 0, True),
        Account("arguments", n * (2 * boundary + req + position + 256) + 2 * HEAD_DIM, 0, True),
        Account("scratch", n * route.scratch[0], n * route.scratch[1], False),
        Account("counters", 0, 4 * n if route.counters else 0, False),
        Account("slots", 0, n * SLOT_BYTES, True),
        Account("zero fill", 0, pages * (PAGE_BYTES + case.page_padding) if route.fill != "none" else 0, True),
    )
    return Bill(
        num_outputs=n,
        accounts=accounts,
        exponentials=rows * HEAD_DIM * route.exponentials + (n * HEAD_DIM * -(-C // tile_rows) if route.rescales else 0),
        lookups=lookups,
        lane_rows=rows * HEAD_DIM // LANE_DIMS,
        runs=rows // case.block_size if whole else rows * parts * (route.value_passes + route.score_passes),
        run_bytes=case.block_size * ROW_BYTES if whole else dims * 4,
        atomics=n * parts if route.counters else 0,
        programs=n * parts,
        launches=route.launches,
    )


# --- the published ladder of the Ascend route ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One step of the ladder: how an output of C rows is read. Block size 8."""

    name: str
    speedup: str  # over the reference, as published
    dims: int
    reads: str  # "row": a copy for each row; "gathered": rows first brought together by another launch; "block": a copy a block
    masks: str  # "all" blocks, or the "ends" of the window
    warps: int

    def full_blocks(self, C):
        """(blocks of an aligned-size window that need no mask, blocks)."""
        return C // 8 - 2, C // 8

    def group_loops(self):
        """Passes over the window, one a group of dims."""
        return HEAD_DIM // self.dims

    def copies(self, C):
        """Copy requests of an output; whole blocks once all dims are taken at a time."""
        if self.dims == HEAD_DIM:
            return C // 8
        return (C if self.reads == "row" else C // 8) * 2 * self.group_loops()

    def run_bytes(self):
        """Contiguous bytes of a copy's pieces."""
        return 8 * ROW_BYTES if self.dims == HEAD_DIM else self.dims * 4

    def masked_blocks(self, C):
        """Block masks worked out for an output."""
        return (C // 8 if self.masks == "all" else 2) * self.group_loops()

    def bytes(self, C):
        """Of state, read and written: gathering first reads and writes every row once more."""
        return C * ROW_BYTES * (3 if self.reads == "gathered" else 1)


def load_ladder(path=LADDER):
    """-> [Step] in order."""
    return [Step(**step) for step in json.loads(Path(path).read_text(encoding="utf-8"))]


def case_of(record):
    """ScoreRecord -> its CaseSpec."""
    return CaseSpec(**record.case)
