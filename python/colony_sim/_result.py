# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results of simulations."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import _engine

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.uint64]


Library = Literal["pandas", "polars"]
Units = Literal["ns", "timedelta64"]


def _frame(columns: dict[str, Any], times: Units, library: Library) -> Any:
    """The columns as a DataFrame; those of times as ``timedelta64`` if asked for."""
    if times not in ("ns", "timedelta64"):
        raise ValueError(f"times is {times!r}; choose ns or timedelta64")
    if library not in ("pandas", "polars"):
        raise ValueError(f"library is {library!r}; choose pandas or polars")
    if times == "timedelta64":
        columns = {
            what.removesuffix("_ns"): timedelta(values) if what.endswith("_ns") else values
            for what, values in columns.items()
        }
    if library == "pandas":
        import pandas

        return pandas.DataFrame(columns)
    import polars

    return polars.DataFrame(columns)


def timedelta(ns: npt.ArrayLike) -> npt.NDArray[np.timedelta64]:
    """Nanoseconds as ``timedelta64[ns]``, rounded to whole ones; NaN becomes NaT."""
    values = np.asarray(ns)
    if values.dtype.kind == "f":
        nothing = np.isnan(values)
        whole = np.where(nothing, 0.0, np.rint(values)).astype(np.int64).astype("timedelta64[ns]")
        whole[nothing] = np.timedelta64("NaT")
        return whole
    return values.astype(np.int64).astype("timedelta64[ns]")


class Outcomes:
    """Times of programs, one element a point in the order asked for; nanoseconds.

    An iteration is one pass through the program, on all ranks together.
    """

    def __init__(self, outcomes: list[dict[str, Any]]) -> None:
        self._outcomes = outcomes

    def _floats(self, key: str) -> Floats:
        return np.array([np.nan if o[key] is None else o[key] for o in self._outcomes], np.float64)

    def _whole(self, key: str) -> Whole:
        return np.array([o[key] for o in self._outcomes], np.uint64)

    @property
    def nodes(self) -> Whole:
        """Node counts."""
        return self._whole("nodes")

    @property
    def ranks(self) -> Whole:
        """Ranks on all nodes."""
        return self._whole("ranks")

    @property
    def quiet_ns(self) -> Floats:
        """Time of an iteration without noise."""
        return self._floats("quiet_ns")

    @property
    def mean_ns(self) -> Floats:
        """Mean time of an iteration over all repetitions."""
        return self._floats("mean_ns")

    @property
    def ci95_ns(self) -> Floats:
        """Half the width of the 95 % confidence interval of the mean; NaN for one repetition."""
        return self._floats("ci95_ns")

    @property
    def slowdown(self) -> Floats:
        """Mean over the time without noise."""
        return self._floats("slowdown")

    @property
    def p50_ns(self) -> Whole:
        """Median iteration."""
        return self._whole("p50_ns")

    @property
    def p99_ns(self) -> Whole:
        """99 of 100 iterations are no longer."""
        return self._whole("p99_ns")

    @property
    def p99_9_ns(self) -> Whole:
        """999 of 1000 iterations are no longer."""
        return self._whole("p99_9_ns")

    @property
    def min_ns(self) -> Whole:
        """Shortest iteration."""
        return self._whole("min_ns")

    @property
    def max_ns(self) -> Whole:
        """Longest iteration."""
        return self._whole("max_ns")

    @property
    def totals_ns(self) -> Whole:
        """Time of the whole program: a row a point, a column a repetition."""
        return self._whole("totals_ns")

    @property
    def warnings(self) -> list[list[str]]:
        """Warnings about the validity of the figures, for each point."""
        return [list(o["warnings"]) for o in self._outcomes]

    def _columns(self) -> dict[str, Any]:
        names = ["nodes", "ranks", "quiet_ns", "mean_ns", "ci95_ns", "slowdown"]
        names += ["min_ns", "p50_ns", "p99_ns", "p99_9_ns", "max_ns"]
        return {name: getattr(self, name) for name in names}

    def to_dataframe(self, *, times: Units = "ns", library: Library = "pandas") -> Any:
        """A row a point. ``times="timedelta64"``: columns of times have that type, and names without ``_ns``.

        ``library`` (pandas or polars) must be installed; this package does not need it otherwise.
        """
        return _frame(self._columns(), times, library)

    def __len__(self) -> int:
        return len(self._outcomes)

    def __repr__(self) -> str:
        rows = (f"{o['nodes']} nodes: {o['mean_ns']:.0f} ns (× {o['slowdown']:.3g})" for o in self._outcomes)
        return f"{type(self).__name__}({', '.join(rows)})"


