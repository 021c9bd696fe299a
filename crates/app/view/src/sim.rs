// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of the simulator: points of a scenario, and the cost of a node's noise.

use std::collections::BTreeSet;
use std::fmt::Write;

use colony_project::fit::Fitted;
use colony_sim::fit::Verdict;
use colony_sim::source::{Arrivals, Dist};
use colony_sim::spec::{Scenario, SchedulerSpec};
use colony_sim::sweep::{Finished, Results};
use colony_sim::what_if::{Answer, Scale, Time};
use colony_sim::words::once;
use colony_study::format::NOT_SEEN;

use crate::table::{self, name, wrap};
use crate::units::{count, counted, interval, percent, percent_interval, three, time};

/// A scenario's points, a row each; a column for each value swept.
#[must_use]
pub fn results(r: &Results) -> String {
    let swept: BTreeSet<&String> = r.points.iter().flat_map(|p| p.point.set.keys()).collect();
    let last = |path: &&String| name(path.rsplit('.').next().unwrap_or_default(), 12);
    let names: Vec<String> = swept.iter().map(last).collect();
    let mut header = vec!["nodes", "scheduler"];
    header.extend(names.iter().map(String::as_str));
    header.extend(["quiet", "mean", "± 95 %"]);
    header.extend(swept.is_empty().then_some("99 %"));
    header.extend(["longest", "slower"]);
    let mut t = table::numbers(&header, 2);
    for point in &r.points {
        t.add_row(row(point, &swept));
    }
    let mut out = format!("{}\n\n{t}\n", wrap(&headline(&r.scenario)));
    let mut warnings: Vec<&String> = r.points.iter().flat_map(|p| &p.outcome.warnings).collect();
    warnings.sort();
    let warnings = once(warnings);
    for warning in warnings.iter().take(MOST_NOTES) {
        let _ = writeln!(out, "{}", wrap(&format!("note: {warning}")));
    }
    if warnings.len() > MOST_NOTES {
        let _ = writeln!(out, "… and {} more (--json)", warnings.len() - MOST_NOTES);
    }
    out
}

/// Notes shown; the rest is in the JSON.
const MOST_NOTES: usize = 2;

fn row(f: &Finished, swept: &BTreeSet<&String>) -> Vec<String> {
    let o = &f.outcome;
    let value = |v: &toml::Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
    let mut cells = vec![count(o.nodes.into()), f.point.scheduler.name().to_owned()];
    // a value that does not concern the scheduler is not set for its points
    cells.extend(swept.iter().map(|path| f.point.set.get(*path).map_or("–".into(), |v| name(&value(v), 16))));
    cells.extend([time(o.quiet_ns), time(o.mean_ns), o.ci95_ns.map_or("–".into(), time)]);
    cells.extend(swept.is_empty().then(|| time(o.p99_ns as f64)));
    cells.extend([time(o.max_ns as f64), format!("{}×", three(o.slowdown))]);
    cells
}

/// The scenario in a sentence.
#[must_use]
pub fn headline(s: &Scenario) -> String {
    let p = &s.program;
    let mut text = name(&p.name, 30);
    // the sweep says the values of what it replaces
    let is_swept = |key: &str| s.sweep.contains_key(key);
    if let Some(bytes) = p.bytes.filter(|_| !is_swept("program.bytes")) {
        let _ = write!(text, " of {}", counted(bytes, "byte"));
    }
    if let Some(ns) = p.work_ns.filter(|_| !is_swept("program.work")) {
        let _ = write!(text, " after {} of work", time(ns as f64));
    }
    if !is_swept("program.iterations") {
        let _ = write!(text, ", {}", counted(p.iterations, "iteration"));
    }
    match s.repetitions {
        _ if is_swept("repetitions") => {}
        1 => text.push_str(", once"),
        n => {
            let _ = write!(text, ", {} times", count(n.into()));
        }
    }
    if !is_swept("machine") {
        let _ = write!(text, ", on {}", name(s.machine.name(), 30));
    }
    if !is_swept("noise") {
        text += &noise(s);
    }
    for (key, values) in &s.sweep {
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        let _ = write!(text, "; {} swept: {}", name(key, 30), name(&values.join(", "), 60));
    }
    text
}

