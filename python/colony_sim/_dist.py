# SPDX-License-Identifier: MIT OR Apache-2.0
"""Distributions of times, in nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ._number import Time, each, number, time


@dataclass(frozen=True)
class Dist:
    """A distribution of times: made by :func:`fixed`, :func:`uniform`, :func:`exponential`,
    :func:`lognormal`, :func:`pareto` or :func:`quantiles`. A plain time is a fixed one."""

    spec: dict[str, Any]
    """As the simulator writes it."""


def of(what: str, value: Dist | Time) -> Any:
    """The distribution, or a fixed time, as the simulator writes it; ``what`` names it in errors."""
    return value.spec if isinstance(value, Dist) else {"fixed": time(what, value)}


def fixed(ns: Time) -> Dist:
    """Always the same."""
    return Dist({"fixed": time("ns", ns)})


def uniform(from_ns: Time, to_ns: Time) -> Dist:
    """Any time from ``from_ns`` to ``to_ns``."""
    return Dist({"uniform": {"from_ns": time("from_ns", from_ns), "to_ns": time("to_ns", to_ns)}})


def exponential(mean_ns: Time) -> Dist:
    """Exponential with a mean."""
    return Dist({"exponential": {"mean_ns": number("mean_ns", mean_ns)}})


def lognormal(median_ns: Time, sigma: float) -> Dist:
    """Log-normal; ``sigma`` is the standard deviation of the logarithm."""
    return Dist({"log_normal": {"median_ns": number("median_ns", median_ns), "sigma": number("sigma", sigma)}})


def pareto(least_ns: Time, shape: float, most_ns: Time) -> Dist:
    """Pareto with an upper end: the smaller the shape, the heavier the tail."""
    spec = {
        "least_ns": number("least_ns", least_ns),
        "shape": number("shape", shape),
        "most_ns": number("most_ns", most_ns),
    }
    return Dist({"pareto": spec})


def quantiles(ns: Sequence[Time]) -> Dist:
    """A measured distribution: its quantiles at equal steps of probability, rising."""
    return Dist({"quantiles": each("ns", ns, time)})
