// SPDX-License-Identifier: MIT OR Apache-2.0
//! The detours of a trace, again: at the same distances, of the same lengths.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use super::injector::Charge;
use super::session::Session;
use super::{InjectError, Injection, Planned, Schedule, Target};
use colony_trace::Trace;

/// A detour more than this late is given up, so that the replay keeps pace with its trace.
const PATIENCE_NS: u64 = 1_000_000;

/// Map from the CPUs of the trace to the CPUs of this node that get their detours. Prints and reads as `in-order`,
/// `same` or `0=2,1=3` (trace CPU = CPU here).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum CpuMap {
    /// The trace's CPUs in ascending order to the target's CPUs in ascending order, as far as they go.
    #[default]
    InOrder,
    /// Each to the CPU of the same number.
    Same,
    /// By these pairs of a trace CPU and a CPU here. Several may go to one: overlapping detours become one.
    Pairs(Vec<(u16, usize)>),
}

impl FromStr for CpuMap {
    type Err = InjectError;
    fn from_str(text: &str) -> Result<Self, InjectError> {
        let pair = |p: &str| {
            let (from, to) = p.split_once('=')?;
            Some((from.trim().parse().ok()?, to.trim().parse().ok()?))
        };
        match text.trim() {
            "in-order" => Ok(Self::InOrder),
            "same" => Ok(Self::Same),
            pairs => pairs.split(',').map(pair).collect::<Option<_>>().map(Self::Pairs).ok_or_else(|| {
                InjectError::Text {
                    text: text.chars().take(80).collect(),
                    wanted: "map of CPUs",
                    notation: "`in-order`, `same`, or pairs of trace CPU and CPU as `0=2,1=3`",
                }
            }),
        }
    }
}

impl fmt::Display for CpuMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InOrder => f.write_str("in-order"),
            Self::Same => f.write_str("same"),
            Self::Pairs(pairs) => {
                let mut comma = "";
                for (from, to) in pairs {
                    write!(f, "{comma}{from}={to}")?;
                    comma = ",";
                }
                Ok(())
            }
        }
    }
}

impl From<CpuMap> for String {
    fn from(map: CpuMap) -> Self {
        map.to_string()
    }
}

impl TryFrom<String> for CpuMap {
    type Error = InjectError;
    fn try_from(text: String) -> Result<Self, InjectError> {
        text.parse()
    }
}

/// The plan of a replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayPlan {
    /// The node of the trace whose detours are taken.
    pub node: u32,
    /// The map of CPUs.
    pub map: CpuMap,
    /// The factor by which instants follow each other faster; the detours keep their lengths. At 2, a trace of 1 %
    /// noise makes 2 %.
    pub speed: f64,
    /// True if the trace starts over at its end.
    pub again: bool,
    /// The CPUs, and the scheduling class of the injectors. With a map other than in order, only CPUs in the map can be
    /// chosen.
    pub on: Target,
    /// Duration of the replay; `None`: once through the trace, `u64::MAX`: until the stop flag is set.
    pub duration_ns: Option<u64>,
    /// Duration of the check, in which a victim observes the beginning of the trace before the run; 0: no check.
    pub check_ns: u64,
}

impl Default for ReplayPlan {
    fn default() -> Self {
        Self {
            node: 0,
            map: CpuMap::InOrder,
            speed: 1.0,
            again: false,
            on: Target::default(),
            duration_ns: None,
            check_ns: 1_000_000_000,
        }
    }
}

/// The detours that each CPU replays.
#[derive(Debug)]
struct Cast {
    pairs: Vec<(u16, usize)>,
    left_out: Vec<u16>,
    detours: BTreeMap<usize, Vec<Planned>>,
    length_ns: u64,
}

