"""What differs between device kinds, behind one interface: name, synchronising, events, flushing the L2, bandwidth, graphs, state.

Every accelerator is reached through its torch backend module (torch.cuda, torch.npu, torch.musa, ...), whose calls have the same
names; what a backend lacks is left out and the reason told. Run on hardware: cuda (NVIDIA H200). Untested on hardware: npu, musa,
maca and whatever else torch offers; the interface is tested on a fake backend (harness/tests/test_chips.py).
"""

import importlib
import importlib.util
import os
import platform
import re
import subprocess
import time

import torch

ACCELERATORS = ("cuda", "npu", "musa", "maca")  # tried in this order, then what torch itself calls its accelerator
PLUGINS = {"npu": "torch_npu", "musa": "torch_musa", "maca": "torch_maca"}  # modules that register a backend with torch
FLUSH_BYTES = 512 << 20  # read before a cold call: ten times the L2 of an H200, and 0.13 ms there, so that the host is ahead
COPY_BYTES = 1 << 30  # copied to measure the bandwidth
DEFAULT_L2_BYTES = 64 << 20  # taken where the backend does not tell
STATE = {"sm_mhz": "clocks.sm", "memory_mhz": "clocks.mem", "celsius": "temperature.gpu", "watts": "power.draw"}  # of nvidia-smi


def choose_device(name="auto"):
    """`auto`, `cpu`, `cuda`, `cuda:1`, ... -> torch.device. ValueError if it is not to be had here."""
    known = accelerators()
    kinds = known if name == "auto" else [name.partition(":")[0]]
    for kind in kinds:
        if kind in PLUGINS and importlib.util.find_spec(PLUGINS[kind]):
            importlib.import_module(PLUGINS[kind])
        backend = getattr(torch, kind, None)
        if kind == "cpu" or (kind in known and backend is not None and backend.is_available()):
            device = torch.device(kind if name == "auto" else name)
            if kind == "cpu":
                return device
            if (device.index or 0) >= backend.device_count():
                raise ValueError(f"--device {name}: {backend.device_count()} devices of type {kind} here")
            return torch.device(kind, device.index or 0)
    if name == "auto":
        return torch.device("cpu")
    raise ValueError(f"--device {name}: not available here; known: auto, cpu, {', '.join(known)}")


def accelerators():
    """Device types to look for: those known by name, then the one that torch tells of (2.6 and later)."""
    offered = getattr(torch, "accelerator", None)
    told = offered.current_accelerator() if offered else None
    return ACCELERATORS + ((told.type,) if told is not None and told.type not in ACCELERATORS else ())


