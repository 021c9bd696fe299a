// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of a study.

use colony_node::cpu::CpuSet;

use super::card;
use super::figure::Figure;
use super::html::Html;
use crate::claims;
use crate::format::NOT_KNOWN;
use crate::format::{NOT_SEEN, count, counted, percent, seen, time};
use crate::results::{Bucket, Cell, Figure as Missed, Noise, Results, SchedulerKind};
use crate::table::{self, noise_name};

/// All figures there is data for, in the order of the story.
pub(super) fn all(h: &mut Html, r: &Results) {
    let mut number = 0;
    if let Some(card) = &r.card {
        card::figures(h, card, &mut number);
    }
    scaling(h, r, &mut number);
    distribution(h, r, &mut number);
    split(h, r, &mut number);
    edges(h, r, &mut number);
    if let Some(n) = &r.noise {
        sources(h, n, &mut number);
        timeline(h, n, &mut number);
    }
}

fn sources(h: &mut Html, n: &Noise, number: &mut u32) {
    if n.sources.iter().all(|s| s.stolen_ns == 0) {
        return;
    }
    let per_s = n.observed_s.max(1e-9);
    let rows = n
        .sources
        .iter()
        .map(|s| {
            vec![
                s.source.clone(),
                s.events.map_or_else(|| NOT_SEEN.into(), count),
                seen(s.count, count(s.count)),
                seen(s.stolen_ns, time(s.stolen_ns as f64 / per_s)),
                seen(s.count, time(s.max_ns as f64)),
            ]
        })
        .collect();
    let mut caption = format!(
        "What took {} away from a program that never stops, in {:.0} s: {} of {} ns and more, {} of the \
         time. Note the logarithmic axis: a bar one step longer steals ten times as much.",
        n.cpus.parse::<CpuSet>().map_or_else(|_| n.cpus.clone(), |cpus| cpus.named()),
        n.observed_s,
        counted(n.detours, "detour"),
        n.threshold_ns,
        percent(n.stolen_share)
    );
    if let Some(own) = n.measuring_share {
        caption += &format!(" What measuring itself took is left out: {}.", percent(own));
    }
    if let Some(e) = n.explained {
        caption += &format!(
            " A source is known for {} of the stolen time and {} of the detours ({} and {} with throttling left out).",
            percent(e.of_stolen),
            percent(e.of_detours),
            percent(e.of_stolen_without_throttle),
            percent(e.of_detours_without_throttle)
        );
    }
    caption +=
        " A source's detours are those of which it took the largest part; its events are all times it ran.";
    if !n.periodic.is_empty() {
        caption += &format!(" Periodic: {}.", n.periodic.join("; "));
    }
    Figure {
        id: "sources",
        title: "Where this node's noise comes from",
        caption: &caption,
        command: &n.command,
        summary: "Numbers, by source",
        headings: &["Source", "#Events", "#Detours", "#Stolen each second", "#Longest detour"],
        rows,
        tall: n.sources.len() > 8,
    }
    .write(h, number);
}

fn timeline(h: &mut Html, n: &Noise, number: &mut u32) {
    if n.timeline.is_empty() {
        return;
    }
    let caption = format!(
        "Each point is a detour. Rows of equal height are regular work such as timers; what stands alone and high is \
         what hurts a collective. Shown are {} of {}: the longest, and a fair sample of the others.",
        count(n.timeline.len() as u64),
        counted(n.detours, "detour")
    );
    let mut longest: Vec<_> = n.timeline.iter().collect();
    longest.sort_by_key(|p| std::cmp::Reverse(p.duration_ns));
    let rows = longest
        .iter()
        .take(50)
        .map(|p| {
            let source = n.sources.get(usize::from(p.source)).map_or("unexplained", |s| s.source.as_str());
            vec![
                format!("{:.6} s", p.start_ns as f64 / 1e9),
                p.cpu.to_string(),
                time(p.duration_ns as f64),
                source.into(),
            ]
        })
        .collect();
    Figure {
        id: "timeline",
        title: "Detours over time",
        caption: &caption,
        command: &n.command,
        summary: "The 50 longest detours",
        headings: &["#Start", "#CPU", "#Length", "Source"],
        rows,
        tall: false,
    }
    .write(h, number);
}

