// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes that get no new jobs: by an operator, or by a number of events.

use colony_model::{Kind, Location};

use super::control::{Control, wrong};
use super::keeper::connect;
use super::peer::Peer;
use crate::ControlError;
use crate::api::{Drain, DrainRequest, NodeState, Rate, Severity, Threshold, now};
use crate::service::protocol::{Ask, ask};
use crate::store::{DRAINED, Row};

/// Bytes of a reason, or of a code of events, at most.
const LONGEST: usize = 1000;
/// Locations of a list at most.
const MOST_PARTS: usize = 1000;
/// Longest window in which events are counted, seconds: ten years.
const WINDOW: f64 = 315_360_000.0;

fn check_text(what: &str, text: &str) -> Result<(), ControlError> {
    if text.trim().is_empty() || text.len() > LONGEST || text.chars().any(char::is_control) {
        return Err(ControlError::Wrong(format!("{what} has one line of 1 to {LONGEST} bytes")));
    }
    Ok(())
}

fn check_window(within_s: f64) -> Result<(), ControlError> {
    if (1.0..=WINDOW).contains(&within_s) {
        return Ok(());
    }
    Err(ControlError::Wrong(format!(
        "a window of {within_s} s is not possible: use 1 s to {} days",
        WINDOW / 86_400.0
    )))
}

/// The locations of a list, each once.
fn parts(list: &str) -> Result<Vec<Location>, ControlError> {
    let mut parts = Vec::new();
    for word in list.split(',').map(str::trim) {
        let part: Location = word.parse().map_err(wrong)?;
        if !parts.contains(&part) {
            parts.push(part);
        }
        if parts.len() > MOST_PARTS {
            return Err(wrong(format!("a list has {MOST_PARTS} locations at most: name larger parts")));
        }
    }
    Ok(parts)
}

impl Control {
    /// Drains parts of the machine.
    pub(super) fn drain(&self, peer: Peer, request: &DrainRequest) -> Result<Vec<Drain>, ControlError> {
        peer.check_operator("drain nodes")?;
        check_text("a reason", &request.reason)?;
        let new = |part: Location| {
            let (location, reason) = (part.to_string(), request.reason.clone());
            Drain { location, reason, user: peer.name(), since: now() }
        };
        let (machine, parts) = (self.model_machine()?, parts(&request.location)?);
        // refuses locations that the machine does not have
        parts.iter().try_for_each(|part| machine.coords(*part).map(drop)).map_err(wrong)?;
        let new: Vec<Drain> = parts.into_iter().map(new).collect();
        if let Some(known) = self.store().add_drains(&new)? {
            return Err(ControlError::Conflict(format!("{known} is drained already")));
        }
        for drain in &new {
            let text = format!("{} (by {})", drain.reason, drain.user);
            self.report(Severity::Info, &drain.location, DRAINED, text, None);
        }
        Ok(new)
    }

    /// Gives jobs to drained parts of the machine again, and to all drained parts of these. Returns the locations that were
    /// drained.
    pub(super) fn undrain(&self, peer: Peer, list: &str) -> Result<Vec<String>, ControlError> {
        peer.check_operator("give jobs to drained nodes")?;
        let ended = self.store().end_drains(&parts(list)?)?;
        let ended = ended.or_else(|part| Err(self.not_drained(part)?))?;
        for location in &ended {
            let text = format!("it gets jobs again (by {})", peer.name());
            self.report(Severity::Info, location, "node-undrained", text, None);
        }
        let partitions = self.store().partitions()?;
        partitions.iter().for_each(|row| self.mend(row));
        Ok(ended)
    }

    /// The reason why a part of the machine cannot be undrained.
    fn not_drained(&self, part: Location) -> Result<ControlError, ControlError> {
        let drains = self.store().drains()?;
        let contains = |drain: &&Drain| drain.location.parse().is_ok_and(|own: Location| own.contains(part));
        Ok(match drains.iter().find(contains) {
            Some(drain) => ControlError::Conflict(format!(
                "{part} is drained as a part of {0}: `colony machine undrain {0}`",
                drain.location
            )),
            None => {
                ControlError::Unknown(format!("{part} is not drained: `colony machine status` lists what is"))
            }
        })
    }

    /// Starts the nodes of a partition again that had died too often and are not drained any more; its jobs may begin.
    fn mend(&self, row: &Row) {
        let (states, drained) = (self.node_states(row), self.drained(row).unwrap_or_default());
        let dead = (0..).zip(states).filter(|(_, state)| *state == NodeState::Dead);
        for (node, _) in dead.filter(|(node, _)| drained.get(*node as usize) == Some(&None)) {
            if let Ok(mut lines) = connect(&self.socket(&row.name), None) {
                // a service that has ended boots its nodes anew
                let _ = ask(&mut lines, &Ask::Mend { node });
            }
        }
        self.ring(&row.name);
    }

    pub(super) fn rates(&self, within_s: f64, location: &str) -> Result<Vec<Rate>, ControlError> {
        check_window(within_s)?;
        self.store().rates(within_s, location)
    }

    pub(super) fn set_threshold(
        &self,
        peer: Peer,
        threshold: &Threshold,
    ) -> Result<Vec<Threshold>, ControlError> {
        peer.check_operator("set thresholds")?;
        check_text("a code", &threshold.code)?;
        check_window(threshold.within_s)?;
        self.store().set_threshold(threshold)?;
        self.store().thresholds()
    }

    /// For each node of a partition, the reason why it gets no new jobs.
    pub(super) fn drained(&self, row: &Row) -> Result<Vec<Option<String>>, ControlError> {
        let drains = self.store().drains()?;
        if drains.is_empty() {
            return Ok(vec![None; row.shape.nodes() as usize]);
        }
        let model = self.model(row)?;
        let parsed =
            drains.into_iter().filter_map(|drain| Some((drain.location.parse().ok()?, drain.reason)));
        let drains: Vec<(Location, String)> = parsed.collect();
        // an I/O node stands for the pset of the compute nodes around it
        let pset = |io: Location| {
            let at = model.machine().coords(io).ok().filter(|_| io.kind() == Kind::Io)?;
            let node = model.node_at(model.machine().compute_location(at)).ok()?;
            Some(model.psets().place(node).0)
        };
        let drains: Vec<_> = drains.into_iter().map(|(part, reason)| (part, pset(part), reason)).collect();
        let reason = |node: u32| {
            let (own, own_pset) = (model.location(node), model.psets().place(node).0);
            let mut holds =
                drains.iter().filter(|(part, pset, _)| part.contains(own) || *pset == Some(own_pset));
            holds.next().map(|(.., reason)| reason.clone())
        };
        Ok((0..model.nodes()).map(reason).collect())
    }
}

/// The states of a partition's nodes as users see them: a node that is drained is so, except while it runs a job or is
/// switched off.
pub(super) fn shown(states: &[NodeState], drained: &[Option<String>]) -> Vec<NodeState> {
    let one = |(state, reason): (&NodeState, &Option<String>)| match state {
        NodeState::Busy | NodeState::Off => *state,
        _ if reason.is_some() => NodeState::Drained,
        _ => *state,
    };
    states.iter().zip(drained).map(one).collect()
}
