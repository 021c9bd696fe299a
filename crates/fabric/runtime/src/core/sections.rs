// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reductions of sections. A PE combines the contributions of one pass of its scheduler, and sends the combination to the
//! section's root, which knows from each of them how many elements the section has.

use std::collections::hash_map::Entry;

use super::Core;
use crate::parcel::{Parcel, System};
use crate::reduction::{Callback, Op, Partial, Reductions, Values};
use crate::section::SectionName;

impl Core {
    /// An element contributes to the next reduction of a section.
    pub(crate) fn contribute_to_section(
        &mut self,
        slot: u32,
        section: SectionName,
        values: Values,
        op: Op,
        callback: Callback,
    ) {
        let Some(element) = self.slots.get_mut(slot) else { return };
        let address = element.address;
        if address.array != section.array {
            let object = self.show(address);
            return self.fail_program(format!("{object} contributes to a section of another array"));
        }
        let next = element.ledger.sections.get_or_insert_default().entry(section.id).or_default();
        let number = *next;
        *next += 1;
        let part = Partial::of(address, values, op, callback);
        let merged = match self.section_parts.entry((section, number)) {
            Entry::Occupied(mut sum) => sum.get_mut().merge(part),
            Entry::Vacant(place) => {
                place.insert(part);
                Ok(())
            }
        };
        if let Err(mismatch) = merged {
            let object = self.show(address);
            self.fail_program(format!("{object}: {mismatch}"));
        }
    }

    /// Passes on the contributions of a pass.
    pub(crate) fn pass_sections(&mut self) {
        for ((section, number), part) in std::mem::take(&mut self.section_parts) {
            let root = (section.id % u64::from(self.pes())) as u32;
            self.post(root, Parcel::System(System::SectionPart { section, number, part }));
        }
    }

    /// At a section's root: a part of a reduction, and the results that are complete.
    pub(crate) fn take_section_part(&mut self, section: SectionName, number: u64, part: Partial) {
        let new = || Reductions::at_root(section.elements);
        let root = self.sections.entry(section).or_insert_with(new);
        let added = if number < root.whole() { Ok(()) } else { root.add(number, part) };
        if number < root.whole() || root.most() > section.elements {
            return self.fail_program(format!(
                "more elements contribute to a reduction of a section than the {} that the section has",
                section.elements
            ));
        }
        if let Err(mismatch) = added {
            return self.fail_program(mismatch);
        }
        while let Some((number, part)) = self.sections.get_mut(&section).and_then(Reductions::take_whole) {
            self.finish_reduction(number, part);
        }
    }
}
