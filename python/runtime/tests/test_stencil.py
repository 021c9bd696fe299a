# SPDX-License-Identifier: MIT OR Apache-2.0
"""A 5-point stencil in blocks gives what NumPy gives on the whole grid, bit for bit."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from programs import PES

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import stencil


def serial(grid: npt.NDArray[np.float64], steps: int) -> npt.NDArray[np.float64]:
    for _ in range(steps):
        old = np.pad(grid, 1)
        grid = 0.25 * (old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:])
    return grid


@PES
@pytest.mark.parametrize("blocks", [(1, 1), (3, 2)])
def test_blocks_give_the_result_of_the_whole_grid(blocks: tuple[int, int], ranks: int | None) -> None:
    edge, steps = 8, 12
    got = stencil.solve(blocks, edge, steps, ranks=ranks)
    grid = np.random.default_rng(1).random((blocks[0] * edge, blocks[1] * edge))
    np.testing.assert_array_equal(got, serial(grid, steps))
