//! Traces of nodes, as the simulator takes them.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use colony_noise::{Source, Trace};
use colony_sim::spec::{Measured, Traces};
use colony_study::noise::node_noise;

/// Reads all of `files`.
pub(super) fn read_all(files: &[String]) -> anyhow::Result<Traces> {
    files.iter().map(|file| Ok((file.clone(), Arc::new(read(Path::new(file))?)))).collect()
}

/// Reads a trace and takes it apart by source. Throttling and the time of the
/// measuring program are left out: they are the measurement's own doing.
pub(super) fn read(path: &Path) -> anyhow::Result<Measured> {
    let trace = crate::cmd::read_trace(path)?;
    by_source(&trace).with_context(|| format!("the trace {}", path.display()))
}

fn by_source(trace: &Trace) -> anyhow::Result<Measured> {
    let mut named: Vec<(String, &Source)> = trace.sources.iter().map(|s| (s.to_string(), s)).collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    named.dedup_by(|a, b| a.0 == b.0);
    let mut sources = Vec::new();
    for (name, source) in named.into_iter().filter(|(_, s)| s.is_of_node()) {
        let noise = node_noise(trace, |s| s == source)?;
        if noise.cpus().iter().any(|cpu| !cpu.detours().is_empty()) {
            sources.push((name, noise));
        }
    }
    Ok(Measured { sources })
}
