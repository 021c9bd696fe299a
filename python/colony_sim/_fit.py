# SPDX-License-Identifier: MIT OR Apache-2.0
"""Models of measured noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from . import _engine
from ._source import Source


@dataclass(frozen=True)
class Fitted:
    """A model fitted to a measured source: made by :func:`fit`."""

    sources: list[Source]
    """The model as sources of :func:`simulate`: one, or one for each core that has the source where not all have."""
    verdict: Literal["good", "rough", "poor"]
    """Rating of the distance between measured and modelled times: good up to 5 %, poor over 10 %. A poor model has
    the measured quantiles."""
    detours: int
    """Detours it was fitted to."""
    stolen_share: float
    """Share of the CPUs' time that was stolen."""
    model_share: float
    """Share that the model steals."""
    document: dict[str, Any] = field(repr=False)
    """Everything: the families tried, and how well each fits."""


def fit(source: Source) -> Fitted:
    """Fits a model to a measured source: ``colony noise fit``. A model is a few numbers, and can be changed.

    ``source``
        Made by :func:`trace` or :func:`sources`. Raises :class:`ValueError` if it has too few detours, or if it is a
        model itself.
    """
    if source.measured is None:
        raise ValueError(f"source: {source.name!r} is a model already; give what was measured")
    found, cores = _engine.fit_trace(source.measured)
    everywhere = len(cores) == source.measured.cpus
    places: list[int | Literal["each"]] = ["each"] if everywhere else list(cores)
    sources = [
        Source(source.name, found["fit"]["model"], kind=source.kind, phase=source.phase, spread_ns=source.spread_ns, core=core)
        for core in places
    ]
    return Fitted(
        sources=sources,
        verdict=found["verdict"],
        detours=found["fit"]["detours"],
        stolen_share=found["stolen_share"],
        model_share=found["model_share"],
        document=found["fit"],
    )
