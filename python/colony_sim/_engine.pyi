# SPDX-License-Identifier: MIT OR Apache-2.0
from collections.abc import Mapping, Sequence
from typing import Any, Literal, final

__all__ = [
    "MACHINES",
    "PROGRAMS",
    "Schedule",
    "Trace",
    "__version__",
    "default_kind",
    "fit_trace",
    "machine",
    "run_goal",
    "run_scenario",
    "simulate_all",
    "what_if",
]

__version__: str
MACHINES: list[str]
PROGRAMS: list[str]

_Point = tuple[dict[str, Any], list[tuple[bytes, bytes]]]

@final
class Trace:
    """Detours measured on the CPUs of a node."""

    def __new__(cls, span_ns: int, cpus: Sequence[tuple[bytes, bytes]]) -> Trace: ...
    @property
    def span_ns(self) -> int: ...
    @property
    def stolen_share(self) -> float: ...
    @property
    def cpus(self) -> int: ...

_Kind = Literal["task", "irq", "local"]
_Measured = Sequence[tuple[str, _Kind, Trace]]
_Traces = Mapping[str, _Measured]

def simulate_all(machine: Mapping[str, Any], scenario: Mapping[str, Any], traces: _Traces) -> list[_Point]: ...
def run_scenario(scenario: Mapping[str, str], traces: _Traces) -> dict[str, Any]: ...
def machine(machine: Mapping[str, Any]) -> dict[str, Any]: ...
def what_if(
    machine: Mapping[str, Any],
    scenario: Mapping[str, Any],
    measured: _Measured,
    iterations_given: bool,
) -> dict[str, Any]: ...
def fit_trace(trace: Trace) -> tuple[dict[str, Any], list[int]]: ...
def default_kind(name: str) -> _Kind: ...

@final
class Schedule:
    """A schedule: what each rank sends, receives and computes."""

    @staticmethod
    def read(file: str) -> Schedule: ...
    @staticmethod
    def parse(text: str) -> Schedule: ...
    @property
    def ranks(self) -> int: ...
    @property
    def operations(self) -> int: ...
    @property
    def messages(self) -> int: ...
    @property
    def notes(self) -> list[str]: ...
    def text(self) -> str: ...

def run_goal(
    schedule: Schedule, machine: Mapping[str, Any], scenario: Mapping[str, Any], traces: _Traces, progress: str
) -> tuple[bytes, list[bytes], int]: ...
