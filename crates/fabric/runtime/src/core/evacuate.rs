// SPDX-License-Identifier: MIT OR Apache-2.0
//! Evacuation: a PE sends its objects to the other PEs while the program runs on, for example before its host is drained.
//! Load balancing gives an evacuated PE no objects until it is readmitted. The PE still forwards messages and remains the
//! home of the objects whose home it was.

use std::collections::BTreeSet;
use std::time::Instant;

use super::Core;
use crate::logging::determinants::Determinant;
use crate::parcel::{Parcel, System};
use crate::report::report_line;
use crate::shape::Shape;
use crate::signals::{self, Asked};

/// What a PE knows about evacuated PEs.
#[derive(Debug, Default)]
pub(crate) struct Evacuation {
    /// PEs that take no objects.
    pub(crate) away: BTreeSet<u32>,
    /// This PE is evacuated.
    is_away: bool,
    /// An object has arrived here, or one that could not leave may be able to now.
    pub(crate) is_due: bool,
    /// When the evacuation of this PE began, and how many objects have left since. Empty once all have left.
    leaving: Option<(Instant, u64)>,
    /// The evacuation was requested by a signal or a warning, or the readmission: the PE prints a line
    /// when it is empty, or readmitted.
    reports: bool,
    /// At PE 0: signals that have arrived during a checkpoint.
    deferred: Vec<(u32, bool)>,
    /// The last signal that this PE has obeyed.
    obeyed: Asked,
}

impl Evacuation {
    /// Goes on with the PEs that were evacuated in a checkpoint, on PE `pe`.
    pub(crate) fn restore(&mut self, away: BTreeSet<u32>, pe: u32) {
        self.is_away = away.contains(&pe);
        self.away = away;
        self.look_again();
    }

    /// Returns `true` if this PE is evacuated.
    pub(crate) fn is_away(&self) -> bool {
        self.is_away
    }

    /// Makes an evacuated PE look for objects that can leave.
    #[inline]
    pub(crate) fn look_again(&mut self) {
        self.is_due = self.is_away;
    }
}

impl Core {
    /// Requests the evacuation of a PE, or its readmission.
    pub(crate) fn request_evacuation(&mut self, pe: u32, away: bool) {
        if pe >= self.pes() {
            let verb = if away { "evacuate" } else { "readmit" };
            return self
                .fail_program(format!("cannot {verb} PE {pe}: the job has PEs 0 to {}", self.pes() - 1));
        }
        self.post(pe, Parcel::System(System::Evacuate { away }));
    }

    /// Obeys a signal that has arrived since the last look.
    #[inline]
    pub(crate) fn check_signals(&mut self) {
        let asked = Asked::now();
        // what a PE sends during a checkpoint is not sent again after a death
        if asked != self.evacuation.obeyed && !self.checkpoints.is_saving() {
            self.evacuation.obeyed = asked;
            self.evacuation.reports = true;
            let away = asked == Asked::Evacuate;
            self.note(|pass| Determinant::Signal { pass, away });
            self.pass_on_signal(away);
        }
    }

    /// Asks PE 0 to evacuate this PE, or to readmit it.
    pub(super) fn pass_on_signal(&mut self, away: bool) {
        let pe = self.pe();
        self.post(0, Parcel::System(System::EvacuateSoon { pe, away }));
    }

    /// At PE 0: evacuates a PE at once, or after the checkpoint under way: objects that migrate while PEs make their images
    /// would be in none of them, or in two.
    pub(crate) fn evacuate_soon(&mut self, pe: u32, away: bool) {
        if self.checkpoints.is_busy() {
            self.evacuation.deferred.push((pe, away));
        } else {
            self.post(pe, Parcel::System(System::Evacuate { away }));
        }
    }

    /// At PE 0: no checkpoint is under way any more.
    pub(crate) fn evacuate_deferred(&mut self) {
        for (pe, away) in std::mem::take(&mut self.evacuation.deferred) {
            self.note(|pass| Determinant::Deferred { pass, pe, away });
            self.evacuate_soon(pe, away);
        }
    }

    /// Evacuates or readmits this PE, and tells all others.
    pub(crate) fn take_evacuate(&mut self, away: bool) {
        if self.evacuation.is_away == away {
            return;
        }
        let pe = self.pe();
        self.evacuation.is_away = away;
        self.evacuation.leaving = away.then(|| (Instant::now(), 0));
        if !away && std::mem::take(&mut self.evacuation.reports) {
            report_line!("PE {pe} readmitted");
        }
        self.take_away(pe, away);
        self.post_to_others(|| System::Away { pe, away });
    }

    /// Notes that a PE is evacuated or readmitted.
    pub(crate) fn take_away(&mut self, pe: u32, away: bool) {
        if away {
            self.evacuation.away.insert(pe);
        } else {
            self.evacuation.away.remove(&pe);
        }
        // if all PEs were evacuated, objects of this one can leave now
        self.evacuation.look_again();
    }

    /// Migrates the objects of an evacuated PE to the others in turn. Elements of groups stay. An object with a pending
    /// future stays until the future has ended.
    pub(crate) fn evacuate_step(&mut self) {
        self.evacuation.is_due = false;
        let present: Vec<u32> = (0..self.pes()).filter(|pe| !self.evacuation.away.contains(pe)).collect();
        if present.is_empty() {
            return;
        }
        let movable = |core: &Self, address: crate::address::Address| {
            core.arrays.get(&address.array).is_some_and(|array| array.shape != Shape::Group)
        };
        let slots: Vec<u32> =
            self.slots.iter().filter(|(_, e)| movable(self, e.address)).map(|(slot, _)| slot).collect();
        let (mut turn, mut is_empty) = (self.pe() as usize, true);
        for slot in slots {
            if self.slots.get(slot).is_some_and(|e| !e.tasks.is_empty() || e.object.is_none()) {
                is_empty = false;
                continue;
            }
            turn += 1;
            self.migrate(slot, present[turn % present.len()], false);
            if let Some((_, left)) = &mut self.evacuation.leaving {
                *left += 1;
            }
        }
        if is_empty && let Some((since, left)) = self.evacuation.leaving.take() {
            self.report_evacuation(since, left);
        }
    }

    /// Tells the administrator that the PE is empty, and the reason if a warning has evacuated it.
    fn report_evacuation(&mut self, since: Instant, left: u64) {
        if std::mem::take(&mut self.evacuation.reports) {
            let ms = since.elapsed().as_secs_f64() * 1e3;
            let reason = signals::reason().map(|reason| format!(" ({reason})")).unwrap_or_default();
            report_line!("PE {} evacuated: {left} objects migrated in {ms:.1} ms{reason}", self.pe());
        }
    }
}
