# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs on several processes, which `python3 -m colony_runtime` starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

LAUNCH = [sys.executable, "-m", "colony_runtime"]
STENCIL = str(Path(__file__).parents[1] / "examples" / "stencil.py")
#: A folder without the package: it is the one that is installed.
HERE = Path(__file__).parent
#: Ends a test that would wait forever, and nothing else.
FOREVER = 120

PROGRAM = '''
import os, signal, sys, time
import numpy as np
from colony_runtime import Array, Future, Group, Object, One, exit, my_pe, pes, run

class Each(Object):
    def tell(self, done):
        self.contribute((self.this_index, my_pe(), os.getpid()), "gather", done)

    def work(self, how):
        if how == "raise":
            raise ValueError("of rank 1")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "die once":
            if os.path.exists(sys.argv[2]):
                os.remove(sys.argv[2])
                os.kill(os.getpid(), signal.SIGKILL)
            print("ends", flush=True)
            return exit()
        if how == "leave":
            os._exit(9)
        if how == "sys.exit":
            sys.exit("no more work")
        exit(int(how))

    def stay(self):
        self.this_proxy[self.this_index].stay.after(3600)

class Walker(Object):
    def __init__(self):
        self.path, self.values = [], np.zeros(1000)

    def walk(self, left, done):
        self.path.append(my_pe())
        self.values += 1
        if left == 0:
            done.send((self.path, float(self.values.sum())))
        else:
            self.migrate((my_pe() + 1) % pes())
            self.this_proxy[self.this_index].walk(left - 1, done)

async def main():
    how = sys.argv[1]
    each = Group(Each)
    if how == "words":
        print(sys.argv[2:])
    elif how == "walk":
        done = Future()
        One(Walker).walk(2 * pes(), done)
        print(await done)
    elif how in ("pids", "stay"):
        done = Future()
        each.tell(done)
        print(*(pid for _, _, pid in await done), flush=True)
        if how == "stay":
            each.stay()
            await Future()
    else:
        each[pes() - 1].work(how)
        await Future()
    exit()

if sys.argv[1] == "block":
    print(os.getpid(), flush=True)
    signal.pause()
elif sys.argv[1] == "no rank" or (sys.argv[1] == "one rank" and os.environ["COLONY_JOB_RANK"] == "1"):
    sys.exit()
run(main)
'''


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def launch(*words: str, closed: str = "") -> subprocess.CompletedProcess[str]:
    command = [*LAUNCH, *words]
    if closed:
        command = ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *command]
    return subprocess.run(
        command, cwd=HERE, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=FOREVER
    )


Start: TypeAlias = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts launchers that do not outlive the test."""
    with ExitStack() as stack:

        def begin(*words: str) -> subprocess.Popen[str]:
            launcher = subprocess.Popen(
                [*LAUNCH, *words],
                cwd=HERE,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
                # a shell that runs the tests in the background has SIGINT ignored
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
            stack.enter_context(launcher)
            stack.callback(launcher.kill)
            return launcher

        yield begin


def line(launcher: subprocess.Popen[str]) -> str:
    assert launcher.stdout
    return launcher.stdout.readline()


def wait_for_all(launcher: subprocess.Popen[str]) -> tuple[int, str]:
    """Waits until nobody can write to the launcher's pipes, which its ranks inherit: all of them have ended."""
    _, errors = launcher.communicate(timeout=FOREVER)
    return launcher.returncode, errors


def test_a_process_that_dies_is_replaced_if_asked_for(program: str, tmp_path: Path) -> None:
    for restarts in ("0", "1"):
        marker = tmp_path / "marker"
        marker.touch()
        done = launch("-n", "3", "--restarts", restarts, program, "die once", str(marker))
        if restarts == "0":
            assert (done.returncode, done.stdout) == (137, ""), done.stderr
        else:
            assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr
            lines = "warning: rank 2 was killed by signal 9; restart 1 of 1\nthe program begins anew\n"
            assert done.stderr == lines


def test_a_program_has_the_same_result_on_any_number_of_processes() -> None:
    alone = subprocess.run([sys.executable, STENCIL], cwd=HERE, capture_output=True, text=True, check=True).stdout
    assert alone.startswith("sum ")
    for ranks in ("1", "2", "3"):
        done = launch("-n", ranks, STENCIL)
        assert (done.returncode, done.stdout, done.stderr) == (0, alone, ""), ranks


@pytest.mark.parametrize(("words", "processes"), [((), 2), (("-n", "1"), 1), (("--ranks", "5"), 5)])
def test_each_pe_is_a_process(words: tuple[str, ...], processes: int, program: str) -> None:
    done = launch(*words, program, "pids")
    assert done.returncode == 0, done.stderr
    assert len(set(done.stdout.split())) == processes


def test_objects_migrate_between_processes(program: str) -> None:
    done = launch("-n", "3", program, "walk")
    assert done.stdout == "([0, 1, 2, 0, 1, 2, 0], 7000.0)\n", done.stderr


