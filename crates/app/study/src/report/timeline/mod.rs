// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of a run of an object program: time lines with the noise under them, utilization, messages, entry methods, stragglers.

mod drawn;

use colony_timeline::analysis::segments::State;
use colony_timeline::analysis::stragglers::{SourceTime, Straggler};
use colony_timeline::analysis::summary::Summary;
use colony_timeline::{Noise, Timeline};
use serde::Serialize;

use super::figure::Figure;
use super::html::Html;
use crate::format::{count, counted, number, percent, time};
use drawn::Drawn;

/// Slices of the utilization over time.
const SLICES: usize = 200;
/// Stragglers of the page.
const STRAGGLERS: usize = 50;
/// Entry methods of the table.
const ENTRIES: usize = 200;
/// Pairs of PEs of the table.
const PAIRS: usize = 100;

/// The time lines of a run, to be shown as a page.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    /// The run.
    pub timeline: &'a Timeline,
    /// Noise of its hosts.
    pub noise: Option<&'a Noise>,
    /// The command that was given.
    pub command: &'a str,
}

/// Data that the script draws.
#[derive(Serialize)]
struct Data<'a> {
    drawn: &'a Drawn,
    summary: &'a Summary,
}

impl Recorded<'_> {
    /// The page: one file, which asks for no other.
    #[must_use]
    pub fn page(&self) -> String {
        let summary = Summary::of(self.timeline, self.noise, SLICES, STRAGGLERS);
        let drawn = Drawn::of(self.timeline, self.noise, &summary);
        let title = format!("Colony time lines: {}", summary.meta.program);
        super::document(&title, &Data { drawn: &drawn, summary: &summary }, super::TIMELINE, |h| {
            top(h, &summary);
            h.raw("<main>\n");
            time_lines(h, &summary, &drawn);
            figures(h, &summary);
            stragglers(h, &summary);
            entries(h, &summary);
            run(h, &summary, self.command);
            h.raw("</main>\n");
            super::foot(h, env!("CARGO_PKG_VERSION"));
        })
    }
}

fn top(h: &mut Html, s: &Summary) {
    h.raw("<header>\n<p class=\"kicker\">Colony time lines</p>\n").prose("h1", &headline(s));
    h.raw("\n").prose("p class=\"lead\"", &noise_line(s)).raw("\n<div class=\"tiles\">");
    let share = |state| percent(s.utilization.all.share(state));
    for (value, what) in [
        (share(State::Busy), "of the time entry methods ran"),
        (share(State::Overhead), "was overhead of the runtime"),
        (share(State::Balancing), "was load balancing"),
        (share(State::Idle), "was idle"),
    ] {
        h.raw("<div class=\"tile\">").element("b", &value).prose("span", what).raw("</div>\n");
    }
    h.raw("</div>\n");
    if !s.notes.is_empty() {
        h.raw("<section class=\"card\" id=\"care\"><h2>Read with care</h2>\n");
        h.list(s.notes.iter().map(String::as_str)).raw("</section>\n");
    }
    h.raw("</header>\n");
}

fn headline(s: &Summary) -> String {
    let busy = percent(s.utilization.all.share(State::Busy));
    let program = if s.meta.program.is_empty() { "The program" } else { &s.meta.program };
    format!("{program} used {busy} of {} for {}.", counted(s.pes, "PE"), time(s.duration_ns as f64))
}

fn noise_line(s: &Summary) -> String {
    let Some(n) = &s.stragglers.noise else {
        return "No noise trace was given, so it is unknown which detours made the stragglers.".into();
    };
    match n.sources.first() {
        None => format!("No detour hit any of {}.", counted(n.observed, "observed execution")),
        Some(first) => format!(
            "Detours hit {} of {} and took {}; {} took most, {}.",
            count(n.hit),
            counted(n.observed, "observed execution"),
            time(n.stolen_ns as f64),
            first.source,
            time(first.ns as f64)
        ),
    }
}