fn noise(s: &Scenario) -> String {
    let sources: Vec<String> = s.noise.iter().map(source).collect();
    match &sources[..] {
        [] => "; no noise".into(),
        all => format!("; noise: {}", name(&all.join(", "), 120)),
    }
}

fn source(s: &colony_sim::spec::SourceSpec) -> String {
    let share = |mean: u64, sleep: u64| percent(mean as f64 / sleep.max(1) as f64);
    match (&s.name, &s.trace, &s.leibniz) {
        (_, _, Some(l)) => {
            let what = s.name.as_deref().unwrap_or("leibniz");
            format!(
                "{what} {} ({} and sleep {})",
                share(l.mean_ns, l.sleep_ns),
                time(l.mean_ns as f64),
                time(l.sleep_ns as f64)
            )
        }
        (Some(given), ..) => given.clone(),
        (_, Some(trace), _) => trace.clone(),
        _ if !s.traces.is_empty() => format!("one of {}", s.traces.join(", ")),
        _ => "a model".into(),
    }
}

/// A schedule under one scheduler.
#[derive(Clone, Debug, serde::Serialize)]
pub struct GoalRow {
    /// The scheduler.
    pub scheduler: SchedulerSpec,
    /// Time without noise.
    pub quiet_ns: u64,
    /// Mean time.
    pub mean_ns: f64,
    /// Half of its 95 % confidence interval.
    pub ci95_ns: Option<f64>,
    /// Time of each run.
    pub totals_ns: Vec<u64>,
}

/// A schedule's times, a row each scheduler.
#[must_use]
pub fn goal(file: &str, ranks: u32, events: u64, scenario: &Scenario, rows: &[GoalRow]) -> String {
    let mut t = table::new(["scheduler", "quiet", "mean", "± 95 %", "longest", "slower"]);
    for r in rows {
        let longest = r.totals_ns.iter().copied().max().unwrap_or(0);
        t.add_row([
            r.scheduler.name().to_owned(),
            time(r.quiet_ns as f64),
            time(r.mean_ns),
            r.ci95_ns.map_or("–".into(), time),
            time(longest as f64),
            format!("{}×", three(r.mean_ns / r.quiet_ns.max(1) as f64)),
        ]);
    }
    let (ranks, events) = (counted(ranks.into(), "rank"), counted(events, "event"));
    let machine = name(scenario.machine.name(), 30);
    let text = format!("{}: {ranks}, {events}, on {machine}{}", name(file, 60), noise(scenario));
    // to the nanosecond: schedules are compared with other simulators
    let exact = rows.first().map_or_else(String::new, |r| format!("without noise: {} ns\n", r.quiet_ns));
    format!("{}\n\n{t}\n{exact}", wrap(&text))
}

/// Node counts of a table of costs: more do not fit into its width.
const COLUMNS: usize = 4;

/// The times of an answer, those known so far, as tables of a few node counts each.
#[must_use]
pub fn costs(a: &Answer) -> String {
    let all: Vec<usize> = (0..a.scales.len()).collect();
    if all.is_empty() {
        return costs_on(a, 0..0).to_string();
    }
    let tables = all.chunks(COLUMNS).map(|some| costs_on(a, some[0]..some[0] + some.len()).to_string());
    tables.collect::<Vec<_>>().join("\n\n")
}