impl ReplayPlan {
    /// Replays the trace. Blocks until it is over or `stop` is set (then for up to half a second more).
    ///
    /// # Errors
    /// [`InjectError`] for a plan, a trace or a target that cannot be; nothing has been injected then.
    pub fn run(&self, trace: &Trace, stop: &AtomicBool) -> Result<ReplayReport, InjectError> {
        if !(0.001..=1000.0).contains(&self.speed) {
            return Err(InjectError::Speed { speed: self.speed });
        }
        let cast = self.cast(trace)?;
        let duration_ns = self.duration_ns.unwrap_or(cast.length_ns);
        if duration_ns == 0 {
            return Err(InjectError::Empty { run: "a replay" });
        }
        let on = Target { cpus: Some(cast.detours.keys().copied().collect()), ..self.on.clone() };
        let on = on.resolve(on.cpus()?)?;
        let again_ns = self.again.then_some(cast.length_ns);
        let make = |cpu, from_ns| {
            Schedule::replay(cast.detours.get(&cpu).cloned().unwrap_or_default(), again_ns, from_ns)
        };
        let session = Session { on, make: &make, patience_ns: PATIENCE_NS, charge: Charge::All, stop };
        let injection = session.run(self.check_ns, duration_ns)?;
        Ok(ReplayReport {
            schema: ReplayReport::SCHEMA.into(),
            plan: self.clone(),
            trace_s: cast.length_ns as f64 / 1e9,
            cpus: cast.pairs,
            left_out: cast.left_out,
            injection,
        })
    }

    /// Chooses CPUs, and lays their detours out from the trace's beginning.
    fn cast(&self, trace: &Trace) -> Result<Cast, InjectError> {
        let here = || trace.detours.iter().filter(|d| d.node == self.node && d.duration_ns > 0);
        let found: BTreeSet<u16> = here().map(|d| d.cpu).collect();
        let pairs: Vec<(u16, usize)> = match &self.map {
            CpuMap::InOrder => {
                let cpus = self.on.cpus()?;
                found.iter().copied().zip(cpus.iter()).collect()
            }
            CpuMap::Same => found.iter().map(|&c| (c, usize::from(c))).collect(),
            CpuMap::Pairs(pairs) => pairs.iter().copied().filter(|(from, _)| found.contains(from)).collect(),
        };
        let wanted = |to| self.on.cpus.as_ref().is_none_or(|cpus| cpus.contains(to));
        let pairs: Vec<_> = pairs.into_iter().filter(|&(_, to)| wanted(to)).collect();
        if pairs.is_empty() {
            let nodes: BTreeSet<u32> = trace.detours.iter().map(|d| d.node).collect();
            return Err(InjectError::NoDetours {
                wanted: format!("node {} with the CPUs mapped as {}", self.node, self.map),
                found: format!(
                    "{} detours on nodes {}, CPUs {} of this one",
                    trace.detours.len(),
                    list(&nodes),
                    list(&found)
                ),
            });
        }
        let (begin_ns, length_ns) = extent(trace);
        let faster = |ns: f64| (ns / self.speed).round();
        let mut detours: BTreeMap<usize, Vec<Planned>> = BTreeMap::new();
        for &(from, to) in &pairs {
            let planned = here().filter(|d| d.cpu == from).map(|d| Planned {
                deadline_ns: faster(d.start_ns.saturating_sub(begin_ns) as f64) as i64,
                length_ns: d.duration_ns,
            });
            detours.entry(to).or_default().extend(planned);
        }
        let left_out = found.into_iter().filter(|c| pairs.iter().all(|(from, _)| from != c)).collect();
        Ok(Cast { pairs, left_out, detours, length_ns: faster(length_ns as f64) as u64 })
    }
}

/// Start and length of the observation of a trace. If a trace of another tool does not state them, the observation is
/// the time from the first detour to the last.
fn extent(trace: &Trace) -> (i64, u64) {
    let first_ns = trace.detours.iter().map(|d| d.start_ns).min().unwrap_or(0);
    let last_ns = trace.detours.iter().map(|d| d.end_ns()).max().unwrap_or(0);
    let observed_ns = (trace.meta.observed_s * 1e9) as u64;
    let said_ns = trace.meta.start_ns;
    let plausible = said_ns <= first_ns && first_ns.abs_diff(said_ns) <= observed_ns;
    let begin_ns = if plausible { said_ns } else { first_ns };
    (begin_ns, last_ns.abs_diff(begin_ns).max(if plausible { observed_ns } else { 0 }))
}

