"""Distributions of times, in nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

from ._number import count


@dataclass(frozen=True)
class Dist:
    """A distribution of times: made by :func:`fixed`, :func:`uniform`, :func:`exponential`,
    :func:`lognormal`, :func:`pareto` or :func:`quantiles`. A plain number of nanoseconds is a fixed one."""

    spec: dict[str, Any]
    """As the simulator writes it."""


def of(value: Dist | SupportsIndex) -> Any:
    """The distribution, or a fixed time, as the simulator writes it."""
    return value.spec if isinstance(value, Dist) else fixed(value).spec


def fixed(ns: SupportsIndex) -> Dist:
    """Always the same."""
    return Dist({"fixed": count("a time (ns)", ns)})


def uniform(from_ns: SupportsIndex, to_ns: SupportsIndex) -> Dist:
    """Any time from ``from_ns`` to ``to_ns``."""
    return Dist({"uniform": {"from_ns": count("from_ns", from_ns), "to_ns": count("to_ns", to_ns)}})


def exponential(mean_ns: float) -> Dist:
    """Exponential with a mean."""
    return Dist({"exponential": {"mean_ns": float(mean_ns)}})


def lognormal(median_ns: float, sigma: float) -> Dist:
    """Log-normal; ``sigma`` is the standard deviation of the logarithm."""
    return Dist({"log_normal": {"median_ns": float(median_ns), "sigma": float(sigma)}})


def pareto(least_ns: float, shape: float, most_ns: float) -> Dist:
    """Pareto with an upper end: the smaller the shape, the heavier the tail."""
    spec = {"least_ns": float(least_ns), "shape": float(shape), "most_ns": float(most_ns)}
    return Dist({"pareto": spec})


def quantiles(ns: Sequence[SupportsIndex]) -> Dist:
    """A measured distribution: its quantiles at equal steps of probability, rising."""
    return Dist({"quantiles": [count("a quantile (ns)", q) for q in ns]})
