// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects, their entry methods, and what an entry method can do.

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::address::{Address, ArrayId};
use crate::checkpoint::options::Period;
use crate::core::{Core, Quiet, Reduced};
use crate::index::ArrayIndex;
use crate::message::{Message, Payload};
use crate::parcel::{Parcel, System};
use crate::reduction::{Callback, Op, Values};
use crate::schema::Schema;
use crate::section::{Section, SectionKey};
use crate::shape::{Map, Shape};

/// A class of objects that are elements of arrays. The runtime moves an object to another process by its `serde` form.
/// Checkpoints do so too, but for [`Tracked`](crate::Tracked) fields that have not changed.
pub trait Object: Serialize + DeserializeOwned + Send + 'static {
    /// The index of an element.
    type Index: ArrayIndex;

    /// The argument that every element of an array is made from.
    type Init: Message;

    /// The name of the class in reports: by default, that of the type.
    const NAME: &'static str = "";

    /// Elements of this class take part in load balancing, which waits until each of them has called
    /// [`Context::at_sync`]. Groups and objects of [`Context::create_one`] never take part.
    const BALANCED: bool = true;

    /// The version of the packed state, which a checkpoint on disk and the program that reads it have in common. Choose another
    /// one if packed values get another meaning, such as another unit.
    const VERSION: u32 = 0;

    /// The layout of the packed state, which a checkpoint on disk and the program that reads it have in common: by default,
    /// that of the type, as far as it [can be seen](Schema::of). If it cannot be seen in full, only the build that has
    /// written a checkpoint reads it, unless [`VERSION`](Self::VERSION) is not 0: then it has to change with each change of
    /// the state.
    #[must_use]
    fn schema() -> Schema {
        Schema::of::<Self>()
    }

    /// Makes the element at [`Context::index`]. It may send messages, and is called on the element's home PE.
    fn new(init: Self::Init, cx: &mut Context<'_, Self>) -> Self;

    /// Bytes of the packed state, about: what a migration costs. By default, the size of the type.
    fn state_bytes(&self) -> u64 {
        size_of::<Self>() as u64
    }

    /// Called on the new PE after a migration, before the next entry method.
    fn arrived(&mut self, _cx: &mut Context<'_, Self>) {}

    /// Returns `true` if [`restored`](Self::restored) can make the futures of this object that wait again, from its packed state.
    /// A future that nobody can make again keeps checkpoints from being made while it waits.
    fn restores_futures(&self) -> bool {
        false
    }

    /// Called when this object has been made from a checkpoint, before any object of its PE gets a message. What it sent before
    /// the checkpoint has arrived: it is not to send that again.
    fn restored(&mut self, _cx: &mut Context<'_, Self>) {}

    /// Called after load balancing, which begins when all objects have called [`Context::at_sync`].
    fn resume(&mut self, _cx: &mut Context<'_, Self>) {}
}

/// An entry method: what an object does with messages of one type.
pub trait Entry<M: Message>: Object {
    /// The name of the entry method in reports: by default, that of the message's type.
    const NAME: &'static str = "";

    /// Takes a message.
    fn call(&mut self, message: M, cx: &mut Context<'_, Self>);
}

/// An entry method with a reply, for [`Handle::ask`](crate::Handle::ask).
pub trait Respond<M: Message>: Object {
    /// The reply.
    type Reply: Message;

    /// Takes a message and returns the reply to it.
    fn respond(&mut self, message: M, cx: &mut Context<'_, Self>) -> Self::Reply;
}

/// An array of objects. It is a name only: copy it, send it in messages.
pub struct Array<T> {
    id: ArrayId,
    class: PhantomData<fn() -> T>,
}

impl<T> Clone for Array<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Array<T> {}
impl<T> PartialEq for Array<T> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}
impl<T> Eq for Array<T> {}
impl<T> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array<{}>({})", std::any::type_name::<T>(), self.id.0)
    }
}
impl<T> Serialize for Array<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.id.serialize(serializer)
    }
}
impl<'de, T> Deserialize<'de> for Array<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ArrayId::deserialize(deserializer).map(|id| Self { id, class: PhantomData })
    }
}

impl<T: Object> Array<T> {
    /// An element of the array, whether it exists or not.
    #[inline]
    #[must_use]
    pub fn at(self, index: T::Index) -> Element<T> {
        Element { address: Address { array: self.id, index: index.pack() }, class: PhantomData }
    }

