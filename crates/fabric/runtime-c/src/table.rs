// SPDX-License-Identifier: MIT OR Apache-2.0
//! The classes of a program, and those of the program that runs in this process.

use std::ffi::c_char;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use colony_runtime::Schema;

use crate::abi::{
    ColonyClass, CreateFn, DestroyFn, EntryFn, HookFn, PackFn, ReducedFn, StateBytesFn, UnpackFn,
};
use crate::status::{Refusal, text_of};

/// The most classes, and the most entry methods of one.
const MOST: usize = u16::MAX as usize;

/// A C class.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) number: u16,
    pub(crate) name: String,
    pub(crate) entries: Vec<String>,
    pub(crate) create: CreateFn,
    pub(crate) destroy: DestroyFn,
    pub(crate) pack: PackFn,
    pub(crate) unpack: UnpackFn,
    pub(crate) entry: Option<EntryFn>,
    pub(crate) arrived: Option<HookFn>,
    pub(crate) resume: Option<HookFn>,
    pub(crate) reduced: Option<ReducedFn>,
    pub(crate) quiet: Option<HookFn>,
    pub(crate) state_bytes: Option<StateBytesFn>,
}

impl Class {
    /// Copies a class of C.
    ///
    /// # Safety
    /// `from` is null or as `colony.h` says.
    unsafe fn read(from: *const ColonyClass, number: u16) -> Result<Self, Refusal> {
        if from.is_null() {
            return Err(Refusal::Invalid("the class is NULL".to_owned()));
        }
        // SAFETY: the caller's promise; `size` is the first field in every version.
        let size = unsafe { *from.cast::<usize>() };
        if size != size_of::<ColonyClass>() {
            return Err(Refusal::Invalid(format!(
                "the size of the class is {size} instead of {}: set it to sizeof(colony_class), and build with the \
                 colony.h of this library",
                size_of::<ColonyClass>()
            )));
        }
        // SAFETY: the caller's promise, for a class of this size.
        let class = unsafe { &*from };
        // SAFETY: the caller's promise.
        let name = unsafe { text_of(class.name, "the name of the class") }?;
        if name.is_empty() {
            return Err(Refusal::Invalid("the name of the class is empty".to_owned()));
        }
        // SAFETY: the caller's promise.
        let entries = unsafe { read_names(class.entries, class.entry_count as usize, &name) }?;
        let wants =
            |callback: &str| Refusal::Invalid(format!("the class {name} has no callback `{callback}`"));
        if !entries.is_empty() && class.entry.is_none() {
            return Err(wants("entry"));
        }
        Ok(Self {
            number,
            create: class.create.ok_or_else(|| wants("create"))?,
            destroy: class.destroy.ok_or_else(|| wants("destroy"))?,
            pack: class.pack.ok_or_else(|| wants("pack"))?,
            unpack: class.unpack.ok_or_else(|| wants("unpack"))?,
            entry: class.entry,
            arrived: class.arrived,
            resume: class.resume,
            reduced: class.reduced,
            quiet: class.quiet,
            state_bytes: class.state_bytes,
            entries,
            name,
        })
    }
}

/// The names of entry methods.
///
/// # Safety
/// `names` is null or points to `count` strings.
unsafe fn read_names(names: *const *const c_char, count: usize, class: &str) -> Result<Vec<String>, Refusal> {
    if count > MOST {
        return Err(Refusal::Invalid(format!(
            "the class {class} has {count} entry methods; {MOST} are possible"
        )));
    }
    if count > 0 && names.is_null() {
        return Err(Refusal::Invalid(format!("the names of the {count} entry methods of {class} are NULL")));
    }
    let read = |at: usize| {
        // SAFETY: the caller's promise.
        unsafe { text_of(*names.add(at), &format!("the name of entry method {at} of {class}")) }
    };
    (0..count).map(read).collect()
}

/// `colony_program`: classes by number.
#[derive(Debug, Default)]
pub struct Program {
    classes: Vec<Arc<Class>>,
}

