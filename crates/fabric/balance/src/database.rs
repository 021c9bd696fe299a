// SPDX-License-Identifier: MIT OR Apache-2.0
//! The load database, the input of every strategy.

use crate::error::BalanceError;
use crate::limits::{MAX_LOAD_S, MAX_OBJECTS, MAX_PES, MAX_SPEED, MIN_SPEED};

/// A processing element: a place where objects run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pe {
    /// Time that other work takes of this PE in one step, in seconds. It stays whatever objects do.
    pub background_s: f64,
    /// Speed relative to the PE on which a load of 1 CPU second takes 1 s.
    pub speed: f64,
}

impl Default for Pe {
    fn default() -> Self {
        Self { background_s: 0.0, speed: 1.0 }
    }
}

/// An object as it is added to a database or read from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Object {
    /// Its id, unique in the program.
    pub id: u64,
    /// The PE it is on.
    pub pe: u32,
    /// CPU seconds that it takes in one step, on a PE of speed 1.
    pub load_s: f64,
    /// Bytes of its packed state: the cost of moving it.
    pub bytes: u64,
    /// True if it may move.
    pub migratable: bool,
}

/// Messages from one object to another in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Number of the sending object, in the order of [`Database::push_object`].
    pub from: u32,
    /// Number of the receiving object.
    pub to: u32,
    /// Bytes of all messages.
    pub bytes: u64,
    /// Number of messages.
    pub messages: u64,
}

/// PEs, objects with their loads, and the messages between objects, over one step.
///
/// Objects have numbers, `0..objects()`, in the order in which they were added. A database takes 28.1 bytes an object,
/// 24 an edge and 16 a PE.
#[derive(Clone, Debug, PartialEq)]
pub struct Database {
    pes: Vec<Pe>,
    ids: Vec<u64>,
    on: Vec<u32>,
    loads_s: Vec<f64>,
    bytes: Vec<u64>,
    /// One bit an object: set if it may not move.
    fixed: Vec<u64>,
    /// One bit an object, up to the last one whose bytes nothing tells: set for these. Empty if all are known.
    unknown_bytes: Vec<u64>,
    edges: Vec<Edge>,
}

fn check_load(what: &'static str, number: u64, found: f64) -> Result<(), BalanceError> {
    if (0.0..=MAX_LOAD_S).contains(&found) { Ok(()) } else { Err(BalanceError::Load { what, number, found }) }
}

impl Database {
    /// A database of these PEs, without objects.
    ///
    /// # Errors
    /// There is no PE or too many, a background load is negative or no number, a speed is out of range.
    pub fn new(pes: Vec<Pe>) -> Result<Self, BalanceError> {
        if pes.is_empty() || pes.len() > MAX_PES as usize {
            return Err(BalanceError::Pes(pes.len() as u64));
        }
        for (pe, p) in (0u32..).zip(&pes) {
            check_load("PE", u64::from(pe), p.background_s)?;
            if !(MIN_SPEED..=MAX_SPEED).contains(&p.speed) {
                return Err(BalanceError::Speed { pe, found: p.speed });
            }
        }
        let (ids, on, loads_s) = (Vec::new(), Vec::new(), Vec::new());
        let (bytes, fixed, unknown_bytes, edges) = Default::default();
        Ok(Self { pes, ids, on, loads_s, bytes, fixed, unknown_bytes, edges })
    }

    /// A database of so many equal PEs without background load.
    ///
    /// # Errors
    /// There is no PE or too many.
    pub fn of_equal_pes(pes: u32) -> Result<Self, BalanceError> {
        if pes == 0 || pes > MAX_PES {
            return Err(BalanceError::Pes(u64::from(pes)));
        }
        Self::new(vec![Pe::default(); pes as usize])
    }

    /// Reserves room for so many more objects and edges, so that adding them does not move those there.
    pub fn reserve(&mut self, objects: usize, edges: usize) {
        self.ids.reserve_exact(objects);
        self.on.reserve_exact(objects);
        self.loads_s.reserve_exact(objects);
        self.bytes.reserve_exact(objects);
        self.fixed.reserve_exact(objects.div_ceil(64));
        self.edges.reserve_exact(edges);
    }

    /// Adds an object, and returns its number. Ids are not compared here: see [`Self::check_ids`].
    ///
    /// # Errors
    /// The load is negative or no number, or there is no such PE. Then the database is unchanged.
    pub fn push_object(&mut self, object: Object) -> Result<u32, BalanceError> {
        let number = self.ids.len();
        if number >= MAX_OBJECTS as usize {
            return Err(BalanceError::Objects);
        }
        check_load("object", object.id, object.load_s)?;
        self.check_pe(object.id, object.pe)?;
        self.ids.push(object.id);
        self.on.push(object.pe);
        self.loads_s.push(object.load_s);
        self.bytes.push(object.bytes);
        if number.is_multiple_of(64) {
            self.fixed.push(0);
        }
        self.fixed[number / 64] |= u64::from(!object.migratable) << (number % 64);
        Ok(number as u32)
    }

