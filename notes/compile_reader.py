"""Registers, stack and shared memory of the reader's kernel, for GPUs that need not be here: python notes/compile_reader.py.

Half a minute.
"""

import sys
from pathlib import Path

import triton
from triton.compiler import ASTSource

sys.path.insert(0, str(Path(__file__).parent.parent))
from harness.platforms.compile_worker import gpu_target, usage
from harness.reader import sparse_attention as reader

TARGETS = ("sm_80", "sm_90", "sm_100", "gfx90a", "gfx942")
TILES = (  # heads, keys, warps, stages
    (16, 16, 4, 1), (16, 32, 4, 1), (16, 32, 8, 1), (16, 64, 8, 1), (32, 32, 8, 1), (64, 16, 8, 2), (64, 32, 8, 1), (64, 32, 8, 2),
    (64, 32, 8, 3), (64, 64, 8, 1), (64, 64, 8, 2), (64, 32, 16, 1),
)  # fmt: skip
POINTERS = {"query": "bf16", "cache": "u8", "cache16": "i16", "indices": "i32", "out": "bf16"}  # the others are fp32
INTEGERS = ("num_heads", "topk", "num_slots", "page_stride", "page_stride16", "splits")
ALIGNED = ("num_heads", "topk", "page_stride", "page_stride16")  # multiples of 16, as the launcher finds them


def compiled(kernel, constants, num_warps, num_stages, target):
    """A kernel of the reader -> Triton's compiled one."""
    names = kernel.arg_names
    kinds = {
        name: "i32" if name in INTEGERS else "fp32" if name == "sm_scale" else f"*{POINTERS.get(name, 'fp32')}" for name in names
    }
    kinds.update(dict.fromkeys(constants, "constexpr"))
    aligned = [name for name in names if kinds[name].startswith("*") or (name in ALIGNED and name not in constants)]
    source = ASTSource(
        kernel,
        signature=kinds,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    return triton.compile(source, target=gpu_target(target), options={"num_warps": num_warps, "num_stages": num_stages})


if __name__ == "__main__":
    print(f"Triton {triton.__version__}\n\n| target | heads x keys, warps, stages | registers | stack B | shared KiB |")
    print("| --- | --- | --- | --- | --- |")
    for target in TARGETS:
        for heads, keys, warps, stages in TILES:
            constants = {"HEADS": heads, "KEYS": keys, "IS_SPLIT": heads < 64, "HAS_SINK": True, "INTERPRETED": False}
            kernel = compiled(reader.attend_kernel, constants, warps, stages, target)
            took = usage(kernel)
            figures = f"{took['registers']} | {took['stack']} | {took['shared'] / 1024:.0f}"
            print(f"| {target} | {heads} x {keys}, {warps}, {stages} | {figures} |", flush=True)
