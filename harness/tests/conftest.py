"""Tests run on an accelerator where there is one, else in Triton's interpreter; the choice comes before triton is imported."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from harness import chips, interpreter

DEVICE = chips.choose_device()
if DEVICE.type == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
    interpreter.repair()

import solution


@pytest.fixture
def device():
    return DEVICE


@pytest.fixture
def cuda():
    """The accelerator, for tests of streams, graphs and devices."""
    if DEVICE.type != "cuda":
        pytest.skip("needs a CUDA device: streams and graphs do not exist in the interpreter")
    return DEVICE


@pytest.fixture(params=["portable", "ascend", "nvidia", "nvidia-fast"] + ["nvidia-plain"] * (DEVICE.type != "cpu"))
def route(request, monkeypatch):
    """Each route in turn, forced as the harness forces it. Interpreted, `nvidia` is its plain Triton kernel."""
    monkeypatch.setattr(solution, "detect_platform", lambda device: (request.param, "forced by a test"))
    solution.forget_plans()
    yield request.param
    solution.forget_plans()