fn distribution(h: &mut Html, r: &Results, number: &mut u32) {
    let Some(first) = r.allreduce.first() else { return };
    let row = |(percent, kind, cell): (f64, SchedulerKind, Option<&Cell>)| {
        let values = cell.map(|c| {
            let ns = [c.mean_ns, c.p50_ns as f64, c.p99_ns as f64, c.p99_9_ns as f64, c.max_ns as f64];
            [vec![count(c.ops)], ns.map(time).into()].concat()
        });
        let values = values.unwrap_or_else(|| vec![NOT_KNOWN.into(); 6]);
        [vec![noise_name(percent), kind.name().into()], values].concat()
    };
    let rows = table::cells(r).into_iter().map(row).collect();
    let missing = missing(r, Missed::Allreduce);
    Figure {
        id: "distribution",
        title: "Time of single operations",
        caption: &format!(
            "Share of allreduce operations on this node ({}) that took longer than the time below. Further left \
             is better. Noise shows as a long tail: few operations, but at scale every operation has a node in its \
             tail. Coordination gathers the tail into the regular windows.{missing}",
            counted(r.params.ranks.into(), "rank")
        ),
        command: &first.command,
        summary: "Numbers, by noise and scheduler",
        headings: &["Noise", "Scheduler", "#Operations", "#Mean", "#p50", "#p99", "#p99.9", "#Longest"],
        rows,
        tall: false,
    }
    .write(h, number);
}

/// The missing figures of a kind, sentences of a caption.
fn missing(r: &Results, figure: Missed) -> String {
    table::missing(r, &[figure]).iter().map(|line| format!(" {line}.")).collect()
}

fn scaling(h: &mut Html, r: &Results, number: &mut u32) {
    let Some(s) = &r.scaling else { return };
    let mut rows = Vec::new();
    for c in &s.curves {
        for p in &c.points {
            rows.push(vec![
                noise_name(c.noise_percent),
                c.scheduler.name().into(),
                count(p.nodes),
                time(p.base_ns),
                claims::mean(p),
                time(p.p99_ns),
                time(p.max_ns),
                crate::format::times(p.slowdown),
            ]);
        }
    }
    let caption = format!(
        "Mean time of an allreduce if every node had the noise measured here: {}. The dotted line is the network's \
         own time. Published for Blue Gene/L under 21 % noise, up to 8192 processors: single operations “from about \
         4 microseconds to over 9900 microseconds”, one test “reduced from 3175.7 seconds to 1.73 seconds” by \
         coordination; under 2 %, “about a 10% improvement” (Colony report, 3.5 and 3.6).{}",
        s.noise_from,
        missing(r, Missed::Projection)
    );
    Figure {
        id: "scaling",
        title: "What this noise costs on many nodes",
        caption: &caption,
        command: &s.command,
        summary: "Numbers, by noise, scheduler and nodes",
        headings: &[
            "Noise",
            "Scheduler",
            "#Nodes",
            "#No noise",
            "#Mean",
            "#p99",
            "#Longest drawn",
            "#Slowdown",
        ],
        rows,
        tall: true,
    }
    .write(h, number);
}

fn split(h: &mut Html, r: &Results, number: &mut u32) {
    let mut rows = Vec::new();
    let mut example = None;
    for c in &r.allreduce {
        let Some(s) = c.split else { continue };
        example = Some(c.command.as_str());
        let share = |a: u64, b: u64| percent(a as f64 / b.max(1) as f64);
        rows.push(vec![
            noise_name(c.noise_percent),
            c.scheduler.name().into(),
            time(s.stolen_favored_ns as f64),
            share(s.stolen_favored_ns, s.favored_ns),
            time(s.stolen_regular_ns as f64),
            share(s.stolen_regular_ns, s.regular_ns),
        ]);
    }
    let Some(example) = example else { return };
    Figure {
        id: "split",
        title: "In which windows the time was stolen",
        caption: "Stolen time of the job's CPUs while allreduce ran, each second. Without coordination the windows \
                  are those that would have been. Coordination does not make the noise less: it moves it out of \
                  favored windows, which are the job's own.",
        command: example,
        summary: "Numbers, by noise and scheduler",
        headings: &[
            "Noise",
            "Scheduler",
            "#Stolen, favored",
            "#of favored time",
            "#Stolen, regular",
            "#of regular time",
        ],
        rows,
        tall: false,
    }
    .write(h, number);
}

fn edges(h: &mut Html, r: &Results, number: &mut u32) {
    let with: Vec<_> = r.allreduce.iter().filter_map(|c| Some((c, c.edges.as_ref()?))).collect();
    let Some((first, _)) = with.first() else { return };
    let rows = with
        .iter()
        .map(|(c, e)| {
            vec![
                noise_name(c.noise_percent),
                count(e.histogram.iter().map(|b: &Bucket| b.count).sum()),
                time(e.p50_ns as f64),
                time(e.p99_ns as f64),
                time(e.max_ns as f64),
            ]
        })
        .collect();
    Figure {
        id: "edges",
        title: "How late windows open and close",
        caption: "Time from the instant a window should change to the instant it did, all edges of all runs. On a \
                  machine, the latest node's edge is everybody's.",
        command: &first.command,
        summary: "Numbers, by noise",
        headings: &["Noise", "#Edges", "#p50", "#p99", "#Latest"],
        rows,
        tall: false,
    }
    .write(h, number);
}
