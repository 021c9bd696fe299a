# SPDX-License-Identifier: MIT OR Apache-2.0
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NoReturn, final

from ._future import Future
from ._object import Object

__all__ = [
    "Array",
    "Class",
    "Element",
    "LOST",
    "Method",
    "ProgramError",
    "RankLost",
    "Section",
    "__version__",
    "at_sync",
    "check_owner",
    "contribute",
    "create_group",
    "create_one",
    "exit",
    "insert",
    "is_repeating",
    "launch",
    "migrate",
    "my_pe",
    "open_future",
    "pes",
    "register",
    "remove",
    "restore_array",
    "restore_element",
    "restore_method",
    "restore_section",
    "run",
    "send_future",
    "when_quiet",
]

LOST: int
__version__: str

_Array = tuple[int, int, Sequence[int] | None, str]
_Index = tuple[int, int]

class ProgramError(RuntimeError): ...
class RankLost(RuntimeError): ...

@final
class Class: ...

@final
class Method:
    """An entry method of one object, or of several. A call sends a message and returns at once."""

    def __call__(self, *args: Any, **named: Any) -> Any: ...
    def after(self, seconds: float, /, *args: Any, **named: Any) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Element:
    """One object, wherever it is. Its attributes are the entry methods of the class."""

    def __getattr__(self, name: str) -> Method: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Array:
    """An array of objects. Its attributes are the entry methods of the class; a call is sent to every element."""

    def __new__(
        cls_,
        cls: type[Object],
        shape: int | Sequence[int] | None = None,
        *,
        args: Iterable[Any] | None = None,
        ndim: int | None = None,
        map: Literal["block", "round-robin", "hash"] = "block",
    ) -> Array: ...
    def __getitem__(self, index: Any, /) -> Element: ...
    def __getattr__(self, name: str) -> Method: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> NoReturn: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Section:
    """Some objects of an array."""

    def __new__(cls, array: Array, indices: Iterable[Any]) -> Section: ...
    def __getattr__(self, name: str) -> Method: ...
    def __len__(self) -> int: ...

def register(class_: type[Object], methods: Sequence[str]) -> Class: ...
def contribute(this: Object, value: Any, op: str, to: Method | Future) -> None: ...
def migrate(this: Object, to: int) -> None: ...
def at_sync(this: Object) -> None: ...
def remove(this: Object) -> None: ...
def exit(code: int = 0) -> None:
    """Ends the job in all processes, once the entry method that calls this has ended."""

def my_pe() -> int:
    """The PE that this code runs on, from 0."""

def is_repeating() -> bool:
    """True while ``main`` runs again after a recovery, up to the ``await`` at which the checkpoint was made."""

def pes() -> int:
    """The number of PEs of the job."""

def when_quiet(to: Method | Future) -> None:
    """Calls a target, without an argument, once no message is under way and no PE has anything to do."""

def open_future(future: Future) -> tuple[Element, int]: ...
def send_future(owner: Element, number: int, value: Any) -> None: ...
def check_owner(owner: Element) -> None: ...
def create_group(class_: type[Object], args: Iterable[Any]) -> Array: ...
def create_one(class_: type[Object], args: Iterable[Any]) -> Array: ...
def insert(element: Element, args: Iterable[Any]) -> None: ...
def restore_array(array: _Array) -> Array: ...
def restore_element(array: _Array, index: _Index) -> Element: ...
def restore_method(array: _Array, element: _Index | None, name: str) -> Method: ...
def restore_section(array: _Array, indices: Sequence[_Index]) -> Section: ...
def launch(ranks: int, restarts: int, program: str, arguments: Sequence[str]) -> int: ...
def run(
    starter: type[Object],
    main: Callable[[], Any],
    balance: str | None,
    copy: bool,
    ranks: int | None,
) -> int: ...
