// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plots of a sweep: one line a scheduler, a line style or a figure a value swept.

use std::collections::{BTreeMap, BTreeSet};

use colony_sim::spec::{SchedulerSpec, Settings};
use colony_sim::sweep::{Finished, Results};
use serde::Serialize;

/// Most values that line styles tell apart.
const STYLES: usize = 4;
/// Most lines of a plot that styles make: their key leaves room for the plot.
const LINES: usize = 8;
/// Colours of the style sheet; the grey one is of the quiet time.
const COLOURS: usize = 7;
/// Most pairs of figures; what is left is in the table.
const MOST: usize = 12;

/// Two figures of the same points: time, and slowdown.
#[derive(Serialize)]
pub(super) struct Plot {
    /// Values swept that all of it has in common, as `bytes = 8`; empty where there are none.
    pub(super) of: String,
    lines: Vec<Line>,
    quiet: Vec<Quiet>,
}

#[derive(Serialize)]
struct Line {
    label: String,
    /// The value that its style stands for.
    #[serde(skip)]
    of: Option<String>,
    colour: usize,
    style: usize,
    points: Vec<Dot>,
}

#[derive(Clone, Serialize)]
struct Dot {
    nodes: u32,
    mean_ns: f64,
    ci95_ns: Option<f64>,
    slowdown: f64,
    slowdown_half: Option<f64>,
    #[serde(skip)]
    quiet_ns: f64,
}

/// Times without noise, by nodes.
#[derive(Serialize)]
struct Quiet {
    label: String,
    style: usize,
    points: Vec<(u32, f64)>,
}

/// All of it.
pub(super) struct Plots {
    pub(super) drawn: Vec<Plot>,
    /// Combinations of values that are in the table only.
    pub(super) left_out: usize,
}

/// The points of one scheduler and one set of values.
struct Series<'a> {
    scheduler: usize,
    set: &'a Settings,
    dots: Vec<Dot>,
}

/// A value as it is shown.
pub(super) fn value(v: &toml::Value) -> String {
    v.as_str().map_or_else(|| v.to_string(), str::to_owned)
}

/// The paths swept with short names: their last part, where no other has the same.
pub(super) fn swept(r: &Results) -> BTreeMap<&str, &str> {
    let paths: BTreeSet<&str> =
        r.points.iter().flat_map(|p| p.point.set.keys().map(String::as_str)).collect();
    let last = |path: &'_ str| path.rfind('.').map_or(0, |dot| dot + 1);
    let alone = |path: &&str| paths.iter().filter(|p| p[last(p)..] == path[last(path)..]).count() == 1;
    paths.iter().map(|path| (*path, if alone(path) { &path[last(path)..] } else { *path })).collect()
}

/// Label of each point's scheduler: its name, and the parameters that differ from others of that name.
pub(super) fn schedulers(r: &Results) -> Vec<String> {
    let mut seen: BTreeMap<(u32, &str, String), usize> = BTreeMap::new();
    let mut place = |f: &Finished| {
        let number =
            seen.entry((f.point.nodes, f.point.scheduler.name(), format!("{:?}", f.point.set))).or_default();
        *number += 1;
        *number - 1
    };
    let places: Vec<usize> = r.points.iter().map(&mut place).collect();
    // the first of each name and number speaks for the others
    let mut firsts: BTreeMap<(&str, usize), &SchedulerSpec> = BTreeMap::new();
    for (f, &n) in r.points.iter().zip(&places) {
        firsts.entry((f.point.scheduler.name(), n)).or_insert(&f.point.scheduler);
    }
    let called = |(f, &n): (&Finished, &usize)| {
        let name = f.point.scheduler.name();
        let others: Vec<_> =
            firsts.range((name, 0)..=(name, usize::MAX)).map(|(_, s)| parameters(s)).collect();
        if others.len() < 2 {
            return name.to_owned();
        }
        let differs = |(key, v): (&String, &serde_json::Value)| {
            let text = v.as_str().map_or_else(|| v.to_string(), str::to_owned);
            others.iter().any(|o| o.get(key) != Some(v)).then(|| format!("{key} {text}"))
        };
        let mut words: Vec<String> = others.get(n).into_iter().flatten().filter_map(differs).collect();
        if words.is_empty() {
            words.push(format!("number {}", n + 1));
        }
        format!("{name}, {}", words.join(", "))
    };
    r.points.iter().zip(&places).map(called).collect()
}

