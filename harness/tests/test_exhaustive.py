"""The exhaustive comparison: what it runs, what it counts, and that one byte is told."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness import exhaustive
from harness.cases import DISTRIBUTIONS, CaseSpec

HERE = Path(__file__).parent
CASE = CaseSpec("small", 1, 256, 128)


def test_runs_are_every_combination_once():
    made = exhaustive.runs([CASE, replace(CASE, name="large", total_tokens=512)], seeds=3)
    told = {(case.name, case.distribution, case.block_table, seed) for case, seed in made}
    assert len(made) == len(told) == 2 * len(DISTRIBUTIONS) * 2 * 3
    assert made[0][0].name == "large"


@pytest.mark.parametrize(("file", "differing"), [("plain.py", 0), ("wrong_byte.py", 1)])
def test_a_differing_byte_is_counted_and_named(file, differing):
    found = exhaustive.compare(HERE / "bad_submissions" / file, None, "cpu", CASE, seed=5)
    assert (found.compared, found.differing) == (37376, differing)
    table = exhaustive.table([found], "it", {"chip": "a chip", "torch": "2", "triton": "3", "python": "3"})
    assert table.rows[-1] == ("all", "1", "37,376", str(differing))
    assert ("small, normal, identity, seed 5: 1 bytes" in table.notes) == bool(differing)


def test_an_error_of_a_process_is_raised(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("raise RuntimeError('on import')")
    with pytest.raises(Exception, match="on import"):
        exhaustive.compare_all(broken, None, exhaustive.runs([CASE], 1), "cpu", jobs=1, done=lambda: None)
