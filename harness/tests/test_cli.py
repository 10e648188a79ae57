"""End to end, as a user runs it: `python -m harness ...` in a process of its own; exit codes and messages."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from harness.chips import choose_device

ROOT = Path(__file__).parents[2]
BAD = Path(__file__).parent / "bad_submissions"
ONE_SMALL = ("--case", "r1_t8192_c512", "--set", "total_tokens=1024")


def harness(*arguments, timeout=300):
    environment = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "COLUMNS")}
    return subprocess.run(
        [sys.executable, "-m", "harness", *map(str, arguments)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


def test_check_of_our_solution():
    """On a CPU it passes; on an accelerator the official verdict of this small case may fail by a tie, never by a wrong byte."""
    done = harness("check", *ONE_SMALL, "--json")
    report = json.loads(done.stdout)
    (record,) = report["records"]
    assert done.returncode == (0 if report["status"] == "pass" else 1), done.stderr
    assert record["verdict"]["differing"] == record["verdict"]["ties"] and record["timings_us"] == {}
    assert len(record["input_sha256"]) == 64 and record["route"] in ("portable", "nvidia")


def test_check_prints_a_verdict_a_case():
    done = harness("check", *ONE_SMALL, "--no-color")
    assert "r1_t8192_c512+total_tokens=1024" in done.stdout and "of 1 cases passed; seed 0" in done.stdout
    assert "\x1b[" not in done.stdout


def test_a_route_can_be_forced():
    done = harness("check", *ONE_SMALL, "--route", "nvidia", "--json")
    (record,) = json.loads(done.stdout)["records"]
    assert (record["route"], record["evidence"]) == ("nvidia", "forced by --route")
    done = harness("check", *ONE_SMALL, "--route", "abacus")
    assert done.returncode == 2 and "abacus: not a route of this submission; its routes: nvidia," in done.stdout


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("wrong_byte", 1, "wrong: output 1, slot 1, int8 dim 1 (group 0): expected"),
        ("raises", 3, "RuntimeError: the submission gave up"),
        ("hangs", 4, "first call within 8 s; --compile-timeout raises the limit"),
        ("wrong_signature", 6, "the signature must be (state_cache, token_to_req, positions,"),
    ],
)
def test_each_fault_has_its_exit_code_and_reason(name, code, said):
    limit = ("--compile-timeout", "8") if name == "hangs" else ()
    done = harness("check", BAD / f"{name}.py", *ONE_SMALL, *limit)
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout.replace("\n", " "), done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("check", "--case", "r9"), "no case matches r9; known: r1_t8192_c128"),
        (("check", "--set", "colour=red"), "--set colour=red: FIELD=VALUE is needed"),
        (("check", "--device", "abacus"), "--device abacus: not available here; known: auto, cpu, cuda"),
        (("check", "--seed", "-1"), "--seed -1: a number of at least 0"),
        (("check", "no_such_file.py"), "no_such_file.py"),
        (("check", "--cases", "no_such_file.json"), "no_such_file.json"),
        (("time", "--guard"), "unrecognized arguments: --guard"),
        (("check", "--colour"), "unrecognized arguments: --colour"),
    ],
)
def test_usage_errors_exit_with_2_and_say_what_is_known(arguments, said):
    done = harness(*arguments)
    assert done.returncode == 2 and said in done.stderr and done.stdout == ""


@pytest.mark.skipif(choose_device().type == "cpu", reason="refused on an accelerator")
def test_the_guard_is_for_interpreted_runs():
    done = harness("check", *ONE_SMALL, "--guard")
    assert done.returncode == 2 and "the guard sees the accesses of Triton's interpreter alone" in done.stderr


def left_behind(mark):
    """Processes that still carry `mark` in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:  # ended meanwhile, or another user's
            continue
    return found