fn facts(s: &Summary) -> Vec<(&'static str, String)> {
    let known = |host: &str| !host.is_empty();
    let mut hosts: Vec<&str> =
        s.processes.iter().map(|p| if known(&p.host) { &*p.host } else { "–" }).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let processes = match s.processes.len() as u64 {
        1 => "1 process".into(),
        n => format!("{} processes", count(n)),
    };
    let mut facts = vec![
        ("Program", s.meta.program.clone()),
        ("Build", s.meta.build.clone()),
        ("Run", s.meta.run.clone()),
        ("PEs", format!("{} in {processes}", count(s.pes))),
        ("Hosts", hosts.join(", ")),
        ("Events", format!("{}, {} dropped", count(s.events), count(s.dropped))),
        ("Messages", format!("{}, {}", count(s.messages.messages), bytes(s.messages.bytes))),
        ("Migrations", format!("{}, {}", count(s.migrations.arrived), bytes(s.migrations.bytes))),
        (
            "Imbalance",
            format!("the busiest PE had {}× the mean busy time", number(s.utilization.imbalance())),
        ),
        ("Seeds", s.meta.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
        ("Command", s.meta.command.join(" ")),
    ];
    facts.retain(|(_, value)| !value.is_empty());
    facts
}

fn time_lines(h: &mut Html, s: &Summary, d: &Drawn) {
    h.raw("<figure class=\"card wide\" id=\"timeline\">\n<h2><span>Figure 1</span> Time lines</h2>\n");
    h.raw("<div class=\"tools\" role=\"toolbar\" aria-label=\"Zoom and pan\">");
    for (action, text, label) in [
        ("earlier", "◀", "Earlier"),
        ("later", "▶", "Later"),
        ("in", "+", "Zoom in"),
        ("out", "−", "Zoom out"),
        ("all", "Whole run", "Show the whole run"),
    ] {
        h.raw("<button type=\"button\" data-action=\"").raw(action).raw("\" aria-label=\"").raw(label);
        h.raw("\">").text(text).raw("</button>");
    }
    h.raw(
        "<output id=\"range\"></output></div>\n<ul class=\"key\" id=\"key\" aria-label=\"Colours\"></ul>\n",
    );
    h.raw("<div class=\"lanes\"><canvas tabindex=\"0\" role=\"application\" aria-label=\"Time lines of the PEs. \
           Arrow keys left and right pan, plus and minus zoom, up and down choose a PE, N and P go to the next and the previous \
           interval, Home shows the whole run.\" aria-describedby=\"reading\"></canvas></div>\n");
    h.raw("<p id=\"reading\" class=\"reading\" role=\"status\" aria-live=\"polite\">Point at an interval, or choose one by the \
           keys.</p>\n<figcaption>");
    let mut text = "A lane is a PE. Wheel or +/− zoom, drag or arrow keys pan, up and down choose a PE, N and P step through its \
                    intervals, Home shows the whole run."
        .to_owned();
    if s.stragglers.noise.is_some() {
        text +=
            " The red marks under a lane are the detours of the CPU that the PE ran on, on the same clock.";
    }
    h.prose("p", &text);
    let notes = [
        (d.together_ns > 0).then(|| {
            let least = time(d.together_ns as f64);
            format!("Intervals shorter than {least} are drawn together, shaded by their busy part. colony timeline convert --to perfetto keeps each.")
        }),
        (d.detours_from_ns > 0).then(|| {
            format!("Detours shorter than {} are left out of the drawing; the figures count them.", time(d.detours_from_ns as f64))
        }),
        (d.without_lane > 0).then(|| format!("{} more have no lane here; the figures count them.", counted(d.without_lane as u64, "PE"))),
    ];
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    h.list(notes.iter().map(String::as_str)).raw("</figcaption>\n</figure>\n");
}

fn figures(h: &mut Html, s: &Summary) {
    let mut figure = 1;
    let states = |times: &colony_timeline::analysis::utilization::Times| {
        State::ALL.map(|state| percent(times.share(state)))
    };
    let row = |p: &colony_timeline::analysis::utilization::PeTimes| -> Vec<String> {
        let of_pe = [p.pe.to_string()].into_iter().chain(states(&p.times));
        of_pe.chain([count(p.events), count(p.dropped)]).collect()
    };
    Figure {
        id: "over-time",
        title: "Utilization over time",
        caption: "All PEs together. The four states add up to 100 %.",
        command: "",
        summary: "",
        headings: &[],
        rows: Vec::new(),
        tall: false,
    }
    .write(h, &mut figure);
    Figure {
        id: "by-pe",
        title: "Utilization of each PE",
        caption: "A PE that is idle while another is busy waits for it: load balancing can help.",
        command: "",
        summary: "The numbers",
        headings: &["PE", "#Busy", "#Overhead", "#Balancing", "#Idle", "#Events", "#Dropped"],
        rows: s.utilization.pes.iter().take(1024).map(row).collect(),
        tall: false,
    }
    .write(h, &mut figure);
    let mut pairs = s.messages.cells.clone();
    pairs.sort_by_key(|c| (std::cmp::Reverse(c.bytes), c.from, c.to));
    let pair = |c: &colony_timeline::analysis::messages::Cell| {
        vec![c.from.to_string(), c.to.to_string(), count(c.messages), bytes(c.bytes)]
    };
    Figure {
        id: "matrix",
        title: "Communication matrix",
        caption: "Bytes from the PE of the row to the PE of the column; darker is more. Point at a cell for its messages.",
        command: "",
        summary: "The pairs with the most bytes",
        headings: &["From PE", "To PE", "#Messages", "#Bytes"],
        rows: pairs.iter().take(PAIRS).map(pair).collect(),
        tall: true,
    }
    .write(h, &mut figure);
}

fn stragglers(h: &mut Html, s: &Summary) {
    h.raw("<section class=\"card wide\" id=\"stragglers\"><h2>Stragglers</h2>\n");
    if s.stragglers.list.is_empty() {
        h.raw("<p>No execution took longer than the median of its entry method.</p></section>\n");
        return;
    }
    h.prose(
        "p",
        "Executions that took longest beyond the median of their entry method, with the detours of their CPU meanwhile. Without a \
         detour, the execution had more work, or waited for something else.",
    );
    h.raw("<div class=\"scroll\"><table><thead><tr>");
    for (heading, class) in [
        ("Entry method", ""),
        ("PE", " class=\"n\""),
        ("CPU", " class=\"n\""),
        ("Begin", " class=\"n\""),
        ("Took", " class=\"n\""),
        ("Median", " class=\"n\""),
        ("Detours", " class=\"n\""),
        ("Sources", ""),
        ("", ""),
    ] {
        h.raw("<th scope=\"col\"").raw(class).raw(">").text(heading).raw("</th>");
    }
    h.raw("</tr></thead><tbody>\n");
    for (i, x) in s.stragglers.list.iter().enumerate() {
        straggler(h, s, i, x);
    }
    h.raw("</tbody></table></div></section>\n");
}

fn straggler(h: &mut Html, s: &Summary, i: usize, x: &Straggler) {
    let cell = |h: &mut Html, text: &str| {
        h.element("td class=\"n\"", text);
    };
    h.raw("<tr>").element("td", &x.entry);
    cell(h, &x.pe.to_string());
    cell(h, &x.cpu.map_or("–".into(), |cpu| cpu.to_string()));
    cell(h, &time(x.begin_ns.saturating_sub(s.utilization.begin_ns) as f64));
    cell(h, &time(x.duration_ns as f64));
    cell(h, &time(x.median_ns as f64));
    cell(h, &x.stolen_ns.map_or("–".into(), |ns| time(ns as f64)));
    let source = |t: &SourceTime| format!("{} {}", t.source, time(t.ns as f64));
    let sources = match (x.stolen_ns, x.sources.len()) {
        (None, _) => "not observed".into(),
        (_, 0) => "none".into(),
        _ => x.sources.iter().take(4).map(source).collect::<Vec<_>>().join(", "),
    };
    h.element("td", &sources);
    h.raw("<td><button type=\"button\" class=\"show\" data-straggler=\"").raw(&i.to_string());
    h.raw("\" aria-label=\"Show this straggler in the time lines\">Show</button></td></tr>\n");
}

fn entries(h: &mut Html, s: &Summary) {
    h.raw("<section class=\"card wide\" id=\"entries\"><h2>Entry methods</h2>\n");
    let row = |e: &colony_timeline::analysis::entries::EntryTimes| {
        vec![
            e.name.clone(),
            count(e.calls),
            percent(e.share),
            time(e.own_ns as f64),
            time(e.mean_ns),
            time(e.median_ns as f64),
            time(e.p99_ns as f64),
            time(e.max_ns as f64),
            bytes(e.bytes),
        ]
    };
    let rows: Vec<Vec<String>> = s.entries.iter().take(ENTRIES).map(row).collect();
    h.table(
        &[
            "Entry method",
            "#Calls",
            "#Of busy time",
            "#Total",
            "#Mean",
            "#Median",
            "#99 %",
            "#Longest",
            "#Received",
        ],
        &rows,
    );
    h.raw("</section>\n");
}

fn run(h: &mut Html, s: &Summary, command: &str) {
    h.raw("<section class=\"card wide\" id=\"run\"><h2>The run</h2>\n<dl>\n");
    for (name, value) in facts(s) {
        h.raw("<div>").element("dt", name).element("dd", &value).raw("</div>\n");
    }
    h.raw("</dl>\n<h3>Make this page again</h3>\n").command(command).raw("</section>\n");
}

/// Bytes with a binary unit.
fn bytes(n: u64) -> String {
    let (unit, name) = match n {
        n if n < 1 << 10 => (1.0, "B"),
        n if n < 1 << 20 => (1024.0, "KiB"),
        n if n < 1 << 30 => (1024.0 * 1024.0, "MiB"),
        _ => (1024.0 * 1024.0 * 1024.0, "GiB"),
    };
    format!("{} {name}", number(n as f64 / unit))
}
