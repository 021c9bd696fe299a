// SPDX-License-Identifier: MIT OR Apache-2.0
//! The seeds' figures: every figure, table and sentence with a figure that the project reproduces, with
//! the published values as the text gives them.

mod anl;
mod checkpoint;
mod cited;
mod colony;
mod compute_node;
mod hybrid_lb;
mod jaguar;
mod logging;
mod pages;
mod progress;
mod settings;
mod spare_core;
mod surface;
mod three_kernels;
mod tlb;
mod virtual_node;

use colony_sim::words::number_of;
use rayon::prelude::*;
use serde::Serialize;

use self::cited::Cited;
pub use self::settings::Setting;
use crate::chart::{Chart, Surface};
use crate::node::BenchRun;
use crate::results::{Cell, Published};
use crate::{Node, Params, Progress, StudyError, format};

/// A source document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Document {
    /// The report on coordinated scheduling.
    Colony,
    /// The progress report of 2006.
    Progress2006,
    /// The first experiments on Watson Blue Gene/L.
    Anl2005,
    /// Core specialization on Jaguar.
    Jaguar2010,
    /// The system software of Blue Gene/L.
    BlueGene2006,
}

impl Document {
    /// Its title.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Colony => "Colony Linux kernel technical report",
            Self::Progress2006 => "HPC-Colony progress report 2006",
            Self::Jaguar2010 => "Reducing Application Runtime Variability on Jaguar XT5 (CUG 2010)",
            Self::BlueGene2006 => {
                "Designing a Highly-Scalable Operating System: The Blue Gene/L Story (SC06)"
            }
            Self::Anl2005 => "Initial Results: Experiments on Watson BlueGene/L (ANL 2005)",
        }
    }
}

/// Origin of our figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Arithmetic alone.
    Arithmetic,
    /// The projection to the published node counts.
    Projection,
    /// The same, for so many nodes and iterations that the main job leaves it out.
    LongProjection,
    /// Measured on this node's CPUs.
    Node,
    /// The projection, and this node's CPUs where a benchmark can run.
    Both,
    /// Measured on a virtual node, which takes a minute or more, and projected from there.
    Virtual,
    /// Measured on a compute node and on a virtual Linux node, which takes minutes.
    Compute,
    /// Measured on a compute node alone.
    ComputeNode,
}

impl Method {
    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arithmetic => "arithmetic",
            Self::Projection | Self::LongProjection => "projection",
            Self::Node => "this node",
            Self::Both => "projection, this node",
            Self::Virtual => "virtual node, projection",
            Self::Compute => "compute node, virtual node",
            Self::ComputeNode => "compute node",
        }
    }
}

/// Inputs of an experiment.
pub struct Context<'a> {
    /// Parameters: seed, windows, node counts.
    pub params: &'a Params,
    /// The machine; `None`: projection and arithmetic only.
    pub node: Option<&'a mut dyn Node>,
    /// Receiver of the experiment's progress.
    pub progress: &'a dyn Progress,
    /// Charts that the experiment has drawn.
    pub charts: Vec<Chart>,
    /// Heat maps that it has drawn.
    pub surfaces: Vec<Surface>,
}

impl<'a> Context<'a> {
    /// Inputs without charts.
    pub fn new(params: &'a Params, node: Option<&'a mut dyn Node>, progress: &'a dyn Progress) -> Self {
        Self { params, node, progress, charts: Vec::new(), surfaces: Vec::new() }
    }
}

/// Outcome of an experiment: rows of published values beside ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// [`Outcome::SCHEMA`].
    pub schema: &'static str,
    /// The experiment.
    pub name: &'static str,
    /// The rows.
    pub rows: Vec<Published>,
    /// Lines over numbers of nodes, if the experiment has any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub charts: Vec<Chart>,
    /// Heat maps over two parameters, if the experiment has any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub surfaces: Vec<Surface>,
}

impl Outcome {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.study.outcome/1";
}

