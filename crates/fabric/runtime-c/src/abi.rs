// SPDX-License-Identifier: MIT OR Apache-2.0
//! The types of `colony.h`, field by field.

use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;

/// Dimensions that an array may have.
pub(crate) const MAX_DIMENSIONS: usize = 6;

/// `colony_context`: a number that is never dereferenced.
#[repr(C)]
#[derive(Debug)]
pub struct ColonyContext {
    _private: [u8; 0],
    _not_send: PhantomData<*mut ()>,
}

/// `colony_array`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColonyArray {
    /// The number of the array in the job.
    pub id: u32,
    /// The number of the class.
    pub type_: u16,
    /// Dimensions of the index.
    pub dimensions: u8,
    /// 0 dense, 1 sparse, 2 group.
    pub kind: u8,
}

/// `kind` of an array of all elements in a box.
pub(crate) const DENSE: u8 = 0;
/// `kind` of an array whose elements are inserted.
pub(crate) const SPARSE: u8 = 1;
/// `kind` of an array with one element a PE.
pub(crate) const GROUP: u8 = 2;

/// `colony_index`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColonyIndex {
    /// Coordinates; those beyond the array's dimensions are 0.
    pub at: [i64; MAX_DIMENSIONS],
}

/// `colony_element`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColonyElement {
    /// The array.
    pub array: ColonyArray,
    /// The index in it.
    pub index: ColonyIndex,
}

/// `colony_target`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColonyTarget {
    /// 0 an element, 1 all elements of an array, 2 the end of the job.
    pub kind: u32,
    /// Padding.
    pub unused: u32,
    /// The element, or any of the array.
    pub element: ColonyElement,
}

/// `colony_reduction`.
#[repr(C)]
#[derive(Debug)]
pub struct ColonyReduction {
    /// Its number among those of its array, from 0.
    pub number: u64,
    /// 0 double, 1 `int64_t`.
    pub type_: u32,
    /// Contributions of a gather; 0 for other operations.
    pub elements: u32,
    /// Values.
    pub count: usize,
    /// The values, if they are floating-point numbers.
    pub doubles: *const f64,
    /// The values, if they are integers.
    pub integers: *const i64,
    /// Elements that contributed to a gather.
    pub indices: *const ColonyIndex,
    /// Index of the first value of each element, and of the end of the last one's values.
    pub offsets: *const usize,
}

/// `create` of `colony_class`.
pub(crate) type CreateFn = unsafe extern "C" fn(*const c_void, usize, *mut ColonyContext) -> *mut c_void;
/// `destroy` of `colony_class`.
pub(crate) type DestroyFn = unsafe extern "C" fn(*mut c_void);
/// `pack` of `colony_class`.
pub(crate) type PackFn = unsafe extern "C" fn(*const c_void, *mut crate::bytes::Buffer) -> c_int;
/// `unpack` of `colony_class`.
pub(crate) type UnpackFn = unsafe extern "C" fn(*const c_void, usize) -> *mut c_void;
/// `entry` of `colony_class`.
pub(crate) type EntryFn =
    unsafe extern "C" fn(*mut c_void, u32, *const c_void, usize, *mut ColonyContext) -> c_int;
/// `arrived`, `resume` and `quiet` of `colony_class`.
pub(crate) type HookFn = unsafe extern "C" fn(*mut c_void, *mut ColonyContext) -> c_int;
/// `reduced` of `colony_class`.
pub(crate) type ReducedFn =
    unsafe extern "C" fn(*mut c_void, *const ColonyReduction, *mut ColonyContext) -> c_int;
/// `state_bytes` of `colony_class`.
pub(crate) type StateBytesFn = unsafe extern "C" fn(*const c_void) -> u64;
/// `start` of `colony_run`.
pub(crate) type StartFn = unsafe extern "C" fn(c_int, *mut *mut c_char, *mut ColonyContext) -> c_int;

/// `colony_class`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ColonyClass {
    /// `sizeof(colony_class)`.
    pub size: usize,
    /// The name, for traces and errors.
    pub name: *const c_char,
    /// The names of the entry methods.
    pub entries: *const *const c_char,
    /// The number of entry methods.
    pub entry_count: u32,
    /// Makes a state.
    pub create: Option<CreateFn>,
    /// Frees a state.
    pub destroy: Option<DestroyFn>,
    /// Packs a state.
    pub pack: Option<PackFn>,
    /// Makes a state from packed bytes.
    pub unpack: Option<UnpackFn>,
    /// Runs an entry method.
    pub entry: Option<EntryFn>,
    /// Runs after a migration.
    pub arrived: Option<HookFn>,
    /// Runs after load balancing.
    pub resume: Option<HookFn>,
    /// Takes the result of a reduction.
    pub reduced: Option<ReducedFn>,
    /// Runs at quiescence.
    pub quiet: Option<HookFn>,
    /// Bytes of the packed state, about.
    pub state_bytes: Option<StateBytesFn>,
}

/// `colony_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ColonyOptions {
    /// `sizeof(colony_options)`.
    pub size: usize,
    /// PEs of each process; 0 is the default.
    pub threads: u32,
    /// Not 0: idle PEs take objects from others of their process.
    pub steal: u32,
    /// The strategy of load balancing, or null.
    pub balance: *const c_char,
}
