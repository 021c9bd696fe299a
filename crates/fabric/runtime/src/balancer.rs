// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decision of a load balancing: from the loads that PEs report to the objects that each of them sends away.

use std::sync::Arc;

use colony_balance::BalanceError;
use colony_balance::config::Config;
use colony_balance::database::{Database, Object, Pe};
use colony_balance::estimate::{BackgroundEstimator, LoadEstimator};
use colony_balance::quality::Quality;
use colony_balance::topology::Topology;
use colony_balance::trigger::Trigger;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::address::Address;
use crate::parcel::Loads;
use crate::sync::{Detector, Local};

/// Load balancing: strategies, and when they run.
#[derive(Clone, Debug)]
pub struct BalanceOptions {
    /// Strategies and triggers by iteration; an iteration is one `at_sync` of all objects.
    pub config: Arc<Config>,
    /// Links between PEs.
    pub topology: Topology,
}

/// One load balancing, for reports.
#[derive(Clone, Debug, PartialEq)]
pub struct BalanceReport {
    /// Its number, from 0.
    pub round: u64,
    /// The strategy; none if none was to run in this round, or if it did not pay.
    pub strategy: Option<&'static str>,
    /// Objects that migrated.
    pub moved: u64,
    /// The largest load of a PE over the mean before, and as the strategy expects it after.
    pub imbalance: [f64; 2],
    /// Seconds that the decision took.
    pub decision_s: f64,
}

/// Objects that leave each PE with their new PE, and how many arrive there.
pub(crate) type Decision = Vec<(Vec<(Address, u32)>, u32)>;

/// The state of load balancing on one PE; the decisions are made on PE 0.
#[derive(Debug, Default)]
pub(crate) struct Balancer {
    options: Option<BalanceOptions>,
    pub(crate) sync: Local,
    /// At PE 0.
    pub(crate) detector: Detector,
    /// Objects that have arrived, and how many have to.
    pub(crate) arrived: u32,
    pub(crate) expected: Option<u32>,
    /// PEs that have all their objects.
    pub(crate) migrated: u32,
    /// The loads that PEs have reported in this round.
    pub(crate) loads: Vec<Loads>,
    estimators: FxHashMap<Address, LoadEstimator>,
    backgrounds: Vec<BackgroundEstimator>,
    pub(crate) reports: Vec<BalanceReport>,
}

impl Balancer {
    pub(crate) fn new(options: Option<BalanceOptions>, pes: u32) -> Self {
        Self { options, detector: Detector::new(pes), ..Self::default() }
    }

    /// Decides where objects go, by the loads that were reported.
    pub(crate) fn decide(&mut self, round: u64, pes: u32) -> Result<Decision, BalanceError> {
        let mut decision: Decision = (0..pes).map(|_| (Vec::new(), 0)).collect();
        let loads = std::mem::take(&mut self.loads);
        let Some(options) = self.options.clone() else { return Ok(decision) };
        let began = std::time::Instant::now();
        let (database, addresses) = self.database(pes, loads)?;
        let mut report =
            BalanceReport { round, strategy: None, moved: 0, imbalance: [0.0; 2], decision_s: 0.0 };
        let rule = options.config.rule(round).filter(|rule| rule.runs_at(round + 1));
        if let Some(rule) = rule {
            let outcome = rule.strategy.assign(&database, &options.topology)?;
            let before = Quality::of(&database, database.placement(), &options.topology)?;
            let after = Quality::of(&database, &outcome.placement, &options.topology)?;
            report.decision_s = began.elapsed().as_secs_f64();
            report.imbalance = [before.imbalance, after.imbalance];
            let steps = rule.period as f64;
            let verdict = rule.cost.verdict(&before, &after, steps, report.decision_s, pes);
            if rule.trigger != Trigger::WhenItPays || verdict.pays {
                report.strategy = Some(rule.strategy.name());
                for (number, &to) in outcome.placement.iter().enumerate() {
                    let from = database.placement()[number];
                    if from != to {
                        decision[from as usize].0.push((addresses[number], to));
                        decision[to as usize].1 += 1;
                        report.moved += 1;
                    }
                }
            }
        }
        self.reports.push(report);
        Ok(decision)
    }

    /// The load database of a round, and the objects' addresses in its order. An object that migrates while PEs answer
    /// may be listed twice, or not at all: it stays where it is.
    fn database(
        &mut self,
        pes: u32,
        mut loads: Vec<Loads>,
    ) -> Result<(Database, Vec<Address>), BalanceError> {
        self.backgrounds.resize_with(pes as usize, BackgroundEstimator::default);
        loads.sort_by_key(|l| l.pe);
        let Self { estimators, backgrounds, .. } = self;
        let mut of_pes = Vec::with_capacity(pes as usize);
        for (loads, background) in loads.iter().zip(backgrounds.iter_mut()) {
            background.add(loads.stolen, loads.wall);
            of_pes.push(Pe { background_s: background.estimate_s(), ..Pe::default() });
        }
        let mut database = Database::new(of_pes)?;
        let mut addresses = Vec::new();
        let all = loads.iter().flat_map(|l| l.objects.iter().map(move |o| (l.pe, o)));
        for (pe, object) in all {
            let estimator = estimators.entry(object.address).or_default();
            estimator.add(object.load);
            database.push_object(Object {
                id: addresses.len() as u64,
                pe,
                load_s: estimator.estimate_s().unwrap_or(0.0),
                bytes: object.bytes,
                migratable: object.migratable,
            })?;
            addresses.push(object.address);
        }
        // those of objects that have been removed are forgotten now and then
        if estimators.len() > 2 * addresses.len() {
            let left: FxHashSet<Address> = addresses.iter().copied().collect();
            estimators.retain(|address, _| left.contains(address));
        }
        Ok((database, addresses))
    }
}
