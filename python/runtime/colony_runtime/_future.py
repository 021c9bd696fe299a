# SPDX-License-Identifier: MIT OR Apache-2.0
"""Values that are not yet there."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from . import _core
from ._core import Element


class Future:
    """A value that another object sends, for ``await`` in an ``async def`` entry method.

    The object that makes a future can await it. Every object to which the future is passed can send to it, and it can be
    the target of a reduction. With more than one sender, the value is the list of what they sent.
    """

    __slots__ = ("_done", "_number", "_owner", "_senders", "_values")

    def __init__(self, senders: int = 1) -> None:
        if senders < 1:
            raise ValueError(f"a future has at least 1 sender, and senders is {senders}")
        self._done = False
        self._senders = senders
        self._values: list[Any] = []
        self._owner, self._number = _core.open_future(self)

    def send(self, value: Any = None) -> None:
        """Sends a value to this future, from any object."""
        _core.send_future(self._owner, self._number, value)

    @property
    def done(self) -> bool:
        """True if all values are there, in the object that made this future."""
        return self._done

    def _take(self, value: Any) -> bool:
        self._values.append(value)
        self._done = len(self._values) == self._senders
        return self._done

    def __await__(self) -> Generator[int, None, Any]:
        if not self._done:
            _core.check_owner(self._owner)
            yield self._number
        return self._values[0] if self._senders == 1 else list(self._values)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _restore, (self._owner, self._number, self._senders)

    def __repr__(self) -> str:
        state = "done" if self._done else f"{len(self._values)} of {self._senders} values"
        return f"<Future {self._number} of {self._owner!r}: {state}>"


def _restore(owner: Element, number: int, senders: int) -> Future:
    """A future in another process: it can be sent to."""
    future = Future.__new__(Future)
    future._done = False
    future._senders = senders
    future._values = []
    future._owner = owner
    future._number = number
    return future


class until:
    """Waits in an ``async def`` entry method until a condition holds.

    The condition is a function without arguments. It is called after each of the object's entry methods, and must be
    quick.
    """

    __slots__ = ("_condition",)

    def __init__(self, condition: Callable[[], object]) -> None:
        self._condition = condition

    def __await__(self) -> Generator[Callable[[], object], None, None]:
        if not self._condition():
            yield self._condition
