// SPDX-License-Identifier: MIT OR Apache-2.0
//! A class of C whose messages carry functions of this process, so that a test decides the behaviour of its callbacks.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use colony_runtime::transport::memory::Memory;
use colony_runtime::{Options, RunError};
use colony_runtime_c::*;

/// A function that a callback runs.
pub(crate) type Action = fn(*mut ColonyContext) -> c_int;

/// One program runs in a process at a time.
static ONE: Mutex<()> = Mutex::new(());
static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// States that exist.
static STATES: AtomicI64 = AtomicI64::new(0);
/// States that were unpacked.
static UNPACKED: AtomicU64 = AtomicU64::new(0);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes something for the test.
pub(crate) fn note(text: impl ToString) {
    lock(&NOTES).push(text.to_string());
}

/// The text of the last failed call of this thread.
pub(crate) fn last_error() -> String {
    // SAFETY: a string of this thread, copied at once.
    unsafe { CStr::from_ptr(colony_last_error()) }.to_string_lossy().into_owned()
}

/// Notes a status and its text.
pub(crate) fn note_status(what: &str, status: i32) {
    note(if status == 0 { format!("{what}: 0") } else { format!("{what}: {status} {}", last_error()) });
}

/// A message that makes the receiver run an action.
pub(crate) fn message(action: Action) -> [usize; 2] {
    [action as usize, 0]
}

/// The action of a message.
fn action_of(message: *const c_void, length: usize) -> Option<Action> {
    assert!(message.addr().is_multiple_of(16), "messages are aligned");
    if length != size_of::<[usize; 2]>() {
        return None;
    }
    // SAFETY: messages of this length are made by `message`, in this process.
    Some(unsafe { std::mem::transmute::<usize, Action>(*message.cast::<usize>()) })
}

/// The state of an object of C.
struct State {
    acted: u64,
}

extern "C" fn create(init: *const c_void, length: usize, cx: *mut ColonyContext) -> *mut c_void {
    if action_of(init, length).is_some_and(|action| action(cx) != 0) {
        return std::ptr::null_mut();
    }
    STATES.fetch_add(1, Ordering::Relaxed);
    Box::into_raw(Box::new(State { acted: 0 })).cast()
}

extern "C" fn destroy(state: *mut c_void) {
    STATES.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: `create` or `unpack` has made it.
    drop(unsafe { Box::from_raw(state.cast::<State>()) });
}

extern "C" fn pack(state: *const c_void, into: *mut Buffer) -> c_int {
    // SAFETY: a state of this class.
    let acted = unsafe { (*state.cast::<State>()).acted };
    if acted == PACK_FAILS {
        return 9;
    }
    // SAFETY: a buffer that is lent to this callback; it must not be freed, which the second call tries.
    unsafe {
        colony_buffer_free(into);
        colony_buffer_write(into, (&raw const acted).cast(), 8)
    }
}

extern "C" fn unpack(bytes: *const c_void, length: usize) -> *mut c_void {
    assert!(length == 8 && bytes.addr().is_multiple_of(16), "states are aligned");
    // SAFETY: eight bytes at an aligned address.
    let acted = unsafe { *bytes.cast::<u64>() };
    if acted == UNPACK_FAILS {
        return std::ptr::null_mut();
    }
    STATES.fetch_add(1, Ordering::Relaxed);
    UNPACKED.fetch_add(1, Ordering::Relaxed);
    Box::into_raw(Box::new(State { acted })).cast()
}

/// States that cannot be packed, or unpacked.
const PACK_FAILS: u64 = 1 << 40;
const UNPACK_FAILS: u64 = 2 << 40;

extern "C" fn entry(
    state: *mut c_void,
    number: u32,
    message: *const c_void,
    length: usize,
    cx: *mut ColonyContext,
) -> c_int {
    // SAFETY: a state of this class.
    let state = unsafe { &mut *state.cast::<State>() };
    state.acted += 1;
    match (number, action_of(message, length)) {
        (0, Some(action)) => action(cx),
        (1, _) => {
            state.acted = if length == 1 { PACK_FAILS } else { UNPACK_FAILS };
            let pe = (colony_pe(cx) + 1) % colony_pes(cx);
            colony_migrate_to(cx, pe.cast_unsigned())
        }
        _ => 5,
    }
}

extern "C" fn reduced(_: *mut c_void, result: *const ColonyReduction, cx: *mut ColonyContext) -> c_int {
    // SAFETY: the runtime's, valid during this call.
    let result = unsafe { &*result };
    // SAFETY: as many values as the count says.
    let values: Vec<String> = unsafe {
        match result.type_ {
            0 if result.count > 0 => std::slice::from_raw_parts(result.doubles, result.count)
                .iter()
                .map(ToString::to_string)
                .collect(),
            1 if result.count > 0 => std::slice::from_raw_parts(result.integers, result.count)
                .iter()
                .map(ToString::to_string)
                .collect(),
            _ => Vec::new(),
        }
    };
    let elements = result.elements as usize;
    let mut text = format!("{}: {}", result.number, values.join(" "));
    if elements > 0 {
        // SAFETY: as many indices as elements, and an offset more.
        let (indices, offsets) = unsafe {
            (
                std::slice::from_raw_parts(result.indices, elements),
                std::slice::from_raw_parts(result.offsets, elements + 1),
            )
        };
        text += &format!(" of {:?} at {offsets:?}", indices.iter().map(|i| &i.at[..3]).collect::<Vec<_>>());
    }
    note(text);
    colony_exit(cx, 0)
}

