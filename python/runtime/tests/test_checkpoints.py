# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs whose main awaits go on from a checkpoint, in memory and on disk."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from programs import results

from colony_runtime import Array, Future, Object, One, exit, is_repeating

EXAMPLES = Path(__file__).parents[1] / "examples"
STEPS = 60

#: The example, in which a rank is killed when a block has made so many steps, if there is a file for that.
STENCIL = f"""
import hashlib, os, signal, sys
sys.path.insert(0, {str(EXAMPLES)!r})
import stencil
from colony_runtime import my_pe

resume = stencil.Block.resume

def resume_or_die(self):
    mark = os.path.join(os.environ["MARKS"], f"{{my_pe()}}-{{self.step}}")
    if os.path.exists(mark):
        os.unlink(mark)
        os.kill(os.getpid(), signal.SIGKILL)
    resume(self)

stencil.Block.resume = resume_or_die
grid = stencil.solve((4, 4), 8, {STEPS})
if grid.any():
    print(hashlib.sha256(grid.tobytes()).hexdigest())
"""


def expected() -> str:
    """What the stencil prints if no rank dies."""
    grid = np.random.default_rng(1).random((32, 32))
    for _ in range(STEPS):
        old = np.pad(grid, 1)
        grid = 0.25 * (old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:])
    return hashlib.sha256(grid.tobytes()).hexdigest() + "\n"


