// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job's memory by page size.

use std::fmt::Write;

use colony_pages::{Counted, How, Moved, PagesReport, Sample, SegmentBytes};

use crate::table::{self, wrap};
use crate::units::{bytes, count, percent, time};

/// The part of a run's report on its pages, of at most 80 columns.
#[must_use]
pub fn render(p: &PagesReport) -> String {
    let mut out = String::new();
    let w = &mut out;
    // writing to a String cannot fail
    match &p.sample {
        Some(sample) => {
            let _ = writeln!(w, "{}", segments(p, sample));
            let _ = writeln!(w, "{}", wrap(&taken(sample)));
        }
        None => {
            let _ = writeln!(w, "pages: the program ended before its memory was looked at");
        }
    }
    let faults = format!("page faults: {} minor, {} major", count(p.faults.minor), count(p.faults.major));
    let misses = match &p.dtlb_misses {
        Counted::Count(n) => {
            format!(
                "dTLB load misses: {} ({})",
                count(*n),
                p.dtlb_event.as_deref().unwrap_or("event not named")
            )
        }
        Counted::NotCounted(reason) => format!("dTLB load misses: not counted here: {reason}"),
    };
    let _ = writeln!(w, "{}", wrap(&format!("{faults} · {misses}")));
    for moved in &p.moved {
        let _ = writeln!(w, "{}", wrap(&way(moved)));
    }
    if let Some(path) = &p.perf_map {
        let note =
            format!("note: perf report finds moved functions in {}: remove it afterwards", path.display());
        let _ = writeln!(w, "{}", wrap(&note));
    }
    for warning in &p.warnings {
        let _ = writeln!(w, "{}", wrap(&format!("note: pages: {warning}")));
    }
    out
}

fn segments(p: &PagesReport, sample: &Sample) -> comfy_table::Table {
    let title = format!("pages: {}", p.policy.name());
    let huge = bytes(p.node.huge_bytes);
    let mut t = table::new([&title, "in memory", "base", "64 KiB", &huge, "on large pages"]);
    for s in sample.segments.iter().filter(|s| s.resident > 0) {
        t.add_row(row(s));
    }
    t
}

fn row(s: &SegmentBytes) -> [String; 6] {
    let large = s.resident.saturating_sub(s.base());
    [
        s.segment.name().into(),
        bytes(s.resident),
        bytes(s.base()),
        s.medium.map_or("not seen".into(), bytes),
        bytes(s.huge),
        percent(large as f64 / s.resident.max(1) as f64),
    ]
}

/// The instant of the sample.
fn taken(sample: &Sample) -> String {
    let of = match sample.processes {
        1 => "one process".to_owned(),
        n => format!("{} processes, memory they share counted in each", count(n as u64)),
    };
    let when = match sample.at_ns {
        0 => "before the program ran".to_owned(),
        at => format!("{} after the start, when the job's memory was largest", time(at as f64)),
    };
    format!("seen {when}; {of}")
}

fn way(m: &Moved) -> String {
    let how = match m.how {
        How::Collapsed => "on huge pages of its file",
        How::Copied => "copied to large pages at the same addresses",
    };
    format!("{} of {} {how}", bytes(m.bytes), m.segment.name())
}
