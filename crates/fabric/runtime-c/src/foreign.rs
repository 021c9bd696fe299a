// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Rust class behind all C classes: one for each number of dimensions.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use colony_runtime::{ArrayIndex, Context, Entry, Object, Quiet, Reduced, Schema, Values};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::abi::{ColonyArray, ColonyContext, ColonyElement, ColonyIndex, ColonyReduction, GROUP, SPARSE};
use crate::bytes::{ALIGNMENT, Buffer, Bytes};
use crate::calls::{Calls, Init, Packet};
use crate::scope::{self, Callback, Who, show};
use crate::status;
use crate::table::{self, Class, Table, keep_failure};

/// An object of C in an array of `D` dimensions.
#[derive(Debug)]
pub(crate) struct Foreign<const D: usize> {
    /// None if the object could not be created: then the program has failed.
    state: Option<State>,
    kind: u8,
}

/// A state of C and its class.
#[derive(Debug)]
struct State {
    table: Arc<Table>,
    class: u16,
    pointer: *mut c_void,
}

impl State {
    /// A state of a class that the table has.
    fn new(table: Arc<Table>, class: u16, pointer: *mut c_void) -> Self {
        Self { table, class, pointer }
    }

    fn class(&self) -> &Class {
        self.table.known(self.class)
    }
}

// SAFETY: `colony.h` demands that callbacks of one object can run on any thread, one at a time.
unsafe impl Send for State {}

impl Drop for State {
    fn drop(&mut self) {
        // SAFETY: `create` or `unpack` of this class has made the pointer, and nothing uses it any more.
        unsafe { (self.class().destroy)(self.pointer) };
    }
}

/// Bytes in one piece, for formats that have them.
struct Piece<'a>(&'a [u8]);

impl Serialize for Piece<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<const D: usize> Serialize for Foreign<D> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(state) = &self.state else { return Err(S::Error::custom("an object without a state")) };
        let (class, mut buffer) = (state.class(), Buffer::lent());
        // SAFETY: the pointer is a state of the class; the buffer lives until the call returns.
        let code = unsafe { (class.pack)(state.pointer, &raw mut buffer) };
        if code != 0 {
            let text = format!("`pack` of an object of {} returned {code}", class.name);
            keep_failure(&text);
            return Err(S::Error::custom(text));
        }
        (class.number, Piece(buffer.bytes.as_slice())).serialize(serializer)
    }
}

impl<'de, const D: usize> Deserialize<'de> for Foreign<D> {
    fn deserialize<De: Deserializer<'de>>(deserializer: De) -> Result<Self, De::Error> {
        let (number, packed) = <(u16, &'de [u8])>::deserialize(deserializer)?;
        let table = table::current().map_err(De::Error::custom)?;
        let class = table.class(i64::from(number)).map_err(De::Error::custom)?;
        let mut aligned = Bytes::default();
        let bytes = if packed.is_empty() {
            std::ptr::null()
        } else if packed.as_ptr().addr().is_multiple_of(ALIGNMENT) {
            packed.as_ptr().cast()
        } else {
            aligned.extend(packed.len()).map_err(De::Error::custom)?.copy_from_slice(packed);
            aligned.as_ptr()
        };
        // SAFETY: as many bytes as the length says, which `pack` of the class has written.
        let pointer = unsafe { (class.unpack)(bytes, packed.len()) };
        if pointer.is_null() {
            let text =
                format!("`unpack` of an object of {} returned NULL for {} bytes", class.name, packed.len());
            keep_failure(&text);
            return Err(De::Error::custom(text));
        }
        Ok(Self { state: Some(State::new(table, number, pointer)), kind: SPARSE })
    }
}

/// An object and its context.
struct Running<'a> {
    calls: &'a mut dyn Calls,
    state: &'a State,
    element: ColonyElement,
}

impl Running<'_> {
    /// Runs a callback that returns a code.
    fn run(self, callback: Callback<'_>, call: impl FnOnce(*mut c_void, *mut ColonyContext) -> c_int) {
        let who =
            Who { table: &self.state.table, object: Some((self.state.class(), self.element)), callback };
        let pointer = self.state.pointer;
        let code = scope::enter(self.calls, &who, |context| call(pointer, context));
        check(code, &who);
        scope::end_if_failed();
    }

    /// Ends the program with an error because of the message or state that this object has received.
    fn fail(self, text: &str) {
        scope::fail(&format!("{}: {text}", show(self.state.class(), &self.element)));
        scope::end_if_failed();
    }
}

/// Fails the program if a callback returned another code than 0.
pub(crate) fn check(code: c_int, who: &Who<'_>) {
    if code != 0 && !scope::has_failed() {
        let last = status::of_callback().map_or_else(String::new, |text| format!(" (last error: {text})"));
        scope::fail(&format!("{} returned {code}{last}", who.show()));
    }
}