def start(
    program: Path, ranks: int, restarts: int = 0, code: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "colony_runtime", "-n", str(ranks), "--restarts", str(restarts), str(program)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "MARKS": str(program.parent), **variables}
    done = subprocess.run(
        command, cwd=program.parent, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == code, done.stderr
    return done


# the checkpoint is made at step 20, so all ranks have exchanged messages since when one dies at step 30
@pytest.mark.parametrize("scheme", ["memory:same-machine:every=2", "memory:same-machine:every=2:log"])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_any_rank_of_the_example_may_die_and_the_result_is_the_same(rank: int, scheme: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(STENCIL)
    (tmp_path / f"{rank}-30").touch()
    done = start(program, 3, restarts=1, COLONY_CHECKPOINT=scheme)
    assert done.stdout == expected(), done.stderr
    assert f"warning: rank {rank} was killed by signal 9; restart 1 of 1\n" in done.stderr
    back = f"rank {rank} runs again from checkpoint 0" if scheme.endswith("log") else "all ranks go back to checkpoint 0"
    assert done.stderr.count(back) == 1 and done.stderr.count("warning:") == 1, done.stderr


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_example_goes_on_from_disk_in_another_job(ranks: int, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(STENCIL)
    disk = tmp_path / "checkpoints"
    done = start(program, 2, COLONY_CHECKPOINT=f"disk={disk}")
    assert (done.stdout, done.stderr) == (expected(), "")
    # a job that finds no checkpoint, or cannot use it, says so
    done = start(program, ranks, COLONY_RESTART=str(disk))
    assert (done.stdout, done.stderr) == (expected(), "")


def test_a_job_of_which_a_rank_was_killed_goes_on_from_disk(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(STENCIL)
    (tmp_path / "0-40").touch()
    disk = tmp_path / "checkpoints"
    assert start(program, 2, code=137, COLONY_CHECKPOINT=f"disk={disk}").stdout == ""
    assert start(program, 2, COLONY_RESTART=str(disk)).stdout == expected()


def test_a_program_with_other_entry_methods_does_not_go_on_from_disk(tmp_path: Path) -> None:
    program, disk = tmp_path / "program.py", tmp_path / "checkpoints"
    program.write_text(PHASES.replace("CHANGE", ""))
    start(program, 1, COLONY_CHECKPOINT=f"disk={disk}")
    program.write_text(PHASES.replace("CHANGE", "").replace("cells.add(", "cells.enter(").replace("def add(", "def enter("))
    done = start(program, 1, code=1, COLONY_RESTART=str(disk))
    assert "the class Object of the checkpoint differs from that of this program: `entry method 0 of __main__:Cell`" in (
        done.stderr
    )
    assert "was add, and is enter" in done.stderr


#: A main of several phases; what it prints tells how often each phase ran.
PHASES = """
import os, signal
import numpy as np
from colony_runtime import Array, Future, Object, One, exit, is_repeating, run, until, when_quiet

class Cell(Object):
    def __init__(self): self.sums = []
    def add(self, value, done):
        self.sums.append(value)
        self.done = done
        self.at_sync()
    def resume(self):
        mark = os.path.join(os.environ["MARKS"], f"{len(self.sums)}")
        if self.this_index == 0 and os.path.exists(mark):
            os.unlink(mark)
            os.kill(os.getpid(), signal.SIGKILL)
        self.contribute(np.array([sum(self.sums)]), "sum", self.done)

class Book(Object):
    def __init__(self): self.calls = 0
    def note(self):
        self.calls += 1
        return self.calls

async def main():
    cells, book = Array(Cell, 4), One(Book)
    for phase in range(1, 6):
        done, quiet = Future(), Future()
        when_quiet(quiet)
        await quiet
        cells.add(phase, done)
        total = await done
        calls = await book.note(ret=True)
        if not is_repeating():
            print(phase, int(total[0]), calls)
        CHANGE
    exit()

run(main)
"""
LINES = [f"{phase} {2 * phase * (phase + 1)} {phase}" for phase in range(1, 6)]


def test_main_runs_again_without_its_messages_and_goes_on_where_it_waited(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PHASES.replace("CHANGE", ""))
    for restarts, marks in [(0, []), (2, ["2", "4"])]:
        for mark in marks:
            (tmp_path / mark).touch()
        done = start(program, 2, restarts=restarts or 1, COLONY_CHECKPOINT="memory:same-machine")
        # element 0 and main are on rank 0; a phase is over when it prints, and no line is printed twice
        assert done.stdout.splitlines() == LINES, done.stderr
        assert done.stderr.count("all ranks go back to checkpoint") == len(marks), done.stderr


def test_a_main_that_does_something_else_when_it_runs_again_is_told(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PHASES.replace("CHANGE", "if is_repeating(): Array(Cell, 1)"))
    (tmp_path / "3").touch()
    done = start(program, 2, restarts=1, code=1, COLONY_CHECKPOINT="memory:same-machine")
    assert "RuntimeError: main runs again up to the await at which the checkpoint was made, and creates another array" in (
        done.stderr
    )
    assert "in main, which runs again after a recovery" in done.stderr


def test_values_that_cannot_be_kept_leave_checkpoints_out_with_a_warning(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        PHASES.replace("CHANGE", "odd = Future(); odd.send(lambda: phase); await odd")
    )
    done = start(program, 1, COLONY_CHECKPOINT=f"disk={tmp_path / 'checkpoints'}")
    assert done.stdout.splitlines() == LINES
    assert "warning: no checkpoints are made while main waits: a value that it has awaited cannot be pickled" in done.stderr
    assert "warning: a checkpoint is left out: 1 futures wait" in done.stderr


class Cell(Object):
    def work(self, done: Future) -> None:
        self.done = done
        self.at_sync()

    def resume(self) -> None:
        self.contribute(1, "sum", self.done)


class Single(Object):
    def wait(self) -> int:
        return 7


@pytest.mark.parametrize("ranks", [None, 2])
def test_load_balancing_does_not_wait_for_the_object_of_one(ranks: int | None) -> None:
    found: list[int] = []

    async def main() -> None:
        single, done = One(Single), Future()
        Array(Cell, 4).work(done)
        found.extend([await done, await single.wait(ret=True)])
        assert not is_repeating()
        exit()

    assert results(main, ranks=ranks) == []
    assert found == [4, 7]