/// The table of these of the answer's node counts.
fn costs_on(a: &Answer, shown: std::ops::Range<usize>) -> comfy_table::Table {
    let scales = &a.scales[shown.clone()];
    let nodes: Vec<String> = scales.iter().map(|s| count(s.nodes.into())).collect();
    let mut header = vec!["time an iteration", "of CPU"];
    header.extend(nodes.iter().map(String::as_str));
    let mut t = table::numbers(&header, 1);
    let cells = |what: String, share: String, times: Vec<String>| [what, share].into_iter().chain(times);
    let none = || vec![String::new(); nodes.len()];
    let quiet = scales.iter().map(|s| time(s.quiet_ns)).collect();
    t.add_row(cells("without noise".into(), String::new(), quiet));
    let noisy = scales.iter().map(|s| time(s.noisy.ns)).collect();
    let all = percent(a.sources.iter().map(|s| s.stolen_share).sum());
    t.add_row(cells("with this node's noise".into(), all, noisy));
    let sure = scales.iter().map(|s| ends(&s.noisy)).collect();
    t.add_row(cells("  95 % interval".into(), String::new(), sure));
    let half = |s: &Scale| s.noisy.simulation_ci95_ns.map_or("–".into(), |ns| format!("± {}", time(ns)));
    t.add_row(cells("  by simulation alone".into(), String::new(), scales.iter().map(half).collect()));
    t.add_row(cells("cost of each source".into(), String::new(), none()));
    for s in &a.sources {
        let costs = some(&s.cost, &shown).iter().map(difference).collect();
        t.add_row(cells(format!("  {}", name(&s.name, 20)), percent(s.stolen_share), costs));
    }
    t.add_row(cells("with all noise, but".into(), String::new(), none()));
    for r in &a.remedies {
        let what = match &r.scheduler {
            SchedulerSpec::Coordinated(_) => "  coordinated windows",
            _ => "  a spare core",
        };
        t.add_row(cells(what.into(), String::new(), some(&r.time, &shown).iter().map(figure).collect()));
    }
    t
}

/// Values of some node counts; those known so far.
fn some<'a, T>(values: &'a [T], shown: &std::ops::Range<usize>) -> &'a [T] {
    values.get(shown.start..shown.end.min(values.len())).unwrap_or_default()
}

/// Table of the cost of each source of a measured node at scale, and of the remedies.
#[must_use]
pub fn what_if(scenario: &Scenario, windows: &SchedulerSpec, a: &Answer) -> String {
    let t = costs(a);
    let mut out = format!("{}\n\n{t}\n", wrap(&question(scenario, a)));
    let mut notes = vec![
        "a source's cost is the time with all noise less the time without this source alone; costs need not add up. \
         Figures are those of the node, as far as this trace shows it: 1–3 ms: the 95 % interval, where it is wider than a \
         quarter of the figure; ≤ 1 ms: cannot be told from nothing, but is no more; not seen: it made no difference in all \
         that was simulated"
            .to_owned(),
    ];
    let times = || {
        let costs = a.sources.iter().flat_map(|s| s.cost.iter().flatten());
        a.scales.iter().map(|s| &s.noisy).chain(costs).chain(a.remedies.iter().flat_map(|r| &r.time))
    };
    if times().any(|t| t.low_ns.is_some() && t.high_ns.is_none()) {
        notes.push(
            "≥ 1 ms: the trace gives no upper end: its longest detours decide, and their lengths vary so much (tail index \
             about 2 or less) that longer ones are to be expected"
                .to_owned(),
        );
    }
    if times().any(|t| t.low_ns.is_none()) {
        notes.push(
            "~1 ms: how far the node may be from this figure is not known: it was simulated once only, or an iteration is \
             longer than a sixteenth of the trace"
                .to_owned(),
        );
    }
    if let SchedulerSpec::Coordinated(w) = windows {
        let period = time(w.period_ns as f64);
        notes.push(format!("windows: period {period}, {} favored (--period, --duty)", w.duty_cycle));
    }
    let measured = a.scales.first().map_or(1, |x| x.ranks / x.nodes.max(1));
    if measured < a.cpus {
        notes.push(format!(
            "{} of the {} CPUs measured run ranks on each node, others of them on other nodes (--ranks-per-node)",
            measured, a.cpus
        ));
    }
    if let Some(s) = &a.spare {
        let (share, backlog, wait) =
            (percent(s.share), time(s.longest_backlog_ns as f64), time(s.mean_wait_ns));
        notes.push(format!(
            "the spare core of a node would work {share} of its time, be up to {backlog} behind, and keep noise \
             waiting for {wait} on average"
        ));
    }
    notes.extend(once(&a.warnings).into_iter().take(MOST_NOTES).cloned());
    for note in notes {
        let _ = writeln!(out, "{}", wrap(&format!("note: {note}")));
    }
    out
}

