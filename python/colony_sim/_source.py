# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sources of noise: from models, or from what was measured."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt

from . import _dist, _engine
from ._dist import Dist
from ._number import Count, Instant, Time, count, each, instant, time, times

if TYPE_CHECKING:
    from typing import Unpack

Kind = Literal["task", "irq", "local"]
Phase = Literal["random", "aligned", "skewed", "together"]


@dataclass(frozen=True)
class Source:
    """A source of noise on every node. Made by :func:`periodic`, :func:`poisson`, :func:`leibniz`,
    :func:`every`, :func:`after_sleep` or :func:`trace`."""

    name: str
    """Name, as ``thread:kworker``."""
    model: dict[str, Any] | None = None
    """Arrivals and lengths of its bursts, as the simulator writes them."""
    measured: _engine.Trace | None = field(default=None, repr=False)
    """Or the measured detours."""
    kind: Kind = "task"
    """The remedies that can keep it away from the job. ``task``: a scheduler or a spare core; ``irq``: a spare core;
    ``local``: neither (timer ticks, the hypervisor)."""
    phase: Phase = "random"
    """Phase of the nodes: each anywhere, ``aligned``, ``skewed`` (aligned, late by up to
    ``spread_ns``), or ``together`` (all begin within ``spread_ns`` of the boot, then go their own ways)."""
    spread_ns: Time = 0
    """For ``skewed`` and ``together``."""
    core: Count | Literal["each", "any"] = "each"
    """A stream of its own on each core, one a node on this core, or one a node on ``any`` of them."""

    def spec(self, trace: str | None) -> dict[str, Any]:
        """As the simulator writes it; ``trace`` is what it calls its trace."""
        if self.kind not in ("task", "irq", "local"):
            raise ValueError(f"there is no kind {self.kind!r} of source; choose task, irq or local")
        if self.phase not in ("random", "aligned", "skewed", "together"):
            raise ValueError(f"there is no phase {self.phase!r}; choose random, aligned, skewed or together")
        spread_ns = time("spread_ns", self.spread_ns)
        if spread_ns and self.phase not in ("skewed", "together"):
            raise ValueError(f"spread_ns is for skewed and together, not for {self.phase}")
        phase: Any = self.phase
        if phase in ("skewed", "together"):
            phase = {phase: {"spread_ns": spread_ns}}
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
    spread_ns: Time
    core: Count | Literal["each", "any"]


def _model(arrivals: str, gap: Any, length: Any) -> dict[str, Any]:
    return {"arrivals": {arrivals: gap}, "length": length}


def every(gap: Dist | Time, length: Dist | Time, *, name: str = "every", **more: Unpack[Fields]) -> Source:
    """Bursts from arrival to arrival, whatever became of the last: timers, packets.

    ``more`` here and below: the fields ``kind``, ``phase``, ``spread_ns`` and ``core`` of :class:`Source`.
    """
    return Source(name, _model("every", _dist.of("gap", gap), _dist.of("length", length)), **more)


def after_sleep(
    sleep: Dist | Time, length: Dist | Time, *, name: str = "daemon", **more: Unpack[Fields]
) -> Source:
    """A daemon that sleeps after each piece of work."""
    return Source(name, _model("after_sleep", _dist.of("sleep", sleep), _dist.of("length", length)), **more)


def periodic(every_ns: Time, length_ns: Time, *, name: str = "periodic", **more: Unpack[Fields]) -> Source:
    """A detour of ``length_ns`` each ``every_ns`` (the injected detours of ANL 2005)."""
    gap, length = time("every_ns", every_ns), time("length_ns", length_ns)
    return Source(name, _model("every", {"fixed": gap}, {"fixed": length}), **more)


def poisson(mean_ns: Time, length: Dist | Time, *, name: str = "poisson", **more: Unpack[Fields]) -> Source:
    """Arrivals at any instant with equal probability, on average every ``mean_ns``."""
    return every(_dist.exponential(mean_ns), length, name=name, **more)


def leibniz(mean_ns: Time, sleep_ns: Time, *, name: str = "leibniz", **more: Unpack[Fields]) -> Source:
    """The noise daemon of the Colony report (section 3.1.7): calculations of random length, on average
    ``mean_ns`` and at most twice that, and ``sleep_ns`` after each."""
    mean, sleep = time("mean_ns", mean_ns, 63), time("sleep_ns", sleep_ns)
    return after_sleep(sleep, _dist.uniform(0, 2 * mean), name=name, **more)