/// A figure, table or sentence of a seed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// The document.
    pub document: Document,
    /// Section, figure or table of the document.
    pub place: &'static str,
    /// Subject of the experiment.
    pub what: &'static str,
    /// The published statement, word for word.
    pub published: &'static [&'static str],
    /// Method of the reproduction.
    pub method: Method,
    /// Options that change the outcome; others are refused.
    pub settings: &'static [Setting],
    #[serde(skip)]
    run: fn(&Experiment, &mut Context<'_>) -> Result<Vec<Published>, StudyError>,
}

impl Experiment {
    /// Runs it.
    ///
    /// # Errors
    /// [`StudyError`] where the projection or the node refuses.
    pub fn run(&self, context: &mut Context<'_>) -> Result<Outcome, StudyError> {
        let rows = (self.run)(self, context)?;
        let charts = std::mem::take(&mut context.charts);
        let surfaces = std::mem::take(&mut context.surfaces);
        Ok(Outcome { schema: Outcome::SCHEMA, name: self.name, rows, charts, surfaces })
    }

    /// Document and place, as results name them.
    #[must_use]
    pub fn citation(&self) -> String {
        format!("{}, {}", self.document.title(), self.place)
    }

    /// A figure of which the document has no value.
    fn row(&self, what: impl Into<String>, ours: Ours, note: &str) -> Published {
        self.beside(what, None, ours, note)
    }

    /// A figure, beside the published value of the same quantity if the document has one.
    fn beside(
        &self,
        what: impl Into<String>,
        published: impl Into<Option<Cited>>,
        ours: Ours,
        note: &str,
    ) -> Published {
        let published = published.into();
        Published {
            experiment: self.name.into(),
            place: self.citation(),
            what: what.into(),
            published: published.map_or(format::NOT_KNOWN, |cited| cited.text).into(),
            published_value: published.and_then(|cited| cited.value),
            basis: published.map(|cited| cited.basis),
            ours: ours.text(),
            value: ours.value(),
            note: note.into(),
        }
    }
}

/// A benchmark of an experiment on this node, as the rows that `rows` makes of its result. If the benchmark fails, or has one
/// rank only (which never waits for another), there is one row with the reason instead, and the rows of other parts stay.
fn on_this_node(
    e: &Experiment,
    c: &mut Context<'_>,
    (what, run): (String, BenchRun),
    rows: impl Fn(&str, &Cell) -> Vec<Published>,
) -> Vec<Published> {
    let Some(node) = c.node.as_deref_mut() else { return Vec::new() };
    let what = format!("{what}, {}", number_of(run.ranks.into(), "rank"));
    let found = match run.ranks {
        0 | 1 => Err("one rank never waits for another; give the study two CPUs (--cpus)".to_owned()),
        _ => c.progress.during(&what, run.seconds, || node.bench(&run)).map_err(|e| e.to_string()),
    };
    match found {
        Ok(cell) => rows(&what, &cell),
        Err(why) => {
            let (what, note) = (what, format!("not measured: {why}"));
            vec![Published {
                ours: format::NOT_KNOWN.into(),
                value: None,
                ..e.row(what, Ours::Count(0), &note)
            }]
        }
    }
}

/// A figure of ours.
#[derive(Clone, Copy, Debug)]
enum Ours {
    /// Nanoseconds.
    Ns(f64),
    /// A ratio.
    Times(f64),
    /// A share of one.
    Share(f64),
    /// A number of things.
    Count(u64),
}

impl Ours {
    fn text(self) -> String {
        match self {
            Self::Ns(ns) => format::time(ns),
            Self::Times(r) => format::times(r),
            Self::Share(s) => format::percent(s),
            Self::Count(n) => format::count(n),
        }
    }

    fn value(self) -> Option<f64> {
        match self {
            Self::Ns(v) | Self::Times(v) | Self::Share(v) => Some(v),
            Self::Count(n) => Some(n as f64),
        }
    }
}

/// An experiment of a document that has a command of its own, with other options and results.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OtherCommand {
    /// The command.
    pub command: &'static str,
    /// The document.
    pub document: Document,
    /// Section, figure or table of the document.
    pub place: &'static str,
    /// Subject of the experiment.
    pub what: &'static str,
}

