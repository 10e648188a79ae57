"""The compile matrix: what is recorded of a launch, spills and regressions caught, what cannot be compiled skipped."""

import textwrap
from dataclasses import replace

import pytest

import solution
from harness.platforms import compiled, workers

SPILLING = """
    import torch
    import triton
    import triton.language as tl

    ROUTES = {"spills": 1, "fits": 8, "refused": 1}

    @triton.jit(do_not_specialize=["count"])
    def hold_kernel(x, y, count, stride, LIVE: tl.constexpr):
        i = tl.arange(0, LIVE)
        held = tl.load(x + i * stride, mask=i < count)
        tl.store(y + i, held * tl.sum(held, axis=0))

    @triton.jit
    def refused_kernel(x):
        tl.store(x, tl.load(x + tl.arange(0, 3)))

    def c128_256_512_compress(state_cache, kv_cache, **_):
        route, _ = detect_platform(None)
        if route == "refused":
            refused_kernel[(1,)](state_cache)
        else:
            hold_kernel[(1,)](state_cache, kv_cache, 7, 32, LIVE=16384, num_warps=ROUTES[route])
        return kv_cache
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """One thread holds 512 values, or 64; and a kernel that no Triton takes."""
    if reason := compiled.absent("sm_90"):
        pytest.skip(reason)
    file = tmp_path_factory.mktemp("planted") / "spilling.py"
    file.write_text(textwrap.dedent(SPILLING))
    return compiled.compile_all([(route, "sm_90", 128, 16) for route in ("spills", "fits", "refused")], file)


def test_a_planted_spill_is_caught(planted):
    spills, fits, refused = planted["kernels"]
    assert spills["stack"] > 0 and "spilled" in compiled.faults(spills)[0]
    assert fits["stack"] == 0 and compiled.faults(fits) == []
    assert fits["launch"] == "hold_kernel LIVE=16384 num_warps=8"
    assert compiled.faults(refused)[0].startswith("CompilationError")


def test_a_launch_is_recorded_as_triton_specialises_it(planted):
    """Aligned pointers and a stride of 32 are compiled in as multiples of 16; `count` is not, as its kernel asks."""
    assert planted["kernels"][1]["signature"] == {"x": "*fp32, 16", "y": "*u8, 16", "count": "i32", "stride": "i32, 16"}


def test_routes_of_the_submission_are_compiled(tmp_path):
    """Exact routes have nothing compiled in but constants; the others the alignment of the state's strides."""
    if reason := compiled.absent("sm_90"):
        pytest.skip(reason)
    result = compiled.compile_all([("nvidia", "sm_90", 128, 64), ("portable", "sm_90", 128, 64)])
    kernels = {kernel["launch"].partition(" ")[0]: kernel for kernel in result["kernels"]}
    exact = next(kernel for name, kernel in kernels.items() if name.startswith("exact"))
    assert exact["routes"] == ["nvidia"] and "C=128" in exact["launch"]
    assert exact["signature"]["kv_cache"] == "*u8" and exact["signature"]["num_tokens"] == "i32"
    assert not any(kind.endswith(", 16") for kind in exact["signature"].values())
    plain = kernels["compress_kernel"]["signature"]
    assert plain["state_cache"] == "*fp32, 16" and plain["row_stride"] == "i32, 16" and plain["num_tokens"] == "i32"
    assert all(compiled.faults(kernel) == [] for kernel in result["kernels"])


def test_the_first_warps_pass_no_barrier_alone():
    """exact_gluon_kernel adds each half's exponentials in a branch of its first warps, and touches no memory before it may."""
    if reason := compiled.absent("sm_90"):
        pytest.skip(reason)
    result = compiled.compile_all([("nvidia", "sm_90", ratio, 128) for ratio in (128, 256, 512)])
    assert [kernel["barriers"] for kernel in result["kernels"]] == [[0, 0]] * 3
    assert all("launch_pdl=True" in kernel["launch"] and not kernel["too_early"] for kernel in result["kernels"])


def test_launches_overlap_where_chip_and_triton_can():
    if reason := compiled.absent("sm_90") or compiled.absent("gfx942"):
        pytest.skip(reason)
    worker = pytest.importorskip("harness.platforms.compile_worker")
    can = {target: solution.can_overlap(worker.gpu_target(target)) for target in ("sm_80", "sm_90", "sm_100", "gfx942")}
    assert can == {"sm_80": False, "sm_90": True, "sm_100": True, "gfx942": False}


BLOCKS = """
    fma.rn.f32 %f1, %f1, %f2, %f3;
    bar.sync 0;
    @%p7 bra $L__BB0_2;
{block}
$L__BB0_2:
    add.f32 %f1, %f1, %f2;
    bar.sync 0;
"""
ADD = "    add.f32 %f1, %f1, %f2;"


@pytest.mark.parametrize(
    "block, barriers",
    [
        ([ADD] * 3, [0]),
        ([ADD] * 2, []),
        (["    add.rn.f32 %f1, %f1, %f2;", "    bar.sync 0;", ADD, ADD], [1]),
        ([ADD, "$L__BB0_1:", ADD, ADD], []),
        ([ADD, ADD, ADD, "    mul.f32 %f1, %f1, %f2;", "    barrier.sync 0;"], []),
    ],
)
def test_barriers_are_found_where_warps_part(block, barriers):
    worker = pytest.importorskip("harness.platforms.compile_worker")
    assert worker.barriers_of_sums(BLOCKS.format(block="\n".join(block)), terms=3) == barriers


