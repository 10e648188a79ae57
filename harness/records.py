"""Score records: one JSON line a submission and case, in scores/<platform>.jsonl."""

import fcntl
import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

SCORES = Path(__file__).parent.parent / "scores"
SCHEMA = 1


@dataclass(frozen=True)
class ScoreRecord:
    """What one run of one case showed. A record whose status is not `pass`, or that has a wrong byte, carries no wrong speed:
    timings are empty unless every differing byte is a rounding tie."""

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
    timings_us: dict  # mode -> {"reference": [...], "submission": [...]}, microseconds a call
    copy_bandwidth: float | None  # bytes a second
    schema: int = SCHEMA

    def __post_init__(self):
        if self.timings_us and (self.verdict is None or self.verdict["differing"] != self.verdict["ties"]):
            raise ValueError(f"record of {self.submission}, case {self.case['name']}: timings without a clean check")

    @property
    def floor_us(self):
        """Microseconds to read every state row once at the copy bandwidth: num_outputs * C rows of 4,096 bytes."""
        return self.num_outputs * self.case["compress_ratio"] * 4096 / self.copy_bandwidth * 1e6


def from_result(result, when, run, chip, environment, name, path, reference):
    """CaseResult -> ScoreRecord."""
    verdict = result.verdict
    return ScoreRecord(
        when=when,
        run=run,
        platform=chip.platform,
        environment=environment,
        submission=name,
        submission_sha256=sha256(path),
        reference_sha256=sha256(reference),
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
            mode: {"reference": [round(t, 2) for t in s.reference], "submission": [round(t, 2) for t in s.submission]}
            for mode, s in result.run.timings.items()
        },
        copy_bandwidth=result.run.copy_bandwidth and round(result.run.copy_bandwidth),
    )


def sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def append(records, folder=SCORES):
    """Add records to their platforms' files, all lines of a file in one write under a lock."""
    folder.mkdir(exist_ok=True)
    for platform in sorted({record.platform for record in records}):
        lines = [json.dumps(asdict(record)) for record in records if record.platform == platform]
        with open(folder / f"{platform}.jsonl", "a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write("".join(line + "\n" for line in lines))


def read(folder=SCORES):
    """[ScoreRecord] of all platforms, oldest first within a file. ValueError names the file and line that cannot be read."""
    records = []
    for path in sorted(Path(folder).glob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                values = json.loads(line)
                if values.get("schema") != SCHEMA:
                    raise ValueError(f"schema {values.get('schema')} given; this harness reads {SCHEMA}")
                records.append(ScoreRecord(**{field.name: values[field.name] for field in fields(ScoreRecord)}))
            except (ValueError, KeyError, AttributeError) as error:
                raise ValueError(f"{path}, line {number}: not a score record: {error!r}") from error
    return records
