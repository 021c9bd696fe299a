# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tables, dates and times in and out."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path
from typing import Any

import colony_sim
import numpy as np
import pytest

BEGIN = np.datetime64("2026-11-23T01:00:00", "ns")
NAMES = ["thread:kworker", "irq:eth0", "irq:local_timer"]


def measured() -> dict[str, Any]:
    """1 s of two CPUs: a row each 10 ms on CPU 0, and each 20 ms on CPU 2."""
    start = np.concatenate([np.arange(0, 1_000_000_000, 10_000_000), np.arange(5_000, 1_000_000_000, 20_000_000)])
    return {
        "start_ns": BEGIN + start.astype("timedelta64[ns]"),
        "duration_ns": np.full(len(start), 50_000).astype("timedelta64[ns]"),
        "cpu": np.where(np.arange(len(start)) < 100, 0, 2),
        "source": np.array([NAMES[i % 3] for i in range(len(start))]),
    }


def test_a_table_becomes_its_sources() -> None:
    made = colony_sim.sources(measured(), span_ns=np.timedelta64(1, "s"), begin_ns=BEGIN, cpus=[0, 1, 2])
    assert [(s.name, s.kind) for s in made] == [
        ("irq:eth0", "irq"),
        ("irq:local_timer", "local"),
        ("thread:kworker", "task"),
    ]
    assert all(s.measured is not None and s.measured.cpus == 3 for s in made)
    stolen = sum(s.measured.stolen_share for s in made if s.measured is not None)
    assert stolen == pytest.approx(150 * 50_000 / 3e9)


def test_a_stated_kind_overrules_the_name_and_what_if_follows_it() -> None:
    def made(kinds: dict[str, Any] | None) -> list[colony_sim.Source]:
        return colony_sim.sources(measured(), span_ns=10**9, begin_ns=BEGIN, kinds=kinds)

    # as in the metadata of a trace: json.loads(metadata[b"classes"])
    stated = made({"irq:eth0": "task", "thread:other": "local"})
    assert [s.kind for s in stated] == ["task", "local", "task"]

    def with_windows(noise: list[colony_sim.Source]) -> float:
        found = colony_sim.what_if(noise, nodes=64, iterations=50, repetitions=3)
        return float(found.gives_back_ns[0][0])

    by_name, by_kind = with_windows(made(None)), with_windows(stated)
    assert by_kind > by_name
    with pytest.raises(ValueError, match="kind"):
        colony_sim.what_if(made({"irq:eth0": "moved"}), nodes=4)


def test_dates_and_numbers_are_the_same_trace() -> None:
    table = measured()
    ns = int(BEGIN.astype(np.int64))
    spans: list[Any] = [1e9, np.int64(10**9), np.timedelta64(1000, "ms"), datetime.timedelta(seconds=1)]
    begins: list[Any] = [BEGIN, ns, datetime.datetime(2026, 11, 23, 1), datetime.datetime(2026, 11, 23, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))]
    plain = {**table, "start_ns": table["start_ns"].astype(np.int64), "duration_ns": table["duration_ns"].astype(np.int64)}
    runs = [
        colony_sim.simulate(nodes=8, iterations=50, repetitions=1, noise=colony_sim.sources(rows, span_ns=span, begin_ns=begin)).totals_ns.tolist()
        for rows, span, begin in zip([table, plain, table, plain], spans, begins, strict=True)
    ]
    assert all(run == runs[0] for run in runs)


def test_node_counts_and_times_come_in_many_forms() -> None:
    def run(nodes: Any, work: Any) -> Any:
        return colony_sim.simulate(nodes=nodes, work_ns=work, iterations=5).totals_ns.tolist()

    first = run(1000, 1_000_000)
    works = [1e6, np.timedelta64(1, "ms"), datetime.timedelta(milliseconds=1), np.uint32(1_000_000), np.float64(1e6)]
    assert all(run(nodes, work) == first for nodes, work in zip([1e3, np.int32(1000), [1e3], np.array([1e3]), (np.uint64(1000),)], works, strict=True))


def test_a_detour_over_the_end_counts_until_there_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="1 of 2 detours reach over the end"):
        source = colony_sim.trace([0, 95], [1, 10], span_ns=100)
    assert source.measured is not None and source.measured.stolen_share == pytest.approx(0.06)


def test_results_become_frames() -> None:
    pandas = pytest.importorskip("pandas")
    result = colony_sim.simulate(nodes=[4, 8], iterations=5, repetitions=1)
    frame = result.to_dataframe()
    assert frame.nodes.tolist() == [4, 8] and frame.mean_ns.tolist() == result.mean_ns.tolist()
    frame = result.to_dataframe(times="timedelta64")
    assert frame["mean"].dtype == "timedelta64[ns]" and frame["ci95"].isna().all()
    assert frame["p50"][0] == pandas.Timedelta(int(result.p50_ns[0]), "ns")
    swept = colony_sim.run_scenario("nodes = [4]\n[program]\nname = 'allreduce'\niterations = 5\n[sweep]\n'program.bytes' = [8, 64]")
    assert swept.to_dataframe()["program.bytes"].tolist() == [8, 64]
    with pytest.raises(ValueError, match="times is 'us'"):
        result.to_dataframe(times="us")  # type: ignore[arg-type]


def test_a_frame_of_pandas_is_a_trace() -> None:
    pandas = pytest.importorskip("pandas")
    plain = colony_sim.sources(measured(), span_ns=10**9, begin_ns=BEGIN)
    for zone in (None, "UTC", "Europe/Berlin"):
        frame = pandas.DataFrame(measured())
        if zone is not None:
            frame["start_ns"] = frame["start_ns"].dt.tz_localize("UTC").dt.tz_convert(zone)
        frame["source"] = frame["source"].astype("category")
        begin = pandas.Timestamp(BEGIN, tz=zone if zone is None else "UTC")
        made = colony_sim.sources(frame, span_ns=pandas.Timedelta(1, "s"), begin_ns=begin)
        assert [s.measured.stolen_share for s in made if s.measured] == [s.measured.stolen_share for s in plain if s.measured]


def test_pandas_is_not_needed() -> None:
    code = "import sys\nsys.modules['pandas'] = None\nimport colony_sim\ncolony_sim.simulate(nodes=2, iterations=1)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)


def test_nanoseconds_become_timedelta64() -> None:
    made = colony_sim.timedelta([1.4, np.nan])
    assert made.dtype == "timedelta64[ns]" and made[0] == np.timedelta64(1, "ns") and np.isnat(made[1])
