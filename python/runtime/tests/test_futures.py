# SPDX-License-Identifier: MIT OR Apache-2.0
"""Coroutines wait for futures and conditions while their objects take other messages."""

from __future__ import annotations

from typing import Any

import pytest
from programs import PES, found, results

from colony_runtime import Array, Future, Object, One, exit, my_pe, until


class Server(Object):
    def __init__(self) -> None:
        self.count = 0

    def square(self, number: int) -> int:
        return number * number

    async def relay(self, number: int, to: Any) -> Any:
        return await to.square(number, ret=True) + 1

    def send(self, to: Any, value: Any) -> None:
        to.send(value)

    async def wait(self) -> str:
        await until(lambda: self.count == 3)
        return f"count is {self.count}"

    def step(self) -> None:
        self.count += 1

    def nothing(self) -> None:
        return None


@PES
def test_calls_return_futures_of_their_replies(ranks: int | None) -> None:
    async def main() -> None:
        servers = Array(Server, 4)
        replies = [servers[i].square(i, ret=True) for i in range(4)]
        found.append([await reply for reply in replies])
        # a future keeps its value
        assert await replies[3] == 9 and replies[3].done
        found.append(await servers[1].relay(5, servers[2], ret=True))
        assert await servers[0].nothing(ret=True) is None
        assert servers[0].nothing(ret=False) is None
        exit()

    assert results(main, ranks=ranks) == [[0, 1, 4, 9], 26]


@PES
def test_other_objects_send_to_a_future(ranks: int | None) -> None:
    async def main() -> None:
        servers, one, many = Array(Server, 3), Future(), Future(senders=3)
        servers[2].send(one, "value")
        for i in range(3):
            servers[i].send(many, i)
        found.append((await one, sorted(await many)))
        exit()

    assert results(main, ranks=ranks) == [("value", [0, 1, 2])]


@PES
def test_an_object_takes_messages_while_its_coroutine_waits(ranks: int | None) -> None:
    async def main() -> None:
        server = One(Server)
        reply = server.wait(ret=True)
        for _ in range(3):
            server.step()
        found.append(await reply)
        exit()

    assert results(main, ranks=ranks) == ["count is 3"]


class Crowd(Object):
    async def go(self, server: Any, done: Any) -> None:
        total = 0
        for number in range(5):
            total += await server.square(number, ret=True)
        self.contribute(total, "sum", done)


@PES
def test_many_coroutines_wait_at_once(ranks: int | None) -> None:
    async def main() -> None:
        done = Future()
        Array(Crowd, 20).go(One(Server), done)
        found.append(await done)
        exit()

    assert results(main, ranks=ranks) == [20 * 30]


class Self(Object):
    async def fib(self, n: int) -> Any:
        if n < 2:
            return n
        a, b = self.this_proxy[0].fib(n - 1, ret=True), self.this_proxy[0].fib(n - 2, ret=True)
        return await a + await b

    def forever(self) -> None: ...


def test_an_object_waits_for_itself() -> None:
    async def main() -> None:
        found.append(await One(Self).fib(12, ret=True))
        exit()

    assert results(main) == [144]


def test_an_exception_of_a_condition_is_raised_where_the_coroutine_waits() -> None:
    async def main() -> None:
        held: list[int] = []
        with pytest.raises(IndexError):
            await until(lambda: len(held) > 5 or (held.append(1) or held[3]))  # type: ignore[func-returns-value]
        exit()

    results(main)


def test_only_its_object_awaits_a_future() -> None:
    class Other(Object):
        async def wait(self, future: Any) -> None:
            with pytest.raises(RuntimeError, match=r"only _Main\[0\] can await this future"):
                await future
            found.append(my_pe())
            exit()

    assert results(lambda: One(Other).wait(Future())) == [0]


def test_foreign_awaitables_are_refused() -> None:
    class Foreign:
        def __await__(self) -> Any:
            yield "something"

    async def main() -> None:
        with pytest.raises(TypeError, match=r"can await a colony_runtime.Future or until"):
            await Foreign()
        exit()

    results(main)
