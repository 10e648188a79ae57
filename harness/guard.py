"""Memory and race guard over Triton's CPU interpreter: what a chip may do silently wrong ends the call here, with a reason.

Every load, store and atomic of every program is checked for
    bounds      it lies within the extent (first to last element) of the tensor argument that its pointer came from
    alignment   its address is a multiple of its size
    races       nothing orders it after a conflicting access of another program of the launch; or two lanes of one store
                write different values to one place

Each tensor argument gets addresses of its own, 2^44 apart, so that no overrun of one tensor ends in another; a checked access
is translated to the real address. A pointer that came as an integer is of no tensor, and a finding.

Order: the interpreter runs one program after another, a chip runs them in any order, so that alone orders nothing. An access
happens before another if it lies before a release on an address (atomic with release or acq_rel, wider than one program) that
the other's program has acquired, directly or through others. A program is cut into segments at its releases; for each unit of
memory the last writing segment, and the sets of segments that read it or changed it by atomics since, are kept in arrays.
Epochs in place of vector clocks, as in FastTrack (Flanagan and Freund, PLDI 2009).

Not seen: races between threads of one program, deadlocks, accesses before a launch or after it.
"""

import inspect

import numpy as np

WINDOW_BITS = 44  # of the addresses of one argument: 16 TiB, in the middle of which it begins
LOW_BITS = 12  # of an address, kept: alignment up to a memory page stays what it is
ORDERING = ("GPU", "SYSTEM")  # scopes of atomics that order programs


class Unsafe(Exception):
    """An access that a chip would not forgive; the text names kernel, program, argument, byte and limit."""


class MemoryGuard:
    """Hooks the interpreter of the Triton in this process. `finding`: the first access that is not safe, in words, or ""."""

    def __init__(self):
        self.finding = ""
        self._launch = None
        self._replaced = []  # (object, name, original)

    def __enter__(self):
        from triton.runtime import interpreter

        self.finding = ""
        builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
        self._replace(interpreter.GridExecutor, "__call__", self._launching)
        self._replace(interpreter, "_implicit_cvt", self._converting)
        self._replace(builder, "set_grid_idx", self._starting)
        for name, kind in (
            ("create_masked_load", "load"), ("create_masked_store", "store"),
            ("create_atomic_rmw", "atomic"), ("create_atomic_cas", "atomic"),
        ):  # fmt: skip
            self._replace(builder, name, lambda original, kind=kind: self._accessing(original, kind, handle))
        return self

    def __exit__(self, *_):
        while self._replaced:
            setattr(*self._replaced.pop())

    def _replace(self, owner, name, make):
        original = getattr(owner, name)
        self._replaced.append((owner, name, original))
        setattr(owner, name, make(original))

    def _launching(self, execute):
        def guarded(grid, *args, **kwargs):
            self._launch = _Launch(grid.fn.__name__, [*zip(grid.arg_names, args), *kwargs.items()])
            try:
                return execute(grid, *args, **kwargs)
            finally:
                self._launch = None

        return guarded

    def _converting(self, convert):
        def guarded(arg):
            converted = convert(arg)
            if hasattr(arg, "data_ptr"):
                converted.handle.data = np.array([self._launch.address(arg)], dtype=np.uint64)
            return converted

        return guarded

    def _starting(self, set_grid_idx):
        def guarded(builder, *place):
            self._launch.start(place)
            return set_grid_idx(builder, *place)

        return guarded

    def _accessing(self, original, kind, handle):
        bind = inspect.signature(original).bind

        def guarded(*args, **kwargs):
            given = bind(*args, **kwargs)
            values = given.arguments
            name = "ptrs" if "ptrs" in values else "ptr"
            pointers = values[name]
            size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
            mask = values.get("mask")
            mask = None if mask is None else np.asarray(getattr(mask, "data", mask), dtype=bool)
            written = np.asarray(values["value"].data) if kind == "store" else None
            sync = (values["sem"].name, values["scope"].name) if kind == "atomic" else None
            try:
                real = self._launch.access(kind, pointers.data, size, mask, written, sync)
            except Unsafe as error:
                self.finding = self.finding or str(error)
                raise
            values[name] = handle(real, pointers.dtype)
            return original(*given.args, **given.kwargs)

        return guarded


