"""What differs between device kinds: choosing one, its name, synchronising, events, flushing the L2, copy bandwidth.

Every accelerator is reached through its torch backend module (torch.cuda, torch.npu, torch.musa), whose calls have the same
names. Run on hardware: cuda (NVIDIA H200). npu and musa: written from those backends' documented names, not run.
"""

import importlib
import importlib.util
import platform
import re

import torch

ACCELERATORS = ("cuda", "npu", "musa")  # tried in this order
PLUGINS = {"npu": "torch_npu", "musa": "torch_musa"}  # modules that register a backend with torch
FLUSH_BYTES = 512 << 20  # read before a cold call: ten times the L2 of an H200, and 0.13 ms there, so that the host is ahead
COPY_BYTES = 1 << 30  # copied to measure the bandwidth
DEFAULT_L2_BYTES = 64 << 20  # taken where the backend does not tell


def choose_device(name="auto"):
    """`auto`, `cpu`, `cuda`, `cuda:1`, ... -> torch.device. ValueError if it is not to be had here."""
    kinds = ACCELERATORS if name == "auto" else [name.partition(":")[0]]
    for kind in kinds:
        if kind in PLUGINS and importlib.util.find_spec(PLUGINS[kind]):
            importlib.import_module(PLUGINS[kind])
        backend = getattr(torch, kind, None)
        if kind == "cpu" or (kind in ACCELERATORS and backend is not None and backend.is_available()):
            device = torch.device(kind if name == "auto" else name)
            if kind == "cpu":
                return device
            if (device.index or 0) >= backend.device_count():
                raise ValueError(f"--device {name}: {backend.device_count()} devices of type {kind} here")
            return torch.device(kind, device.index or 0)
    if name == "auto":
        return torch.device("cpu")
    raise ValueError(f"--device {name}: not available here; known: auto, cpu, {', '.join(ACCELERATORS)}")


class Chip:
    """One device. On a CPU the submission runs in Triton's interpreter: there is nothing to time."""

    def __init__(self, device):
        self.device = device
        self.interpreted = device.type == "cpu"
        self._backend = getattr(torch, device.type)
        self._flush = None

    @property
    def name(self):
        return "CPU, interpreted" if self.interpreted else self._backend.get_device_name(self.device)

    @property
    def platform(self):
        """Name of the chip's file in scores/: lower-case letters, digits and hyphens."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    @property
    def l2_bytes(self):
        properties = self._backend.get_device_properties(self.device)
        return getattr(properties, "L2_cache_size", None) or DEFAULT_L2_BYTES

    @property
    def has_graphs(self):
        return hasattr(self._backend, "CUDAGraph")

    def synchronize(self):
        if not self.interpreted:
            self._backend.synchronize(self.device)

    def empty_cache(self):
        """Hand memory that this process holds but does not use back to the device, for the worker beside it."""
        if not self.interpreted:
            self._backend.empty_cache()

    def event(self):
        return self._backend.Event(enable_timing=True)

    def timed(self, call):
        """-> (microseconds between two events around `call()`, what it returned)."""
        start, end = self.event(), self.event()
        start.record()
        returned = call()
        end.record()
        self.synchronize()
        return start.elapsed_time(end) * 1e3, returned

    def flush(self):
        """Read FLUSH_BYTES, asynchronously: the L2 then holds no byte of the inputs, and no dirty line for a call to write back."""
        if self._flush is None:
            self._flush = torch.zeros(FLUSH_BYTES // 4, dtype=torch.float32, device=self.device)
        self._flush.sum()

    def capture(self, call):
        """Record `call()` into a graph -> (replay, what the call returned)."""
        graph = self._backend.CUDAGraph()
        with self._backend.graph(graph):
            returned = call()
        return graph.replay, returned

    def copy_bandwidth(self, rounds=10):
        """Bytes a second of a large device-to-device copy, bytes read and written both counted; median of `rounds`."""
        source = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        times = [self.timed(lambda: target.copy_(source))[0] for _ in range(rounds + 3)]
        return 2 * COPY_BYTES / (sorted(times[3:])[rounds // 2] * 1e-6)

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


def _nvidia_driver():
    """Driver version from NVML where PyTorch's binding to it is installed, else None."""
    if importlib.util.find_spec("pynvml") is None:
        return None
    pynvml = importlib.import_module("pynvml")
    pynvml.nvmlInit()
    version = pynvml.nvmlSystemGetDriverVersion()
    pynvml.nvmlShutdown()
    return version.decode() if isinstance(version, bytes) else version