/// Experiments with a command of their own.
pub const OTHER_COMMANDS: &[OtherCommand] = &[
    OtherCommand {
        command: "colony study das-boot",
        document: Document::Anl2005,
        place: "Das_Boot",
        what: "boot time of an I/O node and of a compute node against the size of what is booted",
    },
    OtherCommand {
        command: "colony study io-scaling",
        document: Document::BlueGene2006,
        place: "Fig. 5",
        what: "bandwidth of files over compute nodes and I/O nodes",
    },
    OtherCommand {
        command: "colony study io-sockets",
        document: Document::BlueGene2006,
        place: "Fig. 4",
        what: "share of an I/O node's link that sockets of compute nodes reach",
    },
    OtherCommand {
        command: "colony bench checkpoint",
        document: Document::Progress2006,
        place: "Section 2.3, Table 1",
        what: "checkpoints in the memory of two nodes, and their time on 8,192 and 20,480 processors",
    },
    OtherCommand {
        command: "colony study fault-tolerance",
        document: Document::Progress2006,
        place: "Section 2.3",
        what: "time and energy that failures cost under each scheme of fault tolerance, up to a million PEs",
    },
    OtherCommand {
        command: "colony sim --report",
        document: Document::Colony,
        place: "Fig. 2",
        what: "two schedules of one job, one above the other: when each of eight nodes runs it, and when all do",
    },
    OtherCommand {
        command: "colony measure",
        document: Document::Anl2005,
        place: "Selfish",
        what: "detours of this node's CPUs, with the source of each",
    },
];

/// Every experiment, in the order of the documents.
pub fn all() -> impl Iterator<Item = &'static Experiment> {
    let colony = colony::EXPERIMENTS.iter().chain(virtual_node::EXPERIMENTS);
    colony
        .chain(pages::EXPERIMENTS)
        .chain(progress::EXPERIMENTS)
        .chain(checkpoint::EXPERIMENTS)
        .chain(logging::EXPERIMENTS)
        .chain(hybrid_lb::EXPERIMENTS)
        .chain(anl::EXPERIMENTS)
        .chain(surface::EXPERIMENTS)
        .chain(jaguar::EXPERIMENTS)
        .chain(spare_core::EXPERIMENTS)
        .chain(compute_node::EXPERIMENTS)
        .chain(tlb::EXPERIMENTS)
        .chain(three_kernels::EXPERIMENTS)
}

/// The experiment of this name.
///
/// # Errors
/// [`StudyError::Unknown`], with the nearest name there is.
pub fn find(name: &str) -> Result<&'static Experiment, StudyError> {
    all().find(|e| e.name == name).ok_or_else(|| {
        let near = all()
            .map(|e| (distance(e.name, name), e.name))
            .min()
            .filter(|(d, n)| *d <= n.len() / 2)
            .map(|(_, n)| n);
        StudyError::Unknown { name: name.chars().take(60).collect(), near }
    })
}

/// Rows of all experiments that need no machine, in the order of [`all`]. The experiments run side by side.
///
/// # Errors
/// As [`Experiment::run`].
pub fn projected(params: &Params) -> Result<Vec<Published>, StudyError> {
    let is_short =
        |e: &&Experiment| matches!(e.method, Method::Arithmetic | Method::Projection | Method::Both);
    let experiments: Vec<_> = all().filter(is_short).collect();
    let rows = |e: &&Experiment| Ok(e.run(&mut Context::new(params, None, &()))?.rows);
    let rows: Vec<Vec<Published>> =
        experiments.par_iter().with_max_len(1).map(rows).collect::<Result<_, StudyError>>()?;
    Ok(rows.concat())
}

/// Letters to change, add or drop to get from one name to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(60).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        let names: Vec<_> = all().map(|e| e.name).collect();
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(names.len(), unique.len());
        assert!(names.iter().all(|n| find(n).is_ok()));
        assert!(all().all(|e| !e.published.is_empty() && !e.what.is_empty()));
        let wrong = find("fig55").expect_err("there is none").to_string();
        assert!(wrong.contains("did you mean `fig5`"), "{wrong}");
        assert!(!find("<script>").expect_err("there is none").to_string().contains("mean"));
    }
}