fn question(s: &Scenario, a: &Answer) -> String {
    let ranks = a.scales.first().map_or(1, |x| x.ranks / x.nodes.max(1));
    let mut text = name(&s.program.name, 30);
    if let Some(ns) = s.program.work_ns {
        let _ = write!(text, " after {} of work", time(ns as f64));
    }
    let each = if ranks == 1 { "one rank".into() } else { format!("{ranks} ranks") };
    let _ = write!(
        text,
        ", on so many nodes like this one ({each} each, network of {})",
        name(s.machine.name(), 30)
    );
    text
}

/// A figure that is known to this share of itself is shown alone.
const ROUGH: f64 = 0.25;

/// Text of a time that the trace gives no interval.
const UNKNOWN: &str = "–";

fn difference(t: &Option<Time>) -> String {
    t.as_ref().map_or_else(|| NOT_SEEN.into(), figure)
}

/// A time as far as it is known: alone, as an interval, or as one of its ends.
fn figure(t: &Time) -> String {
    match (t.low_ns, t.high_ns) {
        (Some(low), Some(high)) if low <= 0.0 => format!("≤ {}", time(high.max(0.0))),
        (Some(low), Some(high)) if (high - t.ns).max(t.ns - low) > ROUGH * t.ns.abs() => interval(low, high),
        (Some(_), Some(_)) => time(t.ns),
        (Some(low), None) if low > 0.0 => format!("≥ {}", time(low)),
        (Some(_), None) => UNKNOWN.into(),
        (None, _) => format!("~{}", time(t.ns)),
    }
}

fn ends(t: &Time) -> String {
    match (t.low_ns, t.high_ns) {
        (Some(low), Some(high)) => interval(low, high),
        (Some(low), None) => format!("≥ {}", time(low)),
        (None, _) => UNKNOWN.into(),
    }
}

/// Models of a trace's sources, a row each.
#[must_use]
pub fn fits(all: &[Fitted]) -> String {
    let mut t = table::new(["source", "% of CPU", "comes", "lasts", "fit"]);
    let mut left_out = 0;
    for f in all {
        let Some(fit) = &f.fit else {
            left_out += 1;
            continue;
        };
        let (Arrivals::Every(gap) | Arrivals::AfterSleep(gap)) = &fit.model.arrivals;
        let after =
            if matches!(fit.model.arrivals, Arrivals::AfterSleep(_)) { "after\u{a0}" } else { "every\u{a0}" };
        let verdict = match fit.verdict() {
            Verdict::Good => "good",
            Verdict::Rough => "rough",
            Verdict::Poor => "poor",
        };
        t.add_row([
            name(&f.name, 20),
            f.sampling.map_or_else(
                || UNKNOWN.into(),
                |s| percent_interval(s.stolen_share).trim_end_matches(" %").to_owned(),
            ),
            format!("{after}{}", dist(gap)),
            dist(&fit.model.length),
            verdict.into(),
        ]);
    }
    let mut out = format!("{t}\n");
    let unlike: Vec<String> = all
        .iter()
        .filter(|f| f.fit.as_ref().is_some_and(|fit| fit.has_unlike_cpus))
        .map(|f| name(&f.name, 30))
        .collect();
    if !unlike.is_empty() {
        let text = format!(
            "CPUs differ in {}: one model for all of them is that of none; simulate the trace itself (colony sim --trace)",
            unlike.join(", ")
        );
        let _ = writeln!(out, "{}", wrap(&text));
    }
    if left_out > 0 {
        let _ = writeln!(
            out,
            "{} too rare to be fitted (--json says why)",
            if left_out == 1 { "1 source is".into() } else { format!("{left_out} sources are") }
        );
    }
    out.push_str(&wrap(
        "% of CPU: 95 % interval of the share of the CPUs that the source takes, as far as this trace shows it (--json has the share in the \
         trace, and the intervals of gaps and lengths)",
    ));
    out.push('\n');
    out.push_str(&wrap("fit: how far measured and modelled times are apart: good up to 5 %, poor over 10 %; measured: their own quantiles, where no family fits"));
    out.push('\n');
    out
}

