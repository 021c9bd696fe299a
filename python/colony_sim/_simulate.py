"""From keywords to the engine."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from . import _engine
from ._number import count
from ._result import Result, ScenarioResult
from ._source import Source

# the parameters of each scheduler; the simulator has what is usual
_SCHEDULERS: dict[str, tuple[str, ...]] = {
    "none": (),
    "preempt": (),
    "fair": ("noise_slice_ns", "job_slice_ns"),
    "coordinated": ("period_ns", "duty", "clock_offset_ns", "clock_drift_ppm", "clocks", "edge_lateness_ns"),
    "spare-core": (),
}


def simulate(
    *,
    nodes: SupportsIndex | Sequence[SupportsIndex] | npt.NDArray[np.integer[Any]],
    program: str | Mapping[str, Any] | Sequence[Mapping[str, Any]] = "allreduce",
    iterations: SupportsIndex | None = None,
    bytes: SupportsIndex | None = None,
    work_ns: SupportsIndex | None = None,
    algorithm: str | None = None,
    imbalance: float | None = None,
    combine_ns: SupportsIndex | None = None,
    solver_passes: SupportsIndex | None = None,
    solver_work_ns: SupportsIndex | None = None,
    solver_bytes: SupportsIndex | None = None,
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
    clocks: Sequence[tuple[SupportsIndex, float]] | None = None,
    edge_lateness_ns: Sequence[SupportsIndex] | None = None,
) -> Result:
    """Simulates a program on each number of nodes.

    ``nodes``
        A number, or several.
    ``program``
        One of :data:`PROGRAMS` with ``iterations`` (1000) and what it has of ``bytes``, ``work_ns`` (of each
        rank before it communicates), ``imbalance`` (standard deviation of the work over its mean),
        ``algorithm`` (of the collective), ``combine_ns`` (of ``myallreduce``), ``solver_passes``,
        ``solver_work_ns`` and ``solver_bytes`` (of ``pop``); or steps, each a dict as
        ``{"kind": "compute", "ns": 1000}``, with ``iterations``; or all of a program as in a scenario's
        TOML, ``{"name": …, "iterations": …, "step": [...]}``.
    ``machine``
        One of :data:`MACHINES`, a TOML file, or a dict as :func:`machine` gives it.
    ``noise``
        The sources of noise on every node.
    ``scheduler``
        ``none`` (no noise), ``preempt`` (noise first), ``fair`` (noise and job take turns:
        ``noise_slice_ns``, ``job_slice_ns``), ``coordinated`` (noise waits for windows that all nodes
        share: ``period_ns``, ``duty``, ``clock_offset_ns`` and ``clock_drift_ppm`` as standard deviations, or
        measured ``clocks`` as pairs of both, of which each node has one; ``edge_lateness_ns``), or
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
    files = {str(i): [(s.name, s.measured)] for i, s in enumerate(sources) if s.measured is not None}
    parameters = {
        "bytes": count("bytes", bytes),
        "work": _time("work_ns", work_ns),
        "algorithm": algorithm,
        "imbalance": None if imbalance is None else float(imbalance),
        "combine": _time("combine_ns", combine_ns),
        "solver_passes": count("solver_passes", solver_passes),
        "solver_work": _time("solver_work_ns", solver_work_ns),
        "solver_bytes": count("solver_bytes", solver_bytes),
    }
    scenario = {
        "ranks_per_node": count("ranks_per_node", ranks_per_node, 32),
        "nodes": [count("nodes", n, 32) for n in counts],
        "program": _program(program, iterations, _given(parameters)),
        "noise": [s.spec(None if s.measured is None else str(i)) for i, s in enumerate(sources)],
        "schedulers": [
            _scheduler(
                scheduler,
                noise_slice_ns=_time("noise_slice_ns", noise_slice_ns),
                job_slice_ns=_time("job_slice_ns", job_slice_ns),
                period_ns=_time("period_ns", period_ns),
                duty=None if duty is None else _share("duty", duty),
                clock_offset_ns=_rounded("clock_offset_ns", clock_offset_ns),
                clock_drift_ppm=None if clock_drift_ppm is None else float(clock_drift_ppm),
                clocks=None if clocks is None else [_clock(*c) for c in clocks],
                edge_lateness_ns=None
                if edge_lateness_ns is None
                else [count("edge_lateness_ns", ns) for ns in edge_lateness_ns],
            )
        ],
        "begin": _time("begin_ns", begin_ns),
        "repetitions": count("repetitions", repetitions, 32),
        "seed": count("seed", seed),
    }
    scenario, on = _given(scenario), _machine(machine)
    return Result(_engine.simulate_all(on, scenario, files), {"machine": on, "scenario": scenario})