extern "C" fn quiet(_: *mut c_void, cx: *mut ColonyContext) -> c_int {
    note("quiet");
    colony_exit(cx, 3)
}

extern "C" fn arrived(_: *mut c_void, _: *mut ColonyContext) -> c_int {
    note("arrived");
    0
}

extern "C" fn start(_: c_int, argv: *mut *mut c_char, cx: *mut ColonyContext) -> c_int {
    // SAFETY: `run` passes the address of an action.
    let action = unsafe { std::mem::transmute::<*mut *mut c_char, Action>(argv) };
    action(cx)
}

/// A class with all callbacks.
pub(crate) fn class(name: &'static CStr) -> ColonyClass {
    struct Names([*const c_char; 2]);
    // SAFETY: constants.
    unsafe impl Sync for Names {}
    static NAMES: Names = Names([c"act".as_ptr(), c"break".as_ptr()]);
    ColonyClass {
        size: size_of::<ColonyClass>(),
        name: name.as_ptr(),
        entries: NAMES.0.as_ptr(),
        entry_count: 2,
        create: Some(create),
        destroy: Some(destroy),
        pack: Some(pack),
        unpack: Some(unpack),
        entry: Some(entry),
        arrived: Some(arrived),
        resume: None,
        reduced: Some(reduced),
        quiet: Some(quiet),
        state_bytes: None,
    }
}

/// The result of a run.
pub(crate) struct Ran {
    pub(crate) outcomes: Vec<Result<u8, RunError>>,
    pub(crate) notes: Vec<String>,
    pub(crate) unpacked: u64,
}

impl Ran {
    /// The one text of a program that has failed.
    pub(crate) fn error(&self) -> &str {
        let texts: Vec<&str> = self
            .outcomes
            .iter()
            .filter_map(|o| match o {
                Err(RunError::Program(text)) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        assert!(!texts.is_empty() && texts.iter().all(|text| *text == texts[0]), "{:?}", self.outcomes);
        texts[0]
    }
}

/// Runs a program of the classes Probe (0) and Plain (1, no optional callbacks) on ranks that are threads.
pub(crate) fn run((ranks, threads): (u32, u32), action: Action) -> Ran {
    let _one = lock(&ONE);
    lock(&NOTES).clear();
    let unpacked = UNPACKED.load(Ordering::Relaxed);
    let program = colony_program_new();
    let probe = class(c"Probe");
    let plain = ColonyClass { arrived: None, reduced: None, quiet: None, ..class(c"Plain") };
    // SAFETY: valid programs and classes; the table keeps what the runs need.
    let table = unsafe {
        assert_eq!(colony_program_class(program, &raw const probe), 0);
        assert_eq!(colony_program_class(program, &raw const plain), 1);
        let table = (*program).table();
        colony_program_free(program);
        table
    };
    let options = Options { threads, ..Options::default() };
    let outcomes = std::thread::scope(|scope| {
        let handles: Vec<_> = Memory::ranks(ranks)
            .into_iter()
            .map(|memory| {
                let (table, options) = (&table, &options);
                let start =
                    Start { call: start, argc: 0, argv: std::ptr::without_provenance_mut(action as usize) };
                scope.spawn(move || run_over(table, options, Box::new(memory), start))
            })
            .collect();
        handles.into_iter().map(|h| h.join().expect("a rank")).collect()
    });
    assert_eq!(STATES.load(Ordering::Relaxed), 0, "every state is destroyed once");
    let notes = std::mem::take(&mut *lock(&NOTES));
    Ran { outcomes, notes, unpacked: UNPACKED.load(Ordering::Relaxed) - unpacked }
}

/// Creates an array of Probe and returns its name.
pub(crate) fn create_array(cx: *mut ColonyContext, extents: &[u32]) -> ColonyArray {
    let mut array = ColonyArray::default();
    // SAFETY: as many extents as dimensions.
    let status = unsafe {
        let dimensions = extents.len() as u32;
        colony_create_array(cx, 0, dimensions, extents.as_ptr(), 0, std::ptr::null(), 0, &raw mut array)
    };
    assert_eq!(status, 0, "{}", last_error());
    array
}

/// An element.
pub(crate) fn at(array: ColonyArray, index: &[i64]) -> ColonyElement {
    let mut all = ColonyIndex::default();
    all.at[..index.len()].copy_from_slice(index);
    ColonyElement { array, index: all }
}

/// Makes an element run an action.
pub(crate) fn act(cx: *mut ColonyContext, to: ColonyElement, action: Action) -> c_int {
    let message = message(action);
    // SAFETY: 16 bytes.
    unsafe { colony_send(cx, to, 0, message.as_ptr().cast(), 16) }
}

/// This element.
pub(crate) fn this(cx: *mut ColonyContext) -> ColonyElement {
    let mut element = ColonyElement::default();
    // SAFETY: a place for it.
    assert_eq!(unsafe { colony_this(cx, &raw mut element) }, 0, "{}", last_error());
    element
}
