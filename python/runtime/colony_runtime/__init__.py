# SPDX-License-Identifier: MIT OR Apache-2.0
"""Objects that exchange messages, migrate between processes and balance themselves.

>>> from colony_runtime import Array, Object, exit, run
>>> class Cell(Object):
...     def greet(self, left):
...         print("cell", self.this_index)
...         if left == 0:
...             exit()
...         else:
...             self.this_proxy[self.this_index + 1].greet(left - 1)
>>> def main():
...     Array(Cell, 3)[0].greet(2)
>>> run(main)
cell 0
cell 1
cell 2
"""

from collections.abc import Iterable
from typing import Any

from ._core import (
    Array,
    Element,
    Method,
    ProgramError,
    RankLost,
    Section,
    __version__,
    exit,
    is_repeating,
    my_pe,
    pes,
    when_quiet,
)
from ._core import insert as _insert
from ._future import Future, until
from ._object import Object, group, one
from ._run import run

__all__ = [
    "Array",
    "Element",
    "Future",
    "Group",
    "Method",
    "Object",
    "One",
    "ProgramError",
    "RankLost",
    "Section",
    "__version__",
    "exit",
    "insert",
    "is_repeating",
    "my_pe",
    "pes",
    "run",
    "until",
    "when_quiet",
]


def Group(cls: type[Object], *, args: Iterable[Any] = ()) -> Array:
    """Creates one object of a class on each PE, which stays there. The indices are the PEs."""
    return group(cls, args)


def One(cls: type[Object], *, args: Iterable[Any] = ()) -> Element:
    """Creates one object of a class. Load balancing does not wait for it, and it does not call ``at_sync``."""
    return one(cls, args)


def insert(element: Element, *, args: Iterable[Any] = ()) -> None:
    """Inserts an element into a sparse array. Messages to it may be sent at once."""
    _insert(element, args)
