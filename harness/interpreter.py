"""Repairs to Triton's CPU interpreter, applied before a submission runs interpreted.

Rounding: it cuts float32 to bfloat16 where every chip rounds to nearest even (seen in Triton 3.7.1), so a submission that
casts would show wrong bytes here and none on a chip. Speed: it patches `triton.language` anew at every call of a device
function; once a launch is enough (measured in notes/2026-11-30-interpreter.md). Triton 3.2's does not know `~` of a bool, takes
a scalar mask that is false for none, and sums int32 to int64.

Each repair replaces a private function of Triton and is left out where that function is not found. Tried with 3.2, 3.5 and 3.7.
"""

import inspect

import numpy as np


def repair():
    """Repair the interpreter of the Triton in this process; TRITON_INTERPRET must be set before triton is imported."""
    import triton.language as tl
    from triton.runtime import interpreter

    if hasattr(interpreter, "_convert_float"):
        interpreter._convert_float = _rounding_to_nearest(interpreter._convert_float, tl)
    if hasattr(interpreter, "_patch_lang"):
        _patch_once_a_launch(interpreter)
    if not hasattr(interpreter.InterpreterBuilder, "get_int1_ty"):  # 3.2
        _know_int1(interpreter, tl)
        _heed_scalar_masks(tl)
        _keep_type_in_sums(interpreter)


def bf16_bits(x):
    """float32 array -> uint16 array of the nearest-even bfloat16 (NaN stays NaN)."""
    bits = np.ascontiguousarray(x).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(x), np.uint64(0x7FC0), rounded).astype(np.uint16)


def bf16_value(bits):
    """uint16 array of bfloat16 bits -> float32 array, subnormals included."""
    return (np.ascontiguousarray(bits).view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def _rounding_to_nearest(convert, tl):
    def convert_float(x, source, target, rounding_mode):
        """As Triton's, whose result is the bits of the target type in an unsigned integer of its width."""
        if (source, target) == (tl.float32, tl.bfloat16):
            return bf16_bits(x).reshape(x.shape)
        if (source, target) == (tl.bfloat16, tl.float32):
            return bf16_value(x).view(np.uint32).reshape(x.shape)
        return convert(x, source, target, rounding_mode)

    return convert_float


def _patch_once_a_launch(interpreter):
    patch, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    patched = set()  # names of the modules whose functions this launch has patched

    def patch_lang(fn):
        module = fn.__globals__.get("__name__")
        if module in patched:
            return None
        patched.add(module)
        return patch(fn)

    def launch_grid(self, *args, **kwargs):
        patched.clear()
        return launch(self, *args, **kwargs)

    interpreter._patch_lang = patch_lang
    interpreter.GridExecutor.__call__ = launch_grid


def _know_int1(interpreter, tl):
    builder = interpreter.InterpreterBuilder
    all_ones = builder.get_all_ones_value

    def get_all_ones_value(self, type):
        return interpreter.TensorHandle(np.ones(1, dtype=bool), tl.int1) if type.scalar == tl.int1 else all_ones(self, type)

    builder.get_int1_ty, builder.get_all_ones_value = lambda self: tl.int1, get_all_ones_value


def _heed_scalar_masks(tl):
    class Mask(tl.tensor):
        """A mask that is there, whatever its value: Triton 3.2 asks `if not mask`, which the interpreter answers by the value."""

        def __bool__(self):
            return True

    def heeding(access):
        bind = inspect.signature(access).bind

        def heeded(*args, **kwargs):
            given = bind(*args, **kwargs)
            mask = given.arguments["mask"]
            if isinstance(mask, tl.tensor):
                given.arguments["mask"] = Mask(mask.handle, mask.type)
            return access(*given.args, **given.kwargs)

        return heeded

    for name in ("_load_legacy", "_store_legacy"):
        setattr(tl.semantic, name, heeding(getattr(tl.semantic, name)))


def _keep_type_in_sums(interpreter):
    operation = interpreter.ReduceScanOpIneterface  # so spelt there
    make = operation.to_tensor

    def to_tensor(self, found, dtype):
        return make(self, np.asarray(found).astype(interpreter._get_np_dtype(dtype)), dtype)

    operation.to_tensor = to_tensor
