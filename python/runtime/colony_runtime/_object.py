# SPDX-License-Identifier: MIT OR Apache-2.0
"""The base class of objects, and how their state is packed."""

from __future__ import annotations

import copyreg
import types
from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from . import _core
from ._core import Array, Element, Method
from ._future import Future

Op: TypeAlias = Literal["sum", "min", "max", "gather"]
Target: TypeAlias = Method | Future


def _is_entry(attribute: object) -> bool:
    """True if an attribute of a class can be an entry method."""
    if isinstance(attribute, (type, staticmethod, classmethod, property)):
        return False
    return callable(attribute)


class Object:
    """A class of objects that are elements of arrays.

    Every public method of a subclass is an entry method: a call by a proxy sends a message, and the method runs when
    the message arrives. An ``async def`` method may wait, and the object takes other messages meanwhile.
    """

    __slots__ = ("__dict__", "__weakref__", "this_index", "this_proxy")

    #: The index of this element: an integer in one dimension, a tuple in several.
    this_index: Any
    #: The array of this element.
    this_proxy: Array

    _colony_class: ClassVar[_core.Class]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        methods: set[str] = set()
        for base in cls.__mro__[: cls.__mro__.index(Object)]:
            for name, attribute in vars(base).items():
                if name.startswith("_") or name in _HOOKS:
                    continue
                if name in _OWN:
                    raise TypeError(f"{base.__name__}.{name} hides colony_runtime.Object.{name}: give it another name")
                if _is_entry(attribute):
                    methods.add(name)
        cls._colony_class = _core.register(cls, sorted(methods))

    def contribute(self, value: Any, op: Op, target: Target) -> None:
        """Contributes to the next reduction of this object's array.

        Every element contributes once to each reduction, with values of one shape, one operation and one target. The
        result is the argument of the target, which is an entry method of a proxy or a :class:`Future`. ``"sum"``,
        ``"min"`` and ``"max"`` take a number or an array of numbers, and combine arrays element by element. ``"gather"``
        takes any value, and gives the list of all in the order of the indices.
        """
        _core.contribute(self, value, op, target)

    def barrier(self, target: Target) -> None:
        """Calls the target, without an argument, once every element of this object's array has called this."""
        _core.contribute(self, None, "sum", target)

    def migrate(self, pe: int) -> None:
        """Moves this object to another PE once its entry method has ended, and once none of its coroutines waits."""
        _core.migrate(self, pe)

    def at_sync(self) -> None:
        """Says that this object is ready for load balancing.

        Once all objects of all arrays but groups are ready, objects may migrate, and :meth:`resume` is called on each.
        """
        _core.at_sync(self)

    def remove(self) -> None:
        """Removes this object once its entry method has ended."""
        _core.remove(self)

    def resume(self) -> None:
        """Called after load balancing. To be overridden."""

    def arrived(self) -> None:
        """Called after a migration, before other entry methods. To be overridden."""


#: Methods that subclasses override, and which messages cannot call.
_HOOKS = frozenset(("resume", "arrived"))
#: Methods that subclasses cannot override.
_OWN = frozenset(name for name in vars(Object) if not name.startswith("_")) - _HOOKS


def blank(cls: type[Object], index: Any, proxy: Array) -> Object:
    """An object whose constructor has not run."""
    this = cls.__new__(cls)
    this.this_index = index
    this.this_proxy = proxy
    return this


def get_state(this: Object) -> object:
    """The state of an object: of its own ``__getstate__``, or its attributes."""
    own: Callable[[Object], object] | None = getattr(type(this), "__getstate__", None)
    if own is not None and own is not getattr(object, "__getstate__", None):
        return own(this)
    names = getattr(copyreg, "_slotnames")(type(this))
    slots = {name: getattr(this, name) for name in names if hasattr(this, name)}
    slots.pop("this_index", None)
    slots.pop("this_proxy", None)
    return this.__dict__, slots


def set_state(this: Object, state: Any) -> None:
    """Restores what :func:`get_state` gave."""
    own = getattr(type(this), "__setstate__", None)
    if own is not None:
        own(this, state)
        return
    attributes, slots = state if isinstance(state, tuple) else (state, {})
    this.__dict__.update(attributes or {})
    for name, value in (slots or {}).items():
        setattr(this, name, value)


def state_bytes(this: Object) -> int:
    """Bytes of an object's arrays and byte strings, about."""
    total = 0
    for value in vars(this).values():
        size = getattr(value, "nbytes", None)
        total += size if isinstance(size, int) else len(value) if isinstance(value, (bytes, bytearray)) else 64
    return total


def flatten(value: object) -> tuple[bool, bytes, list[int] | None]:
    """The numbers of a contribution: whether they are floating-point, their bytes, and their shape if it is an array."""
    array = np.asarray(value)
    if array.dtype.kind in "bi" or (array.dtype.kind == "u" and array.dtype.itemsize < 8):
        array = array.astype(np.int64)
    elif array.dtype.kind == "u" and (array.size == 0 or int(array.max()) < 1 << 63):
        array = array.astype(np.int64)
    elif array.dtype.kind == "f" and array.dtype.itemsize <= 8:
        array = array.astype(np.float64)
    else:
        raise TypeError(
            f"a reduction takes integers of 64 bits and floating-point numbers, and not values of type {array.dtype}; "
            'op="gather" takes any value'
        )
    shape = None if isinstance(value, np.generic) or not array.shape else list(array.shape)
    return array.dtype.kind == "f", array.tobytes(), shape


def unflatten(is_float: bool, values: bytearray, shape: list[int]) -> np.ndarray[Any, Any]:
    """The result of a reduction as an array."""
    return np.frombuffer(values, np.float64 if is_float else np.int64).reshape(shape)


class _Main(Object):
    """The object on PE 0 that runs ``main``."""

    def begin(self, main: Callable[[], Any]) -> Any:
        result = main()
        if isinstance(result, types.GeneratorType):
            raise TypeError("main is a generator: write an ordinary function or async def")
        return result


def group(cls: type[Object], args: Any) -> Array:
    """One object on each PE."""
    return _core.create_group(cls, args)


def one(cls: type[Object], args: Any) -> Element:
    """One object."""
    return _core.create_one(cls, args)[0]
