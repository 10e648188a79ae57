"""A Triton kernel -> Ascend's linalg -> the UB plan, and -> machine code of this CPU. Runs in the environment of triton-ascend.

    triton            the kernel's TTIR                                          triton-ascend
    linalg            triton-adapter-opt: where Ascend refuses a kernel          triton-ascend
    UB plan           bishengir-compile, up to its call of hivmc, CANN's own     ascendnpu-ir
    this CPU          bishengir-opt, mlir-translate, llc, cc: the same linalg    ascendnpu-ir, LLVM 19, a C compiler

UB: the unified buffer, 192 KiB of a vector core of a 910B, in which every tile of a kernel must lie.
"""

import ctypes
import importlib.util
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

RUNTIME = Path(__file__).with_name("ascend_runtime.c")
ARCH = "Ascend910B3"
# Of triton-ascend's own driver for this chip (multi-buffering is its default).
PLAN_OPTIONS = (
    f"--target={ARCH}", "--enable-hfusion-compile=true", "--enable-triton-kernel-compile=true", "--enable-hivm-compile=true",
    "--enable-auto-multi-buffer=true", "--enable-auto-bind-sub-block=true",
)  # fmt: skip
TO_LLVM = (
    "execution-engine-convert-hfusion-to-upstream", "execution-engine-convert-hivm-to-upstream",
    "convert-elementwise-to-linalg", "linalg-generalize-named-ops", "eliminate-empty-tensors", "empty-tensor-to-alloc-tensor",
    "one-shot-bufferize=allow-return-allocs-from-loops=true", "convert-linalg-to-loops", "lower-affine", "memref-expand",
    "expand-strided-metadata", "lower-affine", "convert-scf-to-cf", "arith-expand=include-bf16=true", "convert-math-to-llvm",
    "convert-math-to-libm", "convert-index-to-llvm", "finalize-memref-to-llvm", "convert-func-to-llvm", "convert-arith-to-llvm",
    "convert-cf-to-llvm", "reconcile-unrealized-casts",
)  # fmt: skip
NO_MEANING_HERE = r"^ *(gpu\.barrier|annotation\.mark|hivm\.hir\.(pipe_barrier|set_flag|wait_flag|sync_block)).*\n"
C_TYPES = {"i1": ctypes.c_bool, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
           "f32": ctypes.c_float, "f64": ctypes.c_double}  # fmt: skip


class Refused(Exception):
    """A tool took the kernel no further; the message begins with the tool's name."""


@dataclass(frozen=True)
class UbPlan:
    """What the memory planner says of one kernel, in bytes a vector core."""

    used: int | None  # None: the plan overflows or the tool failed before it
    error: str  # the tool's own words, "" where a plan was found
    given_up: str  # what it had to switch off to find one: multi-buffering, code motion; "" for nothing


def missing_tools():
    """Names of what the CPU run needs and this machine lacks."""
    found = {"mlir-translate": mlir_translate(), "llc": llc(), "cc": compiler()}
    return [name for name, path in found.items() if path is None]


def mlir_translate():
    return shutil.which("mlir-translate-19") or shutil.which("mlir-translate", path="/usr/lib/llvm-19/bin")


def llc():
    return shutil.which("llc-19") or shutil.which("llc", path="/usr/lib/llvm-19/bin")


def compiler():
    return shutil.which("cc") or shutil.which("gcc")


def bishengir(name):
    return Path(importlib.util.find_spec("ascendnpuir").origin).parent / "bin" / name


def link(library, *objects):
    """The runtime and `objects` -> a loaded shared library."""
    _run(compiler(), "-O2", "-shared", "-fPIC", *objects, RUNTIME, "-lm", "-o", library)
    return ctypes.CDLL(str(library))


def lower(source, options, target):
    """Triton's ASTSource -> linalg as text; Refused with the first lines of the tool that failed."""
    from triton._C.libtriton import ir
    from triton.backends.ascend import compiler as ascend
    from triton.compiler.compiler import make_backend

    backend = make_backend(target)
    options = backend.parse_options(options)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    metadata = {"hash": "", "target": target, **vars(options)}
    try:
        module = source.make_ir(options, backend.get_codegen_implementation(), backend.get_module_map(), context)
        module = ascend.make_ttir(module, metadata, options)
    except Exception as error:
        raise Refused(f"triton: {type(error).__name__}: {error}") from error
    try:
        return ascend.ttir_to_linalg(module, metadata, options, named_ops=True)
    except subprocess.CalledProcessError as error:
        raise Refused(f"triton-adapter-opt: {_first_lines(error.stderr.decode())}") from error


