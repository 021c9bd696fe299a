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
from ._engine import MACHINES, PROGRAMS, __version__
from ._result import Result, ScenarioResult
from ._simulate import machine, run_scenario, simulate
from ._source import Source, after_sleep, every, leibniz, periodic, poisson, trace

__all__ = [
    "MACHINES",
    "PROGRAMS",
    "Dist",
    "Result",
    "ScenarioResult",
    "Source",
    "__version__",
    "after_sleep",
    "every",
    "exponential",
    "fixed",
    "leibniz",
    "lognormal",
    "machine",
    "pareto",
    "periodic",
    "poisson",
    "quantiles",
    "run_scenario",
    "simulate",
    "trace",
    "uniform",
]
