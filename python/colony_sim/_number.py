# SPDX-License-Identifier: MIT OR Apache-2.0
"""Numbers and times the engine can take."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Iterable
from typing import Any, SupportsFloat, SupportsIndex, TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt

T = TypeVar("T")

Count: TypeAlias = SupportsIndex | float
"""A whole number: an ``int``, an integer of NumPy, or a float without a fraction such as ``1e6``."""

Time: TypeAlias = SupportsIndex | float | np.timedelta64 | datetime.timedelta
"""Whole nanoseconds as :data:`Count`, or a ``timedelta`` of NumPy, pandas or the standard library."""

Instant: TypeAlias = Time | np.datetime64 | datetime.datetime
"""Nanoseconds on the clock of a trace, or a ``datetime`` of NumPy, pandas or the standard library (UTC)."""


def _whole(what: str, value: object, kind: str) -> int:
    if isinstance(value, float | np.floating):
        if not float(value).is_integer():
            raise TypeError(f"{what} is {value}; give {kind}")
        return int(value)
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what} is {value!r} ({type(value).__name__}); give {kind}") from None


def _bounded(what: str, number: int, bits: int) -> int:
    if not 0 <= number < 2**bits:
        raise ValueError(f"{what} is {number}; give a number from 0 to {2**bits - 1}")
    return number


@overload
def count(what: str, value: Count, bits: int = 64) -> int: ...
@overload
def count(what: str, value: Count | None, bits: int = 64) -> int | None: ...
def count(what: str, value: Count | None, bits: int = 64) -> int | None:
    """A whole number of so many bits; ``None`` is passed on. ``what`` names it in errors."""
    return None if value is None else _bounded(what, _whole(what, value, "a whole number"), bits)


@overload
def time(what: str, value: Time, bits: int = 64) -> int: ...
@overload
def time(what: str, value: Time | None, bits: int = 64) -> int | None: ...
def time(what: str, value: Time | None, bits: int = 64) -> int | None:
    """A time in nanoseconds; ``None`` is passed on. ``what`` names it in errors."""
    return None if value is None else _bounded(what, _nanoseconds(what, value), bits)


def each(what: str, values: Iterable[Any], of: Callable[[str, Any], T]) -> list[T]:
    """Every value of a list by ``of``, told with its place; ``None`` is no value."""
    found = list(values)
    for i, value in enumerate(found):
        if value is None:
            raise TypeError(f"{what}[{i}] is None; give a number")
    return [of(f"{what}[{i}]", value) for i, value in enumerate(found)]


def instant(what: str, value: Instant) -> int:
    """An instant in nanoseconds on the clock of a trace."""
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
        value = np.datetime64(value, "ns")
    if isinstance(value, np.datetime64):
        return _of_numpy(what, value.astype("datetime64[ns]"))
    return _bounded(what, _nanoseconds(what, value), 63)


def _nanoseconds(what: str, value: Time) -> int:
    if isinstance(value, np.timedelta64):
        return _of_numpy(what, value.astype("timedelta64[ns]"))
    if isinstance(value, datetime.timedelta):
        exact = getattr(value, "nanoseconds", 0)  # pandas has them beside the microseconds
        return (value.days * 86_400 + value.seconds) * 10**9 + value.microseconds * 1000 + int(exact)
    return _whole(what, value, "whole nanoseconds, or a timedelta")


def _of_numpy(what: str, value: np.datetime64 | np.timedelta64) -> int:
    if np.isnat(value):
        raise ValueError(f"{what} is NaT; give a time")
    return int(value.astype(np.int64))


def number(what: str, value: SupportsFloat | Time) -> float:
    """Any number, or a time in nanoseconds."""
    if isinstance(value, np.timedelta64 | datetime.timedelta):
        return float(_nanoseconds(what, value))
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{what} is {value!r} ({type(value).__name__}); give a number") from None


def times(what: str, values: Any) -> npt.NDArray[np.int64]:
    """An array of nanoseconds, from whole numbers, ``timedelta64`` or ``datetime64`` of any unit."""
    if getattr(getattr(values, "dtype", None), "tz", None) is not None:
        values = np.asarray(values, "datetime64[ns]")  # a column of pandas with a time zone: UTC
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{what} has {array.ndim} dimensions; give one")
    if array.dtype.kind in "mM":
        if np.isnat(array).any():
            raise ValueError(f"{what} has NaT at {int(np.argmax(np.isnat(array)))}; give a time")
        return array.astype(f"{'timedelta64' if array.dtype.kind == 'm' else 'datetime64'}[ns]").astype(np.int64)
    if array.dtype.kind == "f" and np.isfinite(array).all() and (array == np.floor(array)).all():
        if array.size and np.abs(array).max() >= 2.0**63:
            raise ValueError(f"{what} has {array[np.argmax(np.abs(array))]}, beyond int64")
        return array.astype(np.int64)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{what} holds {array.dtype}; give whole nanoseconds (or CPU numbers), timedelta64 or datetime64")
    if array.size and array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{what} has {array.max()}, beyond int64")
    return array.astype(np.int64)
