# SPDX-License-Identifier: MIT OR Apache-2.0
"""Starts a program on several processes: ``python3 -m colony_runtime -n N PROGRAM [ARGS…]``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from . import _core

COMMAND = "python3 -m colony_runtime"
_MOST_RANKS = 4096
_MOST_RESTARTS = 1_000_000


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"error: {message}; {COMMAND} --help shows the usage", file=sys.stderr)
        raise SystemExit(2)


def _ranks(text: str) -> int:
    try:
        ranks = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes") from None
    if not 1 <= ranks <= _MOST_RANKS:
        raise argparse.ArgumentTypeError(f"a job has at least 1 process and at most {_MOST_RANKS}, not {ranks}")
    return ranks


def _restarts(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _MOST_RESTARTS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of restarts up to {_MOST_RESTARTS}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=COMMAND,
        usage=f"{COMMAND} [-n N] [--restarts N] PROGRAM [ARGS…]",
        description="Start a Python program of objects on several processes of this host",
        epilog="If a process fails, the job ends with its exit code. So it does if more processes are killed than are replaced. No process outlives this command.",
        allow_abbrev=False,
    )
    parser.add_argument("-n", "--ranks", type=_ranks, default=2, metavar="N", help="processes (default: 2)")
    parser.add_argument(
        "--restarts", type=_restarts, default=0, metavar="N", help="processes that die and are replaced (default: 0)"
    )
    parser.add_argument("program", metavar="PROGRAM", help="Python file, which calls colony_runtime.run")
    parser.add_argument("args", metavar="ARGS", nargs=argparse.REMAINDER, help="arguments of the program")
    return parser


def _open_standard_streams() -> None:
    """Opens the standard streams that are closed, so that no socket of the job takes the place of one."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def main(words: Sequence[str] | None = None) -> int:
    """Starts the job and waits for its end. Returns the exit code."""
    parser = _parser()
    given = parser.parse_args(words)
    if not os.path.exists(given.program):
        parser.error(f"the program {given.program!r} does not exist in {os.getcwd()}")
    _open_standard_streams()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # the launcher waits outside of the interpreter, where a handler in Python does not run
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return _core.launch(given.ranks, given.restarts, sys.executable, [given.program, *given.args])
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