/// A trace's detours asked for, made, and seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// [`ReplayReport::SCHEMA`].
    pub schema: String,
    /// The plan.
    pub plan: ReplayPlan,
    /// Seconds one replay of the trace takes.
    pub trace_s: f64,
    /// Pairs of a trace CPU and the CPU that got its detours.
    pub cpus: Vec<(u16, usize)>,
    /// CPUs of the trace whose detours were not replayed.
    pub left_out: Vec<u16>,
    /// The detours that were made, and those that a program on the CPU observed.
    pub injection: Injection,
}

impl ReplayReport {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.inject.replay/1";
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a trace of {:.1} s on {}: ", self.trace_s, CpuMap::Pairs(self.cpus.clone()))?;
        self.injection.fmt(f)?;
        match &self.left_out[..] {
            [] => Ok(()),
            left => writeln!(f, "note: not replayed, for want of CPUs: trace CPUs {left:?}"),
        }
    }
}

/// Numbers as `0, 2, 3`.
fn list<T: ToString>(numbers: &BTreeSet<T>) -> String {
    numbers.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClassChoice;
    use colony_trace::{Detour, Source, TraceMeta};
    use proptest::prelude::*;

    const BEGIN: i64 = 1_700_000_000_000_000_000;

    fn trace(detours: &[(u16, i64, u64)], observed_s: f64) -> Trace {
        Trace {
            meta: TraceMeta {
                cpus: "0-3".parse().expect("valid"),
                observed_s,
                start_ns: BEGIN,
                ..TraceMeta::default()
            },
            sources: vec![Source::Unexplained],
            detours: detours
                .iter()
                .map(|&(cpu, at, duration_ns)| Detour {
                    node: 0,
                    cpu,
                    start_ns: BEGIN + at,
                    duration_ns,
                    source: 0,
                })
                .collect(),
        }
    }

    #[test]
    fn detours_keep_their_distances_and_lengths_and_speed_changes_distances_only() {
        let t = trace(&[(2, 1_000, 300), (3, 2_000, 100), (2, 9_000, 400)], 1.0);
        let plan = ReplayPlan { map: "2=0,3=0".parse().expect("valid"), ..ReplayPlan::default() };
        let instants = |speed| {
            let cast = ReplayPlan { speed, ..plan.clone() }.cast(&t).expect("possible");
            let list = Schedule::replay(cast.detours[&0].clone(), None, 0);
            (list.map(|p| (p.deadline_ns, p.length_ns)).collect::<Vec<_>>(), cast.length_ns)
        };
        assert_eq!(instants(1.0), (vec![(1_000, 300), (2_000, 100), (9_000, 400)], 1_000_000_000));
        assert_eq!(instants(2.0), (vec![(500, 300), (1_000, 100), (4_500, 400)], 500_000_000));
        // five times faster the first two overlap: 200..500 and 400..500
        assert_eq!(instants(5.0).0, [(200, 300), (1_800, 400)]);
    }

    #[test]
    fn cpus_that_are_not_mapped_are_named() {
        let t = trace(&[(0, 10, 5), (1, 20, 5), (2, 30, 5)], 1.0);
        let cast = ReplayPlan::default().cast(&t).expect("possible");
        assert_eq!((cast.pairs.len(), cast.left_out), (1, vec![1, 2]));
        let nowhere = ReplayPlan { node: 7, ..ReplayPlan::default() };
        assert!(matches!(nowhere.cast(&t), Err(InjectError::NoDetours { .. })));
        let error = ReplayPlan { speed: f64::NAN, ..ReplayPlan::default() };
        assert!(matches!(error.run(&t, &AtomicBool::new(false)), Err(InjectError::Speed { .. })));
    }

    #[test]
    fn a_trace_without_start_begins_with_its_first_detour() {
        let mut t = trace(&[(0, 5_000, 10), (0, 7_000, 10)], 1.0);
        t.meta.start_ns = 0;
        t.meta.observed_s = 0.0;
        let cast = ReplayPlan::default().cast(&t).expect("possible");
        let only = cast.detours.values().next().expect("one CPU");
        assert_eq!((only[0].deadline_ns, cast.length_ns), (0, 2_010));
    }

    #[test]
    fn a_replay_makes_or_counts_every_detour() {
        let detours: Vec<_> = (0..20).map(|i| (0, i * 10_000_000, 100_000)).collect();
        let on = Target { class: ClassChoice::Other, ..Target::default() };
        let plan = ReplayPlan { on, check_ns: 100_000_000, ..ReplayPlan::default() };
        let report = plan.run(&trace(&detours, 0.3), &AtomicBool::new(false)).expect("possible");
        let [c] = &report.injection.cpus[..] else { panic!("one CPU: {report}") };
        assert!(c.made > 0 && c.made + c.missed <= 20, "{report}");
        assert_eq!(c.cut, 0, "{report}");
        serde_json::to_string(&report).expect("serialisable");
    }

    #[test]
    fn a_replay_takes_no_more_cpu_time_than_the_trace_has() {
        let detours: Vec<_> = (0..100).map(|i| (0, i * 4_000_000, 1_000_000)).collect();
        let on = Target { class: ClassChoice::Other, ..Target::default() };
        let plan = ReplayPlan { on, check_ns: 0, ..ReplayPlan::default() };
        let report = plan.run(&trace(&detours, 0.5), &AtomicBool::new(false)).expect("possible");
        let c = &report.injection.cpus[0];
        // waking up takes a hundredth of these detours, and is part of them
        assert!(c.cpu_share <= c.duty_asked + 0.01, "{report}");
        assert!(c.made == 0 || c.duty <= c.cpu_share + 0.001, "{report}");
    }

    #[test]
    fn a_detour_that_would_take_the_cpu_for_long_is_cut_and_counted() {
        let on = Target { class: ClassChoice::Other, ..Target::default() };
        let plan = ReplayPlan { on, check_ns: 0, duration_ns: Some(700_000_000), ..ReplayPlan::default() };
        let t = trace(&[(0, 0, 60_000_000_000)], 60.0);
        let report = plan.run(&t, &AtomicBool::new(false)).expect("possible");
        let c = &report.injection.cpus[0];
        assert!(c.made == 0 || (c.cut == 1 && c.duty < c.duty_asked && c.duty_asked <= 1.0), "{report}");
    }

    proptest! {
        #[test]
        fn a_map_is_read_as_it_is_printed(pairs in prop::collection::vec((any::<u16>(), 0usize..4096), 1..9)) {
            let map = CpuMap::Pairs(pairs);
            prop_assert_eq!(map.to_string().parse::<CpuMap>().expect("own print"), map);
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<CpuMap>();
        }

        #[test]
        fn no_trace_panics(
            list in prop::collection::vec((0u16..3, any::<i64>(), any::<u64>()), 0..9),
            start_ns: i64, observed_s: f64, speed in 0.001f64..1000.0
        ) {
            let mut t = trace(&[], observed_s);
            t.meta.start_ns = start_ns;
            t.detours = list
                .into_iter()
                .map(|(cpu, start_ns, duration_ns)| Detour { node: 0, cpu, start_ns, duration_ns, source: 0 })
                .collect();
            let plan = ReplayPlan { map: CpuMap::Pairs(vec![(0, 0), (1, 0)]), speed, ..ReplayPlan::default() };
            if let Ok(cast) = plan.cast(&t) {
                let _ = Schedule::replay(cast.detours[&0].clone(), Some(cast.length_ns), BEGIN).take(20).count();
            }
        }
    }
}