class _Launch:
    """One launch: its tensor arguments, and what its programs did to them so far."""

    def __init__(self, kernel, arguments):
        self.kernel, self.windows, self.order = kernel, [], _Order()
        shadows = {}
        for name, argument in arguments:
            for label, tensor in _tensors(name, argument):
                storage = tensor.untyped_storage()
                shadow = shadows.setdefault(storage.data_ptr(), _Shadow(storage.nbytes(), tensor.element_size()))
                shadow.refine(tensor.element_size())
                self.windows.append(_Window(len(self.windows), label, tensor, shadow))

    def start(self, place):
        self.program = place[0] if place[1:] == (0, 0) else place
        self.order.start(self.program)

    def address(self, tensor):
        tensor = getattr(tensor, "base", tensor)
        key = _identity(tensor)
        return next(window.first for window in self.windows if window.identity == key)

    def access(self, kind, addresses, size, mask, written, sync):
        """Check the accesses of `size` bytes where `mask` holds -> their real addresses. written: what a store writes."""
        addresses = np.asarray(addresses)
        mask = np.ones(addresses.shape, dtype=bool) if mask is None else np.broadcast_to(mask, addresses.shape)
        if not mask.any():
            return addresses
        owners = addresses >> np.uint64(WINDOW_BITS)
        written = written if written is None else np.broadcast_to(written, addresses.shape)
        real = addresses.copy()
        for owner in _distinct(owners[mask]):
            its = mask & (owners == np.uint64(owner))
            window = self._window(owner, kind, size, addresses[its])
            self._check(kind, window, addresses[its], size, written if written is None else written[its], sync)
            real[its] += np.uint64(window.to_real % 2**64)
        return real

    def _window(self, owner, kind, size, taken):
        if not 1 <= owner <= len(self.windows):
            raise self._unsafe(kind, size, f"at address {int(taken[0]):#x}, which is of no tensor that was passed")
        return self.windows[owner - 1]

    def _unsafe(self, kind, size, what):
        return Unsafe(f"kernel {self.kernel}, program {self.program}: {kind} of {size} byte{'s'[: size > 1]} {what}")

    def _check(self, kind, window, addresses, size, written, sync):
        offsets = (addresses - np.uint64(window.first)).view(np.int64)  # bytes of the tensor
        least, most = int(offsets.min()), int(offsets.max())
        if least < 0 or most + size > window.size:
            outside = offsets[(offsets < 0) | (offsets > window.size - size)]
            raise self._unsafe(
                kind, size,
                f"at byte {int(outside[0]):,} of {window.name}, which has {window.size:,} ({outside.size} of {offsets.size} lanes)",
            )  # fmt: skip
        if int(np.bitwise_or.reduce(addresses)) & (size - 1):
            at = int(offsets[(addresses & np.uint64(size - 1)) != 0][0])
            raise self._unsafe(
                kind, size, f"at byte {at:,} of {window.name}: address {window.real + at:#x} is no multiple of {size}"
            )
        order, shadow = self.order, window.shadow
        places = offsets + window.at  # bytes of the storage
        orders = sync is not None and sync[1] in ORDERING
        if orders and "ACQUIRE" in sync[0]:
            for address in places.tolist():
                order.acquire((id(shadow), address))
        if written is not None and offsets.size > 1:
            self._one_value(kind, window, offsets, size, written)
        units = shadow.units(places, size)
        for how, conflict in shadow.conflicts("atomic" if orders else kind if sync is None else "store", units, order):
            lane, program = conflict
            at = int(offsets[lane % offsets.size])
            raise self._unsafe(
                kind,
                size,
                f"at byte {at:,} of {window.name}, which program {program} {how} in the same launch; nothing orders them",
            )
        if kind == "store":
            shadow.wrote(units, order)
            if order.released:
                order.broken((id(shadow), address) for address in places.tolist())
        elif kind == "load":
            shadow.read(units, order)
        elif orders:
            shadow.changed(units, order)
            if "RELEASE" in sync[0]:
                order.release([(id(shadow), address) for address in places.tolist()])
        else:
            shadow.wrote(units, order)

    def _one_value(self, kind, window, offsets, size, written):
        by_place = np.argsort(offsets, kind="stable")
        offsets, written = offsets[by_place], written[by_place]
        twice = (offsets[1:] == offsets[:-1]) & (written[1:] != written[:-1])
        if twice.any():
            at = int(offsets[1:][twice][0])
            raise self._unsafe(kind, size, f"at byte {at:,} of {window.name}: two lanes of one store write different values there")


def _tensors(name, argument):
    """(name, tensor) of every tensor of an argument, which may be a tuple of them."""
    if isinstance(argument, tuple):
        for place, part in enumerate(argument):
            yield from _tensors(f"{name}[{place}]", part)
    elif hasattr(argument, "data_ptr"):
        yield name, getattr(argument, "base", argument)


def _distinct(values):
    return [int(values[0])] if (values == values[0]).all() else np.unique(values).tolist()


def _identity(tensor):
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


class _Window:
    """Addresses of one tensor argument."""

    def __init__(self, number, name, tensor, shadow):
        self.name, self.shadow, self.identity = name, shadow, _identity(tensor)
        self.real = tensor.data_ptr()
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
        self.size = (last + 1) * tensor.element_size() if tensor.numel() else 0  # bytes
        self.at = self.real - tensor.untyped_storage().data_ptr() if tensor.numel() else 0  # its first byte in the storage
        self.first = (2 * number + 3 << WINDOW_BITS - 1) + self.real % (1 << LOW_BITS)
        self.to_real = self.real - self.first


