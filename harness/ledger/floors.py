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
    """A measured time as a sum, microseconds. `rest`: what no account explains; below 0 where accounts overlap the reading."""

    measured: float
    state: float  # every state row once, at the copy bandwidth measured beside it: the board's floor
    other_bytes: float
    fill: float
    loads: float
    tail: float

    @property
    def rest(self):
        return self.measured - self.state - self.other_bytes - self.fill - self.loads - self.tail

    @property
    def share(self):
        return self.state / self.measured

    @property
    def largest(self):
        """The account above the floor that is largest, by name."""
        accounts = {"other bytes": self.other_bytes, "fill": self.fill, "loads": self.loads, "tail": self.tail, "rest": self.rest}
        return max(accounts, key=accounts.get)


def explain(record, bill, chip):
    """ScoreRecord with device times, its Bill, and the Chip it was measured on -> Explained, or None without such times."""
    times = record.times("device")
    if times is None or None in (chip.value("fill_us"), chip.value("tail_us"), chip.value("load_us")):
        return None
    return Explained(
        measured=statistics.median(times.submission),
        state=record.floor_us,
        other_bytes=_us(bill.other_bytes, record.copy_bandwidth),
        fill=chip.value("fill_us") if "fill" in bill.launches else 0.0,
        loads=DEPENDENT_LOADS * chip.value("load_us"),
        tail=chip.value("tail_us"),
    )