/// A distribution in short: its mean and family, held together.
fn dist(d: &Dist) -> String {
    let family = match d {
        Dist::Fixed(_) => "fixed",
        Dist::Uniform { .. } => "uniform",
        Dist::Exponential { .. } => "exponential",
        Dist::LogNormal { .. } => "log-normal",
        Dist::Pareto { .. } => "Pareto",
        Dist::Quantiles(_) => "measured",
    };
    format!("{}\u{a0}({family})", time(d.mean_ns()).replace(' ', "\u{a0}"))
}

#[cfg(test)]
mod tests {
    use colony_sim::spec::Traces;
    use colony_sim::sweep;
    use colony_sim::what_if::Runs;

    use super::*;

    #[test]
    fn every_point_is_a_row_of_a_narrow_table() {
        let text = "nodes = [2, 4]\nschedulers = [\"none\", \"preempt\"]\nprogram = { name = \"allreduce\", \
                    iterations = 3 }\nnoise = [{ periodic = { every = \"1ms\", length = \"16us\" } }]\n\
                    [sweep]\n\"program.bytes\" = [8, 1024]";
        let scenario = Scenario::parse(text).expect("right");
        let points = scenario.points().expect("points");
        let mut all = Results::none_yet(scenario, &Traces::new());
        let done = std::sync::Mutex::new(Vec::new());
        sweep::run::<colony_sim::spec::SpecError>(&points, &Traces::new(), |i, outcome| {
            done.lock().expect("ours").push(Finished { point: points[i].clone(), outcome });
            Ok(())
        })
        .expect("runs");
        all.points = done.into_inner().expect("ours");
        let table = results(&all);
        assert!(table.lines().all(|l| l.chars().count() <= 80), "{table}");
        assert_eq!(table.matches("preempt").count(), 4, "{table}");
        assert!(table.contains("bytes") && table.contains("1024") && table.contains("slower"), "{table}");
    }

    #[test]
    fn hostile_names_stay_in_their_cells() {
        let hostile = "thread:\u{1b}[2J".repeat(20);
        let between = |low: f64, high: f64| Time {
            ns: 5.0,
            ci95_ns: Some(9.0),
            low_ns: Some(low),
            high_ns: Some(high),
            simulation_ci95_ns: Some(0.1),
        };
        let cost = vec![Some(between(-4.0, 14.0)), Some(between(2.0, 14.0)), Some(between(4.9, 5.1)), None];
        let scale = |nodes: u32| Scale {
            nodes,
            ranks: nodes,
            runs: Runs { runs: 1, span_ns: 1, iterations: 1.0 },
            windowed: None,
            quiet_ns: 1.0,
            noisy: between(4.9, 5.1),
        };
        let source = colony_sim::what_if::SourceCost { name: hostile.clone(), stolen_share: 0.1, cost };
        let answer = Answer {
            cpus: 1,
            spare: None,
            scales: [1, 2, 3, 4].map(scale).into(),
            sources: vec![source],
            remedies: Vec::new(),
            warnings: vec![hostile],
        };
        let windows = SchedulerSpec::named("coordinated").expect("known");
        let table = what_if(&Scenario::default(), &windows, &answer);
        assert!(
            !table.contains('\u{1b}') && table.contains("≤ 14 ns") && table.contains("not seen"),
            "{table}"
        );
        assert!(table.lines().all(|l| l.chars().count() <= 80), "{table}");
    }
}
