// SPDX-License-Identifier: MIT OR Apache-2.0
//! The upper bound of the error of this node's own clock, and the source of that bound.

use std::io;

use colony_clock::source::{Reading, Source};
use colony_time::ClockQuality;

use super::held::AHEAD_NS;
use super::rules::ClockRules;

/// The upper bound of the error of this node's own clock in nanoseconds, and its source; or why there is none.
pub(super) fn own_bound(
    rules: &ClockRules,
    answer: &Result<Reading, Vec<String>>,
    kernel: Result<&ClockQuality, &io::Error>,
    monotonic_ns: i64,
) -> Result<(u64, &'static str), String> {
    // until the next look; the kernel's figure is coarser, and missing without chronyd's rtcsync
    let reading = answer.as_ref().ok().zip(monotonic_ns.checked_add(AHEAD_NS));
    if let Some((reading, bound_ns)) = reading.and_then(|(r, at)| Some((r, r.bound_at(at)?))) {
        let configured = rules.error_bound_ns.map(|b| (b, "configuration"));
        return Ok(configured.unwrap_or((bound_ns, reading.source)));
    }
    // a sandbox may forbid to ask
    let kernel =
        kernel.map_err(|e| format!("the kernel does not tell how good its clock is (adjtimex: {e})"))?;
    if !kernel.synchronised {
        return Err(match &kernel.source {
            Some(source) => {
                // chronyd without rtcsync is synchronised, and only says so itself
                let asked = if source == "phc2sys" { "ptp4l" } else { source };
                let why = answer.as_ref().err().and_then(|all| all.iter().find(|w| w.starts_with(asked)));
                let why = why.map(|w| format!("; {w}")).unwrap_or_default();
                format!("{source} runs, but has not synchronised the kernel's clock{why}")
            }
            None => "nobody disciplines this node's clock (chronyd, or colony clock sync --feed)".into(),
        });
    }
    let configured = rules.error_bound_ns.map(|b| (b, "configuration"));
    configured.or(kernel.error_bound_ns.map(|b| (b, "kernel"))).ok_or_else(|| {
        format!(
            "{} tells the kernel no error bound; write what it keeps as error_bound in [clock]",
            kernel.source.as_deref().unwrap_or("whoever disciplines the clock")
        )
    })
}

/// Asks all of `sources`. Returns the first answer with a bound, else the first answer, else why there is none.
pub(crate) fn ask(sources: &mut [Box<dyn Source>]) -> Result<Reading, Vec<String>> {
    let (mut readings, mut errors) = (Vec::new(), Vec::new());
    for source in sources {
        match source.read() {
            Ok(reading) if reading.bound_ns.is_some() => return Ok(reading),
            Ok(reading) => readings.push(reading),
            Err(e) => errors.push(e.to_string()),
        }
    }
    readings.into_iter().next().ok_or(errors)
}
