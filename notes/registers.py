"""Registers, spills and shared memory of the exact Gluon kernel, without a GPU: python notes/registers.py [ARCH], default 90.

Triton compiles for the architecture; its own ptxas tells what the machine code takes.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon._runtime import GluonASTSource

sys.path.insert(0, str(Path(__file__).parent.parent))
import solution

POINTERS = {
    "boundary_token_indices": "*i64", "token_to_req": "*i32", "positions": "*i64", "block_table": "*i32", "state_cache": "*fp32",
    "rms_norm_weight": "*bf16", "cos_sin_cache": "*fp32", "kv_slot_mapping": "*i64", "kv_cache": "*u8", "arrivals": "*i32",
    "compressed": "*fp32", "rms_norm_eps": "fp32",
}  # fmt: skip


def compiled(tile, compress_ratio, arch):
    constants = dict(
        C=compress_ratio, BLOCK_SIZE=8, ROWS=tile.rows, DIMS=tile.dims, EVICTION="evict_first", LANES=32, ALIGNED=True,
        ALIGNED_PAGES=True, NUM_WARPS=tile.num_warps, PREFETCH=tile.prefetch,
    )  # fmt: skip
    names = solution.exact_gluon_kernel.arg_names
    signature = {name: "constexpr" if name in constants else POINTERS.get(name, "i32") for name in names}
    source = GluonASTSource(
        fn=solution.exact_gluon_kernel, signature=signature, attrs={},
        constexprs={(names.index(name),): value for name, value in constants.items()},
    )  # fmt: skip
    options = {"num_warps": tile.num_warps, "enable_fp_fusion": False, "maxnreg": tile.registers}
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)


def main(arch=90):
    ptxas = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
    for compress_ratio, _, tile in solution.NVIDIA_GLUON.tiles:
        kernel = compiled(tile, compress_ratio, arch)
        with tempfile.TemporaryDirectory() as folder:
            ptx = Path(folder, "kernel.ptx")
            ptx.write_text(kernel.asm["ptx"])
            target = re.search(r"\.target (sm_\w+)", kernel.asm["ptx"]).group(1)
            command = [ptxas, "-v", f"--gpu-name={target}", ptx, "-o", Path(folder, "kernel.cubin")]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        registers, spills = re.search(r"Used (\d+) registers", said).group(1), re.search(r"(\d+) bytes spill stores", said).group(1)
        print(
            f"C = {compress_ratio}, {target}: {registers} registers, {spills} bytes spilled, {kernel.metadata.shared} bytes shared"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
