"""Score records: one JSON line a submission and case, in scores/<platform>.jsonl."""

import fcntl
import hashlib
import json
import os
import statistics
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from harness import ROOT
from harness.stats import FLOOR_MODES, Samples, floor_us, least_us, rows_read

SCORES = ROOT / "scores"
SCHEMA = 3
SINCE_3 = dict.fromkeys(("peak_bandwidth", "first_call_s", "kernels", "machine"))  # unknown in records before schema 3


@dataclass(frozen=True)
class ScoreRecord:
    """What one run of one case showed. It carries a speed only if every differing byte is a rounding tie."""

    when: str  # UTC, ISO 8601
    run: str  # one id for all records of a run
    platform: str
    environment: dict  # chip, driver, torch, triton, python, host
    submission: str  # given name
    submission_sha256: str
    reference_sha256: str
    route: str | None
    evidence: str | None
    case: dict
    seed: int
    input_sha256: str
    num_outputs: int
    status: str
    message: str
    verdict: dict | None  # compared, differing, ties, official, regions
    timings_us: dict  # mode -> {"reference": "19.2 18.5 ...", "submission": ...}: microseconds a call, packed for quick reading
    copy_bandwidth: float | None  # bytes a second
    peak_bandwidth: float | None = None  # bytes a second, as the chip tells; from schema 3 on, as are the next three
    first_call_s: float | None = None  # seconds of import, compilation and first call
    kernels: list | None = None  # names of the Triton kernels that a call launches, in order
    machine: dict | None = None  # clocks, temperature, power before and after the timing
    schema: int = SCHEMA

    def __post_init__(self):
        if self.timings_us and (self.verdict is None or self.verdict["differing"] != self.verdict["ties"]):
            raise ValueError(f"record of {self.submission}, case {self.case['name']}: timings without a clean check")
        if not all(packed.split() for sides in self.timings_us.values() for packed in sides.values()):
            raise ValueError(f"record of {self.submission}, case {self.case['name']}: a mode without samples")

    def times(self, mode):
        """Samples of a mode, or None where it was not timed."""
        packed = self.timings_us.get(mode)
        return packed and Samples(*(tuple(map(float, packed[side].split())) for side in ("reference", "submission")))

    @property
    def floor_us(self):
        """Microseconds to read every state row once at the copy bandwidth: rows of 4,096 bytes."""
        return floor_us(self.rows, self.copy_bandwidth)

    @property
    def rows(self):
        shared = {name: self.case.get(name) for name in ("num_reqs", "block_table")}
        return rows_read(self.num_outputs, self.case["compress_ratio"], **shared)

    @property
    def impossible(self):
        """Whether it is faster than memory allows: an artefact of a timer or a checker, never ranked."""
        times = [self.times(mode).submission for mode in FLOOR_MODES if mode in self.timings_us]
        return any(statistics.median(us) < least_us(self.rows, self.copy_bandwidth, self.peak_bandwidth) for us in times)


def from_result(result, about):
    """CaseResult, and the fields that all records of its run share (`when` to `reference_sha256`) -> ScoreRecord."""
    verdict, bandwidth = result.verdict, result.run.bandwidth or {}
    return ScoreRecord(
        **about,
        route=result.run.route,
        evidence=result.run.evidence,
        case=asdict(result.case),
        seed=result.seed,
        input_sha256=result.digest,
        num_outputs=result.num_outputs,
        status=result.status,
        message=result.message,
        verdict=verdict and {name: getattr(verdict, name) for name in ("compared", "differing", "ties", "official", "regions")},
        timings_us={
            mode: {"reference": pack(samples.reference), "submission": pack(samples.submission)}
            for mode, samples in result.run.timings.items()
        },
        copy_bandwidth=bandwidth.get("copy") and round(bandwidth["copy"]),
        peak_bandwidth=bandwidth.get("peak"),
        first_call_s=result.run.first_call_s and round(result.run.first_call_s, 3),
        kernels=result.run.kernels,
        machine=result.run.machine,
    )


def pack(samples):
    """Microseconds -> text, to a hundredth and at least one: a clock that stood still is impossible, and divides nothing."""
    return " ".join(f"{max(t, 0.01):.2f}" for t in samples)


def sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def append(records, folder=SCORES):
    """Add records to their platforms' files."""
    for platform in sorted({record.platform for record in records}):
        lines = [json.dumps(sealed(record)) for record in records if record.platform == platform]
        append_lines(folder / f"{platform}.jsonl", lines)


def append_lines(path, lines):
    """Add lines to a file in one write under a lock: writers side by side lose none, and a killed one spoils no later line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(line + "\n" for line in lines).encode()
    with open(path, "ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # held until the file is closed, after the data is out
        file.seek(0, os.SEEK_END)
        if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
            data = b"\n" + data  # the last writer died within its line
        file.write(data)


def sealed(record):
    """ScoreRecord -> its values and their seal, the SHA-256 that tells an edited line from a written one."""
    values = asdict(record)
    return {**values, "seal": seal(values)}


def seal(values):
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def verify(folder=SCORES):
    """Every line of every platform's file that is damaged, edited or unreadable, as text; [] if all are sound."""
    found = []
    for path in record_files(folder):
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                values = json.loads(line)
                given = values.pop("seal")
                parse(values)
                if given != seal(values):
                    found.append(f"{path}, line {number}: edited: its values do not match its seal")
            except (ValueError, KeyError, AttributeError, TypeError) as error:
                found.append(f"{path}, line {number}: damaged: {error!r}")
    return found


def record_files(folder):
    return [path for path in sorted(Path(folder).glob("*.jsonl")) if path.name != "platform_reports.jsonl"]


def parse(values):
    """Values of a line -> ScoreRecord. A later schema may add fields: they are passed over; a missing one is an error."""
    if not isinstance(values.get("schema"), int):
        raise ValueError("no schema number")
    if values["schema"] == 1:  # samples were lists
        packed = {mode: {k: pack(v) for k, v in sides.items()} for mode, sides in values["timings_us"].items()}
        values = {**values, "timings_us": packed}
    added = SINCE_3 if values["schema"] < 3 else {}
    return ScoreRecord(**{field.name: {**added, **values}[field.name] for field in fields(ScoreRecord)})


def read(folder=SCORES, damaged=lambda path, line: None):
    """[ScoreRecord] of all platforms, oldest first within a file. `damaged` hears of each line passed over; `verify` says why."""
    records = []
    for path in record_files(folder):
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                records.append(parse(json.loads(line)))
            except (ValueError, KeyError, AttributeError, TypeError):
                damaged(path, number)
    return records
