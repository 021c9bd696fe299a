# SPDX-License-Identifier: MIT OR Apache-2.0
"""The commands in Python: what-if, schedules, fits; and the same defaults."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import colony_sim
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PING = "num_ranks 2\nrank 0 {\nsend 8b to 1\n}\nrank 1 {\nrecv 8b from 0\n}\n"


def colony(*words: str) -> Any:
    """The JSON that the command prints; the test is skipped without the command."""
    program = Path(os.environ.get("COLONY", ROOT / "target/debug/colony"))
    if not program.exists():
        pytest.skip(f"{program} is not built")
    done = subprocess.run([program, *words, "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def node(folder: Path) -> tuple[str, list[colony_sim.Source]]:
    """A trace of two CPUs and three sources, as a file and as sources."""
    rows = [(0, 100_000 + i * 4_000_000, 2_000, "irq:local_timer") for i in range(250)]
    rows += [(1, 1_100_000 + i * 4_000_000, 2_000, "irq:local_timer") for i in range(249)]
    rows += [(i % 2, 3_000_000 + i * 90_000_000, 700_000, "thread:kworker") for i in range(11)]
    rows += [(1, 2_000_000 + i * 30_000_000, 9_000, "irq:eth0") for i in range(33)]
    rows.sort(key=lambda r: r[1])
    text = "# observed_s: 1\n# start_ns: 0\n# cpus: 0-1\ncpu,start_ns,duration_ns,source\n"
    file = folder / "node.csv"
    file.write_text(text + "".join(",".join(map(str, r)) + "\n" for r in rows))
    cpu, start, duration, source = (np.array(column) for column in zip(*rows, strict=True))
    table = {"cpu": cpu, "start_ns": start, "duration_ns": duration, "source": source}
    return str(file), colony_sim.sources(table, span_ns=10**9, begin_ns=0, cpus=[0, 1])


def test_what_if_says_what_each_source_costs(tmp_path: Path) -> None:
    _, sources = node(tmp_path)
    found = colony_sim.what_if(sources, nodes=[1, 128], period_ns=50_000_000)
    assert found.nodes.tolist() == [1, 128] and found.sources[0] == "thread:kworker"
    assert found.cost_ns.shape == found.cost_ci95_ns.shape == (3, 2)
    assert found.cost_ns[0, 1] > found.cost_ns[0, 0]
    assert (found.noisy_ns >= found.quiet_ns).all() and found.noisy_ci95_ns.shape == (2,)
    assert set(found.remedies) == {"coordinated", "spare-core"}
    assert found.remedy_ns.shape == found.gives_back_ns.shape == (2, 2)
    json.dumps(found.to_dict())


def test_what_if_is_that_of_the_command(tmp_path: Path) -> None:
    file, sources = node(tmp_path)
    ours = colony_sim.what_if(sources, nodes=[1, 128]).to_dict()
    theirs = colony("sim", "--what-if", file, "--nodes", "1,128")
    assert ours["schema"] == theirs["schema"]
    assert ours["windows"] == theirs["windows"]
    assert ours["answer"] == theirs["answer"]
    of_all = ("nodes", "seed", "repetitions", "ranks_per_node", "program")
    assert {k: ours["scenario"][k] for k in of_all} == {k: theirs["scenario"][k] for k in of_all}


def test_what_if_becomes_a_frame(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    _, sources = node(tmp_path)
    found = colony_sim.what_if(sources, nodes=[2, 4])
    frame = found.to_dataframe()
    assert len(frame) == 6 and frame.cost_ns.tolist() == found.cost_ns.ravel().tolist()


def test_a_schedule_runs_to_the_nanosecond() -> None:
    schedule = colony_sim.read_goal(PING)
    assert (schedule.ranks, schedule.operations, schedule.messages) == (2, 2, 1)
    result = colony_sim.run_goal(schedule)
    assert result.quiet_ends_ns.tolist() == [1500, 5542] and result.quiet_ns == 5542
    assert result.ends_ns.shape == (10, 2) and result.totals_ns.tolist() == [5542] * 10 and result.slowdown == 1.0
    assert colony_sim.run_goal(schedule.text()).ends_ns.tolist() == result.ends_ns.tolist()
    assert len(str(result)) > 0 and result.to_dict()["events"] == result.events


def test_a_schedule_is_that_of_the_command(tmp_path: Path) -> None:
    file = tmp_path / "ping.goal"
    file.write_text(PING)
    noise = colony_sim.periodic(every_ns=1e6, length_ns=16_000)
    for progress in ("program-order", "asynchronous"):
        ours = colony_sim.run_goal(file, noise=noise, progress=progress)
        theirs = colony("sim", "--goal", str(file), "--noise", "16us every 1ms", "--progress", progress)
        assert (theirs["ranks"], theirs["events"]) == (2, ours.events)
        # without words the command runs on Blue Gene/L or LogGOPSim's machine as its scenario says
        machine = theirs["scenario"]["machine"]
        again = colony_sim.run_goal(file, noise=noise, progress=progress, machine=machine)
        assert theirs["results"][0]["totals_ns"] == again.totals_ns.tolist()
        assert theirs["results"][0]["quiet_ns"] == again.quiet_ns
        assert machine == inspect.signature(colony_sim.run_goal).parameters["machine"].default


def test_fits_are_those_of_the_command(tmp_path: Path) -> None:
    file, sources = node(tmp_path)
    theirs = {s["name"]: s for s in colony("noise", "fit", file)["sources"]}
    for source in sources:
        if theirs[source.name]["fit"] is None:
            with pytest.raises(ValueError):
                colony_sim.fit(source)
            continue
        fitted = colony_sim.fit(source)
        assert fitted.document == theirs[source.name]["fit"]
        assert fitted.stolen_share == pytest.approx(theirs[source.name]["stolen_share"])
        assert fitted.model_share == pytest.approx(theirs[source.name]["model_share"])
    eth = next(colony_sim.fit(s) for s in sources if s.name == "irq:eth0")
    assert [s.core for s in eth.sources] == [1] and eth.sources[0].kind == "irq"
    again = colony_sim.simulate(nodes=8, ranks_per_node=2, iterations=20, noise=eth.sources)
    assert (again.slowdown >= 1).all()


def test_what_is_not_given_is_as_in_a_scenario_that_does_not_have_it(tmp_path: Path) -> None:
    ours = colony_sim.simulate(iterations=1).parameters
    # without `iterations` it is the scenario's
    iterations = colony_sim.simulate(nodes=1).parameters["scenario"]["program"]["iterations"]
    empty = tmp_path / "empty.toml"
    empty.write_text("[program]\nname = 'allreduce'\n")
    for theirs in (
        colony_sim.run_scenario("[program]\nname = 'allreduce'").to_dict()["scenario"],
        colony("sim", str(empty))["scenario"],
    ):
        assert theirs["program"]["iterations"] == iterations
        for key in ("nodes", "seed", "repetitions", "schedulers"):
            assert ours["scenario"][key] == theirs[key], key
        assert ours["machine"] == {"named": theirs["machine"]}
        assert ours["scenario"]["program"]["name"] == theirs["program"]["name"]
        assert theirs.get("noise", []) == ours["scenario"]["noise"] == []


def test_defaults_of_what_if_are_those_of_the_command(tmp_path: Path) -> None:
    file, _ = node(tmp_path)
    defaults = {k: p.default for k, p in inspect.signature(colony_sim.what_if).parameters.items()}
    theirs = colony("sim", "--what-if", file, "--nodes", "2")["scenario"]
    assert (defaults["repetitions"], defaults["seed"], defaults["machine"]) == (
        theirs["repetitions"],
        theirs["seed"],
        theirs["machine"],
    )
