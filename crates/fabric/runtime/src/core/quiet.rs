// SPDX-License-Identifier: MIT OR Apache-2.0
//! The search for quiescence, and for programs that hang.

use super::Core;
use crate::element::Element;
use crate::message::Payload;
use crate::parcel::{Parcel, System};
use crate::quiescence::{Verdict, Wave};

/// The message of a quiescence: what the callback's entry method takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Quiet;

impl Core {
    /// At PE 0: asks all PEs for their counts.
    pub(crate) fn probe(&mut self) {
        if self.quiescence.is_asking {
            return;
        }
        let wave = self.quiescence.begin();
        self.post_to_all(|| System::Probe { wave });
    }

    pub(crate) fn answer_probe(&mut self, wave: u64) {
        let tasks = self.slots.iter().map(|(_, e)| e.tasks.len() as u64).sum();
        let unsaved = self.slots.iter().filter(|(_, e)| !self.restores_futures(e));
        let unsaved = unsaved.map(|(_, e)| e.tasks.len() as u64).sum();
        let synced = self.slots.iter().filter(|(_, e)| e.ledger.turn.waits()).count() as u64;
        let counts = Wave {
            answers: 1,
            sent: self.quiescence.sent,
            received: self.quiescence.received,
            idle: !self.has_ready() && !self.balancer.sync.is_changed,
            open: self.has_timers(),
            kept: self.kept.values().map(|k| k.len() as u64).sum(),
            tasks,
            unsaved,
            synced,
            insertions: self.arrays.values().map(|array| array.insertions.len() as u64).sum(),
        };
        self.post(0, Parcel::System(System::Counts { wave, counts }));
    }

    /// Returns `true` if an object that is made from a checkpoint has the futures that wait now.
    fn restores_futures(&self, element: &Element) -> bool {
        let class = self.classes.get(element.class).filter(|_| !element.tasks.is_empty());
        let (Some(class), Some(object)) = (class, &element.object) else { return false };
        (class.restores_futures)(&**object)
    }

    pub(crate) fn take_counts(&mut self, wave: u64, counts: Wave) {
        let verdict = self.quiescence.answer(wave, counts);
        if self.checkpoints.awaits_quiet() {
            return self.begin_checkpoint(verdict);
        }
        if verdict != Verdict::Quiet {
            return;
        }
        let callbacks = std::mem::take(&mut self.quiescence.callbacks);
        if callbacks.is_empty() {
            return self.fail_hang();
        }
        for callback in callbacks {
            self.call_back(callback, Payload::Typed(Box::new(Quiet)));
        }
    }

    /// The program is quiescent for good, and has not ended.
    fn fail_hang(&mut self) {
        let Wave { kept, tasks, synced, insertions, .. } = self.quiescence.last_wave();
        let mut reasons = Vec::new();
        if let Some(object) = self.kept.keys().next().copied() {
            reasons.push(format!(
                "{kept} messages are for elements that do not exist, such as {}",
                self.show(object)
            ));
        } else if kept > 0 {
            reasons.push(format!("{kept} messages are for elements that do not exist"));
        }
        if tasks > 0 {
            reasons.push(format!("{tasks} futures wait"));
        }
        if synced > 0 {
            reasons.push(format!("{synced} objects wait in at_sync for others"));
        }
        if insertions > 0 {
            reasons.push(format!(
                "{insertions} inserted elements wait until those at their indices call remove"
            ));
        }
        let why = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
        self.fail_program(format!(
            "the program hangs: every PE is idle and no message is under way, but exit was not called{why}"
        ));
    }
}
