"""Views of the scoreboard: ranks, gaps, failures, history, comparison, the expected place, narrow terminals."""

import time

import pytest

from harness import board, platform_reports, records
from harness.platform_reports import CHIPS, PlatformReport
from harness.tests.test_records import record

WHEN = ("2026-01-01T00:00:00+00:00", "2026-02-01T00:00:00+00:00", "2026-03-01T00:00:00+00:00")


def column(table, name):
    return [row[table.columns.index(name)] for row in table.rows]


def failing(name="broken", sha="e" * 64, **changes):
    return record(name, sha, "r9", status="mismatch", timings_us={}, verdict=None, **changes)


def test_the_latest_run_of_each_content_counts_and_the_faster_leads():
    old, new = record(run="r1", cold=50.0), record(run="r2", cold=10.0, when=WHEN[1])
    (table,) = board.summaries([old, new, record("theirs", "d" * 64, "r3", cold=30.0), failing()])
    assert column(table, "submission") == ["theirs", "ours", "broken"] and column(table, "rank") == ["1", "2", "3"]
    assert column(table, "cold") == ["30.00", "10.00", "-"] and column(table, "official")[2] == "0/1"
    assert column(table, "ties")[2] == "mismatch"  # what went wrong stands where its bytes would


def test_equal_places_share_a_rank():
    runs = [
        record(name, letter * 64, name, cold=cold) for name, letter, cold in (("a", "a", 9.0), ("b", "b", 9.0), ("c", "c", 8.0))
    ]
    (table,) = board.summaries(runs)
    assert column(table, "rank") == ["1", "1", "3"]


def test_a_time_that_memory_does_not_allow_is_shown_and_never_ranked():
    """8.39 us is this case's floor: 8.3 us passes (a read may beat the copy a little), 4 us is an artefact and ranks nowhere."""
    honest, artefact = record(cold=1000 / 8.3), record("artefact", "f" * 64, "r7", cold=250.0)
    (table,) = board.summaries([artefact, honest])
    assert column(table, "rank") == ["1", "impossible"] and column(table, "submission") == ["ours", "artefact"]
    assert board.grid([artefact, honest]).rows[-1] == ("best", "120.48")


def test_the_distance_to_the_best_of_each_chip():
    table = board.reported(platform_reports.read(), of_best=True)
    row = dict(zip(table.columns, table.rows[column(table, "submission").index("beijing #2")]))
    assert (row["metax"], row["nvidia"], row["ascend"]) == ("100%", "88%", "91%") and table.rows[-1][4] == "3.82"


def test_a_mean_needs_every_case():
    run = [record(cold=10.0), record(cold=30.0, case=1)]
    assert board.mean_speedup(run, "cold") == pytest.approx(20.0)
    assert board.mean_speedup(run, "cold", "geometric") == pytest.approx(300**0.5)
    assert board.mean_speedup([*run, record(case=2, timings_us={})], "cold") is None


def test_floor_is_the_rows_at_the_copy_bandwidth():
    assert record().floor_us == pytest.approx(64 * 128 * 4096 / 4.0e12 * 1e6)
    assert board.floor_share(record(cold=100.0)) == pytest.approx(8.388608 / 10.0)


def test_grid_shows_gaps_and_failures():
    table = board.grid([record(cold=20.0), record(platform="other", run="r5", cold=5.0), failing(platform="other")])
    assert table.columns == ("submission", "nvidia-h200", "other")
    assert table.rows == (("broken eeeeeeee", "", "0/1 -"), ("ours aaaaaaaa", "20.00", "5.00"), ("best", "20.00", "5.00"))


def test_history_is_oldest_first_and_knows_names_and_hashes():
    found = [record(run=f"r{i}", cold=10.0 * (i + 1), when=when) for i, when in enumerate(WHEN)]
    failed = record("ours", run="r3", case=1, when=WHEN[2], status="crash", timings_us={}, verdict=None)
    table, cases = board.history([*reversed(found[:2]), found[2]], "ours")
    assert column(table, "when") == [when[:16] for when in WHEN] and column(table, "cold") == ["10.00", "20.00", "30.00"]
    assert cases.rows == (("r1_t8192_c128", "10.00", "20.00", "30.00"),)
    assert board.history(found, "aaaa")[0].rows == table.rows
    assert board.history([found[0], failed], "ours")[1].rows == (("r1_t8192_c128", "10.00", ""), ("r1_t8192_c256", "", "crash"))
    with pytest.raises(ValueError, match=r"no record of nobody; known: ours \(aaaaaaaa\)"):
        board.history(found, "nobody")


