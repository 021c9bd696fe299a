// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options that an experiment declares are those that its outcome depends on.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::OnceLock;

use colony_doctor::{Examination, ThreadSeen};
use colony_node::cpu::CpuSet;
use colony_node::privilege::Privileges;
use colony_node::record::NodeRecord;
use colony_sim::NodeNoise;
use colony_study::neighbours::Usage;
use colony_study::node::{BenchRun, Injection, OwnNoise};
use colony_study::results::Cell;
use colony_study::seeds::{self, Context, Experiment, Method, Setting};
use colony_study::spare_here::SpareHere;
use colony_study::{
    Node, Params, StudyError, compute_node, pages, spare_node, three_kernels, tlb, virtual_node,
};
use colony_time::{DutyCycle, Windows};

use crate::fake::Fake;

/// A node whose results are hashes of all that a request and the node's own settings say.
struct Hashing {
    cpus: Option<CpuSet>,
}

impl Hashing {
    fn number(&self, request: &impl std::fmt::Debug) -> f64 {
        let mut hasher = DefaultHasher::new();
        format!("{request:?} {:?}", self.cpus).hash(&mut hasher);
        (hasher.finish() % 1_000_000_007) as f64
    }
}

fn absent<T>() -> Result<T, StudyError> {
    Err(StudyError::Step { what: "asking the node".into(), reason: "this node only runs benchmarks".into() })
}

impl Node for Hashing {
    fn bench(&mut self, run: &BenchRun) -> Result<Cell, StudyError> {
        static CELL: OnceLock<Cell> = OnceLock::new();
        let cell =
            CELL.get_or_init(|| Fake::default().bench(run).expect("the made-up node runs each benchmark"));
        // the command is a note only
        Ok(Cell { mean_ns: self.number(run), command: String::new(), ..cell.clone() })
    }

    fn leibniz_levels(&mut self, max_terms: &[u64]) -> Result<Vec<f64>, StudyError> {
        Ok(max_terms.iter().map(|terms| self.number(terms)).collect())
    }

    fn pages(
        &mut self,
        kernel: &str,
        class: &str,
        rounds: usize,
    ) -> Result<Vec<pages::PageRuns>, StudyError> {
        let seconds = self.number(&(kernel, class));
        let run = || pages::PageRun { seconds, faults: 1000, large: None, misses: Ok(1), event: None };
        pages::measure(rounds, |_| None, |_| Ok(run()))
    }

    fn record(&self) -> NodeRecord {
        Fake::default().record()
    }

    fn privileges(&self) -> Privileges {
        Fake::default().privileges()
    }

    fn usage(&self) -> Option<Usage> {
        None
    }

    fn noise(&mut self, _: f64) -> Result<OwnNoise, StudyError> {
        absent()
    }

    fn job(&self) -> Result<CpuSet, StudyError> {
        absent()
    }

    fn examine(&self, _: &CpuSet, _: Vec<ThreadSeen>) -> Result<Examination, StudyError> {
        absent()
    }

    fn detours(&mut self, _: f64, _: &Injection, _: Option<&Windows>) -> Result<NodeNoise, StudyError> {
        absent()
    }

    fn spare_core(&mut self, _: f64) -> Result<SpareHere, StudyError> {
        absent()
    }

    fn virtual_node(&mut self) -> Result<virtual_node::Runs, StudyError> {
        absent()
    }

    fn three_kernels(&mut self) -> Result<three_kernels::Runs, StudyError> {
        absent()
    }

    fn spare_node(&mut self) -> Result<spare_node::SpareRuns, StudyError> {
        absent()
    }

    fn compute_node(&mut self, _: &[(&str, &str)]) -> Result<Vec<compute_node::Pair>, StudyError> {
        absent()
    }

    fn tlb(&mut self, _: &[(&str, &str)]) -> Result<Vec<tlb::TlbRun>, StudyError> {
        absent()
    }
}

fn outcome(experiment: &Experiment, params: &Params) -> String {
    let mut node = Hashing { cpus: params.cpus.clone() };
    let mut context = Context::new(params, Some(&mut node), &());
    let outcome = experiment.run(&mut context).unwrap_or_else(|e| panic!("{}: {e}", experiment.name));
    let values: Vec<_> = outcome.rows.iter().map(|row| (row.value, &row.ours)).collect();
    format!("{values:?} {:?}", outcome.charts)
}

fn changed(setting: Setting) -> Params {
    let usual = Params::default();
    match setting {
        Setting::Cpus => Params { cpus: Some("5-6".parse().expect("a list")), ..usual },
        Setting::Period => Params { period_ns: 50_000_000, ..usual },
        Setting::Duty => Params { duty: DutyCycle::Ppm(500_000), ..usual },
        Setting::Seed => Params { seed: usual.seed + 1, ..usual },
        Setting::Faster => usual.faster(2.0).expect("possible"),
    }
}

/// Virtual machines have CPUs and settings of their own, and long simulations differ from short ones by their size alone.
fn is_quick(experiment: &&Experiment) -> bool {
    use Method::{Arithmetic, Both, Node, Projection};
    matches!(experiment.method, Arithmetic | Projection | Both | Node)
}

#[test]
fn an_experiment_takes_exactly_the_options_that_change_its_outcome() {
    let usual = Params::default();
    let mut wrong = Vec::new();
    for experiment in seeds::all().filter(is_quick) {
        let before = outcome(experiment, &usual);
        for setting in Setting::ALL {
            let has_effect = outcome(experiment, &changed(setting)) != before;
            if has_effect != experiment.settings.contains(&setting) {
                wrong.push(format!("{} {setting:?}: has an effect: {has_effect}", experiment.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_option_without_effect_is_refused_with_those_that_have_one() {
    let find = |name| seeds::find(name).expect("there is one");
    let (fig4, cycles) = (find("fig4"), find("cycles"));
    let refused = |given: &[Setting], wanted: &[&Experiment]| {
        Setting::check(given, wanted).expect_err("refused").to_string()
    };
    let text = refused(&[Setting::Cpus, Setting::Duty], &[fig4]);
    assert!(text.contains("--duty has no effect on fig4") && text.contains("effect: --cpus)"), "{text}");
    let text = refused(&[Setting::Faster], &[cycles]);
    assert!(text.contains("effect: none)"), "{text}");
    // one of several depends on the option
    Setting::check(&[Setting::Cpus], &[cycles, fig4]).expect("accepted");
}