fn parameters(s: &SchedulerSpec) -> serde_json::Map<String, serde_json::Value> {
    let all = serde_json::to_value(s).ok();
    all.as_ref().and_then(|v| v.get(s.name())?.as_object().cloned()).unwrap_or_default()
}

impl Plots {
    pub(super) fn new(r: &Results) -> Self {
        let called = schedulers(r);
        let mut names: Vec<&String> = Vec::new();
        let mut series: Vec<Series> = Vec::new();
        for (f, name) in r.points.iter().zip(&called) {
            let scheduler = names.iter().position(|n| *n == name).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            });
            let set = &f.point.set;
            match series.iter_mut().find(|s| s.scheduler == scheduler && s.set == set) {
                Some(s) => s.dots.push(dot(f)),
                None => series.push(Series { scheduler, set, dots: vec![dot(f)] }),
            }
        }
        let short = swept(r);
        let mut values: BTreeMap<&str, Vec<&toml::Value>> = BTreeMap::new();
        for (path, v) in series.iter().flat_map(|s| s.set) {
            let known = values.entry(path).or_default();
            if !known.contains(&v) {
                known.push(v);
            }
        }
        // the one with most values of those that line styles can tell apart
        let lines = |path: &str| {
            let own = |s: &Series| (s.scheduler, s.set.get(path).map(value));
            series.iter().map(own).collect::<BTreeSet<_>>().len()
        };
        let fits = |(path, v): &(&&str, &Vec<_>)| (2..=STYLES).contains(&v.len()) && lines(path) <= LINES;
        let styled = values.iter().filter(fits).max_by_key(|(_, v)| v.len()).map(|(path, _)| *path);
        let styles = styled.and_then(|path| values.remove(path)).unwrap_or_default();
        let all: usize = values.values().map(Vec::len).fold(1, usize::saturating_mul);
        let mut drawn = Vec::new();
        for number in 0..all.min(MOST) {
            let mut rest = number;
            let mut common = BTreeMap::new();
            for (path, v) in values.iter().rev() {
                common.insert(*path, v[rest % v.len()]);
                rest /= v.len();
            }
            let here = |s: &&Series| common.iter().all(|(path, v)| s.set.get(*path).is_none_or(|x| x == *v));
            let line = |s: &Series| {
                let own = styled.and_then(|path| Some((path, s.set.get(path)?)));
                let of = own.map(|(path, v)| format!("{} = {}", short[path], value(v)));
                let name = names[s.scheduler];
                Line {
                    label: of.as_ref().map_or_else(|| name.clone(), |of| format!("{name}, {of}")),
                    of,
                    colour: s.scheduler % COLOURS,
                    style: own.and_then(|(_, v)| styles.iter().position(|x| *x == v)).unwrap_or(0),
                    points: s.dots.clone(),
                }
            };
            let lines: Vec<Line> = series.iter().filter(here).map(line).collect();
            let of = common.iter().map(|(path, v)| format!("{} = {}", short[path], value(v)));
            drawn.push(Plot { of: of.collect::<Vec<_>>().join(", "), quiet: quiet(&lines), lines });
        }
        Self { drawn, left_out: all.saturating_sub(MOST) }
    }
}

fn dot(f: &Finished) -> Dot {
    let o = &f.outcome;
    let slowdown_half = o.ci95_ns.filter(|_| o.quiet_ns > 0.0).map(|half| half / o.quiet_ns);
    Dot {
        nodes: o.nodes,
        mean_ns: o.mean_ns,
        ci95_ns: o.ci95_ns,
        slowdown: o.slowdown,
        slowdown_half,
        quiet_ns: o.quiet_ns,
    }
}