def timed(name, letter, us):
    times = {"device": {"reference": "100.0 101.0 99.0 " * 5, "submission": f"{us} {us * 1.01} {us * 0.99} " * 5}}
    return record(name, letter * 64, name, timings_us=times)


def test_compare_says_faster_slower_or_indistinguishable():
    a, b, c = timed("a", "a", 10.0), timed("b", "b", 12.0), timed("c", "c", 10.02)
    for first, second, said in (("a", "b", "faster"), ("b", "a", "slower"), ("a", "c", "indistinguishable")):
        (table,) = board.compare([a, b, c], first, second)
        assert table.rows[0][-1] == said, table.rows
    with pytest.raises(ValueError, match="share no platform"):
        board.compare([a, timed("d", "d", 1.0), record("e", "e" * 64, platform="other")], "a", "e")


def test_compare_does_not_mix_in_what_was_not_timed():
    (table,) = board.compare([timed("a", "a", 10.0), failing()], "a", "broken")
    assert table.rows == (("r1_t8192_c128", *("-",) * 6, "not timed in both: mismatch"),)


def test_the_contests_board_stands_in_its_order_with_others_beside_it():
    table = board.reported(platform_reports.read())
    ranks = column(table, "rank")
    assert [r for r in ranks if r.isdigit()] == [str(n) for n in range(1, 12)]
    names = dict(zip(column(table, "submission"), ranks))
    assert (names["sub_4c00b8a5fb5f"], names["sub_b240c845e12e"], names["metax outlier"]) == ("(1)", "", "outlier")
    assert table.rows[-1][1:] == ("best of each chip", "", "", "3.82", "9.58", "12.71", "8.25", "16.19", "9.77", "15.29")
    assert column(table, "ascend")[names and list(names).index("beijing #9")] == "fail"


def test_expected_place_names_the_source_of_each_chip():
    official = platform_reports.read()
    told = PlatformReport("ours", {chip: 9.0 for chip in CHIPS if chip != "ascend"}, ["ascend"])
    table, place = board.expected_place([*official, told], "ours", None)
    assert place == 9 and table.rows[0] == ("ascend", "fail", "3.82", "", "told by the platform")
    assert table.rows[1] == ("tianshu", "9.00", "9.58", "94%", "told by the platform")
    table, place = board.expected_place(official, "ours", [record(cold=20.0)])
    assert place == 12 and table.rows[-1] == ("nvidia", "20.00", "15.29", "", "measured here, NVIDIA H200, cold")
    assert board.expected_place(official, "ours", None)[1] is None


def test_a_narrow_terminal_hides_columns_and_says_which():
    table = board.reported(platform_reports.read())
    assert board.fit(table, 200) is table
    narrow = board.fit(table, 80)
    assert narrow.notes[-1].startswith("hidden at 80 columns: tianshu, moore") and "nvidia" in narrow.columns
    assert all(sum(2 + len(cell) for cell in row) <= 80 for row in narrow.rows)


def test_markdown_has_a_row_a_case():
    text = board.markdown(board.detail([record(), record(case=1)]))
    assert text.count("\n| r1_t8192_c") == 2 and "| mean |" in text


def test_ten_thousand_records_open_in_a_second(tmp_path):
    made = [
        record(f"s{i % 50}", f"{i % 50:064x}", f"r{i // 12}", i % 12, when=f"2026-01-01T00:{i // 600:02d}:00+00:00")
        for i in range(10_000)
    ]
    records.append(made, tmp_path)
    start = time.perf_counter()
    found = records.read(tmp_path)
    tables = [board.reported([]), board.grid(found), *board.summaries(found)]
    assert time.perf_counter() - start < 1.0 and len(found) == 10_000 and len(tables) == 3