def plan_ub(linalg, folder):
    """Linalg text -> UbPlan. The tool ends at hivmc, which only CANN has; the plan precedes it."""
    path = Path(folder, "kernel.mlir")
    path.write_text(re.sub(r', mix_mode\s*=\s*"[^"]*"', "", linalg))
    for old in Path(folder).glob("memory_info_*.json"):
        old.unlink()
    command = [bishengir("bishengir-compile"), path, *PLAN_OPTIONS, "--enable-memory-display", "-o", Path(folder, "kernel")]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    said = ran.stdout + ran.stderr
    given_up = [what for flag, what in (("code-motion", "code motion"), ("auto-multi-buffer", "multi-buffering"))
                if f"set enable-{flag} to false" in said]  # fmt: skip
    overflow = re.search(r"ub overflow, requires (\d+) bits while (\d+) bits available", said)
    if overflow:
        needed, available = (int(bits) // 8 for bits in overflow.groups())
        return UbPlan(None, f"UB overflow: {needed:,} bytes needed, {available:,} available", "")
    reports = list(Path(folder).glob("memory_info_*.json"))
    if "Cannot find hivmc" not in said or "External hivmc run fails" not in said or not reports:
        return UbPlan(None, f"bishengir-compile: {_first_lines(said)}", "")
    used = 0
    for report in reports:
        for record in json.loads(report.read_text())["Record"]:
            for buffer in record["memory_info_array"]:  # offsets in bytes, one for each of its copies; the extent in bits
                if "address_space<ub>" in buffer["buffer"]:
                    used = max(used, max(buffer["offset"]) + buffer["extent"] // 8)
    return UbPlan(used, "", ", ".join(given_up))


class CpuKernel:
    """Linalg text, compiled for this CPU. Call it with a grid and the values of its parameters, tensors as pointers."""

    def __init__(self, linalg, folder):
        folder = Path(folder)
        mlir, llvm, text, code, library = (folder / f"cpu.{end}" for end in ("mlir", "llvm.mlir", "ll", "o", "so"))
        mlir.write_text(re.sub(NO_MEANING_HERE, "", linalg, flags=re.M))
        _run(bishengir("bishengir-opt"), mlir, *(f"--{name}" for name in TO_LLVM), "-o", llvm)
        _run(mlir_translate(), "--mlir-to-llvmir", llvm, "-o", text)
        allocating = re.sub(r"@(?:malloc|aligned_alloc)\b", "@program_alloc", text.read_text())
        text.write_text(re.sub(r"@free\b", "@program_free", allocating))
        _run(llc(), "-O2", "-filetype=obj", "-relocation-model=pic", text, "-o", code)
        name, parameters = re.search(r"func\.func @(\w+)\((.*?)\) *(?:attributes|\{)", linalg, re.S).groups()
        self.types = re.findall(r"%arg\d+: (memref<\?x\w+>|\w+)", parameters)
        self._library = link(library, code)
        self._function = getattr(self._library, name)
        self._function.restype = None

    def __call__(self, grid, values):
        spare = ctypes.create_string_buffer(1 << 16)  # the first two parameters: workspace and locks, which no kernel here uses
        values = [ctypes.addressof(spare)] * 2 + list(values)
        types, programs = self.types[:-6], (*grid, 1, 1)[:3]
        if len(types) != len(values):
            raise Refused(f"run: {len(values)} values for {len(types)} parameters")
        passed = []
        for kind, value in zip(types, values):
            if kind.startswith("memref"):  # allocated, aligned, offset, size, stride
                address = value.data_ptr() if hasattr(value, "data_ptr") else value
                passed += [ctypes.c_void_p(address)] * 2 + [ctypes.c_int64(n) for n in (0, 1 << 40, 1)]
            else:
                passed.append(C_TYPES[kind](value))
        sizes = [ctypes.c_int32(size) for size in programs]
        for x in range(programs[0]):
            for y in range(programs[1]):
                for z in range(programs[2]):
                    self._function(*passed, *sizes, ctypes.c_int32(x), ctypes.c_int32(y), ctypes.c_int32(z))
                    self._library.program_end()


def _run(*command):
    ran = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if ran.returncode:
        raise Refused(f"{Path(command[0]).name}: {_first_lines(ran.stderr) or f'exit {ran.returncode}'}")


def _first_lines(text, count=4, width=300):
    """The lines that speak of errors, else the first ones."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if "error" in line.lower() or "assert" in line.lower()] or lines
    return " | ".join(line[:width] for line in lines[:count])
