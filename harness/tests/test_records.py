"""Records survive writing and reading; the board ranks them and prints the README's table."""

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from harness import board, records
from harness.cases import load_cases
from harness.records import ScoreRecord

README = Path(__file__).parents[2] / "README.md"


def record(submission="ours", sha="a" * 64, run="r1", case=0, cold=20.0, when="2026-01-01T00:00:00+00:00", **changes):
    verdict = {"compared": 37376, "differing": 0, "ties": 0, "official": True, "regions": {}}
    timings = {
        mode: {"reference": "1000.0 1000.0", "submission": f"{1000.0 / cold} {1000.0 / cold}"}
        for mode in ("cold", "warm", "device")
    }
    made = ScoreRecord(
        when=when, run=run, platform="nvidia-h200", environment={"chip": "NVIDIA H200", "torch": "2", "triton": "3", "python": "3"},
        submission=submission, submission_sha256=sha, reference_sha256="b" * 64, route="nvidia", evidence="",
        case=asdict(load_cases()[case]), seed=0, input_sha256="c" * 64, num_outputs=64, status="pass", message="",
        verdict=verdict, timings_us=timings, copy_bandwidth=4.0e12,
    )  # fmt: skip
    return replace(made, **changes)


def test_what_was_appended_is_read(tmp_path):
    first, second = record(), record(case=1, platform="other-chip")
    records.append([first], tmp_path)
    records.append([second, first], tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["nvidia-h200.jsonl", "other-chip.jsonl"]
    assert records.read(tmp_path) == [first, first, second]


def test_a_wrong_byte_never_carries_a_speed():
    verdict = {"compared": 37376, "differing": 2, "ties": 1, "official": False, "regions": {}}
    with pytest.raises(ValueError, match="timings without a clean check"):
        record(verdict=verdict)
    with pytest.raises(ValueError, match="timings without a clean check"):
        record(verdict=None)
    assert record(verdict=verdict, timings_us={}).timings_us == {}


def test_no_samples_are_no_result():
    with pytest.raises(ValueError, match="a mode without samples"):
        record(timings_us={"cold": {"reference": "10.0 11.0", "submission": ""}})


def test_a_clock_that_stood_still_is_impossible_and_divides_nothing():
    still = record(timings_us={"cold": {"reference": "10.0 11.0", "submission": records.pack([0.0, 0.0])}})
    assert still.impossible and still.times("cold").submission == (0.01, 0.01)


def damage(text):
    """Ways in which a line of a scores file goes bad, and the word that `verify` has for each."""
    return {
        "damaged": [text[: len(text) // 2], "[]", '{"schema": 99}', json.dumps({"schema": 2, "seal": "0"})],
        "edited": [text.replace('"seed": 0', '"seed": 1'), text.replace("50.0", "5.0")],
    }


def test_damaged_and_edited_lines_are_named_and_the_others_read(tmp_path):
    path = tmp_path / "chip.jsonl"
    good = json.dumps(records.sealed(record()))
    assert records.verify(tmp_path) == []
    for word, lines in damage(good).items():
        for line in lines:
            path.write_text(good + "\n" + line + "\n" + good + "\n")
            (found,) = records.verify(tmp_path)
            assert found.startswith(f"{path}, line 2: {word}"), found
            assert len(records.read(tmp_path)) == (2 if word == "damaged" else 3)


def test_the_first_schema_is_read(tmp_path):
    """Its samples were lists."""
    values = asdict(record())
    lists = {mode: {k: [float(t) for t in v.split()] for k, v in sides.items()} for mode, sides in values["timings_us"].items()}
    values = {**values, "schema": 1, "timings_us": lists}
    (tmp_path / "chip.jsonl").write_text(json.dumps({**values, "seal": records.seal(values)}) + "\n")
    assert records.verify(tmp_path) == [] and records.read(tmp_path)[0].times("cold") == record().times("cold")


def test_a_later_schema_may_add_fields(tmp_path):
    values = {**asdict(record()), "schema": 3, "colour": "red"}
    (tmp_path / "chip.jsonl").write_text(json.dumps({**values, "seal": records.seal(values)}) + "\n")
    assert records.verify(tmp_path) == [] and records.read(tmp_path)[0].submission == "ours"


def test_a_killed_writer_spoils_no_later_record(tmp_path):
    (tmp_path / "nvidia-h200.jsonl").write_text('{"schema": 1, "when": "20')
    records.append([record()], tmp_path)
    assert records.read(tmp_path) == [record()]
    assert [text.split(": ")[1] for text in records.verify(tmp_path)] == ["damaged"]


def test_two_writers_lose_no_record(tmp_path):
    code = (
        "import sys; from pathlib import Path; from harness import records; from harness.tests.test_records import record\n"
        "for i in range(500): records.append([record(run=sys.argv[1] + str(i))], Path(sys.argv[2]))"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, name, str(tmp_path)], cwd=README.parent) for name in "ab"]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    assert {r.run for r in records.read(tmp_path)} == {f"{name}{i}" for name in "ab" for i in range(500)}
    assert records.verify(tmp_path) == []


def test_the_committed_records_are_sound():
    assert records.verify() == []


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_the_readmes_show_what_scores_holds(name):
    """The table between the markers is `board --markdown --detail` of the run that the first marker names."""
    text = (README.parent / name).read_text(encoding="utf-8")
    run, _, rest = text.split("<!-- scores: run ")[1].partition(" -->\n")
    found = [record for record in records.read() if record.run == run]
    assert len(found) == 12 and rest.split("<!-- /scores -->")[0] == board.markdown(board.detail(found))
