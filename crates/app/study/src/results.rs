// SPDX-License-Identifier: MIT OR Apache-2.0
//! `study/results.json`: what a study found, with everything needed to run it again.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use colony_node::privilege::Privileges;
use colony_node::record::NodeRecord;
use colony_sim::simulate::Outcome;
use serde::{Deserialize, Serialize};

use crate::card::Card;
use crate::neighbours::{Load, Neighbours};
use crate::spare_here::SpareHere;
use crate::{Params, StudyError};

/// Now, seconds since 1970 (UTC).
pub(crate) fn unix_now_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(0)
}

/// A study's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`Results::SCHEMA`].
    pub schema: String,
    /// Version of Colony that made it.
    pub version: String,
    /// The command that makes it again.
    pub command: String,
    /// Begin of the study, seconds since 1970 (UTC).
    pub started_unix_s: i64,
    /// Duration of the study, seconds.
    pub took_s: f64,
    /// Every parameter.
    pub params: Params,
    /// The node it ran on.
    pub node: NodeRecord,
    /// Privileges of the run.
    pub privileges: Privileges,
    /// The main result in one sentence.
    pub headline: String,
    /// Warnings: reasons to read some results with care.
    pub warnings: Vec<String>,
    /// Steps that were left out, each with the reason and the remedy.
    pub not_done: Vec<String>,
    /// Other programs on the job's CPUs; `None` where the node does not say.
    #[serde(default)]
    pub neighbours: Option<Neighbours>,
    /// The node's own noise.
    pub noise: Option<Noise>,
    /// The node's report card: costs of its noise at scale, and what to change.
    #[serde(default)]
    pub card: Option<Card>,
    /// `allreduce` on this node: noise levels × schedulers.
    pub allreduce: Vec<Cell>,
    /// A spare core on this node; `None` if it was not measured.
    #[serde(default)]
    pub spare_core: Option<SpareHere>,
    /// The projection.
    pub scaling: Option<Scaling>,
    /// The seeds' figures beside ours.
    pub published: Vec<Published>,
    /// Figures that were not measured, or not in peace, each with the reason.
    #[serde(default)]
    pub missing: Vec<Missing>,
}

/// A figure of the study that there is not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Missing {
    /// Leibniz noise, per cent; 0 is none.
    pub noise_percent: f64,
    /// The scheduler.
    pub scheduler: SchedulerKind,
    /// The figure.
    pub figure: Figure,
    /// The reason.
    pub reason: String,
}

/// A figure of the study's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// `allreduce` on this node.
    Allreduce,
    /// The projection to many nodes.
    Projection,
}

/// The noise of the node and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Command that measures it again.
    pub command: String,
    /// Seconds observed, each CPU.
    pub observed_s: f64,
    /// CPUs observed, as a list.
    pub cpus: String,
    /// Shortest detour looked for, nanoseconds.
    pub threshold_ns: u64,
    /// The observer's smallest loop, nanoseconds.
    pub smallest_loop_ns: f64,
    /// Detours found, those not kept as rows included.
    pub detours: u64,
    /// Detours that are missing as rows.
    pub dropped: u64,
    /// Kernel events lost on the way to the attribution.
    pub lost_events: u64,
    /// Stolen share of the observed CPUs' time, 0 to 1.
    pub stolen_share: f64,
    /// Share of their time that the measuring program's own threads took, which is no part of `stolen_share`; `None`
    /// where it could not be told apart.
    #[serde(default)]
    pub measuring_share: Option<f64>,
    /// Share that the attribution explains; `None` if it did not run.
    pub explained: Option<Explained>,
    /// Periodic noise, one sentence a period.
    pub periodic: Vec<String>,
    /// By source, the largest thief first.
    pub sources: Vec<SourceRow>,
    /// Lengths of all detours.
    pub histogram: Vec<Bucket>,
    /// Single detours: the longest, and a random sample of the others.
    pub timeline: Vec<TimelinePoint>,
}

/// Shares that have a source, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// Of the stolen time.
    pub of_stolen: f64,
    /// Of the detours' number.
    pub of_detours: f64,
    /// Of the stolen time, throttling left out of both.
    pub of_stolen_without_throttle: f64,
    /// Of the detours' number, throttling left out of both.
    pub of_detours_without_throttle: f64,
}

/// A source of noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceRow {
    /// Its name, as `irq:local_timer`.
    pub source: String,
    /// Number of times it ran, in detours or below the threshold; `None` if no event of the kernel tells.
    #[serde(default)]
    pub events: Option<u64>,
    /// Detours of which it took the largest part.
    pub count: u64,
    /// Their sum, nanoseconds, all CPUs.
    pub stolen_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// Values between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// Smallest value, nanoseconds.
    pub low_ns: u64,
    /// First value above.
    pub high_ns: u64,
    /// Number of detours.
    pub count: u64,
}

