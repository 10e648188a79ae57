"""The interface to a device, on a fake backend module: what it offers is used, what it lacks is left out with a reason."""

import contextlib
from types import SimpleNamespace

import pytest
import torch

from harness import chips, timing
from harness.cases import CaseSpec
from harness.inputs import build

CPU = torch.device("cpu")


class Event:
    """Counts microseconds by the backend's clock."""

    clock_us = 0.0

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = Event.clock_us

    def elapsed_time(self, end):
        return (end.at - self.at) * 1e-3  # milliseconds, as every torch backend


class Graph:
    def replay(self):
        self.call()


@contextlib.contextmanager
def graph(recorded):
    yield


def backend(**extra):
    """A torch backend module as vendors write them: no properties of the L2, no graphs, unless given."""
    synchronised = []
    return SimpleNamespace(
        Event=Event, synchronize=synchronised.append, synchronised=synchronised, empty_cache=lambda: None,
        get_device_name=lambda device: "Moore Threads MTT S4000", is_available=lambda: True, device_count=lambda: 2, **extra,
    )  # fmt: skip


@pytest.fixture
def musa(monkeypatch):
    """A chip of a device type that is not installed here; its tensors live on the CPU."""
    chip = chips.Chip(CPU, backend())
    chip.interpreted = False
    monkeypatch.setattr(chips, "FLUSH_BYTES", 1 << 10)
    monkeypatch.setattr(chips, "COPY_BYTES", 1 << 10)
    monkeypatch.setattr(chips, "DEFAULT_L2_BYTES", 1 << 10)
    return chip


def test_name_platform_and_what_a_silent_backend_leaves_open(musa):
    assert (musa.name, musa.platform) == ("Moore Threads MTT S4000", "moore-threads-mtt-s4000")
    assert (musa.l2_bytes, musa.peak_bandwidth(), musa.state()) == (chips.DEFAULT_L2_BYTES, None, None)
    assert not musa.has_graphs and musa.memory_gib() > 0


def test_properties_that_a_backend_tells_are_used():
    told = SimpleNamespace(L2_cache_size=60 << 20, memory_clock_rate=3_201_000, memory_bus_width=6144, total_memory=1 << 30)
    chip = chips.Chip(CPU, backend(get_device_properties=lambda device: told))
    assert (chip.l2_bytes, chip.memory_gib()) == (60 << 20, 1.0)
    assert chip.peak_bandwidth() == pytest.approx(4.917e12, rel=1e-3)  # an H200's 4.9 TB/s


def test_events_are_turned_to_microseconds_and_the_device_is_waited_for(musa):
    def call():
        Event.clock_us += 250.0
        return torch.ones(2)

    us, returned = musa.timed(call)
    assert us == pytest.approx(250.0) and torch.equal(returned, torch.ones(2)) and musa._backend.synchronised == [CPU]


@pytest.mark.parametrize("name", ["CUDAGraph", "NPUGraph", "MUSAGraph"])
def test_graphs_are_found_by_what_the_backend_offers(name):
    assert chips.Chip(CPU, backend(**{name: Graph, "graph": graph})).has_graphs
    assert not chips.Chip(CPU, backend(**{name: Graph})).has_graphs  # nothing to record with
    replay, returned = chips.Chip(CPU, backend(**{name: Graph, "graph": graph})).capture(lambda: 7)
    assert callable(replay) and returned == 7


def test_without_graphs_mode_device_is_left_out_and_says_why(musa):
    inputs, output = build(CaseSpec("timed", 1, 128, 128)), torch.ones(3)
    measured, left_out = timing.measure(musa, lambda **_: output, [lambda **_: output.clone()], inputs, [output])
    assert set(measured) == {"cold", "warm"} and left_out == "mode device left out: this backend has no graphs"


@pytest.mark.parametrize("kind", ["npu", "musa", "maca"])
def test_each_device_type_is_found_by_what_torch_offers(monkeypatch, kind):
    monkeypatch.setattr(torch, kind, backend(), raising=False)
    monkeypatch.setattr(chips, "ACCELERATORS", (kind,))  # as on a machine that has no other
    monkeypatch.setattr(chips.torch, "device", lambda *arguments: SimpleNamespace(type=str(arguments[0]).partition(":")[0],
                        index=int(str(arguments[0]).partition(":")[2] or 0) if len(arguments) == 1 else arguments[1]))  # fmt: skip
    assert (chips.choose_device().type, chips.choose_device(f"{kind}:1").index) == (kind, 1)
    with pytest.raises(ValueError, match=f"2 devices of type {kind} here"):
        chips.choose_device(f"{kind}:2")


def test_a_state_that_cannot_be_read_is_none(monkeypatch):
    chip = chips.Chip(CPU, backend())
    chip.device = SimpleNamespace(type="cuda", index=0)
    monkeypatch.setattr(chips.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout="1980, 3201, 41, [N/A]\n"))
    assert chip.state() == {"sm_mhz": 1980.0, "memory_mhz": 3201.0, "celsius": 41.0, "watts": None}

    def absent(*_, **__):
        raise FileNotFoundError("nvidia-smi")

    monkeypatch.setattr(chips.subprocess, "run", absent)
    assert chip.state() is None