def test_memory_touched_before_waiting_is_found():
    worker = pytest.importorskip("harness.platforms.compile_worker")
    load, wait, store = (
        "ld.global.b64 {%rd1}, [%rd2];",
        "griddepcontrol.wait; mov.u32 %r1, 0;",
        "st.relaxed.gpu.global.b32 [%rd1], %r1;",
    )
    assert not worker.touches_before_waiting(f"ld.param.b64 %rd2, [p];\n{wait}\n{load}\n{store}")
    assert worker.touches_before_waiting(f"{load}\n{wait}") and worker.touches_before_waiting(f"{store}\n{wait}")
    assert worker.touches_before_waiting(load), "no wait at all"


KERNEL = {
    "launch": "k C=128", "target": "sm_90", "routes": ["nvidia"],
    "registers": 96, "stack": 0, "shared": 4096, "warps": 4, "barriers": [0], "too_early": False,
}  # fmt: skip


def test_a_regression_against_the_stored_table_is_caught(tmp_path):
    table = tmp_path / "compiled.json"
    beyond = {**KERNEL, "target": "sm_80", "error": "refused"}, {**KERNEL, "target": "sm_100", "stack": 8}
    compiled.store({"triton": "3.7.1", "kernels": [KERNEL, *beyond]}, table)
    stored = compiled.load_stored("3.7.1", table)
    assert stored == {("k C=128", "sm_90"): {"registers": 96, "stack": 0, "shared": 4096, "warps": 4}}
    assert compiled.faults({**KERNEL, "registers": 96 + compiled.MORE_REGISTERS}, stored) == []
    assert compiled.faults({**KERNEL, "registers": 105}, stored) == ["105 registers, 96 when stored"]
    assert compiled.faults({**KERNEL, "shared": 8192}, stored) == ["8,192 shared, 4,096 when stored"]
    assert "not in compiled.json" in compiled.faults({**KERNEL, "launch": "k C=256"}, stored)[0]
    assert compiled.load_stored("3.6.0", table) is None


@pytest.mark.parametrize(
    "change, fault",
    [
        ({"shared": 228 * 1024}, "233,472 shared, 232,448 at most"),
        ({"shared": 120 * 1024}, "1 programs a multiprocessor, at least 2 needed"),
        ({"target": "gfx90a", "registers": 300}, "300 registers, 256 at most"),
        ({"warps": 16, "registers": 80}, "1 programs a multiprocessor, at least 2 needed"),
        ({"barriers": [0, 1]}, "a barrier in a branch that only some warps take"),
        ({"too_early": True}, "touches memory before griddepcontrol.wait, while the previous launch may still write it"),
    ],
)
def test_the_budget(change, fault):
    assert fault in compiled.faults(KERNEL | change)


def test_a_finding_for_each_route_and_target(monkeypatch, tmp_path):
    kernels = [KERNEL, {**KERNEL, "target": "sm_80", "stack": 8}]
    monkeypatch.setattr(compiled, "compile_all", lambda *_: {"triton": "3.7.1", "kernels": kernels})
    monkeypatch.setattr(compiled, "absent", lambda target: "no backend" if target.startswith("gfx") else "")
    found = list(compiled.findings(["nvidia", "ascend", "hygon"], False, stored=tmp_path / "none"))
    assert [(f.route, f.check.split()[-1], f.status) for f in found] == [
        ("nvidia", "sm_80", "fail"), ("nvidia", "sm_90", "pass"), ("nvidia", "sm_100", "fail"),
        ("hygon", "gfx90a", "skipped"), ("hygon", "gfx942", "skipped"),
    ]  # fmt: skip
    assert "8 bytes a thread spilled" in found[0].detail and "no kernel was launched" in found[2].detail
    assert found[3].detail == "no backend"
    monkeypatch.setattr(compiled, "compile_all", crash)
    found = list(compiled.findings(["nvidia"], True))
    assert {f.status for f in found} == {"fail"} and "exit 1" in found[0].detail


def crash(*_):
    raise workers.Crashed("exit 1: no torch")


def test_a_triton_without_the_backend_is_told(monkeypatch, tmp_path):
    (tmp_path / "triton").mkdir()
    spec = compiled.importlib.util.spec_from_file_location("triton", tmp_path / "triton" / "__init__.py")
    monkeypatch.setattr(compiled.importlib.util, "find_spec", lambda name: spec)
    assert compiled.absent("gfx90a") == "this triton has no amd backend"
    monkeypatch.setattr(compiled.importlib.util, "find_spec", lambda name: None)
    assert compiled.absent("sm_90") == "triton is not installed"


def test_every_target_stands_for_a_route():
    assert {target for targets in compiled.TARGETS_OF.values() for target in targets} == set(compiled.TARGETS)
    assert compiled.targets_of("nvidia-plain") == compiled.targets_of("nvidia") and compiled.targets_of("ascend-512") == ()
    assert replace(compiled.TARGETS["sm_90"], shared_of_system=0).programs({**KERNEL, "shared": 0}) == 5