class Chip:
    """One device. On a CPU the submission runs in Triton's interpreter: there is nothing to time."""

    def __init__(self, device, backend=None):
        self.device = device
        self.interpreted = device.type == "cpu"
        self._backend = backend or getattr(torch, device.type)
        self._flush = None
        self._event = getattr(self._backend, "Event", None)  # kept from before a submission is imported
        self._graph = next(
            (found for name in dir(self._backend) if name.endswith("Graph") and (found := _graph(self._backend, name))), None
        )

    @property
    def name(self):
        return "CPU, interpreted" if self.interpreted else self._backend.get_device_name(self.device)

    @property
    def platform(self):
        """Name of the chip's file in scores/: lower-case letters, digits and hyphens."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    @property
    def l2_bytes(self):
        return self._property("L2_cache_size") or DEFAULT_L2_BYTES

    @property
    def has_graphs(self):
        return self._graph is not None

    def synchronize(self):
        if not self.interpreted:
            self._backend.synchronize(self.device)

    def memory_gib(self):
        """GiB of memory, of the host or of the device if that has less."""
        host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return min(host, self._property("total_memory") or host) / (1 << 30)

    def empty_cache(self):
        """Hand memory that this process holds but does not use back to the device, for the worker beside it."""
        if not self.interpreted:
            self._backend.empty_cache()

    def timed(self, call):
        """-> (microseconds between two events around `call()`, what it returned).

        A tensor comes as a copy made behind the second event, in stream order: what another stream writes later is not in it.
        """
        start, end = self._event(enable_timing=True), self._event(enable_timing=True)
        start.record()
        returned = call()
        end.record()
        if isinstance(returned, torch.Tensor):
            returned = returned.clone()
        self.synchronize()
        return start.elapsed_time(end) * 1e3, returned

    def flush(self):
        """Read FLUSH_BYTES, asynchronously: the L2 then holds no byte of the inputs, and no dirty line for a call to write back."""
        if self._flush is None:
            self._flush = torch.zeros(FLUSH_BYTES // 4, dtype=torch.float32, device=self.device)
        self._flush.sum()

    def capture(self, call):
        """Record `call()` into a graph -> (replay, what the call returned)."""
        graph_class, recording = self._graph
        graph = graph_class()
        with recording(graph):
            returned = call()
        return graph.replay, returned

    def timed_copies(self, count):
        """`count` large device-to-device copies, back to back -> (microseconds by events, microseconds by the wall clock)."""
        source = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)

        def copies():
            for _ in range(count):
                target.copy_(source)

        copies()
        self.synchronize()
        start = time.perf_counter()
        us, _ = self.timed(copies)
        return us, (time.perf_counter() - start) * 1e6

    def copy_bandwidth(self, rounds=10):
        """Bytes a second of a large device-to-device copy, bytes read and written both counted; median of `rounds`."""
        times = sorted(self.timed_copies(1)[0] for _ in range(rounds))
        return 2 * COPY_BYTES / (times[rounds // 2] * 1e-6)

    def peak_bandwidth(self):
        """Bytes a second that the memory's clock and width allow, at two transfers a clock; None where the backend is silent."""
        clock_khz, width_bits = self._property("memory_clock_rate"), self._property("memory_bus_width")
        return 2 * clock_khz * 1e3 * width_bits / 8 if clock_khz and width_bits else None

    def state(self):
        """Clocks, temperature and power now, by nvidia-smi: {name: number or None}; None where there is no such command."""
        if self.device.type != "cuda":
            return None
        uuid = self._property("uuid")
        chosen = ["-i", f"GPU-{uuid}"] if uuid else ["-i", str(self.device.index or 0)]
        command = ["nvidia-smi", f"--query-gpu={','.join(STATE.values())}", "--format=csv,noheader,nounits", *chosen]
        try:
            told = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            return None
        return dict(zip(STATE, map(_number, told.split(","))))

    def environment(self):
        """What a record says of the machine: chip, versions, host."""
        triton = importlib.util.find_spec("triton") and importlib.import_module("triton")
        return {
            "chip": self.name,
            "driver": _nvidia_driver() if self.device.type == "cuda" else None,
            "torch": torch.__version__,
            "runtime": torch.version.cuda or getattr(torch.version, "hip", None),
            "triton": triton.__version__ if triton else None,
            "python": platform.python_version(),
            "host": f"{platform.system()} {platform.machine()}",
        }

    def _property(self, name):
        """A property of the device, or None where the backend does not tell."""
        tell = getattr(self._backend, "get_device_properties", None)
        return getattr(tell(self.device), name, None) if tell else None


def _graph(backend, name):
    """(graph class, context manager that records into it), or None. As torch.cuda.CUDAGraph, torch.npu.NPUGraph, and `graph`."""
    found, recording = getattr(backend, name), getattr(backend, "graph", None)
    return (found, recording) if isinstance(found, type) and hasattr(found, "replay") and recording else None


def _number(text):
    try:
        return float(text)
    except ValueError:  # "[N/A]"
        return None


def _nvidia_driver():
    """Driver version from NVML where PyTorch's binding to it is installed, else None."""
    if importlib.util.find_spec("pynvml") is None:
        return None
    pynvml = importlib.import_module("pynvml")
    pynvml.nvmlInit()
    version = pynvml.nvmlSystemGetDriverVersion()
    pynvml.nvmlShutdown()
    return version.decode() if isinstance(version, bytes) else version