class Result(Outcomes):
    """The result of :func:`simulate`: one element a node count."""

    SCHEMA = "colony.sim.python/2"

    def __init__(self, points: list[_engine._Point], parameters: dict[str, Any]) -> None:
        super().__init__([outcome for outcome, _ in points])
        self._runs = [runs for _, runs in points]
        self.parameters = parameters
        """All it takes to run it again, but the traces' detours: the machine, and the rest as a scenario."""

    @property
    def iterations_ns(self) -> Whole:
        """Time of each iteration: by node count, repetition, iteration. Made when it is asked for: keep it
        rather than ask twice."""
        return np.stack([np.stack([_expanded(*run) for run in runs]) for runs in self._runs])

    def to_dict(self) -> dict[str, Any]:
        """Everything but the single iterations, for JSON."""
        return {
            "schema": self.SCHEMA,
            "version": _engine.__version__,
            "parameters": self.parameters,
            "points": [dict(o) for o in self._outcomes],
        }


class ScenarioResult(Outcomes):
    """The result of :func:`run_scenario`: one element a point, by node count, then scheduler, then what is swept."""

    def __init__(self, results: dict[str, Any]) -> None:
        super().__init__([point["outcome"] for point in results["points"]])
        self._results = results

    @property
    def schedulers(self) -> list[str]:
        """Name of each point's scheduler."""
        found = (point["scheduler"] for point in self._results["points"])
        return [s if isinstance(s, str) else next(iter(s)) for s in found]

    @property
    def settings(self) -> list[dict[str, Any]]:
        """The values that the sweep set for each point."""
        return [dict(point.get("set", {})) for point in self._results["points"]]

    def _columns(self) -> dict[str, Any]:
        swept = list(dict.fromkeys(path for settings in self.settings for path in settings))
        values = {path: [settings.get(path) for settings in self.settings] for path in swept}
        return {"scheduler": self.schedulers, **values, **super()._columns()}

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON: what ``colony sim`` writes, with all it takes to run it again."""
        return self._results


class WhatIf:
    """The result of :func:`what_if`: the cost of each source, and the time that remedies give back. Times are
    nanoseconds an iteration; the last axis of each array has one element a node count."""

    SCHEMA = "colony.sim.what_if/1"

    def __init__(self, answered: dict[str, Any]) -> None:
        self._answered = answered
        self._answer = answered["answer"]

    def _scales(self, key: str, kind: Any) -> Any:
        return np.array([scale[key] for scale in self._answer["scales"]], kind)

    @staticmethod
    def _of(times: list[dict[str, Any] | None], key: str) -> list[float]:
        return [np.nan if t is None or t[key] is None else float(t[key]) for t in times]

    def _table(self, part: str, times: str, key: str) -> Floats:
        rows = [self._of(entry[times], key) for entry in self._answer[part]]
        return np.array(rows, np.float64).reshape(len(rows), len(self._answer["scales"]))

    @property
    def nodes(self) -> Whole:
        """Node counts."""
        nodes: Whole = self._scales("nodes", np.uint64)
        return nodes

    @property
    def ranks(self) -> Whole:
        """Ranks on all nodes."""
        ranks: Whole = self._scales("ranks", np.uint64)
        return ranks

    @property
    def quiet_ns(self) -> Floats:
        """An iteration without noise."""
        quiet: Floats = self._scales("quiet_ns", np.float64)
        return quiet

    @property
    def noisy_ns(self) -> Floats:
        """Its mean with all of the node's noise."""
        return self._noisy("ns")

    @property
    def noisy_ci95_ns(self) -> Floats:
        """Half of its 95 % interval, the longer side: by what the trace did not show of the node, and by what was
        simulated; NaN where it is not known, or without an upper end."""
        return self._noisy("ci95_ns")

    @property
    def noisy_low_ns(self) -> Floats:
        """Lower end of the 95 % interval; NaN where it is not known."""
        return self._noisy("low_ns")

    @property
    def noisy_high_ns(self) -> Floats:
        """Upper end of the 95 % interval; NaN where it is not known, or where the trace gives none."""
        return self._noisy("high_ns")

    def _noisy(self, field: str) -> Floats:
        return np.array(self._of([s["noisy"] for s in self._answer["scales"]], field), np.float64)

    @property
    def sources(self) -> list[str]:
        """Names of the sources, the dearest at the largest node count first; the smallest are one."""
        return [source["name"] for source in self._answer["sources"]]

    @property
    def stolen_share(self) -> Floats:
        """Share of the CPUs' time that each source takes."""
        return np.array([source["stolen_share"] for source in self._answer["sources"]], np.float64)

    @property
    def cost_ns(self) -> Floats:
        """By how much an iteration is shorter without this source alone: sources × node counts; NaN where it was not
        seen: all that was simulated was the same without the source."""
        return self._table("sources", "cost", "ns")

    @property
    def cost_ci95_ns(self) -> Floats:
        """Half of its 95 % interval, the longer side, as of :attr:`noisy_ci95_ns`."""
        return self._table("sources", "cost", "ci95_ns")

    @property
    def cost_low_ns(self) -> Floats:
        """Lower end of the 95 % interval: a cost whose lower end is not above 0 cannot be told from 0."""
        return self._table("sources", "cost", "low_ns")

    @property
    def cost_high_ns(self) -> Floats:
        """Upper end of the 95 % interval; NaN where it is not known, or where the trace gives none."""
        return self._table("sources", "cost", "high_ns")

    @property
    def remedies(self) -> list[str]:
        """The remedies that give time back: names of schedulers."""
        found = (remedy["scheduler"] for remedy in self._answer["remedies"])
        return [s if isinstance(s, str) else next(iter(s)) for s in found]

    @property
    def remedy_ns(self) -> Floats:
        """Mean time of an iteration with all noise under each remedy: remedies × node counts; NaN where it was not
        simulated."""
        return self._table("remedies", "time", "ns")

    @property
    def gives_back_ns(self) -> Floats:
        """The part of the time with all noise that each remedy gives back: remedies × node counts."""
        return self._table("remedies", "gives_back", "ns")

    @property
    def warnings(self) -> list[str]:
        """Warnings about the validity of the figures."""
        return list(self._answer["warnings"])

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON: what ``colony sim --what-if --json`` writes, but the trace's name."""
        return {"schema": self.SCHEMA, "version": _engine.__version__, **self._answered}

    def to_dataframe(self, *, times: Units = "ns", library: Library = "pandas") -> Any:
        """A row for each source and node count: ``source``, ``stolen_share``, ``nodes``, ``cost_ns``, ``cost_ci95_ns``."""
        n = len(self._answer["scales"])
        columns = {
            "source": [name for name in self.sources for _ in range(n)],
            "stolen_share": np.repeat(self.stolen_share, n),
            "nodes": np.tile(self.nodes, len(self.sources)),
            "cost_ns": self.cost_ns.ravel(),
            "cost_ci95_ns": self.cost_ci95_ns.ravel(),
        }
        return _frame(columns, times, library)

    def __repr__(self) -> str:
        rows = (
            f"{nodes} nodes: {quiet:.0f} ns, with noise {noisy:.0f} ns"
            for nodes, quiet, noisy in zip(self.nodes, self.quiet_ns, self.noisy_ns, strict=True)
        )
        return f"WhatIf({', '.join(rows)})"