    /// Some elements of the array, each once: to send them one message, and for their own reductions.
    #[must_use]
    pub fn section(self, indices: impl IntoIterator<Item = T::Index>) -> Section<T> {
        Section::new(self.id, indices.into_iter().map(T::Index::pack).collect())
    }

    /// The array without its type.
    #[must_use]
    pub fn id(self) -> ArrayId {
        self.id
    }

    /// An array by its number, which [`id`](Self::id) gave. Messages to an array of another class end the program.
    #[must_use]
    pub fn from_id(id: ArrayId) -> Self {
        Self { id, class: PhantomData }
    }
}

/// An element of an array, wherever it is.
pub struct Element<T> {
    address: Address,
    class: PhantomData<fn() -> T>,
}

impl<T> Clone for Element<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Element<T> {}
impl<T> PartialEq for Element<T> {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}
impl<T> Eq for Element<T> {}
impl<T> fmt::Debug for Element<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{:?}]", std::any::type_name::<T>(), self.address.index)
    }
}
impl<T> Serialize for Element<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.address.serialize(serializer)
    }
}
impl<'de, T> Deserialize<'de> for Element<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Address::deserialize(deserializer).map(|address| Self { address, class: PhantomData })
    }
}

impl<T: Object> Element<T> {
    /// The element's index.
    #[must_use]
    pub fn index(self) -> T::Index {
        T::Index::unpack(self.address.index)
    }

    /// The element's address, without its type.
    #[must_use]
    pub fn address(self) -> Address {
        self.address
    }
}

/// The operations of an entry method of `T`, or of the program's beginning.
pub struct Context<'a, T> {
    pub(crate) core: &'a mut Core,
    /// The object's slot; none at the program's beginning.
    pub(crate) slot: Option<u32>,
    pub(crate) address: Address,
    class: PhantomData<fn() -> T>,
}

impl<'a, T> Context<'a, T> {
    #[inline]
    pub(crate) fn new(core: &'a mut Core, slot: Option<u32>) -> Self {
        let pe = Address::pe(core.pe());
        let address = slot.and_then(|s| core.slots.get(s)).map_or(pe, |e| e.address);
        Self { core, slot, address, class: PhantomData }
    }

    /// This PE, from 0.
    #[must_use]
    pub fn pe(&self) -> u32 {
        self.core.pe()
    }

    /// The number of PEs of the job.
    #[must_use]
    pub fn pes(&self) -> u32 {
        self.core.pes()
    }

    /// The number of an entry method of `U`.
    #[inline]
    fn entry<U: 'static, M: 'static>(&mut self) -> Option<u16> {
        let found = self.core.classes.entry_of(TypeId::of::<U>(), TypeId::of::<M>());
        if found.is_none() {
            let (object, message) = (std::any::type_name::<U>(), std::any::type_name::<M>());
            self.core.fail_program(format!(
                "the entry method of {object} for {message} is not registered: add it to the program"
            ));
        }
        found.map(|(_, entry)| entry)
    }

    /// Sends a message to an object. Messages from one object to another run in the order in which they were sent.
    #[inline]
    pub fn send<U: Entry<M>, M: Message>(&mut self, to: Element<U>, message: M) {
        self.send_with_priority(to, message, 0);
    }

    /// Sends a message that runs before others of a larger priority value on the receiver's PE, and after those of a
    /// smaller one. Usual messages have 0. Messages of one sender to one receiver keep their order all the same.
    #[inline]
    pub fn send_with_priority<U: Entry<M>, M: Message>(&mut self, to: Element<U>, message: M, priority: i32) {
        let Some(entry) = self.entry::<U, M>() else { return };
        let payload = Payload::Typed(Box::new(message));
        self.core.send_from_slot(self.slot, self.address, to.address, entry, payload, priority, 0);
    }

    /// Sends a message after some time. Until then the program is not quiescent.
    pub fn send_after<U: Entry<M>, M: Message>(&mut self, delay: Duration, to: Element<U>, message: M) {
        let Some(entry) = self.entry::<U, M>() else { return };
        let due = Instant::now() + delay;
        self.core.add_timer(due, self.address, to.address, entry, Payload::Typed(Box::new(message)));
    }

    /// Sends a message to every element of an array. Each gets the array's broadcasts in one order.
    pub fn broadcast<U: Entry<M>, M: Message>(&mut self, to: Array<U>, message: M) {
        let Some(entry) = self.entry::<U, M>() else { return };
        self.core.broadcast(to.id, entry, Payload::Typed(Box::new(message)));
    }