/// A detour in the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimelinePoint {
    /// Start, nanoseconds from the start of the observation.
    pub start_ns: u64,
    /// Length.
    pub duration_ns: u64,
    /// CPU.
    pub cpu: u16,
    /// Index into [`Noise::sources`].
    pub source: u16,
}

/// Scheduler of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchedulerKind {
    /// Linux as it is.
    Unmodified,
    /// Linux under coordinated windows.
    Coordinated,
}

impl SchedulerKind {
    /// `unmodified` or `coordinated`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unmodified => "unmodified",
            Self::Coordinated => "coordinated",
        }
    }
}

/// One run of `allreduce` on this node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Command that runs it again.
    pub command: String,
    /// Leibniz noise asked for, per cent; 0 is none.
    pub noise_percent: f64,
    /// Noise as it came out, per cent; `None` where nobody looked.
    pub achieved_percent: Option<f64>,
    /// The scheduler.
    pub scheduler: SchedulerKind,
    /// Operations done.
    pub ops: u64,
    /// Mean time of an operation, nanoseconds.
    pub mean_ns: f64,
    /// Half of the 95 % interval of the mean, nanoseconds, from the operations of each half second; `None` if there are too
    /// few of them.
    #[serde(default)]
    pub mean_ci95_ns: Option<f64>,
    /// Other programs on the job's CPUs during the run; `None` where the node does not say.
    #[serde(default)]
    pub load: Option<Load>,
    /// Median.
    pub p50_ns: u64,
    /// 99 of 100 are no longer.
    pub p99_ns: u64,
    /// 999 of 1000 are no longer.
    pub p99_9_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// All times.
    pub histogram: Vec<Bucket>,
    /// Stolen time by window; `None` where it could not be told.
    pub split: Option<Split>,
    /// Lateness of window edges; `None` without coordination.
    pub edges: Option<Edges>,
}

/// Time stolen from the job's CPUs, by the window it was stolen in. All nanoseconds, summed over CPUs.
/// Without coordination the windows are those that would have been.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// Stolen inside favored windows.
    pub stolen_favored_ns: u64,
    /// Stolen inside regular windows.
    pub stolen_regular_ns: u64,
    /// Favored time that passed.
    pub favored_ns: u64,
    /// Regular time that passed.
    pub regular_ns: u64,
}

/// Lateness of windows' edges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Edges {
    /// Median lateness, nanoseconds.
    pub p50_ns: u64,
    /// 99 of 100 edges are no later.
    pub p99_ns: u64,
    /// The latest.
    pub max_ns: u64,
    /// All.
    pub histogram: Vec<Bucket>,
}

/// The projection to many nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// Command that makes it again.
    pub command: String,
    /// Model and version.
    pub model: String,
    /// Assumptions of the model.
    pub assumptions: Vec<String>,
    /// Set if the noise in the curves was measured on this node. A level whose noise in favored windows was not
    /// measured has no coordinated curve then.
    #[serde(default)]
    pub measured: bool,
    /// Origin of the noise: measured on this node, or made after the published description.
    pub noise_from: String,
    /// Origin of the time without noise.
    pub base_from: String,
    /// A curve each noise level and scheduler.
    pub curves: Vec<ScalingCurve>,
}

impl Figure {
    /// All.
    pub const ALL: [Self; 2] = [Self::Allreduce, Self::Projection];
}

/// A projected curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScalingCurve {
    /// Leibniz noise, per cent; 0 is the node's own alone.
    pub noise_percent: f64,
    /// The scheduler.
    pub scheduler: SchedulerKind,
    /// The points.
    pub points: Vec<Point>,
}

/// An operation at one node count. All times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Nodes.
    pub nodes: u64,
    /// Time without noise.
    pub base_ns: f64,
    /// Mean time.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: f64,
    /// 99 of 100 are no longer.
    pub p99_ns: f64,
    /// 999 of 1000 are no longer.
    pub p99_9_ns: f64,
    /// Longest.
    pub max_ns: f64,
    /// Mean over the time without noise.
    pub slowdown: f64,
    /// Lower end of the 95 % interval of the mean, nanoseconds: another measurement of the noise could have led there. `None`
    /// if it was not computed.
    #[serde(default)]
    pub low_ns: Option<f64>,
    /// Its upper end.
    #[serde(default)]
    pub high_ns: Option<f64>,
}

impl From<&Outcome> for Point {
    fn from(o: &Outcome) -> Self {
        Self {
            nodes: u64::from(o.nodes),
            base_ns: o.quiet_ns,
            mean_ns: o.mean_ns,
            p50_ns: o.p50_ns as f64,
            p99_ns: o.p99_ns as f64,
            p99_9_ns: o.p99_9_ns as f64,
            max_ns: o.max_ns as f64,
            slowdown: o.slowdown,
            low_ns: None,
            high_ns: None,
        }
    }
}