def test_the_program_gets_its_arguments_as_they_are(program: str) -> None:
    words = ["-n", "5", "--help", "--", "", "a b", "é", "\udcff"]
    done = launch("-n", "2", program, "words", *words)
    assert done.stdout == f"{words}\n", done.stderr


WRONG_USE = [
    (["-n", "2"], "the following arguments are required: PROGRAM"),
    ([], "the following arguments are required: PROGRAM"),
    (["-n", "two", STENCIL], "'two' is not a number of processes"),
    (["-n", "1.5", STENCIL], "'1.5' is not a number of processes"),
    (["-n"], "expected one argument"),
    (["-n", "0", STENCIL], "a job has at least 1 process and at most 4096, not 0"),
    (["-n", "-1", STENCIL], "a job has at least 1 process and at most 4096, not -1"),
    (["-n", "4097", STENCIL], "a job has at least 1 process and at most 4096, not 4097"),
    (["-n", "9" * 30, STENCIL], "a job has at least 1 process and at most 4096, not 9999"),
    (["-n", "2", "nothing.py"], "the program 'nothing.py' does not exist in /"),
    (["--rank", "2", STENCIL], "--rank"),
]


@pytest.mark.parametrize(("words", "text"), WRONG_USE)
def test_wrong_use_is_one_line_with_the_remedy(words: list[str], text: str) -> None:
    done = launch(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith("error: ") and text in done.stderr
    assert done.stderr.endswith("; python3 -m colony_runtime --help shows the usage\n")


def test_help_is_on_standard_output() -> None:
    done = launch("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: python3 -m colony_runtime [-n N] [--restarts N] PROGRAM [ARGS…]\n")


@pytest.mark.parametrize("code", [0, 7, 255])
def test_the_exit_code_of_the_job_is_passed_on(code: int, program: str) -> None:
    done = launch("-n", "3", program, str(code))
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_an_exception_on_one_process_is_told_once(program: str) -> None:
    done = launch("-n", "3", program, "raise")
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1, done.stderr
    assert done.stderr.count("ValueError: of rank 1") == 1, done.stderr
    assert "in Each[2].work on PE 2" in done.stderr


def test_a_program_with_an_error_of_syntax_ends_the_job(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("def")
    done = launch("-n", "2", str(path))
    assert done.returncode == 1 and "SyntaxError" in done.stderr


def test_a_process_that_leaves_gives_the_job_its_code_and_is_named(program: str) -> None:
    done = launch("-n", "3", program, "leave")
    line = "error: rank 2 ended with exit code 9 before the program; the job ends\n"
    assert (done.returncode, done.stderr) == (9, line)


def test_sys_exit_in_an_entry_method_is_told_once(program: str) -> None:
    done = launch("-n", "3", program, "sys.exit")
    line = "error: Each[2].work on PE 2 called sys.exit(no more work)\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", line)


def test_a_program_may_join_no_job(program: str) -> None:
    done = launch("-n", "3", program, "no rank")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_process_that_does_not_join_the_job_is_named(program: str) -> None:
    done = launch("-n", "2", program, "one rank")
    assert done.returncode == 2
    assert done.stderr == "error: rank 1 has ended without joining the job: is it a program of colony-runtime?\n"


def test_a_process_that_a_signal_kills_ends_the_job_and_is_named(program: str) -> None:
    done = launch("-n", "3", program, "kill")
    assert (done.returncode, done.stdout) == (137, "")
    assert done.stderr == "error: rank 2 was killed by signal 9; the job ends\n"


def test_a_process_that_is_killed_from_outside_ends_the_job_and_is_named(program: str, start: Start) -> None:
    launcher = start("-n", "3", program, "stay")
    pids = [int(pid) for pid in line(launcher).split()]
    os.kill(pids[1], signal.SIGKILL)
    assert wait_for_all(launcher) == (137, "error: rank 1 was killed by signal 9; the job ends\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_a_killed_launcher(number: signal.Signals, program: str, start: Start) -> None:
    launcher = start("-n", "3", program, "stay")
    assert len(line(launcher).split()) == 3
    launcher.send_signal(number)
    assert wait_for_all(launcher)[0] == -number


def test_no_process_outlives_a_launcher_that_is_killed_before_they_join(program: str, start: Start) -> None:
    launcher = start("-n", "3", program, "block")
    assert len({line(launcher) for _ in range(3)}) == 3
    launcher.kill()
    assert wait_for_all(launcher)[0] == -signal.SIGKILL


@pytest.mark.parametrize("closed", ["<&-", "<&- >&-", "<&- >&- 2>&-", "2>&-"])
def test_standard_streams_may_be_closed(closed: str, program: str) -> None:
    done = launch("-n", "3", program, "7", closed=closed)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


def test_no_terminal_is_needed(program: str, start: Start) -> None:
    launcher = start("-n", "2", program, "7")  # in a session of its own
    assert wait_for_all(launcher) == (7, "")
