# SPDX-License-Identifier: MIT OR Apache-2.0
"""Properties that users of the package rely on. No time of this machine is asserted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import colony_sim
import numpy as np
import pytest

DETOURS = colony_sim.periodic(every_ns=1_000_000, length_ns=16_000)


def test_the_checkpoint_of_loggopsim_is_met_to_the_nanosecond() -> None:
    steps = [{"kind": "collective", "operation": "barrier", "algorithm": "dissemination", "bytes": 8}]
    result = colony_sim.simulate(
        machine="loggopsim", nodes=[1024, 4096, 65_536], program=steps, iterations=1, bytes=None, repetitions=1
    )
    assert result.totals_ns.tolist() == [[55_420], [66_504], [88_672]]


def test_arrays_have_one_element_a_node_count_in_the_order_asked_for() -> None:
    result = colony_sim.simulate(
        machine="bgl", nodes=[1024, 512], program="allreduce", iterations=50, noise=DETOURS, repetitions=3
    )
    assert result.nodes.tolist() == [1024, 512] and result.nodes.dtype == np.uint64
    assert result.mean_ns.shape == result.ci95_ns.shape == result.p50_ns.shape == (2,)
    assert (result.min_ns <= result.p50_ns).all() and (result.p50_ns <= result.max_ns).all()
    assert result.iterations_ns.shape == (2, 3, 50) and result.iterations_ns.dtype == np.uint64
    assert (result.iterations_ns.sum(axis=2) == result.totals_ns).all()
    assert np.allclose(result.iterations_ns.mean(axis=(1, 2)), result.mean_ns)
    assert (result.slowdown > 1).all()


def test_one_repetition_has_no_confidence_interval() -> None:
    assert np.isnan(colony_sim.simulate(nodes=4, iterations=2, repetitions=1).ci95_ns).all()


def test_the_same_seed_gives_the_same_result_and_another_another() -> None:
    def run(seed: int) -> Any:
        return colony_sim.simulate(
            machine="bgl", nodes=256, program="barrier", iterations=200, noise=DETOURS, seed=seed
        ).iterations_ns

    assert (run(7) == run(7)).all()
    assert (run(7) != run(8)).any()


def test_a_trace_steals_its_share_from_one_node() -> None:
    start = np.arange(0, 10_000_000, 100_000)
    noise = colony_sim.trace(start, np.full(100, 10_000), span_ns=10_000_000)
    work = [{"kind": "compute", "ns": 90_000_000}]
    result = colony_sim.simulate(nodes=1, program=work, iterations=10, noise=noise)
    assert result.mean_ns[0] == pytest.approx(100_000_000, rel=1e-3)


def test_a_trace_may_count_from_any_instant_and_name_cpus() -> None:
    begin = 1_790_000_000_000_000_000
    noise = colony_sim.trace(
        [begin, begin + 50, begin + 20],
        [10, 10, 30],
        cpu=[4, 4, 7],
        begin_ns=begin,
        span_ns=100,
        name="node",
    )
    assert noise.measured is not None and noise.measured.span_ns == 100
    assert noise.measured.stolen_share == pytest.approx(0.25)


def test_schedulers_order_as_they_must() -> None:
    def mean(**scheduler: Any) -> float:
        daemon = colony_sim.leibniz(mean_ns=1_000_000, sleep_ns=99_000_000)
        result = colony_sim.simulate(
            machine="bgl", nodes=512, program="bsp", work_ns=1_000_000, iterations=200, noise=daemon, **scheduler
        )
        return float(result.mean_ns[0])

    assert mean(scheduler="none") == mean(scheduler="spare-core")
    assert mean(scheduler="none") < mean(scheduler="preempt")


def test_what_sources_say_reaches_the_engine() -> None:
    def slowdown(noise: colony_sim.Source) -> float:
        result = colony_sim.simulate(
            machine="bgl", nodes=512, program="bsp", work_ns=1_000_000, iterations=100, noise=noise
        )
        return float(result.slowdown[0])

    aligned = colony_sim.periodic(every_ns=10_000_000, length_ns=1_000_000, phase="aligned")
    random = colony_sim.periodic(every_ns=10_000_000, length_ns=1_000_000)
    assert slowdown(aligned) < slowdown(random)
    lengths: list[colony_sim.Dist | int] = [
        5000,
        colony_sim.uniform(0, 10_000),
        colony_sim.exponential(5000),
        colony_sim.lognormal(5000, 0.5),
        colony_sim.pareto(1000, 1.5, 100_000),
        colony_sim.quantiles([1000, 4000, 9000]),
    ]
    for length in lengths:
        assert slowdown(colony_sim.poisson(1_000_000, length)) > 1


def test_programs_by_name_by_steps_and_written_out_are_one() -> None:
    step = {"kind": "collective", "operation": "allreduce", "bytes": np.int64(64)}
    whole = {"name": "mine", "iterations": 5, "step": [step]}
    by_name = colony_sim.simulate(nodes=16, program="allreduce", bytes=64, iterations=5)
    by_steps = colony_sim.simulate(nodes=np.array([16]), program=[step], iterations=5)
    written_out = colony_sim.simulate(nodes=16, program=whole)
    assert by_name.totals_ns.tolist() == by_steps.totals_ns.tolist() == written_out.totals_ns.tolist()


def test_every_named_program_runs() -> None:
    for name in colony_sim.PROGRAMS:
        result = colony_sim.simulate(machine="bgl", nodes=64, program=name, iterations=3, noise=DETOURS)
        assert result.mean_ns[0] > 0, name
    assert {"glob", "myallreduce", "stencil", "pop", "ring"} <= set(colony_sim.PROGRAMS)


def test_parameters_of_named_programs_reach_the_engine() -> None:
    def quiet_ns(**parameters: Any) -> float:
        return float(colony_sim.simulate(machine="bgl", nodes=64, iterations=2, **parameters).quiet_ns[0])

    assert quiet_ns(program="myallreduce", combine_ns=5000) >= quiet_ns(program="myallreduce") + 5 * 5000
    assert quiet_ns(program="allreduce", algorithm="ring") > quiet_ns(program="allreduce", algorithm="hardware")
    assert quiet_ns(program="pop", solver_passes=20) > quiet_ns(program="pop", solver_passes=10)
    assert quiet_ns(program="bsp", work_ns=1000, imbalance=0.5) > quiet_ns(program="bsp", work_ns=1000)


def test_clocks_that_were_measured_and_the_beginning_matter() -> None:
    def totals(**more: Any) -> Any:
        together = colony_sim.leibniz(1_000_000, 9_000_000, phase="together", spread_ns=0)
        return colony_sim.simulate(
            machine="bgl", nodes=64, program="bsp", iterations=500, noise=together, **more
        ).totals_ns.tolist()

    windows: dict[str, Any] = {"scheduler": "coordinated", "period_ns": 50_000_000, "duty": 0.5}
    assert totals(**windows) != totals(**windows, clocks=[(0, 0.0), (20_000_000, 10.0)])
    assert totals(begin_ns=0) != totals(begin_ns=5_000_000)


SCENARIO = """
nodes = [64, 128]
machine = "bgl"
repetitions = 2
schedulers = ["fair", { coordinated = { period = "20ms", duty_cycle = "90%" } }]
program = { name = "bsp", iterations = 50 }
noise = [{ name = "daemon", leibniz = { mean = "100us", sleep = "10ms" } }]
[sweep]
"program.work" = ["1ms", "2ms"]
"""


def test_a_scenario_gives_each_point_and_the_numbers_of_simulate(tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(SCENARIO)
    result = colony_sim.run_scenario(file)
    assert result.nodes.tolist() == [64] * 4 + [128] * 4
    assert result.schedulers[:4] == ["fair", "fair", "coordinated", "coordinated"]
    assert [s["program.work"] for s in result.settings[:2]] == ["1ms", "2ms"]
    assert result.totals_ns.shape == (8, 2)
    same = colony_sim.simulate(
        machine="bgl", nodes=[64, 128], program="bsp", work_ns=2_000_000, iterations=50, repetitions=2,
        noise=colony_sim.leibniz(100_000, 10_000_000), scheduler="coordinated", period_ns=20_000_000, duty=0.9,
    )  # fmt: skip
    assert same.totals_ns.tolist() == result.totals_ns[[3, 7]].tolist()
    document = json.loads(json.dumps(result.to_dict()))
    assert document["schema"] == "colony.sim/1" and len(document["points"]) == len(result) == 8
    again = colony_sim.run_scenario(SCENARIO)
    assert (again.totals_ns == result.totals_ns).all()


def test_a_scenario_replays_traces_that_are_given(tmp_path: Path) -> None:
    thread = colony_sim.trace([0], [500_000], span_ns=10_000_000, name="thread:daemon")
    tick = colony_sim.trace([3_000_000], [5_000], span_ns=10_000_000, name="irq:local_timer")
    file = tmp_path / "scenario.toml"
    text = "nodes = [64]\nschedulers = ['preempt', 'spare-core']\nprogram = { name = 'bsp', iterations = 20 }\n"
    file.write_text(text + "noise = [{ trace = 'node.parquet' }]")
    both = colony_sim.run_scenario(file, traces={"node.parquet": [thread, tick]})
    # the spare core takes the thread, and leaves the tick
    assert both.slowdown[0] > both.slowdown[1] > 1
    file.write_text(text + "noise = [{ trace = 'node.parquet', leave_out = ['thread:daemon'] }]")
    without = colony_sim.run_scenario(file, traces={"node.parquet": [thread, tick]})
    assert without.totals_ns.tolist() == [both.totals_ns.tolist()[1]] * 2


def test_machines_are_names_files_or_dicts(tmp_path: Path) -> None:
    for name in colony_sim.MACHINES:
        assert colony_sim.machine(name)["sources"]
    mine = colony_sim.machine("loggopsim")
    mine["loggops"]["latency_ns"] *= 2
    slower = colony_sim.simulate(machine=mine, nodes=8, program="barrier", iterations=1)
    usual = colony_sim.simulate(machine="loggopsim", nodes=8, program="barrier", iterations=1)
    assert slower.totals_ns[0, 0] == usual.totals_ns[0, 0] + 3 * 2500
    file = tmp_path / "broken.toml"
    file.write_text('name = "broken"\nranks_per_node = "one"\n')
    with pytest.raises(ValueError, match=r"broken\.toml:2"):
        colony_sim.simulate(machine=file, nodes=8)


def test_a_result_is_json_with_all_it_takes_to_run_again() -> None:
    result = colony_sim.simulate(machine="bgl", nodes=[64, 128], iterations=10, noise=DETOURS, seed=np.uint64(3))
    document = json.loads(json.dumps(result.to_dict()))
    assert document["schema"] == "colony.sim.python/2" and document["parameters"]["scenario"]["seed"] == 3
    assert [p["nodes"] for p in document["points"]] == [64, 128]
    assert len(result) == 2 and "64 nodes" in repr(result)


def test_other_threads_run_while_it_simulates() -> None:
    turns, done = 0, threading.Event()

    def simulate() -> None:
        try:
            colony_sim.simulate(nodes=16_384, program="barrier", iterations=300, noise=DETOURS)
        finally:
            done.set()

    thread = threading.Thread(target=simulate)
    thread.start()
    while not done.is_set():
        turns += 1
    thread.join()
    assert turns > 100


def test_ctrl_c_ends_a_simulation_that_would_run_for_hours(tmp_path: Path) -> None:
    # where the tests run in the background of a shell, SIGINT is ignored by all that is started there
    endless = """
import signal
import colony_sim
signal.signal(signal.SIGINT, signal.default_int_handler)
print("begun", flush=True)
colony_sim.simulate(nodes=65536, program="bsp", iterations=10**9, noise=colony_sim.periodic(10**6, 10**4))
"""
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", endless], stdout=pipe, stderr=pipe, text=True, cwd=tmp_path)
    try:
        assert child.stdout is not None and child.stdout.readline() == "begun\n"
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    assert "KeyboardInterrupt" in said
