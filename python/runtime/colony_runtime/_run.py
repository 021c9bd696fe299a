# SPDX-License-Identifier: MIT OR Apache-2.0
"""Running a program."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import _core
from ._core import RankLost
from ._object import _Main


def run(
    main: Callable[[], Any],
    *,
    balance: str | os.PathLike[str] | None = None,
    copy: bool = False,
    ranks: int | None = None,
) -> None:
    """Runs a program in all processes of the job, until an object calls :func:`exit`.

    ``main`` is called on PE 0. It may be ``async def``. Every process has to call this function after it has defined the
    same classes. If an entry method raises, the job ends in all processes, and this function raises that exception.
    If the exit code is not 0, it raises ``SystemExit`` with it.

    ``balance`` is the name of a load balancing strategy for every ``at_sync``, or the path of a configuration file, which
    ends in ``.toml``. ``copy`` pickles all messages, so that objects of one process share no arguments. ``ranks`` runs
    the program on so many PEs of this process, for tests: messages between them are pickled as between processes.
    """
    try:
        code = _core.run(_Main, main, _configuration(balance), copy, ranks)
    except RankLost:
        # the process that failed has printed the reason; the launcher prefers its exit code to this one
        raise SystemExit(_core.LOST) from None
    if code != 0:
        raise SystemExit(code)


def _configuration(balance: str | os.PathLike[str] | None) -> str | None:
    if balance is None:
        return None
    path = Path(balance)
    if path.suffix == ".toml":
        return path.read_text()
    return f'schema = "colony.balance/1"\n[[phase]]\nstrategy = "{path}"\ntrigger = "at-sync"\n'
