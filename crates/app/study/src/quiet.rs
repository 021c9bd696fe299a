// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits until other programs leave the CPUs of the job.

use std::time::{Duration, Instant};

use crate::neighbours::Neighbours;
use crate::{Node, Params, Progress, format};

/// Measures the load of the job's CPUs before the study uses them. While other programs use them, measures again for up to
/// `params.wait_quiet_s`. `None` if the node does not report its load.
pub(crate) fn wait_until_quiet(
    params: &Params,
    node: &dyn Node,
    progress: &dyn Progress,
) -> Option<Neighbours> {
    let interval = Duration::from_secs_f64((params.measure_s / 5.0).clamp(0.3, 3.0));
    let load = || {
        let begin = node.usage()?;
        std::thread::sleep(interval);
        Some(node.usage()?.since(&begin))
    };
    let first = progress.during("looking for other programs", interval.as_secs_f64(), load)?;
    if first.is_quiet() || params.wait_quiet_s <= 0.0 {
        return Some(Neighbours { before: first, ..Neighbours::default() });
    }
    let began = Instant::now();
    let what = format!("waiting for a quiet node, others take {}", format::percent(first.others));
    let before = progress.during(&what, params.wait_quiet_s, || {
        let mut last = first;
        while !last.is_quiet() && began.elapsed().as_secs_f64() < params.wait_quiet_s {
            last = load()?;
        }
        Some(last)
    })?;
    Some(Neighbours { before, during: None, waited_s: began.elapsed().as_secs_f64() })
}