class GoalResult:
    """The result of :func:`run_goal`: the end of each rank's last work, nanoseconds after the job began."""

    def __init__(self, quiet: bytes, runs: list[bytes], events: int) -> None:
        self._quiet = np.frombuffer(quiet, np.uint64)
        self._runs = np.stack([np.frombuffer(run, np.uint64) for run in runs])
        self.events = events
        """Operations and messages, counted as LogGOPSim does."""

    @property
    def quiet_ends_ns(self) -> Whole:
        """End of each rank without noise."""
        return self._quiet

    @property
    def ends_ns(self) -> Whole:
        """End of each rank: repetitions × ranks."""
        return self._runs

    @property
    def quiet_ns(self) -> int:
        """The whole schedule without noise."""
        return int(self._quiet.max(initial=0))

    @property
    def totals_ns(self) -> Whole:
        """The whole schedule in each repetition."""
        totals: Whole = self._runs.max(axis=1, initial=0)
        return totals

    @property
    def mean_ns(self) -> float:
        """Its mean."""
        return float(self.totals_ns.mean())

    @property
    def slowdown(self) -> float:
        """Mean over the time without noise."""
        return self.mean_ns / max(self.quiet_ns, 1)

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "events": self.events,
            "quiet_ends_ns": self._quiet.tolist(),
            "ends_ns": self._runs.tolist(),
        }

    def to_dataframe(self, *, times: Units = "ns", library: Library = "pandas") -> Any:
        """A row for each repetition and rank: ``repetition``, ``rank``, ``end_ns``, ``quiet_end_ns``."""
        repetitions, ranks = self._runs.shape
        columns = {
            "repetition": np.repeat(np.arange(repetitions), ranks),
            "rank": np.tile(np.arange(ranks), repetitions),
            "end_ns": self._runs.ravel(),
            "quiet_end_ns": np.tile(self._quiet, repetitions),
        }
        return _frame(columns, times, library)

    def __repr__(self) -> str:
        ranks = f"{self._quiet.size} rank{'' if self._quiet.size == 1 else 's'}"
        return f"GoalResult({ranks}: {self.quiet_ns} ns, with noise {self.mean_ns:.0f} ns)"


def _expanded(values: bytes, counts: bytes) -> Whole:
    times, repeats = np.frombuffer(values, np.uint64), np.frombuffer(counts, np.uint64)
    return np.repeat(times, repeats.astype(np.int64))
