// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of the runtime itself.

use super::Core;
use crate::address::ArrayId;
use crate::parcel::{Parcel, System};

/// The array that a message is about, if the receiver has to know it.
fn array_of(system: &System) -> Option<ArrayId> {
    match system {
        System::Insert { object, .. } | System::Place { object, .. } => Some(object.array),
        System::Leave { array, .. }
        | System::Ask { array, .. }
        | System::Broadcast { array, .. }
        | System::Done { array, .. }
        | System::Trim { array, .. }
        | System::Multicast { array, .. }
        | System::Partial { array, .. } => Some(*array),
        System::SectionPart { section, .. } => Some(section.array),
        _ => None,
    }
}

impl Core {
    /// Takes a message of the runtime.
    pub(crate) fn receive_system(&mut self, system: System) {
        if let Some(array) = array_of(&system).filter(|array| !self.arrays.contains_key(array)) {
            return self.keep_unknown(array, Parcel::System(system));
        }
        match system {
            System::Located { object, place } => {
                self.locations.learn(object, place);
                // messages that wait here for the object's creation, or for a place
                if place.pe != self.pe() {
                    self.release(object);
                }
            }
            System::Create { array, class, shape, map, balanced, init } => {
                self.balancer.sync.receive(0);
                self.add_array(array, class, shape, map, balanced, &init);
            }
            System::Insert { object, init, reduction } => self.place(object, init, reduction),
            System::Place { object, init, reduction } => self.insert_here(object, init, reduction),
            System::Leave { array, reduction } => {
                if let Some(state) = self.arrays.get_mut(&array) {
                    state.at_root.change_elements(reduction, -1);
                }
                self.finish_reductions(array);
            }
            System::Ask { array, entry, id, message } => self.begin_broadcast(array, (entry, id), message),
            System::Broadcast { array, number, entry, id, message } => {
                self.take_broadcast(array, number, (entry, id), message);
            }
            System::Installed { array, broadcast } => self.installed(array, broadcast),
            System::Done { array, pe, below } => self.acknowledged(array, pe, below),
            System::Trim { array, below } => {
                if let Some(state) = self.arrays.get_mut(&array) {
                    state.broadcasts.trim(below);
                }
            }
            System::Multicast { array, to, from, origin, entry, id, message } => {
                self.take_multicast(array, to, (from, origin), (entry, id), &message);
            }
            System::Partial { array, number, part } => self.take_partial(array, number, part),
            System::SectionPart { section, number, part } => self.take_section_part(section, number, part),
            System::Reply { to, request, message } => self.take_reply(to, request, message),
            System::Retire { to, from, epoch, step } => self.pass_retirement(to, from, epoch, step),
            System::Probe { wave } => self.answer_probe(wave),
            System::Counts { wave, counts } => self.take_counts(wave, counts),
            System::WhenQuiet { callback } => self.quiescence.callbacks.push(callback),
            System::Steal { thief } => self.give_to(thief),
            System::EvacuateSoon { pe, away } => self.evacuate_soon(pe, away),
            System::Evacuate { away } => self.take_evacuate(away),
            System::Away { pe, away } => self.take_away(pe, away),
            System::Capture { number, round, logs } => self.checkpoints.capture_soon(number, round, logs),
            System::Outline { name, outline } => self.take_outline(name, outline),
            System::PartsTaken { name } => self.parts_taken(name),
            System::Saved { number, saved } => self.take_saved(number, saved),
            System::Refuse { number, why } => self.abandon_checkpoint(number, &why),
            System::Commit { number, round, to_disk, leaves } => {
                self.commit(number, round, (to_disk, leaves))
            }
            System::Abandon { number, round } => self.take_abandon(number, round),
            System::CheckpointEvery { period } => self.checkpoints.set_period(period),
            System::LogMessages { on } => self.checkpoints.log_messages(on),
            System::LeaveSoon => self.checkpoints.leave_soon(),
            System::CheckpointSoon => self.checkpoints.make_soon(),
            System::Exit { code } => self.exit = Some(code),
            balancing => self.receive_balancing(balancing),
        }
    }

    /// Takes a message of load balancing, whose time is its own.
    fn receive_balancing(&mut self, system: System) {
        let begin = self.track.now();
        match system {
            System::Report { pe, status } => self.take_report(pe, status),
            System::Balance { round } => self.balancer.sync.call(round),
            System::Confirm { wave } => self.answer_wave(wave),
            System::Answer { wave, status, loads } => self.take_answer(wave, status, loads),
            System::Migrate { round, leave, arrive } => self.take_decision(round, leave, arrive),
            System::Stay { count } => self.take_stay(count),
            System::Migrated { round } => self.take_migrated(round),
            System::Resume { round } => self.resume_all(round),
            _ => {}
        }
        self.track.balanced(begin);
    }

    /// Ends the program on all PEs.
    pub(crate) fn exit_all(&mut self, code: u8) {
        self.post_to_others(|| System::Exit { code });
        self.exit = Some(code);
    }
}
