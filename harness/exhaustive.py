"""Every byte of every case, distribution, block table and seed against the reference on the same chip: exact, or not.

`check` judges a few cases strictly; this compares many plainly. Its processes each take a share, and nothing is timed.
"""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache

import torch

import reference
from harness.board import Table, machine
from harness.cases import DISTRIBUTIONS
from harness.chips import Chip
from harness.inputs import build
from harness.preflight import ENTRY
from harness.runner import Entrant, load_entry

TABLES = ("identity", "permuted")


@dataclass(frozen=True)
class Comparison:
    """One call of the submission and one of the reference."""

    case: object
    seed: int
    compared: int  # bytes, the whole cache
    differing: int


def runs(cases, seeds):
    """-> [(case, seed)]: each case with every distribution and block table, `seeds` times; the large ones first."""
    made = [
        (replace(case, distribution=distribution, block_table=table, slots="dense" if table == "identity" else "shuffled"), seed)
        for case in cases
        for distribution in DISTRIBUTIONS
        for table in TABLES
        for seed in range(seeds)
    ]
    return sorted(made, key=lambda run: -run[0].total_tokens)


def compare_all(path, route, made, device, jobs, done):
    """Run what `runs` made in `jobs` processes -> [Comparison]; `done()` after each. An error of any ends it."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        waiting = [pool.submit(compare, path, route, device, case, seed) for case, seed in made]
        found = []
        try:
            for future in as_completed(waiting):
                found.append(future.result())
                done()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return found


def table(found, submission, environment):
    """[Comparison] -> a row a case, each with all its distributions, block tables and seeds; the differing runs are named."""
    rows = []
    for name in sorted({c.case.name for c in found}):
        its = [c for c in found if c.case.name == name]
        rows.append((name, f"{len(its)}", f"{sum(c.compared for c in its):,}", f"{sum(c.differing for c in its):,}"))
    rows.append(("all", f"{len(found)}", f"{sum(c.compared for c in found):,}", f"{sum(c.differing for c in found):,}"))
    wrong = [
        f"{c.case.name}, {c.case.distribution}, {c.case.block_table}, seed {c.seed}: {c.differing} bytes"
        for c in found
        if c.differing
    ]
    seeds = len({c.seed for c in found})
    runs_of = f"{len(DISTRIBUTIONS)} distributions ({', '.join(DISTRIBUTIONS)}), block tables {' and '.join(TABLES)}, {seeds} seeds"
    return Table(
        f"{submission}: {machine(environment)}", ("case", "runs", "bytes", "differing"), tuple(rows), (runs_of, *sorted(wrong))
    )


def compare(path, route, device, case, seed):
    torch.set_num_threads(1)
    submission, chip = _entry(path, route, device), Chip(torch.device(device))
    arguments = build(case, seed).to(chip.device).arguments
    got = submission(**arguments)
    expected = getattr(reference, ENTRY)(**arguments)
    return Comparison(case, seed, expected.numel(), int((got != expected).sum()))


@cache
def _entry(path, route, device):
    return load_entry(Entrant(path, route), torch.device(device))