    /// Sends a message to every element of a section, in the order of single messages.
    pub fn multicast<U: Entry<M>, M: Message>(&mut self, to: &Section<U>, message: M) {
        let Some(entry) = self.entry::<U, M>() else { return };
        let payload = Payload::Typed(Box::new(message));
        self.core.multicast(self.slot, self.address, to.array(), to.indices(), entry, payload);
    }

    /// Calls back an object with the result of a reduction.
    pub fn reply_to<U: Entry<Reduced>>(&mut self, to: Element<U>) -> Callback {
        self.callback::<U, Reduced>(to)
    }

    /// Calls back all elements of an array with the result of a reduction.
    pub fn reply_to_all<U: Entry<Reduced>>(&mut self, to: Array<U>) -> Callback {
        self.entry::<U, Reduced>().map_or(Callback::Exit, |entry| Callback::Array { array: to.id, entry })
    }

    fn callback<U: Entry<M>, M: Message>(&mut self, to: Element<U>) -> Callback {
        self.entry::<U, M>().map_or(Callback::Exit, |entry| Callback::Element { to: to.address, entry })
    }

    /// Sends [`Quiet`] to an object once no message is under way and no PE has anything to do.
    pub fn when_quiet<U: Entry<Quiet>>(&mut self, to: Element<U>) {
        let callback = self.callback::<U, Quiet>(to);
        self.core.when_quiet(callback);
    }

    fn create<U: Object>(&mut self, shape: Shape, map: Map, balanced: bool, init: &U::Init) -> Array<U> {
        let init = self.core.packed(init);
        let Some(class) = self.core.classes.class_of(TypeId::of::<U>()) else {
            let name = std::any::type_name::<U>();
            self.core.fail_program(format!("the class {name} is not registered: add it to the program"));
            return Array { id: ArrayId(0), class: PhantomData };
        };
        Array { id: self.core.create_array(class, shape, map, balanced, init), class: PhantomData }
    }

    /// Creates an array with all elements of a box that begins at 0, of as many dimensions as the index has.
    pub fn create_array<U: Object>(&mut self, extents: &[u32], init: U::Init) -> Array<U> {
        self.create_mapped(extents, Map::Block, init)
    }

    /// The same, with another map of elements to home PEs.
    pub fn create_mapped<U: Object>(&mut self, extents: &[u32], map: Map, init: U::Init) -> Array<U> {
        let dimensions = U::Index::DIMENSIONS;
        if extents.len() != dimensions {
            self.core.fail_program(format!(
                "an array of {} has {dimensions} dimensions, and {} extents are given: {extents:?}",
                std::any::type_name::<U>(),
                extents.len()
            ));
        }
        let all = std::array::from_fn(|d| extents.get(d).copied().unwrap_or(1));
        self.create(Shape::Dense(all), map, U::BALANCED, &init)
    }

    /// Creates an array without elements, for [`insert`](Self::insert).
    pub fn create_sparse<U: Object>(&mut self, init: U::Init) -> Array<U> {
        self.create(Shape::Sparse, Map::Hash, U::BALANCED, &init)
    }

    /// Creates one object on each PE, which stays there. The indices are the PEs.
    pub fn create_group<U: Object>(&mut self, init: U::Init) -> Array<U> {
        self.create(Shape::Group, Map::Block, false, &init)
    }

    /// Creates one object: an array of one element, at index 0. It takes no part in load balancing.
    pub fn create_one<U: Object>(&mut self, init: U::Init) -> Element<U> {
        let mut extents = [0u32; 6];
        extents[..].fill(1);
        let array: Array<U> = self.create(Shape::Dense(extents), Map::Block, false, &init);
        array.at(U::Index::from_coordinates([0; 6]))
    }

    /// Inserts an element. Messages to it may be sent at once. If an element of the same array inserts it, it takes part
    /// in the reduction that its inserter contributes to next, and in those after it. Otherwise it takes part from the
    /// first reduction on that is not complete when the array's root learns of it.
    pub fn insert<U: Object>(&mut self, at: Element<U>, init: U::Init) {
        let init = self.core.packed(&init);
        self.core.insert(self.slot, at.address, init);
    }

    /// Evacuates a PE: its objects migrate to the other PEs while the program runs on, and load balancing gives it none
    /// until it is [readmitted](Self::readmit). Elements of groups stay. An object with a pending future migrates once the
    /// future has ended. The PE still forwards messages, so its process must stay alive.
    ///
    /// The program fails if the job has no PE of this number.
    pub fn evacuate(&mut self, pe: u32) {
        self.core.request_evacuation(pe, true);
    }

