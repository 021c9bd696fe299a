# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reductions of numbers, arrays and other values, to entry methods and futures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import PES, found, results

from colony_runtime import Array, Future, Group, Object, exit, pes, when_quiet


class Part(Object):
    def give(self, values: list[Any], op: Any, target: Any) -> None:
        self.contribute(values[self.this_index], op, target)

    def meet(self, target: Any) -> None:
        found.append("before")
        self.barrier(target)

    def take(self, result: Any) -> None:
        found.append(result)
        exit()

    def end(self) -> None:
        exit()

    def after(self) -> None:
        found.append("after")
        if found.count("after") == 3:
            exit()


CASES: list[tuple[str, list[Any], Any]] = [
    ("sum", [1, 2, 3], 6),
    ("sum", [1.5, 2.5, 3.0], 7.0),
    ("sum", [True, False, True], 2),
    ("max", [-1, -5, -3], -1),
    ("min", [0.5, -0.5, 2.0], -0.5),
    ("sum", [np.arange(6).reshape(2, 3)] * 3, 3 * np.arange(6).reshape(2, 3)),
    ("max", [np.array([1.0, 5.0]), np.array([3.0, 2.0]), np.array([0.0, 0.0])], np.array([3.0, 5.0])),
    ("min", [np.zeros((0, 4))] * 3, np.zeros((0, 4))),
    ("sum", [[1, 2], [3, 4], [5, 6]], np.array([9, 12])),
    ("sum", [np.float32(0.5)] * 3, 1.5),
    ("sum", [np.uint8(200)] * 3, 600),
    ("gather", ["c", None, {"a": np.int64(1)}], ["c", None, {"a": np.int64(1)}]),
    ("gather", [np.ones(2)] * 3, [np.ones(2)] * 3),
]


@pytest.mark.parametrize(("op", "values", "expected"), CASES)
@pytest.mark.parametrize("ranks", [None, 2])
def test_a_reduction_combines_all_contributions(op: str, values: Any, expected: Any, ranks: int | None) -> None:
    def main() -> None:
        parts = Array(Part, 3)
        parts.give(values, op, parts[1].take)

    (result,) = results(main, ranks=ranks)
    np.testing.assert_equal(result, expected)
    assert type(result) is type(expected)


@PES
def test_a_future_gets_the_result_of_a_reduction(ranks: int | None) -> None:
    async def main() -> None:
        group, future, second = Group(Part), Future(), Future()
        group.give([1] * pes(), "sum", future)
        group.give([[i] for i in range(pes())], "gather", second)
        found.append((await future, await second))
        exit()

    assert results(main, ranks=ranks) == [(ranks or 1, [[i] for i in range(ranks or 1)])]


@PES
def test_a_barrier_calls_after_all(ranks: int | None) -> None:
    def main() -> None:
        parts = Array(Part, 3)
        parts.meet(parts.after)

    assert results(main, ranks=ranks) == ["before"] * 3 + ["after"] * 3


class Chain(Object):
    def go(self, left: int) -> None:
        found.append(left)
        if left > 0:
            self.this_proxy[left % 3].go(left - 1)


@PES
def test_quiescence_is_when_all_messages_have_run(ranks: int | None) -> None:
    async def main() -> None:
        quiet, chains = Future(), Array(Chain, 3)
        for _ in range(10):
            chains[0].go(20)
        when_quiet(quiet)
        assert await quiet is None
        assert len(found) == 10 * 21
        chains[1].go(0)
        when_quiet(Array(Part, 3)[0].end)

    assert len(results(main, ranks=ranks)) == 10 * 21 + 1
