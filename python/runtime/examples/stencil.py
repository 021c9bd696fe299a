# SPDX-License-Identifier: MIT OR Apache-2.0
"""A 5-point stencil on a grid of blocks. Each block is an object, and sends its edges to its neighbours.

Every few steps, the blocks call at_sync: then they can migrate, and a checkpoint can be made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colony_runtime import Array, Future, Object, exit, run, until

#: Steps between two calls of at_sync.
PERIOD = 10

Grid = npt.NDArray[np.float64]
#: Offset of each neighbour, the edge of mine that it gets, and the place of its edge around mine.
NEIGHBOURS: list[tuple[tuple[int, int], Any, Any]] = [
    ((-1, 0), np.s_[1, 1:-1], np.s_[0, 1:-1]),
    ((1, 0), np.s_[-2, 1:-1], np.s_[-1, 1:-1]),
    ((0, -1), np.s_[1:-1, 1], np.s_[1:-1, 0]),
    ((0, 1), np.s_[1:-1, -2], np.s_[1:-1, -1]),
]


class Block(Object):
    def __init__(self, blocks: tuple[int, int], edge: int) -> None:
        x, y = self.this_index
        whole = np.random.default_rng(1).random((blocks[0] * edge, blocks[1] * edge))
        self.grid = np.pad(whole[x * edge : (x + 1) * edge, y * edge : (y + 1) * edge], 1)
        self.sides = [
            (side, (x + dx, y + dy))
            for side, ((dx, dy), _, _) in enumerate(NEIGHBOURS)
            if 0 <= x + dx < blocks[0] and 0 <= y + dy < blocks[1]
        ]
        self.edges: dict[int, list[tuple[int, Grid]]] = {}
        self.step = 0

    def edge(self, step: int, side: int, values: Grid) -> None:
        self.edges.setdefault(step, []).append((side, values))

    async def work(self, steps: int, done: Future) -> None:
        self.steps, self.done = steps, done
        await self._advance()

    def resume(self) -> None:
        self.this_proxy[self.this_index].go_on()

    async def go_on(self) -> None:
        await self._advance()

    async def _advance(self) -> None:
        for step in range(self.step, min(self.step + PERIOD, self.steps)):
            for side, neighbour in self.sides:
                self.this_proxy[neighbour].edge(step, side ^ 1, self.grid[NEIGHBOURS[side][1]].copy())
            await until(lambda: len(self.edges.get(step, [])) == len(self.sides))
            for side, values in self.edges.pop(step, []):
                self.grid[NEIGHBOURS[side][2]] = values
            g = self.grid
            g[1:-1, 1:-1] = 0.25 * (g[:-2, 1:-1] + g[2:, 1:-1] + g[1:-1, :-2] + g[1:-1, 2:])
            self.step += 1
        if self.step < self.steps:
            self.at_sync()
        else:
            self.contribute((self.this_index, self.grid[1:-1, 1:-1]), "gather", self.done)


def solve(blocks: tuple[int, int], edge: int, steps: int, ranks: int | None = None) -> Grid:
    """The grid after some steps, from the values of one random generator."""
    result = np.zeros((blocks[0] * edge, blocks[1] * edge))

    async def main() -> None:
        done = Future()
        Array(Block, blocks, args=(blocks, edge)).work(steps, done)
        for (x, y), values in await done:
            result[x * edge : (x + 1) * edge, y * edge : (y + 1) * edge] = values
        exit()

    run(main, ranks=ranks)
    return result


if __name__ == "__main__":
    grid = solve(blocks=(4, 4), edge=64, steps=100)
    # the program begins on PE 0: the other processes have no result
    if grid.any():
        print(f"sum {grid.sum():.6f}")
