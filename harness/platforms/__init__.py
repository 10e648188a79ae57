"""Checks of every route by every means short of its chip. A check yields Findings; none needs an accelerator."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One result of one check of one route."""

    route: str
    check: str
    tool: str  # what checked, with its version
    status: str  # pass, fail, skipped
    detail: str
