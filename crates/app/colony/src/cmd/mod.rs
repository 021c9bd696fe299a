// SPDX-License-Identifier: MIT OR Apache-2.0
//! One module a command: call the library, print what it says.

pub(crate) mod bench;
pub(crate) mod clock;
pub(crate) mod cnk;
mod control;
pub(crate) mod doctor;
pub(crate) mod inject;
mod input;
pub(crate) mod job;
pub(crate) mod launch;
pub(crate) mod lb;
pub(crate) mod machine;
pub(crate) mod measure;
pub(crate) mod noise;
pub(crate) mod partition;
mod parts;
pub(crate) mod ras;
pub(crate) mod run;
pub(crate) mod runtime;
mod server;
pub(crate) mod shell;
pub(crate) mod sim;
pub(crate) mod study;
pub(crate) mod timeline;
pub(crate) mod top;
pub(crate) mod tune;
pub(crate) mod vm;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;

/// Reads a trace in any format for an analysis, as [`read_trace_as`]. Leaves out what lies outside of the observation, and prints how many
/// detours that concerns.
fn read_trace(path: &Path) -> Result<colony_trace::Trace, colony_trace::TraceError> {
    let mut trace = read_trace_as(path, None)?;
    let all = trace.detours.len();
    match trace.cut_to_observation() {
        0 => {}
        cut => note!(
            "{}: {cut} of {all} detours reach over an edge of the observation or lie outside; only the time inside counts",
            path.display()
        ),
    }
    Ok(trace)
}

/// Reads a trace; with `None` its content determines the format. Prints what was derived because the file does not state it.
fn read_trace_as(
    path: &Path,
    format: Option<colony_trace::convert::Format>,
) -> Result<colony_trace::Trace, colony_trace::TraceError> {
    let trace = colony_trace::convert::read(path, format)?;
    for note in &trace.meta.notes {
        note!("{}: {note}", path.display());
    }
    Ok(trace)
}

/// Prints a result for programs or for people.
fn print<T: serde::Serialize>(json: bool, value: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, value)?;
        writeln!(out)?;
    } else {
        out.write_all(text(value).as_bytes())?;
    }
    out.flush()?;
    Ok(())
}

/// Prints text as it is.
fn print_text(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Checks that a result can be written to `path`, before the work that makes it.
fn can_write(path: &Path) -> anyhow::Result<()> {
    colony_node::file::check_writable(path).with_context(|| format!("writing {}", path.display()))
}

/// Checks that a page can be written to `path`, and that its name does not promise another format than HTML.
fn can_write_page(path: &Path) -> anyhow::Result<()> {
    let is_html = path
        .extension()
        .is_none_or(|end| end.eq_ignore_ascii_case("html") || end.eq_ignore_ascii_case("htm"));
    if !is_html {
        return Err(crate::exit::wrong(format!(
            "{} would be a page in HTML, whatever its name says; let the name end in .html (a browser prints it to PDF)",
            path.display()
        )));
    }
    can_write(path)
}

/// Keeps a result as JSON.
fn keep<T: serde::Serialize>(path: &Path, value: &T) -> anyhow::Result<()> {
    colony_node::file::write_atomically::<std::io::Error>(path, |w| {
        serde_json::to_writer_pretty(&mut *w, value)?;
        w.write_all(b"\n")
    })
    .with_context(|| format!("writing {}", path.display()))
}

/// A flag that Ctrl-C and a polite kill raise; the second ends this process at once.
fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&flag))?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}
