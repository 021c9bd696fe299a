// SPDX-License-Identifier: MIT OR Apache-2.0
//! This callback and its object: identity, end, reductions, migration.

use std::ffi::{c_char, c_int, c_void};

use colony_runtime::{Op, Values};

use super::check;
use crate::abi::{ColonyContext, ColonyElement, ColonyTarget};
use crate::calls::{Calls, ObjectCalls, Target};
use crate::foreign::{for_gather, is_fixed};
use crate::scope::{self, Who};
use crate::status::{Refusal, guard, status, text_of};
use crate::table::{Class, Table};

const NO_OBJECT: Refusal =
    Refusal::Context("`start` is no object: this function is for callbacks of objects");

fn object<'c>(
    calls: &'c mut dyn Calls,
    who: &Who<'_>,
) -> Result<(&'c mut dyn ObjectCalls, ColonyElement), Refusal> {
    let (_, element) = who.object.ok_or(NO_OBJECT)?;
    Ok((calls.object().ok_or(NO_OBJECT)?, element))
}

/// This PE.
#[unsafe(no_mangle)]
pub extern "C" fn colony_pe(context: *const ColonyContext) -> i32 {
    guard(|| scope::with(context, |calls, _| Ok(calls.pe().cast_signed()))).unwrap_or_else(|code| code)
}

/// The number of PEs.
#[unsafe(no_mangle)]
pub extern "C" fn colony_pes(context: *const ColonyContext) -> i32 {
    guard(|| scope::with(context, |calls, _| Ok(calls.pes().cast_signed()))).unwrap_or_else(|code| code)
}

/// The object that runs.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_this(context: *const ColonyContext, element: *mut ColonyElement) -> i32 {
    status(|| {
        scope::with(context, |_, who| {
            let (_, this) = who.object.ok_or(NO_OBJECT)?;
            // SAFETY: the caller's promise.
            unsafe { check::place(element, "the element") }?.write(this);
            Ok(())
        })
    })
}

/// CPU seconds of this object since the last load balancing.
#[unsafe(no_mangle)]
pub extern "C" fn colony_load(context: *const ColonyContext) -> f64 {
    guard(|| scope::with(context, |calls, who| Ok(object(calls, who)?.0.load()))).unwrap_or(-1.0)
}

/// Ends the job.
#[unsafe(no_mangle)]
pub extern "C" fn colony_exit(context: *mut ColonyContext, code: c_int) -> i32 {
    status(|| {
        scope::with(context, |calls, _| {
            let wrong = |_| Refusal::Invalid(format!("the exit code {code} is not from 0 to 255"));
            calls.exit(u8::try_from(code).map_err(wrong)?);
            Ok(())
        })
    })
}

/// Ends the job as failed.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_fail(context: *mut ColonyContext, text: *const c_char) -> i32 {
    status(|| {
        scope::with(context, |_, who| {
            // SAFETY: the caller's promise.
            let text = unsafe { text_of(text, "the text") }.unwrap_or_else(|_| "without a text".to_owned());
            let text = format!("{}: {text}", who.show());
            scope::fail(&text);
            Err(Refusal::Failed(text))
        })
    })
}

/// Removes this object.
#[unsafe(no_mangle)]
pub extern "C" fn colony_remove(context: *mut ColonyContext) -> i32 {
    status(|| {
        scope::with(context, |calls, who| {
            let (object, this) = object(calls, who)?;
            if is_fixed(this.array.kind) {
                return Err(Refusal::Invalid("an element of a group stays until the end".to_owned()));
            }
            object.remove();
            Ok(())
        })
    })
}

