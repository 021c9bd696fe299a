# SPDX-License-Identifier: MIT OR Apache-2.0
"""Objects move between PEs with their state, and are found there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import found, results

from colony_runtime import Array, Future, Object, One, exit, my_pe, pes

MANY = pytest.mark.parametrize("ranks", [2, 3])


class Walker(Object):
    def __init__(self) -> None:
        self.path: list[int] = []
        self.values = np.zeros(4)
        self.arrivals = 0

    def walk(self, left: int) -> None:
        self.path.append(my_pe())
        self.values += 1
        if left == 0:
            found.append((self.path, self.values.tolist(), self.arrivals, self.this_index))
            exit()
            return
        self.migrate((my_pe() + 1) % pes())
        self.this_proxy[self.this_index].walk(left - 1)

    def arrived(self) -> None:
        self.arrivals += 1


@MANY
def test_an_object_moves_with_its_state(ranks: int) -> None:
    def main() -> None:
        Array(Walker, (1, 1))[0, 0].walk(6)

    ((path, values, arrivals, index),) = results(main, ranks=ranks)
    assert path == [step % ranks for step in range(7)]
    assert (values, arrivals, index) == ([7.0] * 4, 6, (0, 0))


class Custom(Object):
    __slots__ = ("left", "right")

    def __init__(self) -> None:
        self.left, self.right = 1, [2]
        self.local = lambda: None

    def __getstate__(self) -> object:
        return {"pair": (self.left, self.right)}

    def __setstate__(self, state: Any) -> None:
        self.left, self.right = state["pair"]
        self.local = lambda: None

    def go(self) -> None:
        self.migrate(1)
        self.this_proxy[0].tell()

    def tell(self) -> None:
        found.append((self.left, self.right, my_pe()))
        exit()


class Slots(Object):
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = {"a": 1}

    go = Custom.go

    def tell(self) -> None:
        found.append((self.left, my_pe()))
        exit()


def test_own_state_methods_are_used() -> None:
    assert results(lambda: One(Custom).go(), ranks=2) == [(1, [2], 1)]


def test_slots_move_too() -> None:
    assert results(lambda: One(Slots).go(), ranks=2) == [({"a": 1}, 1)]


class Talker(Object):
    def __init__(self) -> None:
        self.heard: list[int] = []

    def hear(self, number: int) -> None:
        self.heard.append(number)
        self.migrate((my_pe() + number) % pes())

    async def say(self, to: Any, done: Any) -> None:
        for number in range(100):
            to.hear(number)
        to.finish(done)

    def finish(self, done: Any) -> None:
        done.send(self.heard)


@MANY
def test_messages_reach_an_object_that_moves_in_order(ranks: int) -> None:
    async def main() -> None:
        talkers, done = Array(Talker, 4), Future()
        talkers[3].say(talkers[0], done)
        assert await done == list(range(100))
        found.append("done")
        exit()

    assert results(main, ranks=ranks) == ["done"]


class Worker(Object):
    def __init__(self) -> None:
        self.rounds = 0

    def work(self) -> None:
        sum(range(20_000 if self.this_index < 4 else 10))
        self.at_sync()

    def resume(self) -> None:
        self.rounds += 1
        if self.rounds < 3:
            self.work()
        else:
            self.contribute([self.this_index, my_pe()], "gather", self.this_proxy[0].end)

    def end(self, places: list[Any]) -> None:
        found.append(places)
        exit()


@pytest.mark.parametrize("balance", [None, "rotate", "greedy"])
def test_objects_resume_after_load_balancing(balance: str | None) -> None:
    (places,) = results(lambda: Array(Worker, 8).work(), ranks=2, balance=balance)
    assert [index for index, _ in places] == list(range(8))
    if balance == "rotate":
        # three times by one of two PEs
        assert [pe for _, pe in places] == [1] * 4 + [0] * 4


class Waiter(Object):
    async def wait(self, done: Any) -> None:
        self.migrate(1)
        mine = Future()
        self.this_proxy[0].poke(mine)
        await mine
        found.append(my_pe())
        self.this_proxy[0].tell()

    def poke(self, future: Any) -> None:
        future.send()

    def tell(self) -> None:
        found.append(my_pe())
        exit()


def test_an_object_leaves_when_its_coroutine_has_ended() -> None:
    assert results(lambda: One(Waiter).wait(None), ranks=2) == [0, 1]
