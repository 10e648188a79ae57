"""The checks short of the chips: what they report, where they fail, and which words the table may use."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import triton

from harness import __main__ as command
from harness import preflight
from harness.cases import CHOICES, DISTRIBUTIONS, HARD
from harness.platforms import Finding, environments, hardware, interpreted, matrix, workers

ROOT = Path(__file__).parents[2]
BAD = Path(__file__).parent / "bad_submissions"
ROUTES = preflight.routes((ROOT / "solution.py").read_bytes())


# --- interpreted ---------------------------------------------------------------------------------------------------------


def test_the_cases_are_all_that_was_promised():
    cases = interpreted.cases(None, quick=False, step=False)
    names = {case.name for case in cases}
    assert {"r1_t8192_c128", "r1_t8192_c256", "r1_t8192_c512", "block_size_7", "outputs_1000"} <= names
    assert len(names) == len(cases)
    for name in ("triton-3.2.0", "triton-3.5.1", None):
        own = [case for case in interpreted.cases(name, False, False) if case.name.partition("_")[0] in interpreted.LAYOUTS]
        seen = {(case.distribution, case.compress_ratio) for case in own}
        assert seen >= {(distribution, ratio) for distribution in DISTRIBUTIONS + HARD for ratio in CHOICES["compress_ratio"]}
    assert {case.compress_ratio for case in interpreted.cases(None, True, True)} == {128, 256, 512}


@pytest.fixture
def one_case(monkeypatch):
    """One window of C = 128 in place of all cases."""
    monkeypatch.setattr(interpreted, "cases", lambda name, quick, step: interpreted.matrix([("unaligned", "masked")])[:1])


def test_each_fault_fails_its_own_check_of_its_own_route(one_case, tmp_path):
    """One file, whose routes are submissions of the controls."""
    names = ("plain", "wrong_byte", "races", "raises")
    for name in names:
        (tmp_path / f"{name}.py").write_text((BAD / f"{name}.py").read_text())
    path = tmp_path / "routes.py"
    path.write_text(
        "import importlib, sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        f"ROUTES = dict.fromkeys({names!r})\n"
        "def detect_platform(device):\n    return 'plain', ''\n"
        "def c128_256_512_compress(**arguments):\n"
        "    return importlib.import_module(detect_platform(None)[0]).c128_256_512_compress(**arguments)\n"
    )
    found = list(interpreted.findings(names, True, path, environments=(None,)))
    assert [(finding.route, finding.check, finding.status) for finding in found] == [
        ("plain", "interpreted", "pass"), ("plain", "guarded", "pass"),
        ("wrong_byte", "interpreted", "fail"), ("wrong_byte", "guarded", "pass"),
        ("races", "interpreted", "fail"), ("races", "guarded", "fail"),
        ("raises", "interpreted", "fail"), ("raises", "guarded", "skipped"),
    ]  # fmt: skip
    said = [finding.detail for finding in found]
    assert said[0].startswith("1 cases, 0 of 37,376 bytes wrong") and said[1] == "1 cases, no access refused"
    assert (
        "mismatch: wrong: page 0, slot 1, which no output writes" in said[2]
        and "unsafe: kernel relay_kernel, program 1: load" in said[5]
    )
    assert "crash: RuntimeError: the submission gave up" in said[6]
    assert {finding.tool for finding in found} == {f"triton {triton.__version__}"}


def test_an_environment_that_cannot_be_had_is_skipped_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(environments, "FOLDER", tmp_path / ".envs")
    monkeypatch.setattr(
        environments.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=1, stderr="a\nno index", stdout="")
    )
    found = list(interpreted.findings(["portable"], True, environments=("triton-3.2.0",)))
    assert [(finding.status, finding.tool) for finding in found] == [("skipped", "triton 3.2.0")] * 2
    assert found[0].detail == "pip install triton==3.2.0 numpy<2.4: no index"


def test_a_worker_that_crashes_or_hangs_fails_every_route(monkeypatch):
    monkeypatch.setattr(interpreted, "own_triton", lambda: "3.7.1")

    def segfault(*_, **__):
        return SimpleNamespace(returncode=-11, stdout="", stderr="Segmentation fault")

    def hang(*_, timeout, **__):
        raise subprocess.TimeoutExpired("worker", timeout)

    for run, said in ((segfault, "exit -11: Segmentation fault"), (hang, f"no end after {interpreted.TIMEOUT} s")):
        monkeypatch.setattr(workers.subprocess, "run", run)
        found = list(interpreted.findings(["portable", "hygon"], True, environments=(None,)))
        assert [(finding.route, finding.check, finding.status, finding.detail) for finding in found] == [
            (route, check, "fail", said) for route in ("portable", "hygon") for check in ("interpreted", "guarded")
        ]


# --- environments --------------------------------------------------------------------------------------------------------


def test_an_environment_is_made_once_and_whole(monkeypatch, tmp_path):
    asked = []

    def pip(command, **_):
        target = Path(command[command.index("--target") + 1])
        asked.append(target)
        target.mkdir(parents=True)
        (target / "triton").mkdir()
        return SimpleNamespace(returncode=len(asked) == 1, stderr="broken", stdout="")

    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    monkeypatch.setattr(environments.subprocess, "run", pip)
    with pytest.raises(environments.Unavailable, match="broken"):
        environments.environment("triton-3.5.1")
    assert [path.name for path in tmp_path.iterdir()] == ["triton-3.5.1.lock"]  # nothing half made
    paths = [environments.variables("triton-3.5.1")["PYTHONPATH"] for _ in range(2)]
    assert paths == [f"{tmp_path / 'triton-3.5.1'}:{ROOT}"] * 2 and len(asked) == 2
    assert asked[0].name == "triton-3.5.1.unfinished" and sys.executable


# --- hardware, table, command --------------------------------------------------------------------------------------------


def test_hardware_is_what_scores_hold():
    found = {finding.route: finding for finding in hardware.findings(ROUTES)}
    assert set(found) == set(ROUTES)
    assert found["nvidia"].status == "pass" and found["nvidia"].detail.startswith("12 of 12 cases passed, 2026-")
    assert {found[route].status for route in ("ascend", "hygon", "metax")} == {"skipped"}


def cells(*found):
    return matrix.tables(found, ["nvidia", "ascend", "ascend-512"])


def test_only_what_ran_on_hardware_passes():
    checks = ("interpreted", "guarded", "compiled for sm_90", "lowered, UB plan", "lowered code run on a CPU")
    found = [Finding("nvidia", check, "triton 3.5.1", "pass", "") for check in checks]
    (chips, others) = cells(*found)
    assert chips.rows[1] == ("NVIDIA (nvidia)", "0 wrong: 3.5.1", "clean: 3.5.1", "no spills: sm_90", "UB fits; 0 wrong", "not run")
    assert [row[0] for row in chips.rows + others.rows] == ["Huawei Ascend (ascend)", "NVIDIA (nvidia)", "ascend-512"]
    (chips, _) = cells(Finding("nvidia", "run on hardware", "NVIDIA H200", "pass", ""))
    assert chips.rows[1][-1] == "passes: NVIDIA H200" and set(chips.rows[0][1:-1]) == {"-"}


def test_failures_and_skips_are_told_in_words():
    found = [
        Finding("ascend", "interpreted", "triton 3.2.0", "fail", "1 of 9 cases: why"),
        Finding("ascend", "interpreted", "triton 3.5.1", "pass", "9 cases"),
        Finding("ascend", "interpreted", "triton 3.7.1", "skipped", "no index"),
    ]
    chips, _, told = cells(*found)
    assert chips.rows[0][1] == "FAILS: 3.2.0; 0 wrong: 3.5.1; skipped: 3.7.1"
    assert [row[-1] for row in told.rows] == ["1 of 9 cases: why", "no index"]


@pytest.mark.parametrize(("status", "code"), [("pass", 0), ("skipped", 0), ("fail", 1)])
def test_the_exit_code_says_whether_one_failed(status, code, monkeypatch, capsys):
    found = [Finding("nvidia", "interpreted", "triton 3.5.1", status, "why")]
    monkeypatch.setattr(matrix, "findings", lambda routes, quick, chosen: iter(found))
    assert command.main(["platforms", "--json"]) == code
    assert json.loads(capsys.readouterr().out) == [vars(found[0])]


@pytest.mark.parametrize(
    ("arguments", "said"), [(("--route", "abacus"), "--route abacus: known: nvidia,"), (("--check", "x"), "--check x: known: ")]
)
def test_unknown_names_are_refused(arguments, said, capsys):
    assert command.main(["platforms", *arguments]) == 2 and said in capsys.readouterr().err
