// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that one command leaves for another: the last trace of this user, `$XDG_STATE_HOME/colony/last-trace.parquet` (default
//! `~/.local/state`).

use std::path::PathBuf;

use colony_trace::Trace;

/// Most detours of a trace that is kept: some 40 MB.
const MOST: usize = 2_000_000;

/// The file of the last trace; `None` if the environment names no home.
pub(crate) fn last_trace() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(state.join("colony/last-trace.parquet"))
}

/// Keeps the trace. A failure is only logged: the measurement is what the user asked for.
pub(crate) fn keep_trace(trace: Trace) {
    let Some(path) = last_trace() else { return };
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let kept = made.map_err(anyhow::Error::from).and_then(|()| Ok(bounded(trace, MOST).write(&path)?));
    if let Err(e) = kept {
        tracing::info!("the trace is not kept for colony doctor: {e:#}");
    }
}

/// The beginning of a trace with at most `most` detours.
fn bounded(mut trace: Trace, most: usize) -> Trace {
    let Some(first_left_out) = trace.detours.get(most) else { return trace };
    let end_ns = first_left_out.start_ns;
    let seconds = end_ns.saturating_sub(trace.meta.start_ns) as f64 / 1e9;
    trace.meta.observed_s = seconds.clamp(0.0, trace.meta.observed_s);
    trace.detours.truncate(most);
    // a detour that reaches over the new end counts inside it only
    for detour in trace.detours.iter_mut().rev() {
        let left = u64::try_from(end_ns.saturating_sub(detour.start_ns)).unwrap_or(0);
        detour.duration_ns = detour.duration_ns.min(left);
    }
    trace.detours.retain(|d| d.duration_ns > 0);
    trace
}

#[cfg(test)]
mod tests {
    use super::*;
    use colony_trace::{Detour, Source, TraceMeta};

    #[test]
    fn the_trace_kept_is_the_beginning_of_a_long_one() {
        let meta = TraceMeta {
            cpus: "0".parse().expect("a list"),
            observed_s: 1.0,
            start_ns: 1_000,
            ..TraceMeta::default()
        };
        let detour = |start_ns| Detour { node: 0, cpu: 0, start_ns, duration_ns: 150, source: 0 };
        let trace = Trace {
            meta,
            sources: vec![Source::Unexplained],
            detours: (0..10).map(|i| detour(1_000 + i * 100)).collect(),
        };
        assert_eq!(bounded(trace.clone(), 10), trace);
        let kept = bounded(trace, 4);
        assert_eq!(kept.detours.len(), 4);
        assert!((kept.meta.observed_s - 400e-9).abs() < 1e-12, "{:?}", kept.meta);
        assert!(kept.detours.iter().all(|d| d.end_ns() <= 1_400));
    }
}