/// The quiet times of `lines`, those that are the same once.
fn quiet(lines: &[Line]) -> Vec<Quiet> {
    let mut all: Vec<Quiet> = Vec::new();
    for line in lines {
        let points: Vec<_> = line.points.iter().map(|p| (p.nodes, p.quiet_ns)).collect();
        if !all.iter().any(|q| q.points == points) {
            let label = line.of.as_ref().map_or("quiet".into(), |of| format!("quiet, {of}"));
            all.push(Quiet { label, style: line.style, points });
        }
    }
    if let [one] = &mut all[..] {
        one.label = "quiet".into();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::tests::results;
    use super::*;

    fn labels(p: &Plot) -> Vec<&str> {
        p.lines.iter().map(|l| l.label.as_str()).collect()
    }

    #[test]
    fn a_line_is_a_scheduler_and_a_style_a_value() {
        let all = Plots::new(&results(
            "schedulers = [\"none\", \"coordinated\"]\nsweep = { \"schedulers.coordinated.period\" = [\"10ms\", \"20ms\"] }",
        ));
        let [plot] = &all.drawn[..] else { panic!("{} plots", all.drawn.len()) };
        assert_eq!(labels(plot), ["none", "coordinated, period = 10ms", "coordinated, period = 20ms"]);
        let looks: Vec<_> = plot.lines.iter().map(|l| (l.colour, l.style)).collect();
        assert_eq!(looks, [(0, 0), (1, 0), (1, 1)]);
        assert!(plot.lines.iter().all(|l| l.points.len() == 2), "one each node count");
        assert_eq!(plot.quiet.len(), 1, "the network is the same for all");
        assert_eq!(plot.quiet[0].label, "quiet");
    }

    #[test]
    fn what_styles_cannot_tell_apart_has_figures_of_its_own() {
        let all = Plots::new(&results(
            "sweep = { \"program.bytes\" = [8, 16, 32, 64, 128], \"program.work\" = [\"1us\", \"2us\"] }",
        ));
        let of: Vec<_> = all.drawn.iter().map(|p| p.of.as_str()).collect();
        assert_eq!(of, ["bytes = 8", "bytes = 16", "bytes = 32", "bytes = 64", "bytes = 128"]);
        assert_eq!(labels(&all.drawn[0]), ["preempt, work = 1us", "preempt, work = 2us"]);
        assert_eq!(all.drawn[0].quiet.len(), 2, "work takes time without noise too");
        assert_eq!(all.left_out, 0);
    }

    #[test]
    fn many_lines_are_spread_over_figures() {
        let all = Plots::new(&results(
            "schedulers = [\"none\", \"preempt\", \"fair\"]\nsweep = { \"program.bytes\" = [8, 16, 32] }",
        ));
        let of: Vec<_> = all.drawn.iter().map(|p| (p.of.as_str(), p.lines.len())).collect();
        assert_eq!(of, [("bytes = 8", 3), ("bytes = 16", 3), ("bytes = 32", 3)]);
    }

    #[test]
    fn many_combinations_stay_in_the_table() {
        let seeds = (0..20).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
        let all = Plots::new(&results(&format!("sweep = {{ seed = [{seeds}] }}")));
        assert_eq!((all.drawn.len(), all.left_out), (12, 8));
    }

    #[test]
    fn schedulers_of_one_name_are_told_apart_by_what_differs() {
        let r = results(
            "schedulers = [{ coordinated = { period = \"10ms\" } }, { coordinated = { period = \"50ms\" } }]",
        );
        let names: BTreeSet<String> = schedulers(&r).into_iter().collect();
        assert_eq!(Vec::from_iter(names), ["coordinated, period 10ms", "coordinated, period 50ms"]);
    }
}
