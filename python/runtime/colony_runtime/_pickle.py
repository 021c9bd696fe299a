# SPDX-License-Identifier: MIT OR Apache-2.0
"""Values as bytes: pickle, protocol 5, with the buffers of arrays beside the pickled text."""

from __future__ import annotations

import pickle

__all__ = ["dump", "dumps", "load", "loads"]


def dump(value: object) -> tuple[bytes, list[bytes]]:
    """The pickled text of a value, and the content of its buffers."""
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return text, [buffer.raw().tobytes() for buffer in buffers]


def load(text: bytes, buffers: list[bytearray]) -> object:
    """The value. Its arrays use the memory of the buffers."""
    return pickle.loads(text, buffers=buffers)


def dumps(value: object) -> bytes:
    """A value as bytes."""
    return pickle.dumps(value, protocol=5)


loads = pickle.loads
