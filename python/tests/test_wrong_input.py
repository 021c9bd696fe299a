# SPDX-License-Identifier: MIT OR Apache-2.0
"""Wrong input is a ValueError that says what was found and what to do."""

from __future__ import annotations

from typing import Any

import colony_sim
import numpy as np
import pytest


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"nodes": []}, "node counts"),
        ({"nodes": 0}, "node counts"),
        ({"nodes": -1}, "nodes is -1"),
        ({"nodes": 2**40}, "nodes is"),
        ({"nodes": 4, "repetitions": 0}, "repetitions"),
        ({"nodes": 4, "iterations": 0}, "no iterations"),
        ({"nodes": 4, "machine": "cray-1"}, "bgl, jaguar-xt5, loggopsim, local"),
        ({"nodes": 4, "machine": "nowhere.toml"}, r"nowhere\.toml"),
        ({"nodes": 4, "machine": {"name": "x"}}, "ranks_per_node"),
        ({"nodes": 4, "program": "sort"}, "no program `sort`"),
        ({"nodes": 4, "program": []}, "no steps"),
        ({"nodes": 4, "program": [{"kind": "sleep"}]}, "sleep"),
        ({"nodes": 4, "program": [{"kind": "compute", "us": 1}]}, "us"),
        ({"nodes": 4, "program": "barrier", "bytes": 8}, r"program\.bytes: `barrier` has no such parameter"),
        ({"nodes": 4, "program": "glob", "work_ns": 8}, r"program\.work: `glob` has"),
        ({"nodes": 1, "program": "glob"}, "2 ranks"),
        ({"nodes": 4, "program": [{"kind": "compute", "ns": 1}], "bytes": 8}, "bytes: only for programs by name"),
        ({"nodes": 4, "algorithm": "telepathy"}, "telepathy"),
        ({"nodes": 4, "scheduler": "fifo"}, "spare-core"),
        ({"nodes": 4, "scheduler": "fair", "period_ns": 5}, "period_ns is no parameter"),
        ({"nodes": 4, "scheduler": "fair", "noise_slice_ns": 0}, "noise slice"),
        ({"nodes": 4, "scheduler": "coordinated", "duty": 1.0}, "regular window"),
        ({"nodes": 4, "scheduler": "coordinated", "duty": -0.5}, "between 0 and 1"),
        ({"nodes": 4, "scheduler": "coordinated", "duty": float("nan")}, "between 0 and 1"),
        ({"nodes": 4, "scheduler": "coordinated", "period_ns": 0}, "period"),
        ({"nodes": 4, "scheduler": "coordinated", "clock_offset_ns": -1.0}, "clock_offset_ns"),
        ({"nodes": 4, "scheduler": "coordinated", "clocks": [(0, 1e9)]}, "drift"),
        ({"nodes": 4, "begin_ns": 2**63}, "longer"),
        ({"nodes": 4, "noise": colony_sim.trace([0], [1], span_ns=10, core=0)}, "which CPU"),
        ({"nodes": 4, "noise": colony_sim.periodic(100, 100)}, "nothing is left"),
        ({"nodes": 4, "noise": colony_sim.poisson(-1.0, 5)}, "mean"),
    ],
)
def test_a_simulation_that_makes_no_sense_is_refused(what: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        colony_sim.simulate(**what)


@pytest.mark.parametrize(
    ("start", "duration", "words"),
    [
        ([], [], "without detours"),
        ([0, 1], [1], "one each a detour"),
        ([50, 10], [1, 1], "sort by start_ns"),
        ([-5], [1], "before begin_ns"),
        ([1000], [1], "span_ns"),
        ([0], [0], "above 0"),
        ([0], [-3], "above 0"),
        ([0.5], [1], "whole nanoseconds"),
        ([[0]], [[1]], "dimensions"),
        (np.array([2**63], np.uint64), [1], "int64"),
        ([0], [100], "nothing would ever run"),
        ([0], [101], r"detour 0: 101 \(duration_ns\) is longer than the observation, span_ns \(100\)"),
        ([0, 5], [1, 2**62], "detour 1: .* is longer than"),
        ([-(2**63)], [1], "before begin_ns"),
        ([np.datetime64("2026-01-01")], [1], "span_ns"),
        (np.array([np.datetime64("NaT")]), [1], "start_ns has NaT at 0"),
        ([0], np.array([np.timedelta64("NaT")]), "duration_ns has NaT at 0"),
    ],
)
def test_a_trace_that_makes_no_sense_is_refused(start: Any, duration: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        colony_sim.trace(start, duration, span_ns=100)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "nmi"}, "no kind"),
        ({"phase": "late"}, "no phase"),
        ({"spread_ns": 5}, "spread_ns"),
        ({"core": "last"}, "no core"),
        ({"core": -1}, "core is -1"),
    ],
)
def test_a_source_that_makes_no_sense_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        colony_sim.simulate(nodes=4, noise=colony_sim.periodic(1000, 10, **fields))


def test_times_are_not_negative() -> None:
    with pytest.raises(ValueError, match="every_ns is -1; give a number from 0"):
        colony_sim.periodic(-1, 1)
    with pytest.raises(ValueError, match="sleep_ns is -1; give a number from 0"):
        colony_sim.leibniz(5, -1)


