// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of arguments from C.

use colony_runtime::ArrayId;

use crate::abi::{ColonyArray, ColonyElement, ColonyIndex, GROUP, MAX_DIMENSIONS};
use crate::bytes::Bytes;
use crate::calls::{At, Of, Packet};
use crate::status::Refusal;
use crate::table::{Class, Table};

/// The least and the largest coordinate of an index.
pub(super) const fn range(dimensions: usize) -> (i64, i64) {
    match dimensions {
        0 | 1 => (i64::MIN, i64::MAX),
        2..=4 => (i32::MIN as i64, i32::MAX as i64),
        5 => (-(1 << 24), (1 << 24) - 1),
        _ => (-(1 << 20), (1 << 20) - 1),
    }
}

/// The number of dimensions of a new array.
pub(super) fn dimensions(dimensions: u32) -> Result<u8, Refusal> {
    match u8::try_from(dimensions) {
        Ok(few @ 1..=6) => Ok(few),
        _ => Err(Refusal::Dimensions(format!(
            "{dimensions} dimensions are not possible: 1 to {MAX_DIMENSIONS} are"
        ))),
    }
}

/// An array and its class.
pub(super) fn array(table: &Table, array: ColonyArray) -> Result<(Of, &Class), Refusal> {
    if !(1..=6).contains(&array.dimensions) || array.kind > GROUP {
        return Err(Refusal::Unknown("the colony_array is none that the runtime has made".to_owned()));
    }
    let class = table.class(i64::from(array.type_))?;
    Ok((Of { array: ArrayId(array.id), dimensions: array.dimensions }, class))
}

/// An index of an array.
pub(super) fn index(index: &ColonyIndex, of: Of, class: &Class) -> Result<[i64; 6], Refusal> {
    let dimensions = usize::from(of.dimensions);
    let (least, most) = range(dimensions);
    let (coordinates, rest) = index.at.split_at(dimensions);
    if let Some(wrong) = coordinates.iter().find(|c| !(least..=most).contains(*c)) {
        return Err(Refusal::Dimensions(format!(
            "the coordinate {wrong} of an element of {} is out of range: {dimensions} dimensions have {least} to {most}",
            class.name
        )));
    }
    if rest.iter().any(|c| *c != 0) {
        return Err(Refusal::Dimensions(format!(
            "the index {:?} has coordinates beyond the {dimensions} dimensions of an array of {}",
            index.at, class.name
        )));
    }
    Ok(index.at)
}

/// An element and its class.
pub(super) fn element<'t>(table: &'t Table, element: &ColonyElement) -> Result<(At, &'t Class), Refusal> {
    let (of, class) = array(table, element.array)?;
    let index = index(&element.index, of, class)?;
    Ok((At { of, index }, class))
}

/// A message to an entry method of a class.
pub(super) fn packet(class: &Class, entry: u32, bytes: Bytes) -> Result<Packet, Refusal> {
    let known = u16::try_from(entry).ok().filter(|e| usize::from(*e) < class.entries.len());
    let entry = known.ok_or_else(|| {
        let count = class.entries.len();
        Refusal::Unknown(format!("{} has no entry method {entry}: it has {count}, from 0", class.name))
    })?;
    Ok(Packet { class: class.number, entry, bytes })
}

/// A place for a result.
///
/// # Safety
/// `place` is null or can be written.
pub(super) unsafe fn place<'a, T>(
    place: *mut T,
    what: &str,
) -> Result<&'a mut std::mem::MaybeUninit<T>, Refusal> {
    // SAFETY: the caller's promise; what is there need not be initialized.
    let found = unsafe { place.cast::<std::mem::MaybeUninit<T>>().as_mut() };
    found.ok_or_else(|| Refusal::Invalid(format!("the place for {what} is NULL")))
}
