// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of the host that we call.

use std::process::{Command, Stdio};

use crate::VmError;

/// Runs `command` to its end and returns what it printed.
pub(crate) fn output(
    mut command: Command,
    tool: &'static str,
    package: &'static str,
    what: &str,
) -> Result<Vec<u8>, VmError> {
    let out = command.stdin(Stdio::null()).output().map_err(|e| VmError::Tool {
        tool,
        package,
        reason: e.to_string(),
    })?;
    if out.status.success() {
        return Ok(out.stdout);
    }
    let said = String::from_utf8_lossy(&out.stderr);
    let reason = said.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("it gave no reason");
    Err(VmError::ToolFailed { tool, what: what.into(), reason: format!("{reason} ({})", out.status) })
}
