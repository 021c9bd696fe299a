# SPDX-License-Identifier: MIT OR Apache-2.0
"""The documentation runs: every Python block is a program, and every command prints what stands below it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = ["docs/runtime-python.md", "python/runtime/README.md"]
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: Ends a test that would wait forever, and nothing else.
FOREVER = 120


def environment() -> dict[str, str]:
    """Finds the interpreter of the tests as `python3`."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def run(command: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=FOREVER,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


def session(block: str) -> list[tuple[str, str]]:
    """The commands of a block, each with the output below it."""
    commands: list[tuple[str, str]] = []
    for line in block.splitlines(keepends=True):
        if line.startswith("$ "):
            commands.append((line[2:].strip(), ""))
        elif commands:
            command, output = commands[-1]
            commands[-1] = command, output + line
    return commands


def fits(output: str, shown: str) -> bool:
    """True if an output is the one that is shown, where a line `…` stands for any lines."""
    pattern = "".join(r"(?:.*\n)*" if line == "…\n" else re.escape(line) for line in shown.splitlines(keepends=True))
    return re.fullmatch(pattern, output) is not None


@pytest.mark.parametrize("page", PAGES)
def test_every_block_and_every_command_runs(page: str, tmp_path: Path) -> None:
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert [kind for kind, _ in blocks].count("python") > 0, f"{page} shows no Python"
    for number, (kind, block) in enumerate(blocks, 1):
        if kind == "python":
            # a first line `# NAME.py` names the file for the commands below
            name = re.match(r"# ([a-z_]+\.py)\n", block)
            file = tmp_path / (name[1] if name else f"block{number}.py")
            file.write_text(block)
            run(f"python3 {file.name}", tmp_path)
            continue
        for command, shown in session(block):
            output = run(command, tmp_path)
            assert fits(output, shown), f"{page}: $ {command}\n{output}is not what the page shows:\n{shown}"


def test_a_page_is_wrong_if_the_output_differs() -> None:
    assert fits("a\nb\nc\n", "a\n…\nc\n") and fits("a\nc\n", "a\n…\nc\n") and fits("", "")
    assert not fits("a\nb\n", "a\n") and not fits("", "a\n") and not fits("axc\n", "a.c\n")
    assert session("pip\n$ one\nout\n$ two\n") == [("one", "out\n"), ("two", "")]


def test_the_page_names_everything_that_the_package_has() -> None:
    import colony_runtime

    page = (ROOT / PAGES[0]).read_text()
    exempt = {"Element", "Method", "ProgramError", "RankLost", "__version__"}
    missing = [name for name in colony_runtime.__all__ if name not in exempt and not re.search(rf"\b{name}\b", page)]
    assert not missing
