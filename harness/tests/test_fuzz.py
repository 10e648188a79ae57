"""The fuzzer on stand-in verdicts: what it draws is valid, what fails is found, shrunk and written so that it runs again."""

import random
from types import SimpleNamespace

from harness import fuzz
from harness.cases import CHOICES, CaseSpec, load_cases
from harness.inputs import bad_indices, build


def verdict(case):
    """A submission that is wrong where windows do not begin with a block and there are several requests or blocks are permuted."""
    wrong = case.first_position % case.block_size and (case.num_reqs > 1 or case.block_table == "permuted")
    return SimpleNamespace(status="mismatch" if wrong else "pass", message="wrong: output 0")


def ticking():
    """A clock that gives fuzz() 200 looks."""
    return iter(range(10**6)).__next__


def test_drawn_cases_are_valid_and_reach_every_choice():
    draw = random.Random(0)
    drawn = [fuzz.draw_case(draw, "fuzz") for _ in range(300)]
    for field, known in CHOICES.items():
        assert {getattr(case, field) for case in drawn} == set(known), field
    for case in drawn[:25]:
        assert bad_indices(build(case, case.seed).arguments) == [], case


def test_a_failure_is_found_shrunk_and_runs_again_from_its_file(tmp_path):
    _, failure = fuzz.fuzz(verdict, 200, seed=1, clock=ticking())
    assert failure.status == "mismatch" and verdict(failure.drawn).status == "mismatch"
    case = failure.case
    assert verdict(case).status == "mismatch" and case.total_tokens <= 128
    assert (case.distribution, case.memory, case.slots, case.seed) == ("normal", "packed", "dense", 0)
    (again,) = load_cases(fuzz.write(failure, tmp_path))
    assert again == case
    assert fuzz.fuzz(verdict, 200, seed=1, clock=ticking())[1] == failure  # the seed repeats it


def test_without_a_failure_the_count_is_told():
    assert fuzz.fuzz(lambda case: SimpleNamespace(status="pass", message=""), 50, clock=ticking())[1] is None


def test_shrinking_keeps_the_kind_of_failure():
    """A simpler case that fails in another way is not taken for the same."""
    case = CaseSpec("fuzz", 2, 1024, 128, block_size=7)
    kinds = {1: "crash", 2: "mismatch"}
    smallest, result = fuzz.shrink(case, SimpleNamespace(status="mismatch"), lambda c: SimpleNamespace(status=kinds[c.num_reqs]))
    assert smallest.num_reqs == 2 and result.status == "mismatch" and smallest.block_size == 8
