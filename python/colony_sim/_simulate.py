"""From keywords to the engine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from . import _engine
from ._number import count
from ._result import Result
from ._source import Source

# the schedulers with their parameters, as they come
_SCHEDULERS: dict[str, dict[str, Any]] = {
    "none": {},
    "preempt": {},
    "fair": {"noise_slice_ns": None, "job_slice_ns": None},
    "coordinated": {
        "period_ns": 1_000_000_000,
        "duty": 0.95,
        "clock_offset_ns": 0.0,
        "clock_drift_ppm": 0.0,
        "edge_lateness_ns": [],
    },
    "spare-core": {},
}


def simulate(
    *,
    nodes: SupportsIndex | Sequence[SupportsIndex] | npt.NDArray[np.integer[Any]],
    program: str | Mapping[str, Any] | Sequence[Mapping[str, Any]] = "allreduce",
    iterations: SupportsIndex | None = None,
    bytes: SupportsIndex | None = None,
    work_ns: SupportsIndex | None = None,
    machine: str | os.PathLike[str] | Mapping[str, Any] = "loggopsim",
    ranks_per_node: SupportsIndex | None = None,
    noise: Source | Sequence[Source] = (),
    scheduler: str = "preempt",
    begin_ns: SupportsIndex | None = None,
    repetitions: SupportsIndex = 1,
    seed: SupportsIndex = 1,
    noise_slice_ns: SupportsIndex | None = None,
    job_slice_ns: SupportsIndex | None = None,
    period_ns: SupportsIndex | None = None,
    duty: float | None = None,
    clock_offset_ns: float | None = None,
    clock_drift_ppm: float | None = None,
    edge_lateness_ns: Sequence[SupportsIndex] | None = None,
) -> Result:
    """Simulates a program on each number of nodes.

    ``nodes``
        A number, or several.
    ``program``
        A name (``barrier``, ``allreduce``, ``bcast``, ``allgather``, ``alltoall``, ``bsp``, ``ring``) with
        ``iterations`` (1000), ``bytes`` (8) and ``work_ns`` (1 ms, of ``bsp``); or steps, each a dict as
        ``{"kind": "compute", "ns": 1000}``, with ``iterations``; or all of a program as in a scenario's
        TOML, ``{"name": …, "iterations": …, "step": [...]}``.
    ``machine``
        One of :data:`MACHINES`, a TOML file, or a dict as :func:`machine` gives it.
    ``noise``
        The sources of noise on every node.
    ``scheduler``
        ``none`` (no noise), ``preempt`` (noise first), ``fair`` (noise and job take turns:
        ``noise_slice_ns``, ``job_slice_ns``), ``coordinated`` (noise waits for windows that all nodes
        share: ``period_ns``, ``duty``, ``clock_offset_ns``, ``clock_drift_ppm``, ``edge_lateness_ns``), or
        ``spare-core``.
    ``begin_ns``
        When the job begins after the nodes' boot; late enough for every daemon to have its rhythm if
        not given.
    ``repetitions``, ``seed``
        Runs with other random numbers; the same seed gives the same result, on any number of CPUs.

    Other threads run meanwhile, and Ctrl-C ends the call. Raises :class:`ValueError` with what is wrong and what to do.
    """
    counts = list(nodes) if isinstance(nodes, Sequence | np.ndarray) else [nodes]
    sources = [noise] if isinstance(noise, Source) else list(noise)
    traces = [s.measured for s in sources if s.measured is not None]
    numbers = iter(range(len(traces)))
    spec = {
        "machine": _machine(machine),
        "ranks_per_node": count("ranks_per_node", ranks_per_node, 32),
        "nodes": [count("nodes", n, 32) for n in counts],
        "program": _program(program, iterations, bytes, work_ns),
        "noise": [s.spec(None if s.measured is None else next(numbers)) for s in sources],
        "scheduler": _scheduler(
            scheduler,
            noise_slice_ns=count("noise_slice_ns", noise_slice_ns),
            job_slice_ns=count("job_slice_ns", job_slice_ns),
            period_ns=count("period_ns", period_ns),
            duty=None if duty is None else float(duty),
            clock_offset_ns=None if clock_offset_ns is None else float(clock_offset_ns),
            clock_drift_ppm=None if clock_drift_ppm is None else float(clock_drift_ppm),
            edge_lateness_ns=None
            if edge_lateness_ns is None
            else [count("edge_lateness_ns", ns) for ns in edge_lateness_ns],
        ),
        "begin_ns": count("begin_ns", begin_ns),
        "repetitions": count("repetitions", repetitions, 32),
        "seed": count("seed", seed),
    }
    return Result(_engine.simulate_all(spec, traces), spec)


def machine(machine: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, Any]:
    """A machine's figures, where they come from in ``sources``: of a name of :data:`MACHINES`, of a TOML
    file, or those given, checked. Change what you like and give it to :func:`simulate`."""
    return _engine.machine(_machine(machine))


def _machine(machine: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, Any]:
    return {"given": _plain(machine)} if isinstance(machine, Mapping) else {"named": os.fspath(machine)}


def _program(
    program: str | Mapping[str, Any] | Sequence[Mapping[str, Any]],
    iterations: SupportsIndex | None,
    bytes: SupportsIndex | None,
    work_ns: SupportsIndex | None,
) -> dict[str, Any]:
    turns = count("iterations", 1000 if iterations is None else iterations)
    if isinstance(program, str):
        if work_ns is not None and program != "bsp":
            raise ValueError(f"work_ns is for bsp, not for {program}")
        if bytes is not None and program in ("barrier", "bsp"):
            raise ValueError(f"{program} moves no data: leave bytes out")
        size = 0 if program in ("barrier", "bsp") else 8 if bytes is None else bytes
        work = 1_000_000 if work_ns is None else work_ns
        named = {"name": program, "iterations": turns, "bytes": count("bytes", size)}
        return {"named": {**named, "work_ns": count("work_ns", work)}}
    if bytes is not None or work_ns is not None:
        raise ValueError("bytes and work_ns are for programs by name: the steps given say theirs")
    if not isinstance(program, Mapping):
        return {"steps": {"name": "steps", "iterations": turns, "step": _plain(program)}}
    if iterations is not None:
        raise ValueError("a program written out says its iterations: leave the keyword out")
    return {"steps": _plain(program)}


def _scheduler(name: str, **parameters: Any) -> Any:
    if name not in _SCHEDULERS:
        raise ValueError(f"there is no scheduler {name!r}; choose one of {', '.join(_SCHEDULERS)}")
    known, given = _SCHEDULERS[name], {k: v for k, v in parameters.items() if v is not None}
    for parameter in given.keys() - known.keys():
        raise ValueError(f"{parameter} is no parameter of the scheduler {name}: leave it out")
    return {name: {**known, **given}} if known else name


def _plain(value: Any) -> Any:
    """The same without NumPy's types."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(v) for v in value]
    return value