def test_kinds_of_input_that_are_no_numbers_are_type_errors() -> None:
    with pytest.raises(TypeError, match=r"every_ns is 0\.5; give whole nanoseconds"):
        colony_sim.periodic(every_ns=0.5, length_ns=1)
    with pytest.raises(TypeError):
        colony_sim.simulate(nodes=4, turns=5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nodes = [4]\nnods = 3", r"line 2: .*nods"),
        ("nodes = [4]\nschedulers = ['fifo']", r"line 2: .*spare-core"),
        ("noise = [{ trace = 'node.parquet' }]", r"traces=\{\"node.parquet\""),
        ("no/such/file.toml", r"no/such/file\.toml"),
    ],
)
def test_a_scenario_that_makes_no_sense_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        colony_sim.run_scenario(text)


def test_traces_that_a_scenario_cannot_use_are_refused() -> None:
    measured = colony_sim.trace([0], [1], span_ns=100)
    with pytest.raises(ValueError, match="names no trace"):
        colony_sim.run_scenario("nodes = [4]", traces={"other.parquet": measured})
    scenario = "nodes = [4]\nnoise = [{ trace = 'a.parquet' }]"
    with pytest.raises(ValueError, match="is a model"):
        colony_sim.run_scenario(scenario, traces={"a.parquet": colony_sim.periodic(1000, 10)})


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"nodes": [4, 2.5]}, r"nodes\[1\] is 2\.5; give a whole number"),
        ({"nodes": "many"}, r"nodes is 'many' \(str\); give a whole number"),
        ({"nodes": 4, "work_ns": "1ms"}, r"work_ns is '1ms' \(str\); give whole nanoseconds, or a timedelta"),
        ({"nodes": 4, "bytes": np.float64(0.5)}, r"bytes is 0\.5; give a whole number"),
        ({"nodes": 4, "imbalance": "x"}, r"imbalance is 'x' \(str\); give a number"),
        ({"nodes": 4, "scheduler": "coordinated", "duty": "80%"}, r"duty is '80%' \(str\); give a number"),
        ({"nodes": 4, "noise": "leibniz 21%"}, r"noise\[0\] is 'l' \(str\); give a Source"),
        ({"nodes": 4, "scheduler": "coordinated", "edge_lateness_ns": [1, None]}, r"edge_lateness_ns\[1\] is None"),
        ({"nodes": 4, "scheduler": "coordinated", "clocks": [(1, "fast")]}, r"clocks\[0\] is 'fast' \(str\)"),
        ({"nodes": 4, "seed": 1.5}, r"seed is 1\.5"),
    ],
)
def test_a_value_of_a_wrong_kind_is_told_with_its_parameter(what: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        colony_sim.simulate(**what)


@pytest.mark.parametrize(
    "what",
    [
        {"program": [{"kind": "compute", "ns": "long"}]},
        {"program": [{"kind": 5}]},
        {"program": [{"kind": "collective", "operation": 3}]},
        {"program": {"name": 3}},
        {"algorithm": "telepathy"},
        {"machine": {"name": "x", "ranks_per_node": "two"}},
        {"machine": {"name": "x", "ranks_per_node": 1, "loggops": 3}},
        {"machine": 3},
    ],
)
def test_no_mistake_is_told_in_words_of_rust(what: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)) as error:
        colony_sim.simulate(nodes=4, **what)
    for word in ("u64", "u32", "i64", "f64", "enum", "struct", "variant", "tuple", "invalid type", "Option"):
        assert word not in str(error.value).split(), error.value


def test_a_detour_on_a_cpu_that_was_not_observed_is_refused() -> None:
    with pytest.raises(ValueError, match=r"detour 1: 7 \(cpu\) is none of the CPUs observed: 0, 4"):
        colony_sim.trace([0, 1], [1, 1], cpu=[4, 7], cpus=[0, 4], span_ns=100)


def test_a_frame_without_its_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="the frame has no column 'source'; it has: start_ns, duration_ns"):
        colony_sim.sources({"start_ns": [1], "duration_ns": [1]}, span_ns=10, begin_ns=0)


def test_what_if_and_fit_want_what_was_measured() -> None:
    model = colony_sim.periodic(1000, 10)
    with pytest.raises(ValueError, match="noise: the source 'periodic' is a model"):
        colony_sim.what_if(model, nodes=4)
    with pytest.raises(ValueError, match="noise: there is no source"):
        colony_sim.what_if([], nodes=4)
    with pytest.raises(ValueError, match="source: 'periodic' is a model already"):
        colony_sim.fit(model)
    with pytest.raises(ValueError, match="20"):
        colony_sim.fit(colony_sim.trace([0, 50], [1, 2], span_ns=100))


def test_schedules_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="schedule:3"):
        colony_sim.read_goal("num_ranks 1\nrank 0 {\nfly 8b\n}\n")
    with pytest.raises(ValueError, match=r"nowhere\.goal"):
        colony_sim.run_goal("nowhere.goal")
    stuck = "num_ranks 2\nrank 0 {\na: recv 8b from 1\nb: send 8b to 1\nb requires a\n}\n"
    stuck += "rank 1 {\na: recv 8b from 0\nb: send 8b to 0\nb requires a\n}\n"
    with pytest.raises(ValueError, match="deadlock: 2 ranks wait for ever: rank 0"):
        colony_sim.run_goal(stuck)
    with pytest.raises(ValueError, match="progress is 'late'; choose program-order or asynchronous"):
        colony_sim.run_goal(stuck, progress="late")