    /// Adds messages between two objects.
    ///
    /// # Errors
    /// One of the objects does not exist.
    pub fn push_edge(&mut self, edge: Edge) -> Result<(), BalanceError> {
        let (number, objects) = (edge.from.max(edge.to).into(), self.ids.len());
        if number >= objects as u64 {
            return Err(BalanceError::NoObject { number, objects });
        }
        self.edges.push(edge);
        Ok(())
    }

    fn check_pe(&self, id: u64, pe: u32) -> Result<(), BalanceError> {
        if (pe as usize) < self.pes.len() {
            return Ok(());
        }
        Err(BalanceError::NoPe { id, pe: pe.into(), last: self.pes.len() as u32 - 1 })
    }

    fn check_number(&self, number: u32) -> Result<(), BalanceError> {
        let objects = self.ids.len();
        if (number as usize) < objects {
            return Ok(());
        }
        Err(BalanceError::NoObject { number: number.into(), objects })
    }

    /// Marks the bytes of an object's state as unknown: the load file does not tell them.
    ///
    /// # Errors
    /// There is no such object.
    pub fn forget_bytes(&mut self, number: u32) -> Result<(), BalanceError> {
        self.check_number(number)?;
        let number = number as usize;
        self.bytes[number] = 0;
        if self.unknown_bytes.len() <= number / 64 {
            self.unknown_bytes.resize(number / 64 + 1, 0);
        }
        self.unknown_bytes[number / 64] |= 1 << (number % 64);
        Ok(())
    }

