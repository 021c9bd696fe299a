// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces of nodes, as the simulator takes them.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use colony_sim::spec::{Measured, Traces};
use colony_sim::words::number_of;
use colony_trace::Trace;

/// Reads all of `files`.
pub(super) fn read_all(files: &[String]) -> anyhow::Result<Traces> {
    files.iter().map(|file| Ok((file.clone(), Arc::new(read(Path::new(file))?)))).collect()
}

/// Says how many CPUs of a trace each node replays, if nodes run fewer `ranks` than the trace has CPUs.
pub(super) fn note_drawn_cpus(traces: &Traces, ranks: Option<u32>) {
    for (file, measured) in traces {
        let cpus = measured.sources.iter().map(|s| s.noise.cpus().len()).max().unwrap_or(0);
        let Some(ranks) = ranks.filter(|&ranks| (ranks as usize) < cpus) else { continue };
        note!(
            "note: {file} has the noise of {cpus} CPUs, and a node runs {}: each node has the noise of {}, drawn at random \
             (--ranks-per-node {cpus} simulates whole nodes)",
            number_of(ranks.into(), "rank"),
            if ranks == 1 { "one of the CPUs".to_owned() } else { format!("{ranks} neighbouring CPUs") }
        );
    }
}

/// Reads a trace as noise by source.
pub(super) fn read(path: &Path) -> anyhow::Result<Measured> {
    measured(path, &read_trace(path)?)
}

/// The noise of the trace in `path` by source.
pub(super) fn measured(path: &Path, trace: &Trace) -> anyhow::Result<Measured> {
    colony_project::measured(trace).with_context(|| format!("the trace {}", path.display()))
}

/// Reads a trace of one node.
pub(super) fn read_trace(path: &Path) -> anyhow::Result<Trace> {
    let trace = crate::cmd::read_trace(path)?;
    if let nodes @ [_, _, ..] = &trace.nodes()[..] {
        return Err(crate::exit::wrong(format!(
            "the trace {} holds {} nodes ({}), and a simulated node replays one: write each to a file of its own \
             (colony noise convert {} OUTPUT --node {}), and simulate with a --trace for each",
            path.display(),
            nodes.len(),
            crate::words::some_of(nodes),
            path.display(),
            nodes[0]
        )));
    }
    Ok(trace)
}
