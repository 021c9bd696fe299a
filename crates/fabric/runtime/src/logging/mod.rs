// SPDX-License-Identifier: MIT OR Apache-2.0
//! Message logging: after a death, only the objects of the process that has died run again, and those of the others go on.
//!
//! Since the last checkpoint, every PE keeps the parcels that it has sent to others ([`Sent`](sent::Sent)), and its
//! [`Determinant`](determinants::Determinant)s: which parcels it took in which order, and everything else that its run did
//! not compute from them. A PE's determinants go with its next frame to each other PE, so whoever depends on them has them
//! (causal logging for one failure: Alvisi, Marzullo, IEEE TSE 1998). No message waits, as it would in a pessimistic log,
//! for another PE which may run an entry method.
//!
//! A PE that is replaced begins from its image, gets its determinants and all parcels for it from the survivors, and runs
//! again what it ran before: the messages that it sends then have been received already and are dropped, those after the
//! last determinant are new. All of this is one [`Log`](log::Log) a PE, which sends nothing itself.

mod checksum;
pub(crate) mod determinants;
pub(crate) mod exchange;
pub(crate) mod history;
pub(crate) mod log;
mod repeat;
pub(crate) mod sent;
#[cfg(test)]
mod tests;
