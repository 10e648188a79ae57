"""The Ascend check: planted faults caught, the lowered code's numbers right, a clear reason where the tools are absent.

What needs triton-ascend is skipped without it: `make platforms` installs it, `make test` does not.
"""

import subprocess
import textwrap

import pytest
import torch

import reference
from harness.cases import CaseSpec
from harness.inputs import build
from harness.platforms import ascend, workers
from harness.preflight import ENTRY

CASE = CaseSpec("tiny", 1, 256, 128)
PLANTED = """
    import torch
    import triton
    import triton.language as tl

    ROUTES = {"ascend-small": 8, "ascend-overflow": 256, "ascend-refused": 0, "ascend-grid": 8, "ascend-single": 64}

    @triton.jit
    def sum_kernel(x, out, ROWS: tl.constexpr, DIMS: tl.constexpr):
        row, dim = tl.arange(0, ROWS), tl.arange(0, DIMS)
        tile = tl.load(x + row[:, None] * 1024 + dim[None, :])
        tl.store(out + dim, tl.sum(tile * tl.exp(tile - tl.max(tile, axis=0)[None, :]), axis=0))

    @triton.jit
    def loop_kernel(x, out, ROWS: tl.constexpr, DIMS: tl.constexpr):
        row, dim = tl.arange(0, ROWS), tl.arange(0, DIMS)
        total = tl.zeros([ROWS, DIMS], tl.float32)
        for start in range(0, 4 * ROWS, ROWS):
            a = x + (start + row)[:, None] * 1024 + dim[None, :]
            total += tl.load(a) * tl.load(a + 256) + tl.load(a + 512)
        tl.store(out + dim, tl.sum(total, axis=0))

    @triton.jit
    def refused_kernel(x, out):
        pair = tl.arange(0, 32)
        tl.store(out + pair, tl.load(x + 448 + 2 * pair + 1))

    def c128_256_512_compress(state_cache, kv_cache, **_):
        route, _ = detect_platform(None)
        out = torch.zeros(kv_cache.numel() // 4)
        if route == "ascend-refused":
            refused_kernel[(1,)](state_cache, out)
        elif route == "ascend-single":
            loop_kernel[(1,)](state_cache, out, ROWS=ROUTES[route], DIMS=256)
        else:
            sum_kernel[(65536 if route == "ascend-grid" else 1,)](state_cache, out, ROWS=ROUTES[route], DIMS=128)
        return out.view(torch.uint8).view(kv_cache.shape)
"""


@pytest.fixture
def planted(tmp_path):
    """-> work(route, mode) on a submission with planted faults, on one tiny case."""
    try:
        ascend.environment("run")
    except ascend.Absent as absent:
        pytest.skip(str(absent))
    file = tmp_path / "planted.py"
    file.write_text(textwrap.dedent(PLANTED))
    return lambda route, mode: ascend.work(file, route, [CASE], mode)


def test_lowered_code_runs_with_the_right_numbers(planted):
    """One sum over 8 rows with an exponential: the interpreter's bytes, and nothing else written."""
    lowered, twin = planted("ascend-small", "run"), planted("ascend-small", "interpret")
    (kernel,) = lowered["kernels"]
    assert kernel["refused"] == "" and 8 * 128 * 4 < kernel["ub"] < ascend.UB_BYTES and kernel["grid"] == [1, 1, 1]
    got = lowered["cases"][0]["bytes"]
    assert torch.equal(got, twin["cases"][0]["bytes"])
    tile = build(CASE).arguments["state_cache"].view(-1, 1024)[:8, :128].double()
    expected = (tile * (tile - tile.amax(0)).exp()).sum(0)
    assert torch.allclose(got.view(torch.float32)[:128].double(), expected, rtol=1e-5, atol=1e-6)
    assert not got.view(torch.float32)[128:].any()


