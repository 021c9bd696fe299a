# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs programs in tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from colony_runtime import run

#: PEs of a job; those beyond the first are threads, and messages to them are pickled as between processes.
PES = pytest.mark.parametrize("ranks", [None, 2, 3])

#: What objects found out. The ranks of a test share the interpreter, so they share this list.
found: list[Any] = []


def results(main: Callable[[], Any], **options: Any) -> list[Any]:
    """Runs a program and gives what its objects appended to `found`."""
    found.clear()
    run(main, **options)
    return list(found)
