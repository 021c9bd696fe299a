"""What a simulation says."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from . import _engine

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.uint64]


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
        """What a reader should know, for each point."""
        return [list(o["warnings"]) for o in self._outcomes]

    def __len__(self) -> int:
        return len(self._outcomes)

    def __repr__(self) -> str:
        rows = (f"{o['nodes']} nodes: {o['mean_ns']:.0f} ns (× {o['slowdown']:.3g})" for o in self._outcomes)
        return f"{type(self).__name__}({', '.join(rows)})"


class Result(Outcomes):
    """What :func:`simulate` says: one element a node count."""

    SCHEMA = "colony.sim.python/2"

    def __init__(self, points: list[_engine.Point], parameters: dict[str, Any]) -> None:
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
    """What :func:`run_scenario` says: one element a point, by node count, then scheduler, then what is swept."""

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
        """What the sweep set for each point."""
        return [dict(point.get("set", {})) for point in self._results["points"]]

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON: what ``colony sim`` writes, with all it takes to run it again."""
        return self._results


def _expanded(values: bytes, counts: bytes) -> Whole:
    times, repeats = np.frombuffer(values, np.uint64), np.frombuffer(counts, np.uint64)
    return np.repeat(times, repeats.astype(np.int64))
