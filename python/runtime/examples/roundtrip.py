# SPDX-License-Identifier: MIT OR Apache-2.0
"""Times of messages: a call and its answer between two objects, a call of an object to itself, and an awaited reply."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from colony_runtime import Array, Future, Object, exit, pes, run

COUNT = 100_000
REPETITIONS = 5


class Player(Object):
    def start(self, other: Any, ball: Any, count: int, done: Future) -> None:
        self.done, self.left, self.other = done, count, other
        self.begin = time.perf_counter()
        self.serve(ball)

    def serve(self, ball: Any) -> None:
        if self.left == 0:
            self.done.send(time.perf_counter() - self.begin)
            return
        self.left -= 1
        self.other.play(ball, self.this_index)

    def play(self, ball: Any, to: int) -> None:
        self.this_proxy[to].serve(ball)

    def alone(self, ball: Any, left: int, done: Future, begin: float) -> None:
        if left == 0:
            done.send(time.perf_counter() - begin)
        else:
            self.this_proxy[self.this_index].alone(ball, left - 1, done, begin)

    def give(self, ball: Any) -> Any:
        return ball

    async def ask(self, other: Any, ball: Any, count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            await other.give(ball, ret=True)
        return time.perf_counter() - begin


async def main() -> None:
    players = Array(Player, 2)
    print(f"{pes()} PEs; µs, the fastest of {REPETITIONS} runs of {COUNT} each")
    for name, ball in {"a number": 1, "8 KiB of NumPy": np.zeros(1024), "1 MiB of NumPy": np.zeros(1 << 17)}.items():
        count = COUNT if pes() == 1 else COUNT // (1 if name == "a number" else 4 if "KiB" in name else 100)
        best = [float("inf")] * 3
        for _ in range(REPETITIONS):
            done, alone = Future(), Future()
            players[0].start(players[1], ball, count, done)
            best[0] = min(best[0], await done)
            players[0].alone(ball, count, alone, time.perf_counter())
            best[1] = min(best[1], await alone)
            best[2] = min(best[2], await players[0].ask(players[1], ball, count, ret=True))
        trip, own, reply = (seconds / count * 1e6 for seconds in best)
        print(f"{name:>15}: round trip {trip:.2f}, call of itself {own:.2f}, awaited reply {reply:.2f}")
    exit()


if __name__ == "__main__":
    run(main, ranks=int(sys.argv[1]) if len(sys.argv) > 1 else None)
