# SPDX-License-Identifier: MIT OR Apache-2.0
"""Noise at scale: what the noise of a node costs a bulk-synchronous parallel program on many nodes.

The engine is that of the command ``colony sim``: the same input gives the same numbers.

>>> import colony_sim
>>> result = colony_sim.simulate(
...     machine="bgl", nodes=[512, 2048], program="allreduce", bytes=8, iterations=100,
...     noise=colony_sim.periodic(every_ns=1_000_000, length_ns=16_000), seed=1)
>>> bool((result.slowdown > 1).all())
True
"""

from ._dist import Dist, exponential, fixed, lognormal, pareto, quantiles, uniform
from ._engine import MACHINES, PROGRAMS, Schedule, __version__
from ._fit import Fitted, fit
from ._result import GoalResult, Result, ScenarioResult, WhatIf, timedelta
from ._simulate import machine, read_goal, run_goal, run_scenario, simulate, what_if
from ._source import Source, after_sleep, every, leibniz, periodic, poisson, sources, trace

__all__ = [
    "MACHINES",
    "PROGRAMS",
    "Dist",
    "Fitted",
    "GoalResult",
    "Result",
    "ScenarioResult",
    "Schedule",
    "Source",
    "WhatIf",
    "__version__",
    "after_sleep",
    "every",
    "exponential",
    "fit",
    "fixed",
    "leibniz",
    "lognormal",
    "machine",
    "pareto",
    "periodic",
    "poisson",
    "quantiles",
    "read_goal",
    "run_goal",
    "run_scenario",
    "simulate",
    "sources",
    "timedelta",
    "trace",
    "uniform",
    "what_if",
]
