"""Numbers the engine can take."""

from __future__ import annotations

import operator
from typing import SupportsIndex, overload


@overload
def count(what: str, value: SupportsIndex, bits: int = 64) -> int: ...
@overload
def count(what: str, value: SupportsIndex | None, bits: int = 64) -> int | None: ...
def count(what: str, value: SupportsIndex | None, bits: int = 64) -> int | None:
    """A whole number of so many bits; ``None`` is passed on."""
    if value is None:
        return None
    number = operator.index(value)
    if not 0 <= number < 2**bits:
        raise ValueError(f"{what} is {number}; give a number from 0 to {2**bits - 1}")
    return number
