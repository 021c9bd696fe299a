// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages.

use std::ffi::c_void;
use std::time::Duration;

use super::{buffer, check};
use crate::abi::{ColonyArray, ColonyContext, ColonyElement, ColonyIndex};
use crate::bytes::{Buffer, Bytes};
use crate::calls::{At, Calls, Packet};
use crate::scope;
use crate::status::{Refusal, status};

/// Sends a message to one element by one of the ways to do so.
///
/// # Safety
/// `message` is null or points to `length` bytes.
unsafe fn send(
    context: *mut ColonyContext,
    to: &ColonyElement,
    entry: u32,
    (message, length): (*const c_void, usize),
    way: impl FnOnce(&mut dyn Calls, At, Packet),
) -> i32 {
    status(|| {
        scope::with(context, |calls, who| {
            let (at, class) = check::element(who.table, to)?;
            // SAFETY: the caller's promise.
            let bytes = unsafe { Bytes::from_raw(message, length, "the message") }?;
            way(calls, at, check::packet(class, entry, bytes)?);
            Ok(())
        })
    })
}

/// Sends a message.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_send(
    context: *mut ColonyContext,
    to: ColonyElement,
    entry: u32,
    message: *const c_void,
    length: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { send(context, &to, entry, (message, length), |calls, at, packet| calls.send(at, packet, 0)) }
}

/// Sends a message with a priority.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_send_with_priority(
    context: *mut ColonyContext,
    to: ColonyElement,
    entry: u32,
    message: *const c_void,
    length: usize,
    priority: i32,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        send(context, &to, entry, (message, length), |calls, at, packet| calls.send(at, packet, priority))
    }
}

/// The longest delay: a thousand years, which every clock can add.
const LONGEST: Duration = Duration::from_secs(1000 * 365 * 86_400);

/// Sends a message after some time.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_send_after(
    context: *mut ColonyContext,
    delay_ns: u64,
    to: ColonyElement,
    entry: u32,
    message: *const c_void,
    length: usize,
) -> i32 {
    let delay = Duration::from_nanos(delay_ns).min(LONGEST);
    // SAFETY: the caller's promise.
    unsafe {
        send(context, &to, entry, (message, length), |calls, at, packet| calls.send_after(delay, at, packet))
    }
}

/// Sends a buffer as it is.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_send_buffer(
    context: *mut ColonyContext,
    to: ColonyElement,
    entry: u32,
    message: *mut Buffer,
) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        let bytes = unsafe { buffer::take(message) }?.bytes;
        scope::with(context, |calls, who| {
            let (at, class) = check::element(who.table, &to)?;
            calls.send(at, check::packet(class, entry, bytes)?, 0);
            Ok(())
        })
    })
}

/// Sends a message to every element of an array.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_broadcast(
    context: *mut ColonyContext,
    to: ColonyArray,
    entry: u32,
    message: *const c_void,
    length: usize,
) -> i32 {
    status(|| {
        scope::with(context, |calls, who| {
            let (of, class) = check::array(who.table, to)?;
            // SAFETY: the caller's promise.
            let bytes = unsafe { Bytes::from_raw(message, length, "the message") }?;
            calls.broadcast(of, check::packet(class, entry, bytes)?);
            Ok(())
        })
    })
}

/// Sends a message to some elements of an array.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_multicast(
    context: *mut ColonyContext,
    to: ColonyArray,
    indices: *const ColonyIndex,
    count: usize,
    entry: u32,
    message: *const c_void,
    length: usize,
) -> i32 {
    status(|| {
        scope::with(context, |calls, who| {
            let (of, class) = check::array(who.table, to)?;
            if indices.is_null() && count > 0 {
                return Err(Refusal::Invalid(format!("the indices are NULL, and their number is {count}")));
            }
            if count > isize::MAX as usize / size_of::<ColonyIndex>() {
                return Err(Refusal::Invalid(format!("{count} indices are more than the memory can have")));
            }
            let indices: &[ColonyIndex] = if count == 0 {
                &[]
            } else {
                // SAFETY: the caller's promise.
                unsafe { std::slice::from_raw_parts(indices, count) }
            };
            let indices = indices.iter().map(|index| check::index(index, of, class));
            let indices = indices.collect::<Result<Vec<_>, _>>()?;
            // SAFETY: the caller's promise.
            let bytes = unsafe { Bytes::from_raw(message, length, "the message") }?;
            calls.multicast(of, &indices, check::packet(class, entry, bytes)?);
            Ok(())
        })
    })
}
