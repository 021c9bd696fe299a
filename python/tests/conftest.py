# SPDX-License-Identifier: MIT OR Apache-2.0
"""Skipped tests are recorded, and fail in continuous integration, as those of the Rust crates do."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

LISTED = Path(__file__).parents[2] / "crates/testbed/testing/skips.txt"


def may_be_skipped(name: str) -> bool:
    """True if a test may be skipped in continuous integration."""
    if os.environ.get("CI", "") in ("", "false"):
        return True
    lines = LISTED.read_text().splitlines()
    return name in {line.split(" ")[0] for line in lines if not line.startswith("#")}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Records a skip, and makes a failure of it where it may not be."""
    report = yield
    if not report.skipped or hasattr(report, "wasxfail"):
        return report
    name = f"python::{item.nodeid.replace('tests/', '', 1)}"
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = " ".join(reason.removeprefix("Skipped: ").split())
    if records := os.environ.get("COLONY_SKIPS"):
        with open(records, "a") as file:
            file.write(f"{name} {reason}\n")
    if not may_be_skipped(name):
        report.outcome = "failed"
        report.longrepr = f"{name} is skipped, and CI is set: {reason}. Provide what is missing, or list it in {LISTED}"
    return report
