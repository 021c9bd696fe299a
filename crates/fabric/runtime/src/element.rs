// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects on a PE, with all that belongs to them, in slots.

use crate::address::Address;
use crate::class::AnyObject;
use crate::ledger::Ledger;
use crate::message::Envelope;
use crate::task::Tasks;

/// An object on this PE.
pub(crate) struct Element {
    pub(crate) address: Address,
    pub(crate) class: u16,
    /// Its migrations so far.
    pub(crate) epoch: u32,
    /// `None` while one of its entry methods runs.
    pub(crate) object: Option<AnyObject>,
    pub(crate) ledger: Ledger<Envelope>,
    pub(crate) tasks: Tasks,
    /// The PE that it goes to when its entry method has ended.
    pub(crate) leaving: Option<u32>,
    pub(crate) removing: bool,
}

/// A place in [`Slots`]. A slot that is used again has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId {
    pub(crate) at: u32,
    pub(crate) generation: u32,
}

/// Objects by slot.
#[derive(Default)]
pub(crate) struct Slots {
    slots: Vec<(u32, Option<Box<Element>>)>,
    free: Vec<u32>,
}

impl Slots {
    pub(crate) fn insert(&mut self, element: Box<Element>) -> SlotId {
        if let Some(at) = self.free.pop() {
            let slot = &mut self.slots[at as usize];
            slot.1 = Some(element);
            return SlotId { at, generation: slot.0 };
        }
        self.slots.push((0, Some(element)));
        SlotId { at: (self.slots.len() - 1) as u32, generation: 0 }
    }

    pub(crate) fn remove(&mut self, at: u32) -> Option<Box<Element>> {
        let slot = self.slots.get_mut(at as usize)?;
        let element = slot.1.take()?;
        slot.0 = slot.0.wrapping_add(1);
        self.free.push(at);
        Some(element)
    }

    /// All elements, by their slots.
    pub(crate) fn into_elements(self) -> impl Iterator<Item = Box<Element>> {
        self.slots.into_iter().filter_map(|(_, element)| element)
    }

    #[inline]
    pub(crate) fn get(&self, at: u32) -> Option<&Element> {
        self.slots.get(at as usize)?.1.as_deref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut Element> {
        self.slots.get_mut(at as usize)?.1.as_deref_mut()
    }

    /// The element of a slot, unless the slot has been emptied since.
    #[inline]
    pub(crate) fn current(&mut self, id: SlotId) -> Option<&mut Element> {
        let slot = self.slots.get_mut(id.at as usize)?;
        if slot.0 == id.generation { slot.1.as_deref_mut() } else { None }
    }

    #[inline]
    pub(crate) fn id(&self, at: u32) -> SlotId {
        SlotId { at, generation: self.slots.get(at as usize).map_or(0, |s| s.0) }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Element)> {
        self.slots.iter().enumerate().filter_map(|(at, s)| Some((at as u32, s.1.as_deref()?)))
    }
}
