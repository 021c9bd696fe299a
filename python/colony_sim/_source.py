"""Sources of noise: from models, or from what was measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypedDict

import numpy as np
import numpy.typing as npt

from . import _dist, _engine
from ._dist import Dist
from ._number import count

if TYPE_CHECKING:
    from typing import Unpack

Kind = Literal["task", "irq", "local"]
Phase = Literal["random", "aligned", "skewed", "together"]


@dataclass(frozen=True)
class Source:
    """A source of noise on every node. Made by :func:`periodic`, :func:`poisson`, :func:`leibniz`,
    :func:`every`, :func:`after_sleep` or :func:`trace`."""

    name: str
    """What it is, as ``thread:kworker``."""
    model: dict[str, Any] | None = None
    """When its bursts come and how long they are, as the simulator writes it."""
    measured: _engine.Trace | None = field(default=None, repr=False)
    """Or what was measured."""
    kind: Kind = "task"
    """Who can hold it back: ``task``: the scheduler; ``irq``: nobody, but a spare core can take it;
    ``local``: nobody (timer ticks, the hypervisor)."""
    phase: Phase = "random"
    """How nodes lie to one another: each anywhere, ``aligned``, ``skewed`` (aligned, late by up to
    ``spread_ns``), or ``together`` (all begin within ``spread_ns`` of the boot, then go their own ways)."""
    spread_ns: int = 0
    """For ``skewed`` and ``together``."""
    core: int | Literal["each", "any"] = "each"
    """A stream of its own on each core, one a node on this core, or one a node on ``any`` of them."""

    def spec(self, trace: str | None) -> dict[str, Any]:
        """As the simulator writes it; ``trace`` is what it calls its trace."""
        if self.kind not in ("task", "irq", "local"):
            raise ValueError(f"there is no kind {self.kind!r} of source; choose task, irq or local")
        if self.phase not in ("random", "aligned", "skewed", "together"):
            raise ValueError(f"there is no phase {self.phase!r}; choose random, aligned, skewed or together")
        if self.spread_ns and self.phase not in ("skewed", "together"):
            raise ValueError(f"spread_ns is for skewed and together, not for {self.phase}")
        phase: Any = self.phase
        if phase in ("skewed", "together"):
            phase = {phase: {"spread_ns": count("spread_ns", self.spread_ns)}}
        return {
            "name": self.name,
            **({"model": self.model} if trace is None else {"trace": trace}),
            "class": self.kind,
            "phase": phase,
            "placement": self._placement(),
        }

    def _placement(self) -> Any:
        if not isinstance(self.core, str):
            return {"core": count("core", self.core, 32)}
        if self.core not in ("each", "any"):
            raise ValueError(f"there is no core {self.core!r}; give a number, each or any")
        return f"{self.core}_core"


class Fields(TypedDict, total=False):
    """Fields of :class:`Source` that may be given to all that make one."""

    kind: Kind
    phase: Phase
    spread_ns: int
    core: int | Literal["each", "any"]


def _model(arrivals: str, gap: Any, length: Dist | SupportsIndex) -> dict[str, Any]:
    return {"arrivals": {arrivals: gap}, "length": _dist.of(length)}


def every(gap: Dist | SupportsIndex, length: Dist | SupportsIndex, *, name: str = "every", **more: Unpack[Fields]) -> Source:
    """Bursts from arrival to arrival, whatever became of the last: timers, packets.

    ``more`` here and below: the fields ``kind``, ``phase``, ``spread_ns`` and ``core`` of :class:`Source`.
    """
    return Source(name, _model("every", _dist.of(gap), length), **more)


def after_sleep(
    sleep: Dist | SupportsIndex, length: Dist | SupportsIndex, *, name: str = "daemon", **more: Unpack[Fields]
) -> Source:
    """A daemon that sleeps after each piece of work."""
    return Source(name, _model("after_sleep", _dist.of(sleep), length), **more)


def periodic(
    every_ns: SupportsIndex, length_ns: SupportsIndex, *, name: str = "periodic", **more: Unpack[Fields]
) -> Source:
    """A detour of ``length_ns`` each ``every_ns`` (the injected detours of ANL 2005)."""
    return every(every_ns, length_ns, name=name, **more)


def poisson(
    mean_ns: float, length: Dist | SupportsIndex, *, name: str = "poisson", **more: Unpack[Fields]
) -> Source:
    """Arrivals at any instant with equal probability, on average every ``mean_ns``."""
    return every(_dist.exponential(mean_ns), length, name=name, **more)


def leibniz(
    mean_ns: SupportsIndex, sleep_ns: SupportsIndex, *, name: str = "leibniz", **more: Unpack[Fields]
) -> Source:
    """The noise daemon of the Colony report (section 3.1.7): calculations of random length, on average
    ``mean_ns`` and at most twice that, and ``sleep_ns`` after each."""
    return after_sleep(sleep_ns, _dist.uniform(0, 2 * count("mean_ns", mean_ns, 63)), name=name, **more)


def trace(
    start_ns: npt.ArrayLike,
    duration_ns: npt.ArrayLike,
    *,
    span_ns: SupportsIndex,
    begin_ns: SupportsIndex = 0,
    cpu: npt.ArrayLike | None = None,
    name: str = "trace",
    **more: Unpack[Fields],
) -> Source:
    """Detours as they were measured on one node, replayed over and over, on each simulated node from
    another instant.

    ``start_ns`` and ``duration_ns`` are arrays of the same length, ``start_ns`` rising on each CPU;
    the node was observed from ``begin_ns`` for ``span_ns``. ``cpu`` says on which CPU each detour was
    (all on one without it); a CPU without detours is not seen. The columns of a trace that
    ``colony measure`` wrote are these arrays.
    """
    begin, span = count("begin_ns", begin_ns, 63), count("span_ns", span_ns, 63)
    starts, durations = _whole("start_ns", start_ns), _whole("duration_ns", duration_ns)
    cpus = np.zeros(len(starts), np.int64) if cpu is None else _whole("cpu", cpu)
    if not len(starts) == len(durations) == len(cpus):
        raise ValueError(
            f"{len(starts)} start times, {len(durations)} durations and {len(cpus)} CPUs: give one each a detour"
        )
    if len(starts) == 0:
        raise ValueError("a trace without detours; for a quiet node leave the source out")
    offsets = starts - begin
    _refuse(offsets < 0, starts, f"begins before begin_ns ({begin})")
    _refuse(offsets >= span, starts, f"begins after begin_ns ({begin}) and span_ns ({span}) are over")
    _refuse(durations <= 0, durations, "is no duration; it must be above 0")
    streams = []
    for number in np.unique(cpus):
        mine = cpus == number
        of_cpu = offsets[mine]
        back = np.flatnonzero(np.diff(of_cpu) < 0)
        if len(back):
            at = np.flatnonzero(mine)[back[0] + 1]
            raise ValueError(f"detour {at} (of CPU {number}) begins before the one before it; sort by start_ns")
        streams.append((of_cpu.astype(np.uint64).tobytes(), durations[mine].astype(np.uint64).tobytes()))
    return Source(name, measured=_engine.Trace(span, streams), **more)


def _whole(what: str, values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{what} has {array.ndim} dimensions; give one")
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{what} holds {array.dtype}; give whole nanoseconds (or CPU numbers), as int64")
    if array.size and array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{what} has {array.max()}, beyond int64")
    return array.astype(np.int64)


def _refuse(wrong: npt.NDArray[np.bool_], values: npt.NDArray[np.int64], why: str) -> None:
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(f"detour {at}: {values[at]} {why}")