    /// Bytes of the state of the object with this number, or `None` if they are unknown.
    ///
    /// # Panics
    /// There is no such object.
    #[must_use]
    pub fn known_bytes(&self, number: usize) -> Option<u64> {
        let unknown = self.unknown_bytes.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1);
        (!unknown).then_some(self.bytes[number])
    }

    /// Sets the load of an object, in CPU seconds a step.
    ///
    /// # Errors
    /// There is no such object, or the load is negative or no number.
    pub fn set_load(&mut self, number: u32, load_s: f64) -> Result<(), BalanceError> {
        self.check_number(number)?;
        check_load("object", self.ids[number as usize], load_s)?;
        self.loads_s[number as usize] = load_s;
        Ok(())
    }

    /// Sets the background load of a PE, in seconds a step.
    ///
    /// # Errors
    /// There is no such PE, or the load is negative or no number.
    pub fn set_background(&mut self, pe: u32, background_s: f64) -> Result<(), BalanceError> {
        check_load("PE", pe.into(), background_s)?;
        let last = self.pes.len() as u32 - 1;
        match self.pes.get_mut(pe as usize) {
            Some(p) => p.background_s = background_s,
            None => return Err(BalanceError::NoPe { id: 0, pe: pe.into(), last }),
        }
        Ok(())
    }

    /// Adds equal PEs without objects until there are `pes`.
    ///
    /// # Errors
    /// There are already more, or that is more than there can be.
    pub fn grow(&mut self, pes: u32) -> Result<(), BalanceError> {
        if (pes as usize) < self.pes.len() || pes > MAX_PES {
            return Err(BalanceError::Pes(pes.into()));
        }
        self.pes.resize(pes as usize, Pe::default());
        Ok(())
    }

    /// Moves every object to the PE that `placement` names.
    ///
    /// # Errors
    /// The placement has another number of objects, or names a PE that does not exist.
    pub fn apply(&mut self, placement: &[u32]) -> Result<(), BalanceError> {
        self.check_placement(placement)?;
        self.on.copy_from_slice(placement);
        Ok(())
    }

    /// Checks that a placement names one PE of this database for each object.
    ///
    /// # Errors
    /// The placement has another number of objects, or names a PE that does not exist.
    pub fn check_placement(&self, placement: &[u32]) -> Result<(), BalanceError> {
        let (expected, found) = (self.on.len(), placement.len());
        if expected != found {
            return Err(BalanceError::Placement { expected, found });
        }
        placement.iter().zip(&self.ids).try_for_each(|(&pe, &id)| self.check_pe(id, pe))
    }

    /// Removes every edge, for a database that is filled anew each round.
    pub fn clear_edges(&mut self) {
        self.edges.clear();
    }

    /// Checks that no two objects have the same id; takes 8 bytes an object meanwhile.
    ///
    /// # Errors
    /// Two objects have one id.
    pub fn check_ids(&self) -> Result<(), BalanceError> {
        if self.ids.is_sorted_by(|a, b| a < b) {
            return Ok(());
        }
        let mut ids = self.ids.clone();
        ids.sort_unstable();
        match ids.windows(2).find(|w| w[0] == w[1]) {
            Some(w) => Err(BalanceError::DuplicateId(w[0])),
            None => Ok(()),
        }
    }

    /// The PEs.
    #[must_use]
    pub fn pes(&self) -> &[Pe] {
        &self.pes
    }

    /// Number of objects.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.ids.len()
    }

    /// The object with this number.
    ///
    /// # Panics
    /// There is no such object.
    #[must_use]
    pub fn object(&self, number: usize) -> Object {
        Object {
            id: self.ids[number],
            pe: self.on[number],
            load_s: self.loads_s[number],
            bytes: self.bytes[number],
            migratable: self.is_migratable(number),
        }
    }

    /// Ids of the objects.
    #[must_use]
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// The PE each object is on.
    #[must_use]
    pub fn placement(&self) -> &[u32] {
        &self.on
    }

    /// CPU seconds a step of each object.
    #[must_use]
    pub fn loads_s(&self) -> &[f64] {
        &self.loads_s
    }

    /// Bytes of each object's state: 0 where [`known_bytes`](Self::known_bytes) is `None`.
    #[must_use]
    pub fn state_bytes(&self) -> &[u64] {
        &self.bytes
    }

    /// Returns `true` if the object with this number may move.
    ///
    /// # Panics
    /// There is no such object.
    #[must_use]
    pub fn is_migratable(&self, number: usize) -> bool {
        self.fixed[number / 64] >> (number % 64) & 1 == 0
    }

    /// Returns `true` if at least one object may not move.
    #[must_use]
    pub fn has_fixed(&self) -> bool {
        self.fixed.iter().any(|&word| word != 0)
    }

    /// Messages between objects.
    #[must_use]
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Bytes that a database of this size takes.
    #[must_use]
    pub const fn bytes_for(pes: u64, objects: u64, edges: u64) -> u64 {
        pes * size_of::<Pe>() as u64
            + objects * (2 * size_of::<u64>() + size_of::<f64>() + size_of::<u32>()) as u64
            + objects.div_ceil(64) * 8
            + edges * size_of::<Edge>() as u64
    }

    /// Bytes that this database takes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        Self::bytes_for(self.pes.len() as u64, self.ids.len() as u64, self.edges.len() as u64)
            + self.unknown_bytes.len() as u64 * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(load_s: f64) -> Object {
        Object { id: 7, pe: 0, load_s, bytes: 0, migratable: true }
    }

    #[test]
    fn loads_that_are_no_times_are_rejected() {
        let mut database = Database::of_equal_pes(1).expect("one PE");
        for load in [f64::NAN, f64::INFINITY, -1.0, f64::MAX] {
            assert!(matches!(database.push_object(object(load)), Err(BalanceError::Load { .. })), "{load}");
        }
        assert_eq!(database.objects(), 0);
        database.push_object(object(0.0)).expect("zero is a load");
        assert!(database.set_load(0, f64::NAN).is_err() && database.set_load(1, 0.0).is_err());
        assert!(database.set_background(0, -1.0).is_err() && database.set_background(1, 0.0).is_err());
    }

    #[test]
    fn pes_that_make_no_sense_are_rejected() {
        assert_eq!(Database::new(Vec::new()), Err(BalanceError::Pes(0)));
        assert!(Database::of_equal_pes(u32::MAX).is_err());
        for speed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Database::new(vec![Pe { speed, ..Pe::default() }]).is_err(), "{speed}");
        }
    }

    #[test]
    fn objects_keep_what_they_were_given() {
        let mut database = Database::of_equal_pes(3).expect("three PEs");
        for i in 0..130u64 {
            let o = Object {
                id: 1000 - i,
                pe: (i % 3) as u32,
                load_s: i as f64,
                bytes: i,
                migratable: i % 5 != 0,
            };
            assert_eq!(database.push_object(o), Ok(i as u32));
        }
        for i in 0..130 {
            let o = database.object(i);
            assert_eq!((o.id, o.migratable, o.bytes), (1000 - i as u64, i % 5 != 0, i as u64));
        }
        assert!(database.has_fixed() && database.check_ids().is_ok());
        database.push_object(Object { id: 900, ..object(1.0) }).expect("ids are not compared");
        assert_eq!(database.check_ids(), Err(BalanceError::DuplicateId(900)));
    }

    #[test]
    fn what_does_not_exist_cannot_be_named() {
        let mut database = Database::of_equal_pes(2).expect("two PEs");
        assert!(matches!(
            database.push_object(Object { pe: 2, ..object(1.0) }),
            Err(BalanceError::NoPe { pe: 2, .. })
        ));
        database.push_object(object(1.0)).expect("an object");
        assert!(database.push_edge(Edge { from: 0, to: 1, bytes: 1, messages: 1 }).is_err());
        assert!(database.apply(&[0, 0]).is_err() && database.apply(&[2]).is_err());
        database.apply(&[1]).expect("a PE there is");
        assert_eq!(database.placement(), [1]);
    }
}
