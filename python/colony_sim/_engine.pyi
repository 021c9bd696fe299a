from collections.abc import Mapping, Sequence
from typing import Any

__version__: str
MACHINES: list[str]

Point = tuple[dict[str, Any], list[tuple[bytes, bytes]]]

class Trace:
    """Detours measured on the CPUs of a node."""

    def __init__(self, span_ns: int, cpus: Sequence[tuple[bytes, bytes]]) -> None: ...
    @property
    def span_ns(self) -> int: ...
    @property
    def stolen_share(self) -> float: ...

def simulate_all(spec: Mapping[str, Any], traces: Sequence[Trace]) -> list[Point]: ...
def machine(machine: Mapping[str, Any]) -> dict[str, Any]: ...
