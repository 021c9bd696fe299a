// SPDX-License-Identifier: MIT OR Apache-2.0
//! Load balancing: the parcels around [`Balancer`](crate::balancer).
//!
//! 1. Each PE whose objects have all called `at_sync` sends their loads to PE 0, which asks PEs without objects too.
//! 2. PE 0 decides, and tells each PE which objects leave it and how many will arrive.
//! 3. A PE that has sent and received all of them says so to PE 0, which lets all objects resume.

use super::{Core, Ready};
use crate::address::Address;
use crate::balancer::Balancer;
use crate::parcel::{Loads, ObjectLoad, Parcel, System};
use crate::shape::Shape;

impl Core {
    fn takes_part(&self, address: Address) -> bool {
        self.arrays.get(&address.array).is_some_and(|a| a.shape != Shape::Group)
    }

    /// An object is ready for load balancing.
    pub(crate) fn at_sync(&mut self, slot: u32) {
        let Some(element) = self.slots.get_mut(slot) else { return };
        let address = element.address;
        if element.ledger.synced || !self.takes_part(address) {
            let object = self.show(address);
            return self.fail_program(format!(
                "{object} calls at_sync: an element of a group, or one that has called it before resume, cannot"
            ));
        }
        if let Some(element) = self.slots.get_mut(slot) {
            element.ledger.synced = true;
        }
        self.balancer.synced += 1;
        self.check_sync();
    }

    /// Sends the loads of this PE's objects, once all are ready.
    pub(crate) fn check_sync(&mut self) {
        let Balancer { is_reported, is_called, synced, participants, .. } = self.balancer;
        if is_reported || synced < participants || (synced == 0 && !is_called) {
            return;
        }
        let taking_part: Vec<u32> =
            self.slots.iter().filter(|(_, e)| e.ledger.synced).map(|(slot, _)| slot).collect();
        self.balancer.is_reported = true;
        let mut objects = Vec::with_capacity(taking_part.len());
        for slot in taking_part {
            let Some(element) = self.slots.get_mut(slot) else { continue };
            let info = self.classes.get(element.class);
            let load = std::mem::take(&mut element.ledger.load);
            objects.push(ObjectLoad {
                address: element.address,
                load,
                bytes: element.object.as_ref().map_or(0, |o| info.map_or(0, |i| (i.bytes)(&**o))),
                migratable: element.tasks.is_empty(),
            });
        }
        let (stolen, wall) = self.load.take_interval();
        let loads = Loads { round: self.balancer.round, pe: self.pe(), objects, stolen, wall };
        self.post(0, Parcel::System(System::Loads(loads)));
    }

    /// At PE 0: the loads of a PE.
    pub(crate) fn take_loads(&mut self, loads: Loads) {
        let is_first = self.balancer.loads.is_empty();
        let round = loads.round;
        self.balancer.loads.push(loads);
        if is_first {
            for pe in 0..self.pes() {
                self.post(pe, Parcel::System(System::Balance { round }));
            }
        }
        if self.balancer.loads.len() < self.pes() as usize {
            return;
        }
        let pes = self.pes();
        match self.balancer.decide(pes) {
            Ok(decision) => {
                for (pe, (leave, arrive)) in decision.into_iter().enumerate() {
                    self.post(pe as u32, Parcel::System(System::Migrate { round, leave, arrive }));
                }
            }
            Err(error) => self.fail_program(format!("load balancing: {error}")),
        }
    }

    /// Load balancing has begun on another PE.
    pub(crate) fn join_balance(&mut self, round: u64) {
        if round == self.balancer.round {
            self.balancer.is_called = true;
            self.check_sync();
        }
    }

    /// The decision: some objects leave.
    pub(crate) fn take_decision(&mut self, round: u64, leave: Vec<(Address, u32)>, arrive: u32) {
        debug_assert_eq!(round, self.balancer.round);
        self.balancer.expected = Some(arrive);
        for (address, pe) in leave {
            if let Some(slot) = self.slot_of(address) {
                // an object whose entry method runs leaves at its end
                let is_running = self.slots.get(slot).is_some_and(|e| e.object.is_none());
                if is_running {
                    if let Some(element) = self.slots.get_mut(slot) {
                        element.leaving = Some((pe, true));
                    }
                } else {
                    self.migrate(slot, pe, true);
                }
            }
        }
        self.check_migrated();
    }

    /// Says so once all objects that the decision moves here have arrived. Those that leave are on their way in order.
    pub(crate) fn check_migrated(&mut self) {
        if self.balancer.expected.is_some_and(|expected| self.balancer.arrived >= expected) {
            self.balancer.expected = None;
            self.balancer.arrived = 0;
            let round = self.balancer.round;
            self.post(0, Parcel::System(System::Migrated { round }));
        }
    }

    /// At PE 0: a PE has all its objects.
    pub(crate) fn take_migrated(&mut self, round: u64) {
        self.balancer.migrated += 1;
        if self.balancer.migrated == self.pes() {
            self.balancer.migrated = 0;
            self.balancer.loads.clear();
            for pe in 0..self.pes() {
                self.post(pe, Parcel::System(System::Resume { round }));
            }
        }
    }

    /// Lets all objects go on.
    pub(crate) fn resume_all(&mut self, round: u64) {
        self.balancer.round = round + 1;
        self.balancer.synced = 0;
        self.balancer.is_reported = false;
        self.balancer.is_called = false;
        let synced: Vec<u32> =
            self.slots.iter().filter(|(_, e)| e.ledger.synced).map(|(slot, _)| slot).collect();
        for slot in synced {
            if let Some(element) = self.slots.get_mut(slot) {
                element.ledger.synced = false;
            }
            let id = self.slots.id(slot);
            self.push(0, Ready::Resume(id));
        }
    }
}
