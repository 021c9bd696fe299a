// SPDX-License-Identifier: MIT OR Apache-2.0
//! Load balancing: the parcels around [`sync`](crate::sync) and [`Balancer`](crate::balancer).
//!
//! 1. Each PE without a due object reports to PE 0, which calls PEs that have no objects too. Once no object is due
//!    anywhere or under way, the PEs' answers bring the loads of their objects.
//! 2. PE 0 decides, and tells each PE which objects leave it and how many will arrive. An object that has left by then,
//!    or that a future holds, stays: its PE tells the PE that waits for it.
//! 3. A PE that has sent and received all of them says so to PE 0, which lets all objects resume, after a checkpoint if
//!    one is due.
//!
//! An object that is inserted after PE 0 has decided, and that calls `at_sync` before the end of the round, goes on with the
//! others. It changes neither the decision nor the number of PEs that PE 0 waits for.
//!
//! Nothing of this runs inside an entry method: [`Core::balance_step`] is called between them.

use std::collections::BTreeMap;

use super::{Core, Ready};
use crate::address::Address;
use crate::parcel::{Loads, ObjectLoad, ObjectTraffic, Parcel, System};
use crate::sync::{Progress, Status};

impl Core {
    fn takes_part(&self, address: Address) -> bool {
        self.arrays.get(&address.array).is_some_and(|array| array.balanced)
    }

    /// An object is ready for load balancing.
    pub(crate) fn at_sync(&mut self, slot: u32) {
        let round = self.balancer.sync.round();
        let Some(element) = self.slots.get(slot) else { return };
        let address = element.address;
        let wrong = if !self.takes_part(address) {
            "an element of a group, an object made by create_one, and one of a class that is not balanced cannot"
        } else if self.slots.get_mut(slot).is_some_and(|element| element.ledger.turn.wait(round)) {
            self.balancer.sync.leave(false);
            return self.balancer.sync.enter(true);
        } else {
            "it has called at_sync before, and resume has not been called since"
        };
        let object = self.show(address);
        self.fail_program(format!("{object} calls at_sync: {wrong}"));
    }

    /// Reports to PE 0 what it has to know.
    pub(crate) fn balance_step(&mut self) {
        if let Some(status) = self.balancer.sync.report() {
            let pe = self.pe();
            self.post(0, Parcel::System(System::Report { pe, status }));
        }
    }

    /// At PE 0: a PE reports.
    pub(crate) fn take_report(&mut self, pe: u32, status: Status) {
        if self.balancer.detector.report(pe, status) {
            let round = status.round;
            self.post_to_all(|| System::Balance { round });
        }
        self.ask();
    }

    /// At PE 0: asks all PEs, if it is time.
    fn ask(&mut self) {
        if let Some(wave) = self.balancer.detector.next_wave() {
            self.post_to_all(|| System::Confirm { wave });
        }
    }

    /// Answers PE 0.
    pub(crate) fn answer_wave(&mut self, wave: u64) {
        let status = self.balancer.sync.answer();
        let loads = self.loads(status.due == 0);
        self.post(0, Parcel::System(System::Answer { wave, status, loads }));
    }

    /// The loads of this PE, with those of its objects if `all`.
    fn loads(&self, all: bool) -> Loads {
        let (mut objects, mut traffic) = (Vec::new(), Vec::new());
        let wants_traffic = all && self.balancer.wants_traffic();
        for (_, element) in self.slots.iter().filter(|_| all) {
            let info = self.classes.get(element.class);
            if wants_traffic {
                let from = objects.len() as u32;
                let sent = element.ledger.outgoing.traffic();
                traffic.extend(sent.into_iter().map(|(to, traffic)| ObjectTraffic { from, to, traffic }));
            }
            objects.push(ObjectLoad {
                address: element.address,
                load: element.ledger.load,
                bytes: element.object.as_ref().map_or(0, |o| info.map_or(0, |i| (i.bytes)(&**o))),
                migratable: element.tasks.is_empty() && element.ledger.turn.waits(),
            });
        }
        let (stolen, wall) = self.load.interval();
        Loads { pe: self.pe(), objects, traffic, stolen, wall }
    }

