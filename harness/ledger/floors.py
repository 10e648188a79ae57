"""Bill x chip -> microseconds by resource, and the one that binds; measured time -> the accounts that explain it.

Each floor is the time that one resource needs if nothing else takes any: compulsory bytes over the memory's bandwidth, the
route's exponentials and address arithmetic over their rates. None where the chip's figure is not known. A launch of its own for
the fill, the chain of loads before the first row and the finalizer after the last are no floor: they add to it.
"""

import statistics
from dataclasses import dataclass

from harness.ledger.bills import LOOKUP_OPERATIONS

DEPENDENT_LOADS = 4  # boundary; its request and position; block table; first row
RESOURCES = ("memory", "exponentials", "integers")


@dataclass(frozen=True)
class Floors:
    """Microseconds by resource, None where unknown."""

    memory: float | None
    exponentials: float | None
    integers: float | None

    @property
    def binding(self):
        """(name, microseconds) of the slowest known resource, or None."""
        known = [(name, us) for name in RESOURCES if (us := getattr(self, name)) is not None]
        return max(known, key=lambda item: item[1]) if known else None


def floors(bill, chip):
    """Bill and Chip -> Floors. On a GPU each lane of a row repeats the row's address arithmetic; elsewhere it is done once."""
    compulsory = sum(a.read + a.written for a in bill.accounts if a.compulsory)
    addressed = bill.lane_rows if chip.value("lanes") else bill.lookups
    return Floors(
        memory=_us(compulsory, chip.value("memory_bandwidth")),
        exponentials=_us(bill.exponentials, chip.rate("exponentials")),
        integers=_us(addressed * LOOKUP_OPERATIONS, chip.rate("integers")),
    )


def transactions(bill, chip):
    """Transfers of the chip's unit that the state's pieces take, and how few they could be: (taken, least), or None."""
    unit = chip.value("transaction_bytes")
    if unit is None:
        return None
    return bill.runs * max(1, -(-bill.run_bytes // int(unit))), -(-bill.bytes("state") // int(unit))


def _us(amount, rate):
    return None if rate is None else amount / rate * 1e6


@dataclass(frozen=True)
class Explained:
    """A measured time as a sum, microseconds; None where the chip's figure is not known.

    `rest` is what no account explains; below 0 where accounts overlap the reading, or reading outruns the copy.
    """

    measured: float
    state: float  # every state row once, at the copy bandwidth measured beside it: the board's floor
    other: float  # bytes that are no state
    fill: float | None
    loads: float | None
    tail: float | None

    @property
    def rest(self):
        return self.measured - self.state - self.other - sum(us or 0.0 for us in (self.fill, self.loads, self.tail))

    @property
    def share(self):
        return self.state / self.measured

    @property
    def largest(self):
        """Name of the account above the floor that explains most."""
        return max(("other", "fill", "loads", "tail", "rest"), key=lambda name: getattr(self, name) or 0.0)


def explain(record, bill, chip=None):
    """ScoreRecord, its Bill, and the Chip it was measured on, if that is known -> Explained; None without device times."""
    times = record.times("device")
    if times is None:
        return None
    fill, load, tail = (chip and chip.value(name) for name in ("fill_us", "load_us", "tail_us"))
    return Explained(
        measured=statistics.median(times.submission),
        state=record.floor_us,
        other=_us(bill.other_bytes, record.copy_bandwidth),
        fill=fill if "fill" in bill.launches else 0.0,
        loads=load and DEPENDENT_LOADS * load,
        tail=tail,
    )