def start_marked(mark, *arguments):
    environment = {**os.environ, "HARNESS_MARK": mark}
    environment.pop("TRITON_INTERPRET", None)
    return subprocess.Popen(
        [sys.executable, "-m", "harness", *map(str, arguments)],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def wait_until_gone(mark, seconds):
    end = time.monotonic() + seconds
    while left_behind(mark) and time.monotonic() < end:
        time.sleep(0.1)
    return left_behind(mark)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for left-over processes in /proc")
def test_ctrl_c_ends_everything_at_once():
    mark = uuid.uuid4().hex
    running = start_marked(mark, "check", BAD / "hangs.py", *ONE_SMALL)
    while len(left_behind(mark)) < 4:  # the command, its fork server, a resource tracker, the worker
        assert running.poll() is None
        time.sleep(0.1)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal sends it
    start = time.monotonic()
    _, errors = running.communicate(timeout=30)
    assert running.returncode == 130 and "interrupted" in errors and "0 of 1 cases done" in errors
    assert time.monotonic() - start < 2 and wait_until_gone(mark, 2) == []


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for left-over processes in /proc")
def test_a_hang_leaves_no_process_behind():
    mark = uuid.uuid4().hex
    running = start_marked(mark, "check", BAD / "hangs.py", *ONE_SMALL, "--compile-timeout", "2")
    running.communicate(timeout=120)
    assert running.returncode == 4 and wait_until_gone(mark, 3) == []


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for left-over processes in /proc")
def test_a_killed_harness_leaves_no_process_behind():
    mark = uuid.uuid4().hex
    running = start_marked(mark, "check", BAD / "hangs.py", *ONE_SMALL)
    while len(left_behind(mark)) < 4:
        assert running.poll() is None
        time.sleep(0.1)
    running.kill()
    running.communicate(timeout=30)
    assert wait_until_gone(mark, 5) == []


def test_time_needs_an_accelerator():
    done = harness("time", *ONE_SMALL, "--device", "cpu")
    assert done.returncode == 5 and "no accelerator" in done.stderr


@pytest.mark.skipif(choose_device().type == "cpu", reason="timing needs an accelerator")
def test_time_on_an_accelerator():
    done = harness("time", *ONE_SMALL, "--no-record", "--json")
    (record,) = json.loads(done.stdout)["records"]
    assert {len(times["submission"].split()) for times in record["timings_us"].values()} == {50, 15, 30}
    wrong = harness("time", BAD / "wrong_byte.py", *ONE_SMALL, "--no-record", "--json")
    assert wrong.returncode == 1 and json.loads(wrong.stdout)["records"][0]["timings_us"] == {}


def test_board_shows_both_kinds_of_figures_apart():
    done = harness("board", "--no-color")
    told, measured = done.stdout.index("told by the contest's platform"), done.stdout.index("measured here")
    assert done.returncode == 0 and told < measured and "beijing #11" in done.stdout[told:measured]
    assert isinstance(json.loads(harness("board", "--json").stdout), list)
    assert harness("board", "--markdown", "--detail").stdout.startswith("**solution (")
    assert "every record is sound" in harness("board", "--verify").stdout
    assert harness("board", "--platform", "abacus").returncode == 2


def test_an_edited_record_fails_the_verification(tmp_path):
    text = (ROOT / "scores" / "nvidia-h200.jsonl").read_text()
    (tmp_path / "nvidia-h200.jsonl").write_text(text.replace('"ties": 19', '"ties": 0', 1))
    done = harness("board", "--verify", "--scores", tmp_path)
    assert done.returncode == 1 and "edited" in done.stdout and done.stdout.count("\n") == 1


def test_a_damaged_line_is_mentioned_once_with_what_names_it(tmp_path):
    text = (ROOT / "scores" / "nvidia-h200.jsonl").read_text()
    (tmp_path / "nvidia-h200.jsonl").write_text(text + text[:40] + "\n")
    done = harness("board", "--scores", tmp_path)
    assert done.returncode == 0 and done.stderr.count("\n") == 1
    assert "passed over: 1; " in done.stderr and "board --verify names them" in done.stderr


def test_check_knows_no_scores():
    assert harness("check", "--scores", "x").returncode == 2


def test_a_found_case_runs_again_from_its_file(tmp_path):
    """A real failure, drawn, shrunk, written, and run again by the command that it names."""
    done = harness("fuzz", BAD / "zeros.py", "--minutes", "1", "--to", tmp_path, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 1 and report["failure"]["status"] == "mismatch"
    again = harness("check", BAD / "zeros.py", "--cases", report["failure"]["file"], "--json")
    assert again.returncode == 1 and json.loads(again.stdout)["records"][0]["case"]["name"] == report["failure"]["case"]["name"]


def test_a_platform_table_is_entered_and_ranked(tmp_path):
    table = tmp_path / "told.md"
    table.write_text("| 芯片 | 加速比 |\n|---|---|\n| 华为昇腾 | 失败 |\n| 国际芯片 | 12.5 |\n", encoding="utf-8")
    assert harness("record", "mine", "--paste", table, "--scores", tmp_path / "new").returncode == 0
    assert harness("record", "mine", "nvidia=13", "昇腾=1.5", "--scores", tmp_path / "new").returncode == 0
    lines = (tmp_path / "new" / "platform_reports.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["speedups"] for line in lines] == [{"nvidia": 12.5}, {"nvidia": 13.0, "ascend": 1.5}]
    for arguments, said in ((("abacus=3",), "CHIP one of ascend"), ((), "CHIP=RESULT or --paste"), (("nvidia=fast",), "'fast'")):
        done = harness("record", "mine", *arguments, "--scores", tmp_path / "new")
        assert done.returncode == 2 and said in done.stderr
    assert len((tmp_path / "new" / "platform_reports.jsonl").read_text(encoding="utf-8").splitlines()) == 2


def test_upload_check_says_everything_before_an_upload():
    done = harness("upload-check", *ONE_SMALL, "--no-color")
    for said in (
        "of 1 cases passed",
        "bytes, sha256",
        "chip by chip",
        "final board, if each chip did so: ",
        "at least 2 minutes apart",
    ):
        assert said in done.stdout, said
    assert harness("upload-check", BAD / "wrong_signature.py").returncode == 6


def test_compare_needs_known_names():
    assert "indistinguishable" in harness("compare", "solution", "solution").stdout
    done = harness("compare", "solution", "nobody")
    assert done.returncode == 2 and "no record of nobody; known: solution (" in done.stderr


def test_lint_exits_with_6_on_what_is_forbidden():
    done = harness("lint", BAD / "falls_back.py")
    assert done.returncode == 6 and "forbidden: a kernel launch inside try/except (rule: no try/except" in done.stdout
    done = harness("lint", "--json")
    assert done.returncode == 0 and all(finding["level"] == "warning" for finding in json.loads(done.stdout)["findings"])


def test_compare_takes_files_or_two_names():
    done = harness("compare", "solution.py@portable", "solution", *ONE_SMALL)
    assert done.returncode == 2 and "files or names of the board are needed, not some of each" in done.stderr
    done = harness("compare", "solution", "solution", "solution")
    assert done.returncode == 2 and "two names of the board are compared at a time" in done.stderr
    done = harness("compare", "solution.py@portable", BAD / "wrong_signature.py", *ONE_SMALL)
    assert done.returncode == 6 and "the signature must be" in done.stdout
    done = harness("compare", "solution.py@portable", "solution.py", *ONE_SMALL, "--device", "cpu")
    assert done.returncode == 5 and "no accelerator" in done.stderr


@pytest.mark.skipif(choose_device().type == "cpu", reason="timing needs an accelerator")
def test_compare_times_files_in_one_run():
    done = harness("compare", "solution.py@portable", "solution.py", "solution.py@nvidia-fast", *ONE_SMALL, "--json")
    tables = json.loads(done.stdout)
    assert [table["title"].partition("mode ")[2].partition(":")[0] for table in tables] == ["cold", "warm", "device"] * 2
    assert [table["title"].split(",")[0] for table in tables[::3]] == [
        "solution.py@portable against solution.py", "solution.py against solution.py@nvidia-fast",
    ]  # fmt: skip
    assert all(table["rows"][0][-1] in ("faster", "slower", "indistinguishable") for table in tables)
