// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decision of a load balancing: from the loads that PEs report to the objects that each of them sends away.

use std::collections::BTreeSet;

use colony_balance::BalanceError;
use colony_balance::database::{Database, Edge, Object, Pe};
use colony_balance::estimate::{BackgroundEstimator, LoadEstimator};
use colony_balance::quality::Quality;
use colony_balance::topology::Topology;
use colony_balance::trigger::Trigger;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::address::{Address, mixed};
use crate::balance_options::BalanceOptions;
use crate::parcel::Loads;
use crate::sync::{Detector, Local};

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
    /// Bytes of messages between objects times the links between their PEs, before and after. None if the strategy does
    /// not consider communication.
    pub hop_bytes: Option<[f64; 2]>,
    /// Seconds that the decision took.
    pub decision_s: f64,
}

/// Objects that leave each PE with their new PE, and how many arrive there.
pub(crate) type Decision = Vec<(Vec<(Address, u32)>, u32)>;

/// Load balancing that cannot decide.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum DecisionError {
    /// The strategy cannot work on these loads.
    #[error(transparent)]
    Balance(#[from] BalanceError),
    /// The load database cannot be written.
    #[error("{0}")]
    Record(String),
}

/// The state of load balancing on one PE; the decisions are made on PE 0.
#[derive(Debug, Default)]
pub(crate) struct Balancer {
    options: Option<BalanceOptions>,
    /// Messages of objects are recorded.
    pub(crate) records_traffic: bool,
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
        let records_traffic = options.as_ref().is_some_and(BalanceOptions::records_traffic);
        Self { options, records_traffic, detector: Detector::new(pes), ..Self::default() }
    }

    /// Returns `true` if the decision of the round under way has to know the messages between objects.
    pub(crate) fn wants_traffic(&self) -> bool {
        self.options.as_ref().is_some_and(|options| options.wants_traffic(self.sync.round()))
    }

    /// Decides where objects go, by the loads that were reported in the round. PEs in `away` neither keep nor get objects.
    pub(crate) fn decide(
        &mut self,
        round: u64,
        pes: u32,
        loads: Vec<Loads>,
        away: &BTreeSet<u32>,
    ) -> Result<Decision, DecisionError> {
        let mut decision: Decision = (0..pes).map(|_| (Vec::new(), 0)).collect();
        let Some(options) = self.options.clone() else { return Ok(decision) };
        let began = std::time::Instant::now();
        let present: Vec<u32> = (0..pes).filter(|pe| !away.contains(pe)).collect();
        if present.is_empty() {
            return Ok(decision);
        }
        // a topology holds for all PEs only
        let topology = if away.is_empty() { &options.topology } else { &Topology::Flat };
        let (database, addresses) = self.database(pes, &present, loads)?;
        options.write(round, &database).map_err(DecisionError::Record)?;
        let mut report = BalanceReport {
            round,
            strategy: None,
            moved: 0,
            imbalance: [0.0; 2],
            hop_bytes: None,
            decision_s: 0.0,
        };
        if let Some(rule) = options.rule_of(round) {
            let outcome = rule.strategy.assign(&database, topology)?;
            let before = Quality::of(&database, database.placement(), topology)?;
            let after = Quality::of(&database, &outcome.placement, topology)?;
            report.decision_s = began.elapsed().as_secs_f64();
            report.imbalance = [before.imbalance, after.imbalance];
            report.hop_bytes = options.wants_traffic(round).then_some([before.hop_bytes, after.hop_bytes]);
            let steps = rule.period as f64;
            let verdict = rule.cost.verdict(&before, &after, steps, report.decision_s, present.len() as u32);
            if rule.trigger != Trigger::WhenItPays || verdict.pays {
                report.strategy = Some(rule.strategy.name());
                for (number, &to) in outcome.placement.iter().enumerate() {
                    let from = database.placement()[number];
                    if from != to {
                        let [from, to] = [from, to].map(|place| present[place as usize]);
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

    /// The load database of the PEs `present`, which it numbers from 0, and the objects' addresses in its order. An object
    /// that migrates while PEs answer may be listed twice, or not at all: it stays where it is.
    fn database(
        &mut self,
        pes: u32,
        present: &[u32],
        mut loads: Vec<Loads>,
    ) -> Result<(Database, Vec<Address>), BalanceError> {
        self.backgrounds.resize_with(pes as usize, BackgroundEstimator::default);
        loads.retain(|loads| present.binary_search(&loads.pe).is_ok());
        loads.sort_by_key(|l| l.pe);
        let Self { estimators, backgrounds, .. } = self;
        let mut of_pes = Vec::with_capacity(pes as usize);
        for loads in &loads {
            let background = &mut backgrounds[loads.pe as usize];
            background.add(loads.stolen, loads.wall);
            of_pes.push(Pe { background_s: background.estimate_s(), ..Pe::default() });
        }
        let mut database = Database::new(of_pes)?;
        let mut addresses = Vec::new();
        let all = (0..).zip(&loads).flat_map(|(place, l)| l.objects.iter().map(move |o| (place, o)));
        for (pe, object) in all {
            let estimator = estimators.entry(object.address).or_default();
            estimator.add(object.load);
            database.push_object(Object {
                id: id_of(object.address),
                pe,
                load_s: estimator.estimate_s().unwrap_or(0.0),
                bytes: object.bytes,
                migratable: object.migratable,
            })?;
            addresses.push(object.address);
        }
        add_traffic(&mut database, &addresses, &loads)?;
        // those of objects that have been removed are forgotten now and then
        if estimators.len() > 2 * addresses.len() {
            let left: FxHashSet<Address> = addresses.iter().copied().collect();
            estimators.retain(|address, _| left.contains(address));
        }
        Ok((database, addresses))
    }
}

/// An id of an object that is the same in every round: its address, mixed into 64 bits.
fn id_of(Address { array, index }: Address) -> u64 {
    let [high, low] = index.halves();
    mixed([u64::from(array.0), high, low])
}

/// Adds the messages between objects. Those to objects that are not in the database are left out: they have been removed,
/// or migrate while PEs answer.
fn add_traffic(database: &mut Database, addresses: &[Address], loads: &[Loads]) -> Result<(), BalanceError> {
    if loads.iter().all(|loads| loads.traffic.is_empty()) {
        return Ok(());
    }
    let numbers: FxHashMap<Address, u32> = addresses.iter().copied().zip(0..).collect();
    let mut first = 0;
    for loads in loads {
        for sent in &loads.traffic {
            if let Some(&to) = numbers.get(&sent.to) {
                let (bytes, messages) = (sent.traffic.bytes, sent.traffic.messages.into());
                database.push_edge(Edge { from: first + sent.from, to, bytes, messages })?;
            }
        }
        first += loads.objects.len() as u32;
    }
    Ok(())
}