/// Origin of a figure of ours that stands beside a published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Computed from definitions of the document, without a simulation.
    Arithmetic,
    /// The published value is an input of ours.
    PutIn,
    /// A parameter was fitted to this value, or chosen because the result agrees with it.
    Fitted,
    /// Simulated, and nothing was fitted to this value.
    Predicted,
    /// Measured on the machine at hand, or on a virtual node.
    Measured,
}

impl Basis {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Arithmetic, Self::PutIn, Self::Fitted, Self::Predicted, Self::Measured];

    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arithmetic => "arithmetic",
            Self::PutIn => "put in",
            Self::Fitted => "fitted",
            Self::Predicted => "predicted",
            Self::Measured => "measured",
        }
    }
}

/// A figure of ours, beside the published one if the document has one of the same quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// Name of the experiment (`colony study NAME`).
    pub experiment: String,
    /// Document and place.
    pub place: String,
    /// Name of the quantity.
    pub what: String,
    /// The published value of this quantity, with its unit; `–` if the document has none.
    pub published: String,
    /// The published value as a number, in the unit of `value`. `None` if there is none, or if it is a limit.
    #[serde(default)]
    pub published_value: Option<f64>,
    /// Origin of our figure; `None` without a published value.
    #[serde(default)]
    pub basis: Option<Basis>,
    /// Ours, with its unit.
    pub ours: String,
    /// Ours as a number: nanoseconds, or a ratio.
    pub value: Option<f64>,
    /// Method behind our figure, or the reason why there is none.
    pub note: String,
}

impl Published {
    /// Error of our figure, as a share of the published one: 0.1 if ours is a tenth larger. `None` without two values.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        let published = self.published_value.filter(|v| *v != 0.0)?;
        Some(self.value? / published - 1.0)
    }

    /// Error and origin of our figure, `+31 %, predicted`; empty without a published value.
    #[must_use]
    pub fn fidelity(&self) -> String {
        let Some(basis) = self.basis else { return String::new() };
        match self.error() {
            Some(error) => format!("{}, {}", signed_percent(error), basis.name()),
            None => basis.name().to_owned(),
        }
    }
}

/// A difference as per cent, with its sign: `+31 %`, `−2.3 %`, `0 %`.
fn signed_percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent.abs() < 0.05 {
        return "0 %".into();
    }
    let decimals = usize::from(percent.abs() < 9.95);
    format!("{percent:+.decimals$} %").replace('-', "−")
}

impl Results {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.study/1";

    /// Reads a results file.
    ///
    /// # Errors
    /// [`StudyError::Results`] where it is none, or one of another version.
    pub fn read(path: &Path) -> Result<Self, StudyError> {
        let error = |reason: String| StudyError::Results { path: path.into(), reason };
        let text = std::fs::read_to_string(path).map_err(|e| error(e.to_string()))?;
        let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| error(e.to_string()))?;
        match value.get("schema").and_then(|s| s.as_str()) {
            Some(Self::SCHEMA) => serde_json::from_value(value).map_err(|e| error(e.to_string())),
            Some(other) => Err(error(format!(
                "its schema is `{}`, this version reads `{}`",
                other.chars().take(40).collect::<String>(),
                Self::SCHEMA
            ))),
            None => Err(error("it names no schema".into())),
        }
    }

    /// Makes `folder` and checks that [`write`](Self::write) could write there: to be asked before a study.
    ///
    /// # Errors
    /// [`StudyError::Write`] names the file.
    pub fn check_writable(folder: &Path) -> Result<(), StudyError> {
        let error = |path: &Path| {
            let path = path.to_path_buf();
            move |source| StudyError::Write { path, source }
        };
        std::fs::create_dir_all(folder).map_err(error(folder))?;
        for file in ["results.json", "report.html"].map(|f| folder.join(f)) {
            colony_node::file::check_writable(&file).map_err(error(&file))?;
        }
        Ok(())
    }

    /// The reason why a figure is missing.
    #[must_use]
    pub fn why_missing(&self, noise_percent: f64, scheduler: SchedulerKind, figure: Figure) -> Option<&str> {
        let is =
            |m: &&Missing| m.noise_percent == noise_percent && m.scheduler == scheduler && m.figure == figure;
        self.missing.iter().find(is).map(|m| m.reason.as_str())
    }

    /// The run of `allreduce` with this noise under this scheduler.
    #[must_use]
    pub fn cell(&self, noise_percent: f64, scheduler: SchedulerKind) -> Option<&Cell> {
        self.allreduce.iter().find(|c| c.noise_percent == noise_percent && c.scheduler == scheduler)
    }
}

impl Scaling {
    /// The curve of this noise under this scheduler.
    #[must_use]
    pub fn curve(&self, noise_percent: f64, scheduler: SchedulerKind) -> Option<&ScalingCurve> {
        self.curves.iter().find(|c| c.noise_percent == noise_percent && c.scheduler == scheduler)
    }
}

impl ScalingCurve {
    /// The point at `nodes`.
    #[must_use]
    pub fn at(&self, nodes: u64) -> Option<&Point> {
        self.points.iter().find(|p| p.nodes == nodes)
    }
}
