# SPDX-License-Identifier: MIT OR Apache-2.0
"""Wrong programs end with one clear message."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import PES, found, results

import colony_runtime
from colony_runtime import Array, Future, Group, Object, One, ProgramError, Section, exit, insert, pes, run, when_quiet


class Cell(Object):
    def __init__(self, fails: bool = False) -> None:
        if fails:
            raise ValueError("no cell")

    def fail(self, *args: Any) -> None:
        raise ZeroDivisionError("of a cell")

    async def fail_later(self) -> None:
        await self.this_proxy[1, 1].fine(ret=True)
        raise ZeroDivisionError("later")

    def fine(self) -> None: ...

    def give(self, value: Any, op: Any, target: Any) -> None:
        self.contribute(value, op, target)

    def leave(self, code: object) -> None:
        sys.exit(code)  # type: ignore[arg-type]


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))


@PES
def test_an_exception_ends_the_job_with_class_method_and_index(ranks: int | None) -> None:
    with pytest.raises(ZeroDivisionError, match="of a cell") as caught:
        run(lambda: Array(Cell, (2, 2))[1, 1].fail(), ranks=ranks)
    assert f"in Cell[1, 1].fail on PE {(ranks or 1) - 1}" in notes(caught.value)
    assert caught.traceback[-1].name == "fail"


@PES
def test_an_exception_behind_an_await_ends_the_job(ranks: int | None) -> None:
    with pytest.raises(ZeroDivisionError, match="later") as caught:
        run(lambda: Array(Cell, (2, 2))[0, 1].fail_later(), ranks=ranks)
    assert "in Cell[0, 1].fail_later on PE 0" in notes(caught.value)


@PES
def test_an_exception_of_main_ends_the_job(ranks: int | None) -> None:
    with pytest.raises(KeyError):
        run(lambda: {}["x"], ranks=ranks)  # type: ignore[index]


@PES
def test_an_exception_of_a_constructor_is_raised(ranks: int | None) -> None:
    with pytest.raises(ValueError, match="no cell") as caught:
        run(lambda: Array(Cell, (2, 2), args=(True,)).fine(), ranks=ranks)
    assert ".__init__ on PE" in notes(caught.value)


WRONG_USE: list[tuple[str, Callable[[Any], Any], type[Exception], str]] = [
    ("method", lambda c: c[0, 0].gost(), AttributeError, "has no entry method \"gost\"; it has: fail, fail_later"),
    ("broadcast", lambda c: c.gost(), AttributeError, "no entry method"),
    ("private", lambda c: c[0, 0]._fine(), AttributeError, "no entry method"),
    ("hook", lambda c: c[0, 0].resume(), AttributeError, "no entry method"),
    ("dimensions", lambda c: c[0], IndexError, r"Cell\[0\] has an index of 1 dimensions, and the array has 2"),
    ("seven", lambda c: c[0, 0, 0, 0, 0, 0, 0], IndexError, "has an index of 7 dimensions"),
    ("bounds", lambda c: c[2, 0], IndexError, r"does not exist: the extents are \[2, 2\]"),
    ("negative", lambda c: c[-1, 0], IndexError, "does not exist"),
    ("large", lambda c: c[2**40, 0], IndexError, "does not exist"),
    ("larger", lambda c: c[2**70, 0], TypeError, "is not an integer"),
    ("float", lambda c: c[0.5, 0], TypeError, "0.5 is not an integer"),
    ("text", lambda c: c["x"], TypeError, "'x' is not an integer"),
    ("iteration", lambda c: list(c), TypeError, "is not iterable"),
    ("ret of many", lambda c: c.fine(ret=True), TypeError, r"ret=True is for calls of one object"),
    ("lambda", lambda c: c.fail(lambda: 0), Exception, "pickle"),
    ("class", lambda c: Array(int, 3), TypeError, "is not a subclass of colony_runtime.Object"),  # type: ignore[arg-type]
    ("shape", lambda c: Array(Cell, "ab"), ValueError, "is not a shape"),  # type: ignore[arg-type]
    ("negative shape", lambda c: Array(Cell, -1), ValueError, "is not a shape"),
    ("empty shape", lambda c: Array(Cell, ()), ValueError, "1 to 6 dimensions, and 0 extents"),
    ("long shape", lambda c: Array(Cell, (1,) * 7), ValueError, "1 to 6 dimensions, and 7 extents"),
    ("huge shape", lambda c: Array(Cell, (1, 1, 1, 1, 1, 1 << 22)), OverflowError, "outside of"),
    ("ndim", lambda c: Array(Cell, ndim=0), ValueError, "1 to 6 dimensions"),
    ("both", lambda c: Array(Cell, (2, 2), ndim=3), ValueError, "ndim is for sparse"),
    ("map", lambda c: Array(Cell, 3, map="x"), ValueError, "the map \"x\" is unknown"),  # type: ignore[arg-type]
    ("args", lambda c: Array(Cell, 3, args="ab"), TypeError, "a string is given"),
    ("no args", lambda c: Array(Cell, 3, args=5), TypeError, "not iterable"),  # type: ignore[arg-type]
    ("dense insert", lambda c: insert(c[0, 0]), TypeError, "only sparse arrays"),
    ("length", lambda c: len(Array(Cell, ndim=1)), TypeError, "has no length"),
    ("section", lambda c: Section(c, [(0, 5)]), IndexError, "does not exist"),
    ("target", lambda c: when_quiet(5), TypeError, "5 cannot be a target"),  # type: ignore[arg-type]
    ("section target", lambda c: when_quiet(Section(c, [(0, 0)]).fine), TypeError, "of a section cannot be a target"),
    ("code", lambda c: exit(256), ValueError, "256 is outside of 0..255"),
    ("senders", lambda c: Future(senders=0), ValueError, "at least 1 sender"),
    ("run", lambda c: run(lambda: None), RuntimeError, "in one run"),
    ("after", lambda c: c[0, 0].fine.after(float("nan")), ValueError, "not a number"),
    ("after all", lambda c: c.fine.after(1.0), TypeError, "of one object"),
]


@pytest.mark.parametrize(("name", "use", "error", "text"), WRONG_USE, ids=[w[0] for w in WRONG_USE])
def test_wrong_use_is_an_exception_at_the_call(name: str, use: Any, error: type[Exception], text: str) -> None:
    def main() -> None:
        with pytest.raises(error, match=text):
            use(Array(Cell, (2, 2)))
        found.append(name)
        exit()

    if name == "lambda":
        # the runtime has begun to send: the job ends, with the same exception
        with pytest.raises(error, match=text):
            run(main)
        return
    assert results(main) == [name]


def test_an_argument_that_cannot_be_pickled_is_an_exception_at_the_call() -> None:
    def main() -> None:
        Array(Cell, (2, 1))[1, 0].fail(threading.Lock())

    with pytest.raises(TypeError, match="cannot pickle '_thread.lock' object") as caught:
        run(main, ranks=2)
    assert "in _Main[0].begin on PE 0" in notes(caught.value)
    with pytest.raises(TypeError, match="cannot pickle"):
        run(main, copy=True)


class Stuck(Object):
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def go(self, to: int) -> None:
        self.migrate(to)

    def other(self, to: Any) -> None:
        to.migrate(0)


def test_a_state_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(TypeError, match="cannot pickle") as caught:
        run(lambda: One(Stuck).go(1), ranks=2)
    assert "in the state of Stuck[0], which migrates" in notes(caught.value)


def test_a_pe_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="PE 2 does not exist: the job has 2, from 0"):
        run(lambda: One(Stuck).go(2), ranks=2)


def test_an_object_speaks_of_itself_only() -> None:
    with pytest.raises(RuntimeError, match=r"migrate is for the object whose entry method runs, which is Stuck\[0\]"):
        run(lambda: One(Stuck).other(Stuck()))


CONTRIBUTIONS: list[tuple[list[Any], Any, str]] = [
    (["a", "b"], "sum", "not values of type <U1"),
    ([1, 2], "product", "the operation \"product\" is unknown"),
    ([2**80, 1], "sum", "int too big|too large"),
    ([np.array([1 << 63], dtype=np.uint64)] * 2, "sum", "not values of type uint64"),
    ([1j, 1j], "max", "not values of type complex128"),
    ([1, 2.0], "sum", "2 values of type i64 and 2 values of type f64|all have to give"),
    ([np.zeros(2), np.zeros(3)], "sum", "all have to give"),
    ([np.zeros((2, 3)), np.zeros((3, 2))], "sum", "sum"),
]


class Part(Object):
    def give(self, values: list[Any], op: Any, target: Any) -> None:
        self.contribute(values[self.this_index], op, target)

    def take(self, value: Any) -> None:
        found.append(value)
        exit()


@pytest.mark.parametrize(("values", "op", "text"), CONTRIBUTIONS[:-1])
@pytest.mark.parametrize("ranks", [None, 2])
def test_contributions_that_do_not_fit_are_named(values: Any, op: str, text: str, ranks: int | None) -> None:
    def main() -> None:
        parts = Array(Part, 2)
        parts.give(values, op, parts[0].take)

    with pytest.raises((TypeError, ValueError, OverflowError, ProgramError), match=text):
        run(main, ranks=ranks)


def test_a_program_that_hangs_is_told() -> None:
    with pytest.raises(ProgramError, match="the program hangs: .* exit was not called"):
        run(lambda: None)


def test_functions_outside_of_a_run_say_so() -> None:
    for function in (pes, colony_runtime.my_pe, exit, Future, lambda: Array(Cell, 3), lambda: Group(Cell)):
        with pytest.raises(RuntimeError, match="no entry method runs on this thread"):
            function()


def test_an_entry_method_cannot_hide_a_function_of_objects() -> None:
    with pytest.raises(TypeError, match="Wrong.contribute hides colony_runtime.Object.contribute"):
        type("Wrong", (Object,), {"contribute": lambda self: None})


@pytest.mark.parametrize(("code", "expected"), [(0, None), (None, None), (3, 3), ("text", 1), (1000, 1)])
def test_sys_exit_ends_the_job(code: object, expected: int | None, capsys: pytest.CaptureFixture[str]) -> None:
    if expected is None:
        run(lambda: Array(Cell, (1, 1)).leave(code), ranks=2)
        assert capsys.readouterr().err == ""
        return
    with pytest.raises(SystemExit) as caught:
        run(lambda: Array(Cell, (1, 1)).leave(code), ranks=2)
    assert caught.value.code == expected
    assert capsys.readouterr().err == f"error: Cell[0, 0].leave on PE 0 called sys.exit({code})\n"


@pytest.mark.parametrize(
    ("options", "text"),
    [({"ranks": 0}, "at least 1 rank"), ({"balance": "fastest"}, "fastest"), ({"balance": "x\"y"}, "x\"y")],
)
def test_wrong_options_are_exceptions(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        run(lambda: exit(), **options)


PROGRAM = """
from colony_runtime import Array, Object, exit, run

class Cell(Object):
    def go(self, how):
        if how == "raise":
            raise ValueError("seen once")
        exit(7)

run(lambda: Array(Cell, 3)[2].go({how!r}))
print("ended")
"""


@pytest.mark.parametrize(("how", "code"), [("raise", 1), ("exit", 7)])
def test_a_process_ends_with_the_code_of_the_job(how: str, code: int, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("{how!r}", repr(how)))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    if how == "raise":
        assert done.stderr.count("seen once") == 2, done.stderr  # the source line and the exception
        assert done.stderr.count("Traceback") == 1 and "in Cell[2].go on PE 0" in done.stderr
        assert "panicked" not in done.stderr
    else:
        assert done.stderr == ""
