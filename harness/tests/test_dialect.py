"""What older Tritons lack is found where a route reaches it, and only there."""

from pathlib import Path

import pytest

from harness import preflight
from harness.dialect import findings

ROOT = Path(__file__).parents[2]
FILE = """
TILES = tl.constexpr(2)
MORE = tl.constexpr(TILES > 1)

@triton.jit
def shared(x, COUNT: tl.constexpr, FLAG: tl.constexpr = None):
    HALVES: tl.constexpr = COUNT // 2
    if COUNT > 1:
        tl.debug_barrier()
    y = x if HALVES > 0 else tl.join(x, x)
    return y

@triton.jit
def plain_kernel(x, N: tl.constexpr):
    {body}

@triton.jit
def fancy_kernel(x):
    shared(tl.join(x, x), 2)

def launch_plain(x):
    plain_kernel[(1,)](x)

def launch_fancy(x):
    fancy_kernel[(1,)](x)

PLAIN = Route(launch_plain)
ROUTES = {{"nvidia": Route(launch_fancy), "nvidia-plain": PLAIN, "hygon": PLAIN, "metax": Route(launch_plain)}}
"""


def said(body):
    return [finding.message for finding in findings(FILE.format(body=body).encode())]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("tl.join(x, x)", "tl.join: needs layouts that vendors' back ends lack"),
        ("tl.reduce(x, 0, add)", "tl.reduce: takes a user's function"),
        ("x.associative_scan(0, add)", "x.associative_scan: takes a user's function"),
        ("tl.gather(x, x, 0)", "tl.gather: since Triton 3.3"),
        ("tl.make_tensor_descriptor(x)", "tl.make_tensor_descriptor: since Triton 3.4"),
        ("tl.make_block_ptr(x)", "tl.make_block_ptr: is a block pointer"),
        ("tl.atomic_add(x, 1, sem='relaxed')", "tl.atomic_add with sem=: orders memory as not every back end can"),
        ("libdevice.exp(x)", "libdevice (libdevice.exp)"),
        ("gl.load(x)", "Gluon (gl.load)"),
        ("shared((x, x), 1)", "a tuple passed to shared: since Triton 3.3"),
        ("tl.load(x, cache_modifier='.cg', eviction_policy='evict_first')", "tl.load with a cache modifier and an eviction policy"),
        ("for i in tl.range(0, 4): pass", "tl.range: takes hints"),
        ("shared(x, 2)", "tl.debug_barrier: waits for threads"),
        ("shared(x, COUNT=TILES)", "tl.debug_barrier: waits for threads"),
        ("shared(x, N)", "tl.debug_barrier: waits for threads"),  # not known
    ],
)  # fmt: skip
def test_each_use_is_found_with_the_routes_that_reach_it(body, message):
    found = [text for text in said(body) if text.startswith(message)]
    assert len(found) == 1 and found[0].endswith(", in plain_kernel, of the routes hygon, metax"), said(body)


@pytest.mark.parametrize(
    "body",
    [
        "tl.store(x, tl.sum(tl.load(x + tl.arange(0, 64)), axis=0))",
        "tl.atomic_add(x, 1)",
        "for i in tl.static_range(0, 4): tl.store(x + i, i)",
        "tl.join(x, x) if TILES == 3 else x",
        "tl.join(x, x) if not MORE and N else x",
    ],
)
def test_what_they_have_and_what_is_left_out_is_no_finding(body):
    assert said(body) == []


def test_a_branch_that_a_literal_argument_leaves_out_is_not_read():
    assert said("shared(x, 1)") == [
        "tl.join: needs layouts that vendors' back ends lack, in plain_kernel, of the routes hygon, metax"
    ]
    assert len(said("shared(x, 2)")) == 1  # the barrier; HALVES is 1


def test_ours_keeps_to_the_older_language_and_is_read_for_it():
    source = (ROOT / "solution.py").read_bytes()
    assert findings(source) == []
    moved = findings(source.replace(b'"nvidia-fast":', b'"fast":'))
    assert any(finding.message.startswith("tl.debug_barrier") and "of the routes fast" in finding.message for finding in moved)
    planted = source.replace(b"value = tl.load(state)\n", b"value = tl.gather(tl.load(state), row, 0)\n")
    assert planted != source and "of the routes ascend, " in findings(planted)[0].message
    assert all(finding.level == "warning" for finding in moved)


def test_a_file_without_routes_has_none():
    assert findings(b"def f(): tl.join(1, 2)") == preflight.routes(b"ROUTES = dict()") == []
    assert preflight.routes((ROOT / "solution.py").read_bytes())[0] == "nvidia"