    /// At PE 0: a PE answers. Decides once all objects wait.
    pub(crate) fn take_answer(&mut self, wave: u64, status: Status, loads: Loads) {
        let pe = loads.pe;
        self.balancer.loads.push(loads);
        match self.balancer.detector.answer(wave, pe, status) {
            Progress::Waiting => return,
            Progress::Changed => {
                self.balancer.loads.clear();
                return self.ask();
            }
            Progress::Complete => {}
        }
        let (round, pes) = (status.round, self.pes());
        let loads = std::mem::take(&mut self.balancer.loads);
        // loads and what strategies have learned are not logged, so the decision is
        let decide = |core: &mut Self| {
            let decision = core.balancer.decide(round, pes, loads, &core.evacuation.away);
            decision.map_err(|error| error.to_string())
        };
        match self.determined(decide) {
            Ok(decision) => {
                for (pe, (leave, arrive)) in decision.into_iter().enumerate() {
                    self.post(pe as u32, Parcel::System(System::Migrate { round, leave, arrive }));
                }
            }
            Err(error) => self.fail_program(format!("load balancing: {error}")),
        }
    }

    /// The decision: some objects leave.
    pub(crate) fn take_decision(&mut self, round: u64, leave: Vec<(Address, u32)>, arrive: u32) {
        self.balancer.expected = Some(arrive);
        let mut staying = BTreeMap::<u32, u32>::new();
        for (address, pe) in leave {
            let slot = self.slot_of(address).filter(|&slot| {
                let free = |e: &crate::element::Element| {
                    e.tasks.is_empty() && e.ledger.turn.waits_for(round) && e.object.is_some()
                };
                self.slots.get(slot).is_some_and(free)
            });
            match slot {
                Some(slot) => self.migrate(slot, pe, true),
                None => *staying.entry(pe).or_default() += 1,
            }
        }
        for (pe, count) in staying {
            self.post(pe, Parcel::System(System::Stay { count }));
        }
        self.check_migrated();
    }

    /// Some objects that were to arrive stay where they are.
    pub(crate) fn take_stay(&mut self, count: u32) {
        self.balancer.arrived += count;
        self.check_migrated();
    }

    /// Says so once all objects that the decision moves here have arrived. Those that leave are on their way in order.
    pub(crate) fn check_migrated(&mut self) {
        if self.balancer.expected.is_some_and(|expected| self.balancer.arrived >= expected) {
            self.balancer.expected = None;
            self.balancer.arrived = 0;
            let round = self.balancer.sync.round();
            self.post(0, Parcel::System(System::Migrated { round }));
        }
    }

    /// At PE 0: a PE has all its objects.
    pub(crate) fn take_migrated(&mut self, round: u64) {
        self.balancer.migrated += 1;
        if self.balancer.migrated == self.pes() {
            self.balancer.migrated = 0;
            self.balancer.detector.end_round();
            if self.determined(|core| core.checkpoints.is_due(round)) {
                self.checkpoints.await_quiet(round);
            } else {
                self.post_to_all(|| System::Resume { round });
            }
        }
    }

    /// Lets all objects go on that wait for this round. One under way goes on where it arrives.
    pub(crate) fn resume_all(&mut self, round: u64) {
        let next = self.balancer.sync.end_round();
        debug_assert_eq!(round + 1, next);
        self.load.begin_interval();
        let slots: Vec<u32> = self.slots.iter().map(|(slot, _)| slot).collect();
        for &slot in &slots {
            let Some(element) = self.slots.get_mut(slot) else { continue };
            if element.ledger.turn.end_wait(next) {
                element.ledger.begin_interval();
                self.balancer.sync.leave(true);
                self.balancer.sync.enter(false);
                let id = self.slots.id(slot);
                self.push(0, Ready::Resume(id));
            } else if !element.ledger.turn.waits() {
                element.ledger.begin_interval();
            }
        }
        for slot in slots {
            if self.slots.get(slot).is_some_and(|element| element.ledger.outgoing.is_long()) {
                self.retire_idle(Some(slot));
            }
        }
        if self.outgoing.is_long() {
            self.retire_idle(None);
        }
    }
}
