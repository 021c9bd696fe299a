// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers.

use std::ffi::c_void;

use crate::bytes::Buffer;
use crate::status::{Refusal, guard, keep, status};

fn is_null() -> Refusal {
    Refusal::Invalid("the buffer is NULL".to_owned())
}

/// An empty buffer.
#[unsafe(no_mangle)]
pub extern "C" fn colony_buffer_new(capacity: usize) -> *mut Buffer {
    let made = guard(|| {
        let buffer = Buffer::with_capacity(capacity);
        buffer.ok_or_else(|| Refusal::Invalid(format!("there is no memory for a buffer of {capacity} bytes")))
    });
    made.map_or(std::ptr::null_mut(), |buffer| Box::into_raw(Box::new(buffer)))
}

/// Takes back a buffer that C has.
///
/// # Safety
/// `buffer` is null or of [`colony_buffer_new`] or lent to `pack`, and not used any more if it is not lent.
pub(super) unsafe fn take(buffer: *mut Buffer) -> Result<Buffer, Refusal> {
    // SAFETY: the caller's promise.
    let is_lent = unsafe { buffer.as_ref() }.ok_or_else(is_null)?.is_lent;
    if is_lent {
        return Err(Refusal::Invalid(
            "the buffer belongs to the runtime, which has lent it to `pack`".to_owned(),
        ));
    }
    // SAFETY: the caller's promise; this one is of `colony_buffer_new`.
    Ok(*unsafe { Box::from_raw(buffer) })
}

/// Frees a buffer.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_buffer_free(buffer: *mut Buffer) {
    if !buffer.is_null() {
        // SAFETY: the caller's promise.
        if let Err(refusal) = unsafe { take(buffer) } {
            keep(&refusal.to_string());
        }
    }
}

/// Adds bytes.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_buffer_write(
    buffer: *mut Buffer,
    bytes: *const c_void,
    length: usize,
) -> i32 {
    status(|| {
        // SAFETY: the caller's promise.
        let buffer = unsafe { buffer.as_mut() }.ok_or_else(is_null)?;
        if length == 0 {
            return Ok(());
        }
        if bytes.is_null() {
            return Err(Refusal::Invalid(format!("the bytes are NULL, and their length is {length}")));
        }
        let to = buffer.bytes.extend(length)?;
        // SAFETY: the caller's promise. The bytes may be of this buffer, but not the new ones.
        unsafe { std::ptr::copy_nonoverlapping(bytes.cast::<u8>(), to.as_mut_ptr(), length) };
        Ok(())
    })
}

/// Adds bytes of value 0.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_buffer_extend(buffer: *mut Buffer, length: usize) -> *mut c_void {
    let begin = guard(|| {
        // SAFETY: the caller's promise.
        let buffer = unsafe { buffer.as_mut() }.ok_or_else(is_null)?;
        Ok(buffer.bytes.extend(length)?.as_mut_ptr())
    });
    begin.map_or(std::ptr::null_mut(), |begin| begin.cast())
}

/// The bytes so far.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_buffer_data(buffer: *const Buffer) -> *const c_void {
    // SAFETY: the caller's promise.
    unsafe { buffer.as_ref() }.map_or(std::ptr::null(), |buffer| buffer.bytes.as_ptr())
}

/// Their number.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_buffer_length(buffer: *const Buffer) -> usize {
    // SAFETY: the caller's promise.
    unsafe { buffer.as_ref() }.map_or(0, |buffer| buffer.bytes.len())
}
