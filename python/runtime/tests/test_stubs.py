# SPDX-License-Identifier: MIT OR Apache-2.0
"""The stubs of the engine have what the engine has, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


#: Proxies find entry methods by `__getattribute__`, which would turn off the check of other attributes in stubs.
ALLOWED = r"colony_runtime\._core\.(Array|Element|Section)\.__getattr__"


def test_the_stubs_are_those_of_the_engine(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.write_text(ALLOWED)
    words = ["-m", "mypy.stubtest", "--mypy-config-file", "../pyproject.toml", "--allowlist", str(allowed)]
    words.append("colony_runtime._core")
    # from a folder without the package: it is the one that is installed
    done = subprocess.run(
        [sys.executable, *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