    /// Readmits an evacuated PE: the next load balancing gives it objects again.
    pub fn readmit(&mut self, pe: u32) {
        self.core.request_evacuation(pe, false);
    }

    /// Changes the period of checkpoints, or ends them. Without processes that can be replaced, no checkpoints are made.
    pub fn checkpoint_every(&mut self, period: Option<Period>) {
        self.core.post(0, Parcel::System(System::CheckpointEvery { period }));
    }

    /// A value that does not follow from messages, such as a time or a random number. If messages are logged and this PE runs
    /// again after the death of its process, this is the value of the first time.
    ///
    /// ```ignore
    /// let now = cx.logged(|| SystemTime::now().duration_since(UNIX_EPOCH));
    /// ```
    pub fn logged<V: Message>(&mut self, value: impl FnOnce() -> V) -> V {
        self.core.determined(|_| value())
    }

    /// Logs messages from the next checkpoint on, or no longer, if [`CheckpointOptions::log`](crate::CheckpointOptions::log)
    /// allows a log.
    pub fn log_messages(&mut self, on: bool) {
        self.core.post(0, Parcel::System(System::LogMessages { on }));
    }

    /// Ends the program on all PEs. The exit code of the job is `code`.
    pub fn exit(&mut self, code: u8) {
        self.core.exit_all(code);
    }
}

impl<T: Object> Context<'_, T> {
    /// The index of this element.
    #[must_use]
    pub fn index(&self) -> T::Index {
        T::Index::unpack(self.address.index)
    }

    /// This element.
    #[must_use]
    pub fn this(&self) -> Element<T> {
        Element { address: self.address, class: PhantomData }
    }

    /// The array of this element.
    #[must_use]
    pub fn array(&self) -> Array<T> {
        Array { id: self.address.array, class: PhantomData }
    }

    /// Contributes to the array's next reduction. Every element of the array contributes once to each reduction, with
    /// as many values, one operation and one target.
    pub fn contribute(&mut self, values: impl Into<Values>, op: Op, to: Callback) {
        if let Some(slot) = self.slot {
            self.core.contribute(slot, values.into(), op, to);
        }
    }

    /// Contributes to a section's next reduction. Every element of the section contributes once to each, as for those of
    /// the array ([`contribute`](Self::contribute)), with which they have nothing to do. Results come in order, and their
    /// numbers are the section's.
    pub fn contribute_to(&mut self, section: SectionKey<T>, values: impl Into<Values>, op: Op, to: Callback) {
        if let Some(slot) = self.slot {
            self.core.contribute_to_section(slot, section.name, values.into(), op, to);
        }
    }

    /// Moves this object to another PE once its entry method has ended, and once it has no future that waits.
    pub fn migrate_to(&mut self, pe: u32) {
        let pes = self.core.pes();
        if pe >= pes {
            return self.core.fail_program(format!("an object is to migrate to PE {pe} of {pes}"));
        }
        let shape = self.core.arrays.get(&self.address.array).map(|a| a.shape);
        if shape == Some(Shape::Group) {
            return self.core.fail_program(format!(
                "{}, an element of a group, cannot migrate",
                self.core.show(self.address)
            ));
        }
        if let Some(element) = self.slot.and_then(|s| self.core.slots.get_mut(s)) {
            element.leaving = Some(pe);
        }
    }

    /// Says that this object is ready for load balancing. When all objects that [take part](Object::BALANCED) have said
    /// so, objects may migrate, and then [`Object::resume`] is called. Until then the object may get messages, and may
    /// migrate as well.
    pub fn at_sync(&mut self) {
        if let Some(slot) = self.slot {
            self.core.at_sync(slot);
        }
    }

    /// Removes this object once its entry method has ended. From then on, messages to it wait for another element
    /// at its index, which may be [inserted](Self::insert) at once.
    pub fn remove(&mut self) {
        if let Some(element) = self.slot.and_then(|s| self.core.slots.get_mut(s)) {
            element.removing = true;
        }
    }

    /// CPU seconds that this object's entry methods have used since the last load balancing.
    #[must_use]
    pub fn load(&self) -> f64 {
        self.slot.and_then(|s| self.core.slots.get(s)).map_or(0.0, |e| e.ledger.load)
    }
}
