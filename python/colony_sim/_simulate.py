# SPDX-License-Identifier: MIT OR Apache-2.0
"""From keywords to the engine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _engine
from ._engine import Schedule
from ._number import Count, Time, count, each, number, time
from ._result import GoalResult, Result, ScenarioResult, WhatIf
from ._source import Kind, Source

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
    nodes: Count | Sequence[Count] | npt.NDArray[np.number[Any]] = (1024, 4096, 16_384),
    program: str | Mapping[str, Any] | Sequence[Mapping[str, Any]] = "allreduce",
    iterations: Count | None = None,
    bytes: Count | None = None,
    work_ns: Time | None = None,
    algorithm: str | None = None,
    imbalance: float | None = None,
    combine_ns: Time | None = None,
    solver_passes: Count | None = None,
    solver_work_ns: Time | None = None,
    solver_bytes: Count | None = None,
    side: Count | None = None,
    machine: str | os.PathLike[str] | Mapping[str, Any] = "loggopsim",
    ranks_per_node: Count | None = None,
    noise: Source | Sequence[Source] = (),
    scheduler: str = "preempt",
    begin_ns: Time | None = None,
    repetitions: Count = 10,
    seed: Count = 1,
    noise_slice_ns: Time | None = None,
    job_slice_ns: Time | None = None,
    period_ns: Time | None = None,
    duty: float | None = None,
    clock_offset_ns: Time | None = None,
    clock_drift_ppm: float | None = None,
    clocks: Sequence[tuple[Count, float]] | None = None,
    edge_lateness_ns: Sequence[Time] | None = None,
) -> Result:
    """Simulates a program on each number of nodes.

    What is not given is as in a scenario of ``colony sim`` that does not have it. Numbers may be integers of Python or
    NumPy, or floats without a fraction (``1e6``); times are nanoseconds, or a ``timedelta`` of NumPy, pandas or the
    standard library.

    ``nodes``
        A number, or several (1024, 4096 and 16,384).
    ``program``
        One of :data:`PROGRAMS` with ``iterations`` (1000) and what it has of ``bytes``, ``work_ns`` (of each
        rank before it communicates), ``imbalance`` (standard deviation of the work over its mean),
        ``algorithm`` (of the collective), ``combine_ns`` (of ``myallreduce``), ``solver_passes``,
        ``solver_work_ns`` and ``solver_bytes`` (of ``pop``), ``side`` (of ``miranda``); or steps, each a dict as
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
        Runs with other random numbers (10); the same seed gives the same result, on any number of CPUs.

    Other threads run meanwhile, and Ctrl-C ends the call. Raises :class:`ValueError` with what is wrong and what to do.
    """
    sources, files = _noise(noise)
    scenario = {
        "ranks_per_node": count("ranks_per_node", ranks_per_node, 32),
        "nodes": _counts("nodes", nodes),
        "program": _program(
            program,
            iterations,
            _parameters(
                bytes=bytes,
                work_ns=work_ns,
                algorithm=algorithm,
                imbalance=imbalance,
                combine_ns=combine_ns,
                solver_passes=solver_passes,
                solver_work_ns=solver_work_ns,
                solver_bytes=solver_bytes,
                side=side,
            ),
        ),
        **_runs(
            sources,
            begin_ns,
            repetitions,
            seed,
            scheduler,
            noise_slice_ns=noise_slice_ns,
            job_slice_ns=job_slice_ns,
            period_ns=period_ns,
            duty=duty,
            clock_offset_ns=clock_offset_ns,
            clock_drift_ppm=clock_drift_ppm,
            clocks=clocks,
            edge_lateness_ns=edge_lateness_ns,
        ),
    }
    scenario, on = _given(scenario), _machine(machine)
    return Result(_engine.simulate_all(on, scenario, files), {"machine": on, "scenario": scenario})


def what_if(
    noise: Source | Sequence[Source],
    *,
    nodes: Count | Sequence[Count] | npt.NDArray[np.number[Any]] = (1024, 16_384, 65_536, 1_048_576),
    program: str | Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    iterations: Count | None = None,
    bytes: Count | None = None,
    work_ns: Time | None = None,
    algorithm: str | None = None,
    imbalance: float | None = None,
    combine_ns: Time | None = None,
    solver_passes: Count | None = None,
    solver_work_ns: Time | None = None,
    solver_bytes: Count | None = None,
    side: Count | None = None,
    machine: str | os.PathLike[str] | Mapping[str, Any] = "loggopsim",
    ranks_per_node: Count | None = None,
    repetitions: Count = 32,
    seed: Count = 1,
    period_ns: Time | None = None,
    duty: float | None = None,
    clock_offset_ns: Time | None = None,
    clock_drift_ppm: float | None = None,
    clocks: Sequence[tuple[Count, float]] | None = None,
    edge_lateness_ns: Sequence[Time] | None = None,
) -> WhatIf:
    """Computes the cost of each source of a measured node to a program at scale, and the time that coordinated
    windows or a spare core give back: ``colony sim --what-if``, with its defaults.

    ``noise``
        The sources measured on one node, made by :func:`sources` or :func:`trace`. Their ``kind`` says whether windows
        and a spare core can keep them away; ``phase``, ``spread_ns`` and ``core`` do not count.
    ``program``, ``iterations``, ``bytes``, …
        As of :func:`simulate`. If neither ``program`` nor ``work_ns`` is given: an allreduce after 1 ms of work.
        Without ``iterations`` each node count has as many as a fixed effort allows.
    ``ranks_per_node``
        If it is not given and ``machine`` is one of :data:`MACHINES`: a rank for each CPU measured, as long as there
        are at most 2,097,152 ranks.
    ``repetitions``
        The most runs of each simulation: no more than make the figures surer.
    ``period_ns``, ``duty``, ``clock_offset_ns``, …
        The windows, as of :func:`simulate`.

    Other threads run meanwhile, and Ctrl-C ends the call. Raises :class:`ValueError` with what is wrong and what to do.
    """
    measured = []
    for source in [noise] if isinstance(noise, Source) else noise:
        if source.measured is None:
            raise ValueError(f"noise: the source {source.name!r} is a model; give what was measured")
        measured.append((source.name, source.kind, source.measured))
    if not measured:
        raise ValueError("noise: there is no source; give what was measured")
    if program is None and work_ns is None:
        work_ns = 1_000_000
    scenario = {
        "ranks_per_node": count("ranks_per_node", ranks_per_node, 32),
        "nodes": _counts("nodes", nodes),
        "program": _program(
            "allreduce" if program is None else program,
            iterations,
            _parameters(
                bytes=bytes,
                work_ns=work_ns,
                algorithm=algorithm,
                imbalance=imbalance,
                combine_ns=combine_ns,
                solver_passes=solver_passes,
                solver_work_ns=solver_work_ns,
                solver_bytes=solver_bytes,
                side=side,
            ),
        ),
        "schedulers": [
            _scheduler(
                "coordinated",
                period_ns=period_ns,
                duty=duty,
                clock_offset_ns=clock_offset_ns,
                clock_drift_ppm=clock_drift_ppm,
                clocks=clocks,
                edge_lateness_ns=edge_lateness_ns,
            )
        ],
        "repetitions": count("repetitions", repetitions, 32),
        "seed": count("seed", seed),
    }
    given = iterations is not None or isinstance(program, Mapping)
    return WhatIf(_engine.what_if(_machine(machine), _given(scenario), measured, given))


def run_goal(
    schedule: Schedule | str | os.PathLike[str],
    *,
    machine: str | os.PathLike[str] | Mapping[str, Any] = "loggopsim",
    noise: Source | Sequence[Source] = (),
    scheduler: str = "preempt",
    progress: str = "program-order",
    begin_ns: Time | None = None,
    repetitions: Count = 10,
    seed: Count = 1,
    noise_slice_ns: Time | None = None,
    job_slice_ns: Time | None = None,
    period_ns: Time | None = None,
    duty: float | None = None,
    clock_offset_ns: Time | None = None,
    clock_drift_ppm: float | None = None,
    clocks: Sequence[tuple[Count, float]] | None = None,
    edge_lateness_ns: Sequence[Time] | None = None,
) -> GoalResult:
    """Runs a schedule in GOAL, one rank a node: ``colony sim --goal``, with its defaults.

    ``schedule``
        What :func:`read_goal` gives, or a file.
    ``progress``
        When a rank's CPU takes the overhead of a receive: ``program-order``, when its program gets there, or
        ``asynchronous``, when the message comes (LogGOPSim's rule).
    ``noise``, ``scheduler``, …
        As of :func:`simulate`.

    Other threads run meanwhile, and Ctrl-C ends the call. Raises :class:`ValueError` with what is wrong: ranks that
    wait for ever are named.
    """
    if progress not in ("program-order", "asynchronous"):
        raise ValueError(f"progress is {progress!r}; choose program-order or asynchronous")
    sources, files = _noise(noise)
    scenario = _runs(
        sources,
        begin_ns,
        repetitions,
        seed,
        scheduler,
        noise_slice_ns=noise_slice_ns,
        job_slice_ns=job_slice_ns,
        period_ns=period_ns,
        duty=duty,
        clock_offset_ns=clock_offset_ns,
        clock_drift_ppm=clock_drift_ppm,
        clocks=clocks,
        edge_lateness_ns=edge_lateness_ns,
    )
    read = schedule if isinstance(schedule, Schedule) else read_goal(schedule)
    return GoalResult(*_engine.run_goal(read, _machine(machine), _given(scenario), files, progress))


def read_goal(schedule: str | os.PathLike[str]) -> Schedule:
    """A schedule in GOAL: a file, text or binary, or the text itself (a string with a line break)."""
    if isinstance(schedule, str) and "\n" in schedule:
        return Schedule.parse(schedule)
    return Schedule.read(os.fspath(schedule))


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
        sources made by :func:`trace`. Their kinds say who can hold them back (unless the scenario has a ``class``);
        other fields of theirs do not count.

    Other threads run meanwhile, and Ctrl-C ends the call. Raises :class:`ValueError` with the line and what is
    wrong there.
    """
    given: dict[str, list[tuple[str, Kind, _engine.Trace]]] = {}
    for file, found in (traces or {}).items():
        given[file] = []
        for source in [found] if isinstance(found, Source) else found:
            if source.measured is None:
                raise ValueError(f"the source {source.name!r} of {file!r} is a model: write it into the scenario")
            given[file].append((source.name, source.kind, source.measured))
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
    iterations: Count | None,
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


def _parameters(**given: Any) -> dict[str, Any]:
    """Parameters of a program by name, as scenarios write them."""
    made: dict[str, Any] = {}
    for what, value in _given(given).items():
        if what == "algorithm":
            made[what] = str(value)
        elif what == "imbalance":
            made[what] = number(what, value)
        elif what.endswith("_ns"):
            made[what.removesuffix("_ns")] = _time(what, value)
        else:
            made[what] = count(what, value)
    return made


def _runs(
    sources: list[dict[str, Any]],
    begin_ns: Time | None,
    repetitions: Count,
    seed: Count,
    scheduler: str,
    **parameters: Any,
) -> dict[str, Any]:
    """The part of a scenario about its noise and its runs."""
    return {
        "noise": sources,
        "schedulers": [_scheduler(scheduler, **parameters)],
        "begin": _time("begin_ns", begin_ns),
        "repetitions": count("repetitions", repetitions, 32),
        "seed": count("seed", seed),
    }


def _scheduler(name: str, **parameters: Any) -> Any:
    if name not in _SCHEDULERS:
        raise ValueError(f"there is no scheduler {name!r}; choose one of {', '.join(_SCHEDULERS)}")
    known = _SCHEDULERS[name]
    made: dict[str, Any] = {}
    for what, value in _given(parameters).items():
        if what not in known:
            raise ValueError(f"{what} is no parameter of the scheduler {name}: leave it out")
        if what == "duty":
            made["duty_cycle"] = _share(what, value)
        elif what == "clocks":
            made[what] = [_clock(i, *c) for i, c in enumerate(value)]
        elif what == "edge_lateness_ns":
            made[what] = each(what, value, time)
        elif what == "clock_drift_ppm":
            made[what] = number(what, value)
        elif what == "clock_offset_ns":
            made["clock_offset"] = _rounded(what, value)
        else:
            made[what.removesuffix("_ns")] = _time(what, value)
    return {name: made} if known else name


def _noise(
    noise: Source | Sequence[Source],
) -> tuple[list[dict[str, Any]], dict[str, list[tuple[str, Kind, _engine.Trace]]]]:
    """The sources as scenarios write them, and the traces they name."""
    sources = [noise] if isinstance(noise, Source) else list(noise)
    for i, source in enumerate(sources):
        if not isinstance(source, Source):
            raise TypeError(f"noise[{i}] is {source!r} ({type(source).__name__}); give a Source, as periodic(...) makes it")
    files = {str(i): [(s.name, s.kind, s.measured)] for i, s in enumerate(sources) if s.measured is not None}
    return [s.spec(None if s.measured is None else str(i)) for i, s in enumerate(sources)], files


def _counts(what: str, values: Any) -> list[int]:
    if isinstance(values, Iterable) and not isinstance(values, str):
        if isinstance(values, np.ndarray) and values.ndim == 0:
            values = [values[()]]
        return each(what, values, lambda place, n: count(place, n, 32))
    return [count(what, values, 32)]


def _given(parameters: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in parameters.items() if v is not None}


def _time(what: str, ns: Time | None) -> str | None:
    """A time as scenarios write it."""
    return None if ns is None else f"{time(what, ns)}ns"


def _rounded(what: str, ns: Any) -> str:
    value = number(what, ns)
    if not 0 <= value < 2**63:
        raise ValueError(f"{what} is {ns}; give a number of 0 or more")
    return f"{round(value)}ns"


def _share(what: str, share: float) -> str:
    value = number(what, share)
    if not 0 <= value <= 1:
        raise ValueError(f"{what} is {share}, no share of a period; give a number between 0 and 1, as 0.95")
    return f"{100 * value:.4f}%"


def _clock(i: int, offset_ns: Any, drift_ppm: float) -> dict[str, Any]:
    # unlike other times it may be negative
    size = time(f"clocks[{i}]", abs(offset_ns), 63)
    return {
        "offset_ns": -size if offset_ns < type(offset_ns)(0) else size,
        "drift_ppm": number(f"clocks[{i}]", drift_ppm),
    }


def _plain(value: Any) -> Any:
    """The same without NumPy's types."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(v) for v in value]
    return value