def test_a_planted_ub_overflow_is_caught(planted):
    """A [256, 128] float32 tile and what is made of it: more than 192 KiB, whatever the planner gives up."""
    (kernel,) = planted("ascend-overflow", "plan")["kernels"]
    assert kernel["ub"] is None and kernel["refused"].startswith("UB overflow: ")
    assert f"{ascend.UB_BYTES:,} available" in kernel["refused"]


def test_a_plan_without_multi_buffering_is_told(planted):
    """Tiles of 64 KiB: three loads fill UB, so there is no room for each of them twice, as overlapping them needs."""
    (kernel,) = planted("ascend-single", "plan")["kernels"]
    assert kernel["refused"] == "" and kernel["ub"] <= ascend.UB_BYTES and "multi-buffering" in kernel["given_up"]
    assert "without" in ascend.describe(kernel)


def test_a_grid_beyond_65535_programs_is_refused(planted):
    assert "65536" in planted("ascend-grid", "plan")["cases"][0]["stopped"]


def test_a_kernel_that_is_not_lowered_is_told_and_not_run(planted):
    result = planted("ascend-refused", "run")
    assert result["kernels"][0]["refused"].startswith("triton-adapter-opt: ")
    assert result["cases"] == [{"case": "tiny", "stopped": "refused_kernel was not lowered", "bytes": None}]


def test_findings_tell_planted_faults(planted, tmp_path, monkeypatch):
    monkeypatch.setattr(ascend, "cases", lambda quick: [CASE])
    plan, run = ascend.findings(["ascend-overflow", "portable"], True, tmp_path / "planted.py")
    assert (plan.status, run.status) == ("fail", "fail") and "UB overflow" in plan.detail and "tiny: " in run.detail


def test_bytes_other_than_interpreted_fail():
    """Right against the reference is not enough: a tie that only the lowered code has is a fail, as is a wrong byte."""
    case = CaseSpec("one", 1, 128, 128)
    expected = getattr(reference, ENTRY)(**build(case).arguments).flatten()
    wrong = expected.clone()
    wrong[200] += 64

    def result(got, stopped=""):
        return {"cases": [{"case": "one", "stopped": stopped, "bytes": got}]}

    def status(lowered, interpreted):
        return list(ascend.compare([case], lowered, interpreted))[0][0]

    assert status(result(expected), result(expected.clone())) == "pass"
    assert status(result(wrong), result(wrong.clone())) == "fail"
    assert status(result(expected), result(wrong)) == "fail"
    assert status(result(None, "a kernel was not lowered"), result(expected)) == "fail"


def test_absent_tools_and_environment_skip_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(ascend, "missing_tools", lambda: ["llc"])
    monkeypatch.setattr(ascend, "ENVIRONMENT", ascend.ROOT / ".envs" / "none")
    monkeypatch.setattr(ascend.importlib.util, "find_spec", lambda name: None)
    plan, run = ascend.findings(["ascend"], True)
    assert (plan.status, run.status) == ("skipped", "skipped")
    assert "make platforms" in plan.detail and run.detail.startswith("llc not found")


def test_a_crash_or_a_hang_is_a_fail(monkeypatch):
    monkeypatch.setattr(ascend, "environment", lambda mode: {})
    monkeypatch.setattr(workers.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess((), -11, "", "Segmentation fault"))
    plan, run = ascend.findings(["ascend"], True)
    assert (plan.status, run.status) == ("fail", "fail") and "exit -11: Segmentation fault" in plan.detail

    def hang(*_, **__):
        raise subprocess.TimeoutExpired("worker", 1)

    monkeypatch.setattr(workers.subprocess, "run", hang)
    assert "no end after" in next(iter(ascend.findings(["ascend"], True))).detail


def test_cases_cover_every_ratio_block_size_and_unaligned_windows():
    for quick in (True, False):
        cases = ascend.cases(quick)
        assert {case.compress_ratio for case in cases} == {128, 256, 512}
        assert any(case.first_position % case.block_size for case in cases)
        assert len({case.name for case in cases}) == len(cases)
    assert {case.block_size for case in ascend.cases(False)} == {7, 8, 16}
