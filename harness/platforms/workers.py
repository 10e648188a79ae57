"""Workers: modules of this package run in processes of their own, each from job.json to result.json of one folder."""

import json
import subprocess
import sys
from pathlib import Path

from harness import ROOT


class Crashed(Exception):
    """A worker came to no result: its exit code and last words."""


def run(module, job, folder, timeout, variables):
    """Run `module` on `job` (JSON) with environment variables, in `folder`, for `timeout` seconds at most -> its result (JSON)."""
    folder = Path(folder)
    (folder / "job.json").write_text(json.dumps(job))
    command = [sys.executable, "-m", f"harness.platforms.{module}", str(folder)]
    variables = {**variables, "TRITON_CACHE_DIR": str(folder)}
    try:
        ran = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=ROOT, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Crashed(f"no end after {timeout} s") from None
    if not (folder / "result.json").exists():
        raise Crashed(f"exit {ran.returncode}: {(ran.stdout + ran.stderr).strip()[-1500:]}")
    return json.loads((folder / "result.json").read_text())


def serve(work):
    """What a worker's module does when it is run: `work(job, folder)` -> its result."""
    folder = Path(sys.argv[1])
    result = work(json.loads((folder / "job.json").read_text()), folder)
    (folder / "result.json").write_text(json.dumps(result, default=str))
