"""Platform reports: the official board reproduced, tables read as people paste them, bad entries refused."""

import json
from dataclasses import asdict

import pytest

from harness import platform_reports
from harness.platform_reports import CHIPS, PlatformReport, chip_of, parse_table, rank

ALL = dict.fromkeys(CHIPS, 2.0)


def official():
    return [r for r in platform_reports.read() if r.official_rank]


def test_the_official_board_is_reproduced():
    """All 11 rows in their order: rank 8 with 7 chips at 0.25 stays above rank 9 with 6 chips at 7.80."""
    assert [(place, r.official_rank) for place, r in rank(official())] == [(n, n) for n in range(1, 12)]


def test_each_official_mean_follows_from_its_speedups():
    """To two digits: the platform averages unrounded speedups, so 0.005 of rounding on either side."""
    for report in official():
        assert sum(report.speedups.values()) / len(report.speedups) == pytest.approx(report.mean, abs=0.0101)
        assert len(report.speedups) == report.passed and len(report.failed) == 7 - report.passed


def test_later_submissions_and_outliers_are_kept_and_outliers_never_ranked():
    reports = platform_reports.read()
    ids = {"sub_b1823a55c086", "sub_4c00b8a5fb5f", "sub_64c96b412ccc", "sub_b240c845e12e"}
    assert ids == {r.submission_id for r in reports if r.submission_id}
    assert sorted(s for r in reports if r.outlier for s in r.speedups.values()) == [200, 277]
    assert not any(r.outlier for _, r in rank(reports))


def test_chips_passed_come_before_speed_and_time_decides_ties():
    slow = PlatformReport("slow", {**ALL, "ascend": 0.1}, submitted="2026-01-02")
    fast = PlatformReport("fast", {k: 50.0 for k in list(CHIPS)[1:]}, ["ascend"])
    early = PlatformReport("early", {**ALL, "ascend": 0.1}, submitted="2026-01-01")
    assert [(place, r.name) for place, r in rank([fast, slow, early])] == [(1, "early"), (2, "slow"), (3, "fast")]
    unknown = [PlatformReport("a", ALL), PlatformReport("b", ALL), PlatformReport("c", dict.fromkeys(CHIPS, 1.0))]
    assert [(place, r.name) for place, r in rank(unknown)] == [(1, "a"), (1, "b"), (3, "c")]


def test_the_geometric_rule():
    report = PlatformReport("g", {**dict.fromkeys(CHIPS, 1.0), "nvidia": 128.0})
    assert report.mean_speedup("geometric") == pytest.approx(2.0)
    assert report.mean_speedup() == pytest.approx(134 / 7)


@pytest.mark.parametrize(
    ("title", "chip"),
    [("华为昇腾", "ascend"), ("Ascend 910B", "ascend"), ("天数智芯", "tianshu"), ("海光 DCU", "hygon"), ("摩尔线程", "moore"),
     ("沐曦 MetaX", "metax"), ("平头哥", "thead"), ("T-Head PPU", "thead"), ("国际芯片", "nvidia"), ("NVIDIA", "nvidia"), ("平均", None)],
)  # fmt: skip
def test_chips_are_known_in_both_languages(title, chip):
    assert chip_of(title) == chip


@pytest.mark.parametrize(
    "text",
    [
        "| 芯片 | 状态 | 加速比 |\n|:---|---|---:|\n| 华为昇腾 | 通过 | 1.50x |\n| 沐曦 | 失败 | 失败 |\n| 国际芯片 | 通过 | 15.29 |",
        "chip,result\nascend,1.5\nmetax,failed\nnvidia,15.29",
        "name\tascend\tmetax\tnvidia\tmean\nours\t1.50\tfailed\t**15.29**\t8.4",
        "芯片，加速比\n昇腾，1.5\n沐曦，超时\n英伟达，15.29 倍",
    ],
)
def test_pasted_tables_are_read(text):
    ((_, speedups, failed),) = parse_table(text)
    assert (speedups, failed) == ({"ascend": 1.5, "nvidia": 15.29}, ["metax"])


def test_a_table_of_several_submissions_keeps_their_names():
    found = parse_table("| name | ascend | nvidia |\n| a | 1 | 2 |\n| b | - | failed |")
    assert found == [("a", {"ascend": 1.0, "nvidia": 2.0}, []), ("b", {}, ["nvidia"])]


@pytest.mark.parametrize("text", ["", "nothing here", "a,b\n1,2", "chip,x\nascend,maybe"])
def test_what_is_no_table_is_refused(text):
    with pytest.raises(ValueError, match="table:|result 'maybe'"):
        parse_table(text)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"speedups": {"abacus": 1.0}}, "chip 'abacus'; known: ascend"),
        ({"speedups": {"nvidia": 0}}, "nvidia = 0; a positive number"),
        ({"speedups": {"nvidia": float("inf")}}, "nvidia = inf"),
        ({"speedups": {"nvidia": 1.0}, "failed": ["nvidia"]}, "nvidia has a speedup and failed too"),
    ],
)
def test_a_report_checks_itself(values, said):
    with pytest.raises(ValueError, match=said):
        PlatformReport("bad", **values)


def test_what_was_appended_is_read_and_damage_is_named(tmp_path):
    report = PlatformReport("ours", ALL, note="备注")
    platform_reports.append([report, report], tmp_path)
    assert platform_reports.read(tmp_path) == [report, report]
    with open(tmp_path / platform_reports.FILE, "a") as file:
        file.write(json.dumps({**asdict(report), "speedups": {"abacus": 1}}) + "\n")
    with pytest.raises(ValueError, match="platform_reports.jsonl, line 3: not a platform report"):
        platform_reports.read(tmp_path)
