// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operations of a callback, without types, so that C functions need to know neither class nor dimensions.

use std::time::Duration;

use colony_runtime::{ArrayId, Callback, Map, Op, Values};
use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;

/// A message to an object of C.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Packet {
    /// The class that the sender takes the receiver for.
    pub(crate) class: u16,
    pub(crate) entry: u16,
    pub(crate) bytes: Bytes,
}

/// The argument that an object of C is made from.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Init {
    pub(crate) class: u16,
    /// Of the table of the process that creates the array.
    pub(crate) fingerprint: u64,
    pub(crate) kind: u8,
    pub(crate) bytes: Bytes,
}

/// An array and its number of dimensions, from 1 to 6.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Of {
    pub(crate) array: ArrayId,
    pub(crate) dimensions: u8,
}

/// An element of it, with coordinates in range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) of: Of,
    pub(crate) index: [i64; 6],
}

/// The receivers of a reduction's result.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    Element(At),
    Array(Of),
    Exit,
}

/// The elements of a new array.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Elements {
    Dense([u32; 6], Map),
    Sparse,
    Group,
}

/// Operations of every callback with a context.
pub(crate) trait Calls {
    fn pe(&self) -> u32;
    fn pes(&self) -> u32;
    fn create(&mut self, elements: Elements, dimensions: u8, init: Init) -> ArrayId;
    fn insert(&mut self, at: At, init: Init);
    fn send(&mut self, to: At, packet: Packet, priority: i32);
    fn send_after(&mut self, delay: Duration, to: At, packet: Packet);
    fn broadcast(&mut self, to: Of, packet: Packet);
    fn multicast(&mut self, to: Of, indices: &[[i64; 6]], packet: Packet);
    fn when_quiet(&mut self, to: At);
    fn exit(&mut self, code: u8);
    fn callback(&mut self, target: Target) -> Callback;
    /// Operations of objects alone; none in `start`.
    fn object(&mut self) -> Option<&mut dyn ObjectCalls>;
}

/// Operations of an object.
pub(crate) trait ObjectCalls {
    fn load(&self) -> f64;
    fn contribute(&mut self, values: Values, op: Op, to: Callback);
    fn migrate_to(&mut self, pe: u32);
    fn at_sync(&mut self);
    fn remove(&mut self);
}