/// The functions that the runtime calls, for each number of dimensions.
impl<const D: usize> Foreign<D>
where
    Self: Object,
    for<'a> Context<'a, Self>: Calls,
{
    fn element(cx: &Context<'_, Self>, class: u16, kind: u8) -> ColonyElement {
        let array = ColonyArray { id: cx.array().id().0, type_: class, dimensions: D as u8, kind };
        ColonyElement { array, index: ColonyIndex { at: cx.index().coordinates() } }
    }

    fn make(init: &Init, cx: &mut Context<'_, Self>) -> Self {
        let made = Self::make_state(init, cx);
        let state = match made {
            Ok(state) => Some(state),
            Err(text) => {
                if !scope::has_failed() {
                    scope::fail(&text);
                }
                None
            }
        };
        scope::end_if_failed();
        Self { state, kind: init.kind }
    }

    fn make_state(init: &Init, cx: &mut Context<'_, Self>) -> Result<State, String> {
        let table = table::current().map_err(|e| e.to_string())?;
        if table.fingerprint != init.fingerprint {
            return Err(
                "the processes of the job have different classes: start the same program in all of them"
                    .to_owned(),
            );
        }
        let class = table.class(i64::from(init.class)).map_err(|e| e.to_string())?;
        let element = Self::element(cx, init.class, init.kind);
        let who = Who { table: &table, object: Some((class, element)), callback: Callback::Named("create") };
        let (bytes, length) = (init.bytes.as_ptr(), init.bytes.len());
        // SAFETY: as many bytes as the length says.
        let pointer = scope::enter(cx, &who, |context| unsafe { (class.create)(bytes, length, context) });
        if pointer.is_null() {
            let last =
                status::of_callback().map_or_else(String::new, |text| format!(" (last error: {text})"));
            return Err(format!("{} returned NULL{last}", who.show()));
        }
        Ok(State::new(table, init.class, pointer))
    }

    fn running<'a>(&'a self, cx: &'a mut Context<'_, Self>) -> Option<Running<'a>> {
        let state = self.state.as_ref()?;
        let element = Self::element(cx, state.class, self.kind);
        Some(Running { calls: cx, state, element })
    }

    fn take(&self, packet: &Packet, cx: &mut Context<'_, Self>) {
        let Some(running) = self.running(cx) else { return };
        let class = running.state.class();
        if packet.class != class.number {
            let other = running.state.table.class(i64::from(packet.class)).map(|class| class.name.clone());
            let other = other.unwrap_or_else(|_| format!("number {}", packet.class));
            return running.fail(&format!(
                "got a message for an object of class {other}: its sender has a wrong array"
            ));
        }
        let (Some(entry), Some(name)) = (class.entry, class.entries.get(usize::from(packet.entry))) else {
            let (entry, count) = (packet.entry, class.entries.len());
            return running
                .fail(&format!("got a message for entry method {entry}, and its class has {count}"));
        };
        let (number, bytes, length) = (u32::from(packet.entry), packet.bytes.as_ptr(), packet.bytes.len());
        running.run(Callback::Entry(name), |state, context| {
            // SAFETY: the state is one of this class; as many bytes as the length says.
            unsafe { entry(state, number, bytes, length, context) }
        });
    }

    fn hook(
        &self,
        name: &'static str,
        hook: impl FnOnce(&Class) -> Option<crate::abi::HookFn>,
        cx: &mut Context<'_, Self>,
    ) {
        let Some(running) = self.running(cx) else { return };
        let Some(hook) = hook(running.state.class()) else { return };
        // SAFETY: the state is one of this class.
        running.run(Callback::Named(name), |state, context| unsafe { hook(state, context) });
    }

    fn take_quiet(&self, cx: &mut Context<'_, Self>) {
        self.hook("quiet", |class| class.quiet, cx);
    }

    fn take_reduced(&self, result: Reduced, cx: &mut Context<'_, Self>) {
        let Some(running) = self.running(cx) else { return };
        let Some(reduced) = running.state.class().reduced else {
            return running.fail("got the result of a reduction, and its class has no callback `reduced`");
        };
        let values = match Flat::of(result.values) {
            Ok(values) => values,
            Err(text) => return running.fail(text),
        };
        let view = values.view(result.number);
        // SAFETY: the state is one of this class; the view and all that it points to live until the call returns.
        running.run(Callback::Named("reduced"), |state, context| unsafe {
            reduced(state, &raw const view, context)
        });
    }

    fn bytes(&self) -> u64 {
        let Some(state) = &self.state else { return 0 };
        // SAFETY: the pointer is a state of the class.
        state.class().state_bytes.map_or(0, |bytes| unsafe { bytes(state.pointer) })
    }
}

/// Values of a reduction as C reads them.
#[derive(Debug, Default)]
struct Flat {
    doubles: Option<Vec<f64>>,
    integers: Option<Vec<i64>>,
    indices: Vec<ColonyIndex>,
    offsets: Vec<usize>,
}

