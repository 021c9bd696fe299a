# SPDX-License-Identifier: MIT OR Apache-2.0
"""Calls of entry methods: by element, broadcast and section, with their arguments."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from programs import PES, found, results

from colony_runtime import Array, Group, Object, One, Section, exit, insert, my_pe, pes, when_quiet

Floats = npt.NDArray[np.float64]


class Ring(Object):
    def __init__(self, size: int) -> None:
        self.size = size

    def turn(self, visits: Floats, left: int) -> None:
        visits[self.this_index] += 1
        if left == 0:
            found.append(visits)
            exit()
        else:
            self.this_proxy[(self.this_index + 1) % self.size].turn(visits, left=left - 1)


@PES
def test_a_message_goes_round_a_ring(ranks: int | None) -> None:
    def main() -> None:
        Array(Ring, 4, args=(4,))[0].turn(np.zeros(4), 10)

    (visits,) = results(main, ranks=ranks)
    assert visits.tolist() == [3, 3, 3, 2]


class Taker(Object):
    def take(self, sender: int, number: int, array: Floats) -> None:
        found.append((sender, number))
        assert array.flags.writeable and array.tolist() == [number, number]
        array[:] = -1

    def end(self) -> None:
        exit()


class Giver(Object):
    def give(self, to: Any) -> None:
        array = np.zeros(2)
        for number in range(50):
            array = np.full(2, float(number))
            to.take(self.this_index, number, array)


@PES
def test_messages_between_two_objects_keep_their_order(ranks: int | None) -> None:
    def main() -> None:
        taker = Array(Taker, 2)[1]
        Array(Giver, 3).give(taker)
        when_quiet(taker.end)

    all_found = results(main, ranks=ranks)
    for sender in range(3):
        assert [number for s, number in all_found if s == sender] == list(range(50))


class Shared(Object):
    def change(self, array: Floats, fancy: dict[str, Any]) -> None:
        array[0] = 5
        fancy["x"].append(1)

    def end(self, array: Floats, fancy: dict[str, Any]) -> None:
        found.append((array.tolist(), fancy))
        exit()


@pytest.mark.parametrize(("copy", "expected"), [(False, 5.0), (True, 0.0)])
def test_objects_of_a_process_share_arguments_unless_the_run_copies(copy: bool, expected: float) -> None:
    def main() -> None:
        cells, array, fancy = Array(Shared, 2), np.zeros(3), {"x": []}  # type: ignore[var-annotated]
        cells[0].change(array, fancy)
        cells[1].end(array, fancy)

    assert results(main, copy=copy) == [([expected, 0, 0], {"x": [1] if not copy else []})]


class Echo(Object):
    def take(self, value: Any, to: Any) -> None:
        to.back(value)

    def back(self, value: Any) -> None:
        found.append(value)
        exit()


VALUES: list[Any] = [
    None,
    2**100,
    "ü" * 1000,
    {"a": [1, (2.5, b"x")]},
    np.arange(12, dtype=np.int16).reshape(3, 4)[:, ::2],
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.zeros((0, 3)),
    np.array(["a", None], dtype=object),
    np.datetime64("2026-11-24"),
    np.arange(1 << 18),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_values_arrive_in_another_process_as_they_were(value: Any) -> None:
    def main() -> None:
        cells = Array(Echo, 2)
        cells[1].take(value, cells[0])

    (back,) = results(main, ranks=2)
    np.testing.assert_array_equal(back, value)
    assert type(back) is type(value)


class Place(Object):
    def tell(self, word: str) -> None:
        found.append((self.this_index, word, my_pe()))

    def end(self) -> None:
        exit()


@PES
@pytest.mark.parametrize("shape", [5, (2, 3), (2, 1, 2), (1, 2, 1, 2), (1, 1, 2, 1, 2), (2, 1, 1, 1, 1, 2)])
def test_a_broadcast_reaches_each_element_once(shape: int | tuple[int, ...], ranks: int | None) -> None:
    def main() -> None:
        cells = Array(Place, shape)
        cells.tell("all")
        when_quiet(One(Place).end)
        assert len(cells) == np.prod(shape)

    expected = list(range(shape)) if isinstance(shape, int) else list(np.ndindex(*shape))
    assert sorted(index for index, _, _ in results(main, ranks=ranks)) == expected


@PES
def test_a_section_gets_a_call(ranks: int | None) -> None:
    def main() -> None:
        cells = Array(Place, (3, 3), map="round-robin")
        diagonal = Section(cells, [(i, i) for i in range(3)])
        diagonal.tell("some")
        assert len(diagonal) == 3
        when_quiet(cells[0, 0].end)

    assert sorted(index for index, _, _ in results(main, ranks=ranks)) == [(0, 0), (1, 1), (2, 2)]


@PES
def test_a_group_has_an_object_on_each_pe(ranks: int | None) -> None:
    def main() -> None:
        group = Group(Place)
        assert len(group) == pes() == (ranks or 1)
        group.tell("pe")
        when_quiet(group[0].end)

    assert sorted(results(main, ranks=ranks)) == [(pe, "pe", pe) for pe in range(ranks or 1)]


class Sparse(Object):
    def __init__(self, weight: int) -> None:
        self.weight = weight

    def tell(self) -> None:
        found.append((self.this_index, self.weight))

    def end(self) -> None:
        exit()


@PES
def test_elements_of_a_sparse_array_are_inserted_one_by_one(ranks: int | None) -> None:
    places = [(-5, 7), (0, 0), (1 << 30, 1)]

    def main() -> None:
        cells = Array(Sparse, ndim=2)
        for weight, place in enumerate(places):
            insert(cells[place], args=(weight,))
            cells[place].tell()
        when_quiet(cells[0, 0].end)

    assert sorted(results(main, ranks=ranks)) == [(place, weight) for weight, place in enumerate(places)]


class Timed(Object):
    def tell(self, word: str) -> None:
        found.append(word)
        if len(found) == 3:
            exit()


@PES
def test_calls_after_some_time_come_in_the_order_of_their_times(ranks: int | None) -> None:
    def main() -> None:
        cell = One(Timed)
        cell.tell.after(0.2, "last")
        cell.tell.after(0.05, "second")
        cell.tell("first")

    assert results(main, ranks=ranks) == ["first", "second", "last"]


class Proxies(Object):
    def compare(self, array: Any, element: Any, method: Any, section: Any) -> None:
        this = self.this_proxy[self.this_index]
        assert array == self.this_proxy and array != this and hash(array) == hash(self.this_proxy)
        assert element == this and hash(element) == hash(this) and element != self.this_proxy[0]
        assert method == this.end and method != element.compare and hash(method) == hash(this.end)
        assert repr(method) == "<Proxies[1].end>" and repr(section) == "<Section of 1 elements of Proxies>"
        section.end()

    def end(self) -> None:
        found.append(self.this_index)
        exit()


@PES
def test_proxies_are_values(ranks: int | None) -> None:
    def main() -> None:
        cells = Array(Proxies, 2)
        cells[1].compare(cells, cells[1], cells[1].end, Section(cells, [1]))

    assert results(main, ranks=ranks) == [1]


def test_an_unpickled_array_uses_the_memory_that_it_came_in() -> None:
    from colony_runtime import _pickle

    text, buffers = _pickle.dump(np.arange(1000.0))
    assert len(text) < 300 and [len(b) for b in buffers] == [8000]
    memory = bytearray(buffers[0])
    array = _pickle.load(text, [memory])
    assert isinstance(array, np.ndarray) and array.flags.writeable
    memory[:8] = np.float64(7).tobytes()
    assert array[0] == 7 and pickle.loads(pickle.dumps(array))[0] == 7