/// Values of C.
///
/// # Safety
/// `values` is null or points to `count` values of the type.
unsafe fn read_values(type_: u32, values: *const c_void, count: usize) -> Result<Values, Refusal> {
    if values.is_null() && count > 0 {
        return Err(Refusal::Invalid(format!("the values are NULL, and their number is {count}")));
    }
    if count > isize::MAX as usize / 8 {
        return Err(Refusal::Invalid(format!("{count} values are more than the memory can have")));
    }
    let copy = |to: *mut u8| {
        if count > 0 {
            // SAFETY: the caller's promise; the vector below has as many values.
            unsafe { std::ptr::copy_nonoverlapping(values.cast::<u8>(), to, count * 8) };
        }
    };
    match type_ {
        0 => {
            let mut all = vec![0.0f64; count];
            copy(all.as_mut_ptr().cast());
            Ok(Values::F64(all))
        }
        1 => {
            let mut all = vec![0i64; count];
            copy(all.as_mut_ptr().cast());
            Ok(Values::I64(all))
        }
        other => Err(Refusal::Invalid(format!("the colony_type {other} does not exist"))),
    }
}

fn takes_results(class: &Class) -> Result<(), Refusal> {
    class.reduced.map(|_| ()).ok_or_else(|| {
        Refusal::Invalid(format!(
            "{} has no callback `reduced`, and cannot get the result of a reduction",
            class.name
        ))
    })
}

fn target(table: &Table, target: &ColonyTarget) -> Result<Target, Refusal> {
    match target.kind {
        0 => {
            let (at, class) = check::element(table, &target.element)?;
            takes_results(class)?;
            Ok(Target::Element(at))
        }
        1 => {
            let (of, class) = check::array(table, target.element.array)?;
            takes_results(class)?;
            Ok(Target::Array(of))
        }
        2 => Ok(Target::Exit),
        other => Err(Refusal::Invalid(format!("the colony_target_kind {other} does not exist"))),
    }
}

/// Contributes to the next reduction.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_contribute(
    context: *mut ColonyContext,
    type_: u32,
    op: u32,
    values: *const c_void,
    count: usize,
    to: ColonyTarget,
) -> i32 {
    status(|| {
        scope::with(context, |calls, who| {
            let (_, this) = who.object.ok_or(NO_OBJECT)?;
            // SAFETY: the caller's promise.
            let mut values = unsafe { read_values(type_, values, count) }?;
            let op = match op {
                0 => Op::Sum,
                1 => Op::Min,
                2 => Op::Max,
                3 => Op::Gather,
                other => return Err(Refusal::Invalid(format!("the colony_op {other} does not exist"))),
            };
            if op == Op::Gather {
                values = for_gather(values, this.array.dimensions);
            }
            let to = calls.callback(target(who.table, &to)?);
            object(calls, who)?.0.contribute(values, op, to);
            Ok(())
        })
    })
}

/// Calls back at quiescence.
#[unsafe(no_mangle)]
pub extern "C" fn colony_when_quiet(context: *mut ColonyContext, element: ColonyElement) -> i32 {
    status(|| {
        scope::with(context, |calls, who| {
            let (at, class) = check::element(who.table, &element)?;
            if class.quiet.is_none() {
                return Err(Refusal::Invalid(format!("{} has no callback `quiet`", class.name)));
            }
            calls.when_quiet(at);
            Ok(())
        })
    })
}

/// Moves this object to another PE.
#[unsafe(no_mangle)]
pub extern "C" fn colony_migrate_to(context: *mut ColonyContext, pe: u32) -> i32 {
    status(|| {
        scope::with(context, |calls, who| {
            let pes = calls.pes();
            let (object, this) = object(calls, who)?;
            if is_fixed(this.array.kind) {
                return Err(Refusal::Invalid("an element of a group cannot migrate".to_owned()));
            }
            if pe >= pes {
                return Err(Refusal::Invalid(format!("PE {pe} does not exist: the job has {pes}, from 0")));
            }
            object.migrate_to(pe);
            Ok(())
        })
    })
}

/// This object is ready for load balancing.
#[unsafe(no_mangle)]
pub extern "C" fn colony_at_sync(context: *mut ColonyContext) -> i32 {
    status(|| {
        scope::with(context, |calls, who| {
            let (object, this) = object(calls, who)?;
            if is_fixed(this.array.kind) {
                return Err(Refusal::Invalid(
                    "an element of a group takes no part in load balancing".to_owned(),
                ));
            }
            object.at_sync();
            Ok(())
        })
    })
}
