# SPDX-License-Identifier: MIT OR Apache-2.0
"""Round trips between two objects of colony_runtime on two PEs: roundtrip_colony.py SERIES ROUNDS. Prints nanoseconds."""

import sys
import time

from colony_runtime import Array, Future, Object, exit, run


class Player(Object):
    def start(self, rounds, done):
        self.left, self.done, self.begin = rounds, done, time.perf_counter()
        self.serve(1)

    def serve(self, ball):
        if self.left == 0:
            self.done.send(time.perf_counter() - self.begin)
            return
        self.left -= 1
        self.this_proxy[1].play(ball)

    def play(self, ball):
        self.this_proxy[0].serve(ball)


async def main():
    series, rounds = (int(word) for word in sys.argv[1:3])
    players = Array(Player, 2)
    for _ in range(series):
        done = Future()
        players[0].start(rounds, done)
        print(f"{await done * 1e9 / rounds:.1f}", flush=True)
    exit()


if __name__ == "__main__":
    run(main, ranks=2)