impl Flat {
    /// Contributions to a gather begin with the number of the element's dimensions: see [`for_gather`].
    fn of(values: Values) -> Result<Self, &'static str> {
        let all = match values {
            Values::F64(values) => return Ok(Self { doubles: Some(values), ..Self::default() }),
            Values::I64(values) => return Ok(Self { integers: Some(values), ..Self::default() }),
            Values::Gathered(all) => all,
        };
        let wrong = "got a gather of objects that are not of this program";
        let mut flat = Self { offsets: vec![0], ..Self::default() };
        for (halves, values) in all {
            let (dimensions, end) = match values {
                Values::F64(values) => {
                    let (first, rest) = values.split_first().ok_or(wrong)?;
                    let all = flat.doubles.get_or_insert_default();
                    all.extend_from_slice(rest);
                    (*first as i64, all.len())
                }
                Values::I64(values) => {
                    let (first, rest) = values.split_first().ok_or(wrong)?;
                    let all = flat.integers.get_or_insert_default();
                    all.extend_from_slice(rest);
                    (*first, all.len())
                }
                Values::Gathered(_) => return Err(wrong),
            };
            flat.indices.push(ColonyIndex { at: coordinates(dimensions, halves).ok_or(wrong)? });
            flat.offsets.push(end);
        }
        if flat.doubles.is_some() && flat.integers.is_some() {
            return Err("got a gather of values of two types: all elements have to contribute values of one");
        }
        Ok(flat)
    }

    fn view(&self, number: u64) -> ColonyReduction {
        let is_gather = !self.offsets.is_empty();
        let doubles = self.doubles.as_deref();
        let integers = self.integers.as_deref();
        ColonyReduction {
            number,
            type_: u32::from(integers.is_some()),
            elements: self.indices.len() as u32,
            count: doubles.map_or(0, <[f64]>::len) + integers.map_or(0, <[i64]>::len),
            doubles: doubles.map_or(std::ptr::null(), <[f64]>::as_ptr),
            integers: integers.map_or(std::ptr::null(), <[i64]>::as_ptr),
            indices: if is_gather { self.indices.as_ptr() } else { std::ptr::null() },
            offsets: if is_gather { self.offsets.as_ptr() } else { std::ptr::null() },
        }
    }
}

/// A contribution to a gather. The result has packed indices, which need the number of dimensions to be read.
pub(crate) fn for_gather(values: Values, dimensions: u8) -> Values {
    match values {
        Values::F64(values) => Values::F64([vec![f64::from(dimensions)], values].concat()),
        Values::I64(values) => Values::I64([vec![i64::from(dimensions)], values].concat()),
        gathered @ Values::Gathered(_) => gathered,
    }
}

/// Calls a macro with each number of dimensions and its type of index.
macro_rules! for_each_dimension {
    ($macro:ident) => {
        $macro! { 1 => i64, 2 => [i32; 2], 3 => [i32; 3], 4 => [i32; 4], 5 => [i32; 5], 6 => [i32; 6] }
    };
}
pub(crate) use for_each_dimension;

macro_rules! objects {
    ($($d:literal => $index:ty),*) => {
        /// The coordinates of a packed index.
        fn coordinates(dimensions: i64, halves: [u64; 2]) -> Option<[i64; 6]> {
            let index = colony_runtime::Index::from_halves(halves);
            match dimensions {
                $($d => Some(<$index>::unpack(index).coordinates()),)*
                _ => None,
            }
        }

        $(
            impl Object for Foreign<$d> {
                type Index = $index;
                type Init = Init;
                const NAME: &'static str = "object";

                fn schema() -> Schema {
                    table::current().map_or_else(|_| Schema::unknown(), |table| table.schema())
                }

                fn new(init: Init, cx: &mut Context<'_, Self>) -> Self {
                    Self::make(&init, cx)
                }

                fn state_bytes(&self) -> u64 {
                    self.bytes()
                }

                fn arrived(&mut self, cx: &mut Context<'_, Self>) {
                    self.hook("arrived", |class| class.arrived, cx);
                }

                fn resume(&mut self, cx: &mut Context<'_, Self>) {
                    self.hook("resume", |class| class.resume, cx);
                }
            }

            impl Entry<Packet> for Foreign<$d> {
                const NAME: &'static str = "message";

                fn call(&mut self, packet: Packet, cx: &mut Context<'_, Self>) {
                    self.take(&packet, cx);
                }
            }

            impl Entry<Reduced> for Foreign<$d> {
                const NAME: &'static str = "reduced";

                fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
                    self.take_reduced(result, cx);
                }
            }

            impl Entry<Quiet> for Foreign<$d> {
                const NAME: &'static str = "quiet";

                fn call(&mut self, _: Quiet, cx: &mut Context<'_, Self>) {
                    self.take_quiet(cx);
                }
            }
        )*

        /// The Rust classes of a program of C.
        pub(crate) fn program() -> colony_runtime::Program {
            let program = colony_runtime::Program::new();
            $(let program = program.class::<Foreign<$d>>(|c| c.entry::<Packet>().entry::<Reduced>().entry::<Quiet>());)*
            program
        }
    };
}
for_each_dimension!(objects);

/// Returns `true` if an element of an array of this kind stays on its PE.
pub(crate) fn is_fixed(kind: u8) -> bool {
    kind == GROUP
}