impl Program {
    /// Adds a class and returns its number.
    ///
    /// # Safety
    /// `from` is null or as `colony.h` says.
    pub(crate) unsafe fn add(&mut self, from: *const ColonyClass) -> Result<u16, Refusal> {
        let number = u16::try_from(self.classes.len()).ok().filter(|n| usize::from(*n) < MOST);
        let number =
            number.ok_or_else(|| Refusal::Invalid(format!("a program has at most {MOST} classes")))?;
        // SAFETY: the caller's promise.
        let class = unsafe { Class::read(from, number) }?;
        if self.classes.iter().any(|other| other.name == class.name) {
            return Err(Refusal::Invalid(format!("the program has a class {} already", class.name)));
        }
        self.classes.push(Arc::new(class));
        Ok(number)
    }

    /// The classes as a run needs them.
    #[must_use]
    pub fn table(&self) -> Arc<Table> {
        // FNV-1a over all names: the same in every process of one program
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |text: &str| {
            for byte in text.bytes().chain([0xff]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for class in &self.classes {
            add(&class.name);
            class.entries.iter().for_each(|name| add(name));
            add("");
        }
        Arc::new(Table { classes: self.classes.clone(), fingerprint: hash })
    }
}

/// The classes of a program that runs.
pub struct Table {
    classes: Vec<Arc<Class>>,
    /// A hash of all names, which has to be the same in all processes.
    pub(crate) fingerprint: u64,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.classes.iter().map(|c| &c.name)).finish()
    }
}

impl Table {
    /// A class by a number that [`class`](Self::class) has found.
    pub(crate) fn known(&self, number: u16) -> &Class {
        &self.classes[usize::from(number)]
    }

    /// What a checkpoint on disk says of the classes. The bytes that `pack` writes are the program's own.
    pub(crate) fn schema(&self) -> Schema {
        self.classes.iter().fold(Schema::unknown(), |schema, class| {
            let entries = class.entries.join(", ");
            schema.with(format!("class {}", class.number), format!("{} with {entries}", class.name))
        })
    }

    pub(crate) fn class(&self, number: i64) -> Result<&Class, Refusal> {
        let class = usize::try_from(number).ok().and_then(|at| self.classes.get(at));
        class.map(|class| &**class).ok_or_else(|| {
            let count = self.classes.len();
            Refusal::Unknown(format!(
                "class {number} does not exist: the program has {count} classes, from 0"
            ))
        })
    }
}

struct Current {
    table: Arc<Table>,
    runs: usize,
}

/// The table of this process. Objects that arrive from other processes find their class by it.
static CURRENT: RwLock<Option<Current>> = RwLock::new(None);
/// Message of the failure that ends the program of this process.
static FAILURE: Mutex<Option<String>> = Mutex::new(None);

/// The table of the program that runs here.
pub(crate) fn current() -> Result<Arc<Table>, Refusal> {
    let current = CURRENT.read().unwrap_or_else(PoisonError::into_inner);
    let table = current.as_ref().map(|current| Arc::clone(&current.table));
    table.ok_or(Refusal::Context("no program runs in this process"))
}

/// A table that is current until it is dropped.
pub(crate) struct Installed;

impl Drop for Installed {
    fn drop(&mut self) {
        let mut current = CURRENT.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(runs) = current.as_mut().map(|c| &mut c.runs) {
            *runs -= 1;
            if *runs == 0 {
                *current = None;
            }
        }
    }
}

/// Makes a table the one of this process. Several ranks of one process may share one.
pub(crate) fn install(table: &Arc<Table>) -> Result<Installed, Refusal> {
    let mut current = CURRENT.write().unwrap_or_else(PoisonError::into_inner);
    match &mut *current {
        Some(other) if Arc::ptr_eq(&other.table, table) => other.runs += 1,
        Some(_) => {
            return Err(Refusal::Invalid(
                "a program runs in this process already: wait for its end".to_owned(),
            ));
        }
        None => {
            *FAILURE.lock().unwrap_or_else(PoisonError::into_inner) = None;
            *current = Some(Current { table: Arc::clone(table), runs: 1 });
        }
    }
    Ok(Installed)
}

/// Keeps the first failure of the program.
pub(crate) fn keep_failure(text: &str) {
    let mut failure = FAILURE.lock().unwrap_or_else(PoisonError::into_inner);
    failure.get_or_insert_with(|| text.to_owned());
}

/// The first failure of the program.
pub(crate) fn failure() -> Option<String> {
    FAILURE.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
