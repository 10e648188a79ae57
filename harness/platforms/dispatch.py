"""Triton's own dispatch on a machine without its chip: what a launcher really asks for, with nothing launched.

A launcher runs as it would on the chip: Triton binds the arguments, finds which integers and pointers to specialise on, parses
the options. Only its driver is replaced, by one that names a target and owns no device.
"""

from triton.runtime import driver


class NoDevice:
    """Stands for Triton's driver. Each target is a device of its own, since Triton keeps what it compiled by device."""

    def __init__(self, target, index=0):
        self.target, self.index = target, index

    def get_current_device(self):
        return self.index

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return self.target


def dispatch_for(target, index=0):
    """From here on Triton of this process compiles for `target`, a GPUTarget; `index`: another for each target."""
    driver.set_active(NoDevice(target, index))
