"""Counts what an interpreted call does: bytes read and written of each tensor, exponentials, atomics.

`with Meter({"state_cache": tensor, ...}) as meter:` counts every load and store of Triton's CPU interpreter while it is open. A
load counts each lane that its mask lets through, so an entry that many lanes read counts as often.
"""

from collections import Counter

import numpy as np


class Meter:
    def __init__(self, tensors):
        """Tensors by name; memory of no named tensor is counted as "other"."""
        self._ranges = {
            name: (t.untyped_storage().data_ptr(), t.untyped_storage().data_ptr() + t.untyped_storage().nbytes())
            for name, t in tensors.items()
        }
        self.read, self.written = Counter(), Counter()
        self.exponentials = self.atomics = 0

    def __enter__(self):
        from triton.runtime.interpreter import InterpreterBuilder as Builder

        names = ("create_masked_load", "create_masked_store", "create_exp", "create_atomic_rmw")
        self._saved = {name: getattr(Builder, name) for name in names}
        load, store, exp, atomic = self._saved.values()

        def create_masked_load(builder, pointers, mask, *rest):
            self._count(self.read, pointers, mask)
            return load(builder, pointers, mask, *rest)

        def create_masked_store(builder, pointers, value, mask, *rest):
            self._count(self.written, pointers, mask)
            return store(builder, pointers, value, mask, *rest)

        def create_exp(builder, x):
            self.exponentials += x.data.size
            return exp(builder, x)

        def create_atomic_rmw(builder, op, pointers, *rest):
            self.atomics += pointers.data.size
            return atomic(builder, op, pointers, *rest)

        for replaced in (create_masked_load, create_masked_store, create_exp, create_atomic_rmw):
            setattr(Builder, replaced.__name__, replaced)
        return self

    def __exit__(self, *_):
        from triton.runtime.interpreter import InterpreterBuilder as Builder

        for name, function in self._saved.items():
            setattr(Builder, name, function)

    def _count(self, counts, pointers, mask):
        width = pointers.get_element_ty().primitive_bitwidth // 8
        at = np.broadcast_to(pointers.data, mask.data.shape)[mask.data.astype(bool)]
        if at.size:
            name = next((name for name, (start, end) in self._ranges.items() if start <= at[0] < end), "other")
            counts[name] += at.size * width