def run_scenario(
    scenario: str | os.PathLike[str],
    *,
    traces: Mapping[str, Source | Sequence[Source]] | None = None,
) -> ScenarioResult:
    """Simulates every point of a scenario as ``colony sim`` does: each node count with each scheduler and all
    combinations of what is swept, on all cores.

    ``scenario``
        TOML, or the file of it: a string of one line without ``=`` is a file.
    ``traces``
        What the traces that the scenario names hold: by the name of the file as the scenario writes it, the
        sources made by :func:`trace`. Their names say who can hold them back, as ``thread:kworker``, ``irq:eth0``
        (unless the scenario has a ``class``); other fields of theirs do not count.

    Other threads run meanwhile, and Ctrl-C ends the call. Raises :class:`ValueError` with the line and what is
    wrong there.
    """
    given: dict[str, list[tuple[str, _engine.Trace]]] = {}
    for file, found in (traces or {}).items():
        given[file] = []
        for source in [found] if isinstance(found, Source) else found:
            if source.measured is None:
                raise ValueError(f"the source {source.name!r} of {file!r} is a model: write it into the scenario")
            given[file].append((source.name, source.measured))
    text = isinstance(scenario, str) and (not scenario or "=" in scenario or "\n" in scenario)
    results = _engine.run_scenario({"text" if text else "file": os.fspath(scenario)}, given)
    return ScenarioResult(results)


def machine(machine: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, Any]:
    """A machine's figures, where they come from in ``sources``: of a name of :data:`MACHINES`, of a TOML
    file, or those given, checked. Change what you like and give it to :func:`simulate`."""
    return _engine.machine(_machine(machine))


def _machine(machine: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, Any]:
    return {"given": _plain(machine)} if isinstance(machine, Mapping) else {"named": os.fspath(machine)}


def _program(
    program: str | Mapping[str, Any] | Sequence[Mapping[str, Any]],
    iterations: SupportsIndex | None,
    parameters: dict[str, Any],
) -> dict[str, Any]:
    turns = count("iterations", 1000 if iterations is None else iterations)
    if isinstance(program, str):
        return {"name": program, "iterations": turns, **parameters}
    if parameters:
        raise ValueError(f"{', '.join(parameters)}: only for programs by name; the steps given say theirs")
    if not isinstance(program, Mapping):
        if len(program) == 0:
            raise ValueError("a program with no steps: give one at least, or a name")
        return {"name": "steps", "iterations": turns, "step": _plain(program)}
    if iterations is not None:
        raise ValueError("a program written out says its iterations: leave the keyword out")
    return dict(_plain(program))


def _scheduler(name: str, **parameters: Any) -> Any:
    if name not in _SCHEDULERS:
        raise ValueError(f"there is no scheduler {name!r}; choose one of {', '.join(_SCHEDULERS)}")
    known, given = _SCHEDULERS[name], _given(parameters)
    for parameter in given:
        if parameter not in known:
            raise ValueError(f"{parameter} is no parameter of the scheduler {name}: leave it out")
    as_written = {"duty": "duty_cycle", "edge_lateness_ns": "edge_lateness_ns"}
    named = {as_written.get(k, k.removesuffix("_ns")): v for k, v in given.items()}
    return {name: named} if known else name


def _given(parameters: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in parameters.items() if v is not None}


def _time(what: str, ns: SupportsIndex | None) -> str | None:
    """A time as scenarios write it."""
    return None if ns is None else f"{count(what, ns)}ns"


def _rounded(what: str, ns: float | None) -> str | None:
    if ns is not None and not 0 <= ns < 2**63:
        raise ValueError(f"{what} is {ns}; give a number of 0 or more")
    return None if ns is None else f"{round(ns)}ns"


def _share(what: str, share: float) -> str:
    if not 0 <= share <= 1:
        raise ValueError(f"{what} is {share}, no share of a period; give a number between 0 and 1, as 0.95")
    return f"{100 * share:.4f}%"


def _clock(offset_ns: SupportsIndex, drift_ppm: float) -> dict[str, Any]:
    return {"offset_ns": operator.index(offset_ns), "drift_ppm": float(drift_ppm)}


def _plain(value: Any) -> Any:
    """The same without NumPy's types."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(v) for v in value]
    return value
