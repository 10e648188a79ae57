"""Environments of other Tritons: folders .envs/NAME that shadow triton and numpy of this Python, made by pip when first asked for.

Used as PYTHONPATH=.envs/NAME:. with this Python, whose torch and rich stay in use. A folder is complete or not there: pip fills a
temporary one, which is renamed. Two that ask at once wait for each other.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from importlib import metadata

from harness import ROOT

FOLDER = ROOT / ".envs"
TIMEOUT = 900  # seconds for one pip install: 150 to 400 MB to load
# name -> packages. numpy: the interpreters of Triton 3.2 to 3.6 turn arrays of one element to int, which 2.4 refuses.
PACKAGES = {
    "triton-3.2.0": ("triton==3.2.0", "numpy<2.4"),  # the base of triton-ascend 3.2
    "triton-3.5.1": ("triton==3.5.1", "numpy<2.4"),  # the contest's platform
    "triton-ascend-3.2.0": ("triton-ascend==3.2.0", "ascendnpu-ir==1.2.0", "pybind11", "numpy<2.4"),
}


class Unavailable(Exception):
    """pip could not make the environment; the text says why."""


def variables(name=None, **more):
    """Environment variables of a process that runs in environment `name` (None: this Python's own Triton). May make it first."""
    path = [str(environment(name)), str(ROOT)] if name else [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    kept = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    return {**kept, "PYTHONPATH": os.pathsep.join(path), **more}


def environment(name):
    """-> its folder, made if it is not there. Unavailable says why it cannot be."""
    folder = FOLDER / name
    if folder.is_dir():
        return folder
    FOLDER.mkdir(exist_ok=True)
    with open(FOLDER / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _make(folder, PACKAGES[name])
    return folder


def _make(folder, packages):
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    try:
        done = subprocess.run([*command, "--target", str(unfinished), *packages], capture_output=True, text=True, timeout=TIMEOUT)
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
            raise Unavailable(f"pip install {' '.join(packages)}: {last}")
        unfinished.rename(folder)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"pip install {' '.join(packages)}: no end within {TIMEOUT} s") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def own_triton():
    """Version of this Python's Triton, or None."""
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:  # a vendor's, under another name
        return None
