// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arrays and their elements.

use std::ffi::c_void;

use colony_runtime::Map;

use super::check;
use crate::abi::{ColonyArray, ColonyContext, ColonyElement, ColonyIndex, DENSE, GROUP, SPARSE};
use crate::bytes::Bytes;
use crate::calls::{Calls, Elements, Init};
use crate::scope;
use crate::status::{Refusal, status};
use crate::table::Table;

/// The most elements of a dense array, as the runtime has it.
const MOST_ELEMENTS: u64 = 1 << 36;

/// Creates an array of a class.
fn create(
    (calls, table): (&mut dyn Calls, &Table),
    class: i32,
    dimensions: u8,
    (elements, kind): (Elements, u8),
    bytes: Bytes,
) -> Result<ColonyArray, Refusal> {
    let number = table.class(i64::from(class))?.number;
    let init = Init { class: number, fingerprint: table.fingerprint, kind, bytes };
    let id = calls.create(elements, dimensions, init).0;
    if scope::has_failed() {
        return Err(Refusal::Failed("an object could not be created: the job has failed".to_owned()));
    }
    Ok(ColonyArray { id, type_: number, dimensions, kind })
}

/// Extents in the range of the index.
fn checked_extents(extents: &[u32]) -> Result<[u32; 6], Refusal> {
    let (_, most) = check::range(extents.len());
    let count = extents.iter().try_fold(1u64, |count, extent| count.checked_mul(u64::from(*extent)));
    let out_of_range = extents.iter().any(|extent| i64::from(*extent) - 1 > most);
    if out_of_range || count.is_none_or(|count| count == 0 || count > MOST_ELEMENTS) {
        return Err(Refusal::Dimensions(format!(
            "an array of {extents:?} elements is not possible: it has to have 1 to {MOST_ELEMENTS} elements, \
             and coordinates of {} dimensions are at most {most}",
            extents.len()
        )));
    }
    Ok(std::array::from_fn(|d| extents.get(d).copied().unwrap_or(1)))
}

/// Creates an array with all elements of a box.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_create_array(
    context: *mut ColonyContext,
    class: i32,
    dimensions: u32,
    extents: *const u32,
    map: u32,
    init: *const c_void,
    length: usize,
    array: *mut ColonyArray,
) -> i32 {
    status(|| {
        scope::with(context, |calls, who| {
            let dimensions = check::dimensions(dimensions)?;
            if extents.is_null() {
                return Err(Refusal::Invalid("the extents are NULL".to_owned()));
            }
            // SAFETY: the caller's promise.
            let extents = unsafe { std::slice::from_raw_parts(extents, usize::from(dimensions)) };
            let map = match map {
                0 => Map::Block,
                1 => Map::RoundRobin,
                2 => Map::Hash,
                other => return Err(Refusal::Invalid(format!("the colony_map {other} does not exist"))),
            };
            let elements = Elements::Dense(checked_extents(extents)?, map);
            // SAFETY: the caller's promise.
            let place = unsafe { check::place(array, "the array") }?;
            // SAFETY: the caller's promise.
            let bytes = unsafe { Bytes::from_raw(init, length, "`init`") }?;
            place.write(create((calls, who.table), class, dimensions, (elements, DENSE), bytes)?);
            Ok(())
        })
    })
}

/// Creates an array without elements.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_create_sparse(
    context: *mut ColonyContext,
    class: i32,
    dimensions: u32,
    array: *mut ColonyArray,
) -> i32 {
    status(|| {
        scope::with(context, |calls, who| {
            let dimensions = check::dimensions(dimensions)?;
            // SAFETY: the caller's promise.
            let place = unsafe { check::place(array, "the array") }?;
            place.write(create(
                (calls, who.table),
                class,
                dimensions,
                (Elements::Sparse, SPARSE),
                Bytes::default(),
            )?);
            Ok(())
        })
    })
}

/// Creates one object on each PE.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_create_group(
    context: *mut ColonyContext,
    class: i32,
    init: *const c_void,
    length: usize,
    array: *mut ColonyArray,
) -> i32 {
    status(|| {
        scope::with(context, |calls, who| {
            // SAFETY: the caller's promise.
            let place = unsafe { check::place(array, "the array") }?;
            // SAFETY: the caller's promise.
            let bytes = unsafe { Bytes::from_raw(init, length, "`init`") }?;
            place.write(create((calls, who.table), class, 1, (Elements::Group, GROUP), bytes)?);
            Ok(())
        })
    })
}

/// Creates one object.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_create_one(
    context: *mut ColonyContext,
    class: i32,
    init: *const c_void,
    length: usize,
    element: *mut ColonyElement,
) -> i32 {
    status(|| {
        scope::with(context, |calls, who| {
            // SAFETY: the caller's promise.
            let place = unsafe { check::place(element, "the element") }?;
            // SAFETY: the caller's promise.
            let bytes = unsafe { Bytes::from_raw(init, length, "`init`") }?;
            let elements = Elements::Dense([1; 6], Map::Block);
            let array = create((calls, who.table), class, 1, (elements, DENSE), bytes)?;
            place.write(ColonyElement { array, index: ColonyIndex::default() });
            Ok(())
        })
    })
}

/// Inserts an element.
///
/// # Safety
/// As `colony.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn colony_insert(
    context: *mut ColonyContext,
    element: ColonyElement,
    init: *const c_void,
    length: usize,
) -> i32 {
    status(|| {
        scope::with(context, |calls, who| {
            let (at, class) = check::element(who.table, &element)?;
            if element.array.kind == GROUP {
                return Err(Refusal::Invalid(format!(
                    "{} is a group, which has one element a PE",
                    class.name
                )));
            }
            // SAFETY: the caller's promise.
            let bytes = unsafe { Bytes::from_raw(init, length, "`init`") }?;
            let fingerprint = who.table.fingerprint;
            calls.insert(at, Init { class: class.number, fingerprint, kind: element.array.kind, bytes });
            if scope::has_failed() {
                return Err(Refusal::Failed("an object could not be created: the job has failed".to_owned()));
            }
            Ok(())
        })
    })
}