class _Order:
    """Which segments of which programs happen before what the running program does."""

    def __init__(self):
        self.programs = [None]  # of each segment; segment 0 stands for none
        self.seen = np.zeros(1024, dtype=np.int32)  # number of the last program to which a segment is visible
        self.number = 0  # of the running program, from 1
        self.released = {}  # address -> set of segments that an acquire of it makes visible

    def start(self, program):
        self.number += 1
        self.program, self.known = program, set()
        self.seen[0] = self.number
        self._next_segment()

    def _next_segment(self):
        self.segment = len(self.programs)
        self.programs.append(self.program)
        if self.segment == self.seen.size:
            self.seen = np.concatenate([self.seen, np.zeros_like(self.seen)])
        self.seen[self.segment] = self.number
        self.known.add(self.segment)

    def acquire(self, address):
        visible = self.released.get(address)
        if visible:
            self.known |= visible
            self.seen[list(visible)] = self.number

    def release(self, addresses):
        for address in addresses:
            self.released.setdefault(address, set()).update(self.known)
        self._next_segment()

    def broken(self, addresses):
        """A plain store replaces what was released there."""
        for address in addresses:
            self.released.pop(address, None)


class _Sets:
    """Sets of segments as numbers, 0 the empty one. Programs run in turn, so what is in a set is at its head, or not in it."""

    def __init__(self):
        self.heads, self.rests, self.numbers = [0], [0], {}

    def add(self, sets, segment):
        """int32 array of sets -> the same with `segment`, as an array or one number for all."""
        if (sets == sets[0]).all():
            return self._with(int(sets[0]), segment)
        distinct, inverse = np.unique(sets, return_inverse=True)
        return np.array([self._with(s, segment) for s in distinct.tolist()], dtype=np.int32)[inverse]

    def _with(self, s, segment):
        if self.heads[s] == segment:
            return s
        number = self.numbers.get((s, segment))
        if number is None:
            number = self.numbers[s, segment] = len(self.heads)
            self.heads.append(segment)
            self.rests.append(s)
        return number

    def unordered(self, sets, order):
        """-> (lane, program) of the first that is not visible to the running program, or None."""
        for s in _distinct(sets):
            rest = s
            while rest:
                if order.seen[self.heads[rest]] != order.number:
                    return int((sets == s).argmax()), order.programs[self.heads[rest]]
                rest = self.rests[rest]
        return None


class _Shadow:
    """Who did what to each unit of one storage. Arrays of zeros, of which memory is taken where they are written."""

    def __init__(self, size, unit):
        self.size, self.unit = size, unit  # bytes
        self.writers = self.readers = self.atomics = None
        self.sets = _Sets()

    def refine(self, unit):
        """Units of at most `unit` bytes."""
        if unit < self.unit:
            for name in ("writers", "readers", "atomics"):
                kept = getattr(self, name)
                setattr(self, name, kept if kept is None else np.repeat(kept, self.unit // unit))
            self.unit = unit

    def units(self, places, size):
        """Bytes of the storage, the first of `size` each -> the units they lie in; the lanes again for each further unit."""
        self.refine(size)
        first = places // self.unit if self.unit > 1 else places
        count = size // self.unit
        return first if count == 1 else np.concatenate([first + i for i in range(count)])

    def _array(self, name):
        if getattr(self, name) is None:
            setattr(self, name, np.zeros(-(-self.size // self.unit), dtype=np.int32))
        return getattr(self, name)

    def conflicts(self, kind, units, order):
        """(how, (lane, program)) of accesses by other programs that nothing orders before this one."""
        if self.writers is not None:
            unordered = order.seen[writers := self.writers[units]] != order.number
            if unordered.any():
                lane = int(unordered.argmax())
                yield "wrote", (lane, order.programs[writers[lane]])
        for how, name, kinds in (("read", "readers", ("store", "atomic")), ("changed", "atomics", ("store", "load"))):
            sets = getattr(self, name)
            if sets is not None and kind in kinds and (conflict := self.sets.unordered(sets[units], order)):
                yield how, conflict

    def wrote(self, units, order):
        self._array("writers")[units] = order.segment
        for sets in (self.readers, self.atomics):  # a later access that is ordered after this one is ordered after them
            if sets is not None:
                sets[units] = 0

    def read(self, units, order):
        readers = self._array("readers")
        readers[units] = self.sets.add(readers[units], order.segment)

    def changed(self, units, order):
        atomics = self._array("atomics")
        atomics[units] = self.sets.add(atomics[units], order.segment)
