# SPDX-License-Identifier: MIT OR Apache-2.0
"""Round trips between two chares of charm4py on two PEs: roundtrip_charm4py.py SERIES ROUNDS. Prints nanoseconds."""

import time

from charm4py import Array, Chare, Future, charm


class Player(Chare):
    def start(self, rounds, done):
        self.left, self.done, self.begin = rounds, done, time.perf_counter()
        self.serve(1)

    def serve(self, ball):
        if self.left == 0:
            self.done.send(time.perf_counter() - self.begin)
            return
        self.left -= 1
        self.thisProxy[1].play(ball)

    def play(self, ball):
        self.thisProxy[0].serve(ball)


def main(args):
    series, rounds = (int(word) for word in args[1:3])
    players = Array(Player, 2)
    for _ in range(series):
        done = Future()
        players[0].start(rounds, done)
        print(f"{done.get() * 1e9 / rounds:.1f}", flush=True)
    charm.exit()


charm.start(main)
