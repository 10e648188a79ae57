"""`python -m harness ledger` and `attend`, as a user runs them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def harness(*arguments, **environment):
    kept = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "COLUMNS")}
    return subprocess.run(
        [sys.executable, "-m", "harness", *arguments],
        cwd=ROOT, env={**kept, **environment}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize("columns", ["100", "140"])
def test_the_page_fits_the_terminal(columns):
    done = harness("ledger", "--no-color", COLUMNS=columns)
    assert done.returncode == 0, done.stderr
    assert "floor of a call in microseconds" in done.stdout and "published ladder" in done.stdout
    rows = [line for line in done.stdout.splitlines() if line.startswith(("r1_", "r4_", "r8_"))]
    assert len(rows) >= 72 and max(map(len, rows)) <= int(columns)
    assert all(line.split()[0].endswith(("_c128", "_c256", "_c512")) for line in rows), "a case's name is broken"


def test_one_chip_one_case_as_json():
    done = harness("ledger", "--chip", "nvidia-h200", "--case", "r1_t8192_c128", "--json")
    assert json.loads(done.stdout)[0]["rows"][0][0] == "r1_t8192_c128"
    done = harness("ledger", "--sparse-attention", "--markdown")
    assert "| 64 | 512 | 8,192 | 6,921 | cube |" in done.stdout


def test_unknown_chip_is_a_usage_error():
    done = harness("ledger", "--chip", "abacus")
    assert done.returncode == 2 and "--chip abacus: known: nvidia-h200" in done.stderr


def test_attend_splits_the_error():
    """The parts add up to the total (they are nearly independent), and int8 is the largest of them on normal data."""
    done = harness("attend", "--case", "r1_t8192_c512", "--set", "total_tokens=4096", "--topk", "16", "--heads", "16", "--json")
    assert done.returncode == 0, done.stderr
    (table,) = json.loads(done.stdout)
    row = dict(zip(table["columns"], table["rows"][0]))
    bfloat16, int8, kernel, total = (float(row[cause].split("%")[0]) for cause in ("bfloat16", "int8", "kernel", "total"))
    assert row["keys"] == "8" and 0 < kernel < 0.5 and 0 < bfloat16 < int8 < 5  # of the case's own contents
    assert total == pytest.approx((bfloat16**2 + int8**2 + kernel**2) ** 0.5, rel=0.2)


def test_attend_needs_heads_and_keys():
    done = harness("attend", "--quick", "--topk", "0")
    assert done.returncode == 2 and "--heads 64, --topk 0: at least 1 of each is needed" in done.stderr


def test_attend_refuses_to_time_without_an_accelerator(device):
    if device.type != "cpu":
        pytest.skip("there is an accelerator")
    done = harness("attend", "--time", "--quick")
    assert done.returncode == 5 and "an accelerator with graphs is needed" in done.stderr


def test_attend_shows_nothing_of_a_wrong_cache():
    done = harness("attend", "harness/tests/bad_submissions/wrong_byte.py", "--case", "r1_t8192_c512", "--set", "total_tokens=1024")
    assert done.returncode == 1 and done.stdout == "" and "mismatch: wrong: output 1" in done.stderr
