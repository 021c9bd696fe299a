from collections.abc import Mapping, Sequence
from typing import Any

__version__: str
MACHINES: list[str]
PROGRAMS: list[str]

Point = tuple[dict[str, Any], list[tuple[bytes, bytes]]]

class Trace:
    """Detours measured on the CPUs of a node."""

    def __init__(self, span_ns: int, cpus: Sequence[tuple[bytes, bytes]]) -> None: ...
    @property
    def span_ns(self) -> int: ...
    @property
    def stolen_share(self) -> float: ...

Traces = Mapping[str, Sequence[tuple[str, Trace]]]

def simulate_all(machine: Mapping[str, Any], scenario: Mapping[str, Any], traces: Traces) -> list[Point]: ...
def run_scenario(scenario: Mapping[str, str], traces: Traces) -> dict[str, Any]: ...
def machine(machine: Mapping[str, Any]) -> dict[str, Any]: ...