def trace(
    start_ns: npt.ArrayLike,
    duration_ns: npt.ArrayLike,
    *,
    span_ns: Time,
    begin_ns: Instant = 0,
    cpu: npt.ArrayLike | None = None,
    cpus: Iterable[Count] | None = None,
    name: str = "trace",
    **more: Unpack[Fields],
) -> Source:
    """Detours as they were measured on one node, replayed over and over, on each simulated node from
    another instant.

    ``start_ns`` and ``duration_ns`` are arrays of the same length, ``start_ns`` rising on each CPU: whole
    nanoseconds, ``timedelta64``, or for ``start_ns`` ``datetime64``; columns of a DataFrame are arrays too. The
    node was observed from ``begin_ns`` for ``span_ns``. ``cpu`` says on which CPU each detour was (all on one
    without it), ``cpus`` which were observed (those with detours without it). The columns of a trace that
    ``colony measure`` wrote are these arrays; :func:`sources` takes all of them. A name such as ``irq:local_timer`` gives the
    source its kind, unless ``kind`` does.

    A detour that is impossible is a :class:`ValueError` with its number; those that reach over the end of the
    observation count until there, with a warning.
    """
    begin, span = instant("begin_ns", begin_ns), time("span_ns", span_ns, 63)
    starts, durations = times("start_ns", start_ns), times("duration_ns", duration_ns)
    on = np.zeros(len(starts), np.int64) if cpu is None else times("cpu", cpu)
    if not len(starts) == len(durations) == len(on):
        raise ValueError(
            f"{len(starts)} start times (start_ns), {len(durations)} durations (duration_ns) and {len(on)} CPUs (cpu): "
            "give one each a detour"
        )
    if len(starts) == 0:
        raise ValueError("a trace without detours; for a quiet node leave the source out")
    observed = np.unique(on) if cpus is None else np.unique(each("cpus", cpus, lambda place, c: count(place, c, 16)))
    # differences of int64 could overflow: instants are refused by comparison
    _refuse(starts < begin, starts, f"(start_ns) begins before begin_ns ({begin})")
    _refuse(starts - begin >= span, starts, f"(start_ns) begins after begin_ns ({begin}) and span_ns ({span}) are over")
    _refuse(durations <= 0, durations, "(duration_ns) is no duration; it must be above 0")
    _refuse(durations > span, durations, f"(duration_ns) is longer than the observation, span_ns ({span})")
    _refuse(~np.isin(on, observed), on, f"(cpu) is none of the CPUs observed: {', '.join(map(str, observed))}")
    offsets = starts - begin
    cut = int((durations > span - offsets).sum())
    if cut:
        warnings.warn(f"{cut} of {len(starts)} detours reach over the end of the observation; they count until there", stacklevel=2)
    streams = []
    for number in observed:
        mine = on == number
        of_cpu = offsets[mine]
        back = np.flatnonzero(np.diff(of_cpu) < 0)
        if len(back):
            at = np.flatnonzero(mine)[back[0] + 1]
            raise ValueError(f"detour {at} (of CPU {number}) begins before the one before it; sort by start_ns")
        streams.append((of_cpu.astype(np.uint64).tobytes(), durations[mine].astype(np.uint64).tobytes()))
    if ":" in name:
        more.setdefault("kind", _engine.default_kind(name))
    return Source(name, measured=_engine.Trace(span, streams), **more)


def sources(
    frame: Any,
    *,
    span_ns: Time,
    begin_ns: Instant,
    cpus: Iterable[Count] | None = None,
    kinds: Mapping[str, Kind] | None = None,
) -> list[Source]:
    """The sources of a measured node from a trace as a table: one :class:`Source` for each name in its column
    ``source``.

    ``frame``
        A DataFrame of pandas or polars, or a mapping of arrays, with the columns of a trace: ``start_ns`` and
        ``duration_ns`` (numbers, ``datetime64`` or ``timedelta64``), ``source``, and ``cpu`` if there are several.
    ``begin_ns``, ``span_ns``, ``cpus``
        When the observation began (``start_ns`` of the file's metadata), how long it was, and which CPUs were
        observed (those with detours, if not given).
    ``kinds``
        The kind of sources by name, as ``classes`` in the file's metadata. A source that is not in it gets the kind
        that its name implies.
    """
    stated = dict(kinds or {})
    columns = list(frame.keys()) if hasattr(frame, "keys") else list(frame.columns)
    missing = [c for c in ("start_ns", "duration_ns", "source") if c not in columns]
    if missing:
        raise ValueError(f"the frame has no column {missing[0]!r}; it has: {', '.join(map(str, columns))}")
    names = np.asarray(frame["source"]).astype(str)
    starts, durations = times("start_ns", frame["start_ns"]), times("duration_ns", frame["duration_ns"])
    on = times("cpu", frame["cpu"]) if "cpu" in columns else np.zeros(len(starts), np.int64)
    observed = list(np.unique(on)) if cpus is None else list(cpus)
    made = []
    for name in np.unique(names):
        rows = np.flatnonzero(names == name)
        rows = rows[np.argsort(starts[rows], kind="stable")]
        source = trace(
            starts[rows],
            durations[rows],
            span_ns=span_ns,
            begin_ns=begin_ns,
            cpu=on[rows],
            cpus=observed,
            name=str(name),
            kind=stated.get(str(name), _engine.default_kind(str(name))),
        )
        made.append(source)
    return made


def _refuse(wrong: npt.NDArray[np.bool_], values: npt.NDArray[np.int64], why: str) -> None:
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(f"detour {at}: {values[at]} {why}")
