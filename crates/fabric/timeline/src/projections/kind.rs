// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of the records of a Projections log.

pub(super) const CREATION: u8 = 1;
pub(super) const BEGIN_PROCESSING: u8 = 2;
pub(super) const END_PROCESSING: u8 = 3;
pub(super) const BEGIN_COMPUTATION: u8 = 6;
pub(super) const END_COMPUTATION: u8 = 7;
pub(super) const BEGIN_INTERRUPT: u8 = 8;
pub(super) const END_INTERRUPT: u8 = 9;
pub(super) const BEGIN_TRACE: u8 = 11;
pub(super) const END_TRACE: u8 = 12;
pub(super) const USER_EVENT: u8 = 13;
pub(super) const BEGIN_IDLE: u8 = 14;
pub(super) const END_IDLE: u8 = 15;
pub(super) const BEGIN_PACK: u8 = 16;
pub(super) const END_PACK: u8 = 17;
pub(super) const BEGIN_UNPACK: u8 = 18;
pub(super) const END_UNPACK: u8 = 19;
pub(super) const CREATION_BCAST: u8 = 20;
pub(super) const CREATION_MULTICAST: u8 = 21;
pub(super) const BEGIN_USER_EVENT_PAIR: u8 = 98;
pub(super) const END_USER_EVENT_PAIR: u8 = 99;
/// Two of these, the begin and the end.
pub(super) const USER_EVENT_PAIR: u8 = 100;

/// First word of a log.
pub(super) const LOG_HEADER: &str = "PROJECTIONS-RECORD";

/// `MACHINE` of the files that Colony writes.
pub(super) const COLONY: &str = "colony";
