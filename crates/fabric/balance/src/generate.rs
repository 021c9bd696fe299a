// SPDX-License-Identifier: MIT OR Apache-2.0
//! Load databases made of a seed, to try strategies on.

use crate::database::{Database, Edge, Object};
use crate::error::BalanceError;
use crate::limits::{MAX_OBJECTS, MAX_PES};
use crate::random::Key;

/// Pairs of objects that exchange messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// A mesh of two dimensions: every object sends to its neighbours, as the report's Lb test does.
    Mesh2d,
    /// Every object sends to two random ones.
    Random,
}

impl std::str::FromStr for Pattern {
    type Err = BalanceError;

    fn from_str(text: &str) -> Result<Self, BalanceError> {
        match text {
            "mesh2d" => Ok(Self::Mesh2d),
            "random" => Ok(Self::Random),
            _ => {
                Err(BalanceError::Generate(format!("there is no pattern `{text}`; known are mesh2d, random")))
            }
        }
    }
}

/// The database to generate. Objects and edges are functions of their number, so that a part can be had without the whole.
#[derive(Clone, Debug)]
pub struct Generator {
    pes: u32,
    objects: u32,
    pattern: Pattern,
    key: Key,
    /// Bytes of each object's state.
    state_bytes: u64,
    /// Factor of each PE's loads, which gives the database the imbalance asked for.
    factors: Vec<f64>,
}

/// Mean load of an object, in CPU seconds a step.
const MEAN_LOAD_S: f64 = 1e-3;
/// Bytes of the messages over an edge: a side of a block.
const EDGE_BYTES: u64 = 4096;

/// The size and shape of a generated database.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Number of PEs.
    pub pes: u32,
    /// Number of objects.
    pub objects: u32,
    /// Pairs of objects that exchange messages.
    pub pattern: Pattern,
    /// Load of the PE with most of it over the average.
    pub imbalance: f64,
    /// Bytes of each object's state.
    pub state_bytes: u64,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Shape {
    /// The report's Lb test: a mesh of objects with 512 KB of state (HPC-Colony progress report 2006, section 2.4). It does
    /// not say how many objects there were, nor how unbalanced they were.
    #[must_use]
    pub const fn lb_test(pes: u32, objects: u32) -> Self {
        Self { pes, objects, pattern: Pattern::Mesh2d, imbalance: 1.86, state_bytes: 512 << 10, seed: 1 }
    }
}

impl Generator {
    /// Prepares a database of random loads: exponentially distributed, then scaled PE by PE so that the largest PE's
    /// load over the average is the imbalance asked for.
    ///
    /// # Errors
    /// A number is out of range, or the imbalance cannot be had with so few PEs or objects.
    pub fn new(shape: Shape) -> Result<Self, BalanceError> {
        let Shape { pes, objects, pattern, imbalance, state_bytes, seed } = shape;
        let fail = |text: String| Err(BalanceError::Generate(text));
        if pes == 0 || pes > MAX_PES {
            return Err(BalanceError::Pes(pes.into()));
        }
        if objects > MAX_OBJECTS || objects < pes {
            return fail(format!("{objects} objects for {pes} PEs; give at least one object a PE"));
        }
        if !(1.0..=f64::from(pes)).contains(&imbalance) {
            return fail(format!("an imbalance of {imbalance} is not from 1 to the number of PEs, {pes}"));
        }
        let mut generator = Self {
            pes,
            objects,
            pattern,
            key: Key::new(seed),
            state_bytes,
            factors: vec![1.0; pes as usize],
        };
        let mut sums = vec![0.0; pes as usize];
        for number in 0..objects {
            sums[generator.pe(number) as usize] += generator.base_load(number);
        }
        generator.factors = factors(&sums, imbalance).ok_or_else(|| {
            BalanceError::Generate(format!("an imbalance of {imbalance} is out of reach with {pes} PEs"))
        })?;
        Ok(generator)
    }

    /// Number of PEs.
    #[must_use]
    pub const fn pes(&self) -> u32 {
        self.pes
    }

    /// Number of objects.
    #[must_use]
    pub const fn objects(&self) -> u32 {
        self.objects
    }

    /// The PE of an object: each has a block of consecutive numbers.
    #[must_use]
    pub fn pe(&self, number: u32) -> u32 {
        (u64::from(number) * u64::from(self.pes) / u64::from(self.objects)) as u32
    }

    /// The first object of a PE, or of one behind the last.
    #[must_use]
    pub fn first_object(&self, pe: u32) -> u32 {
        (u64::from(pe) * u64::from(self.objects)).div_ceil(u64::from(self.pes)) as u32
    }

    fn base_load(&self, number: u32) -> f64 {
        -self.key.uniform(number.into()).ln() * MEAN_LOAD_S
    }

    /// An object.
    #[must_use]
    pub fn object(&self, number: u32) -> Object {
        let pe = self.pe(number);
        let load_s = self.base_load(number) * self.factors[pe as usize];
        Object { id: number.into(), pe, load_s, bytes: self.state_bytes, migratable: true }
    }

    /// The edges that begin at an object.
    pub fn edges(&self, number: u32) -> impl Iterator<Item = Edge> + use<> {
        let (objects, wide) = (self.objects, self.objects.isqrt().max(1));
        let targets = match self.pattern {
            Pattern::Mesh2d => {
                let column = number % wide;
                let right = (column + 1 < wide && number + 1 < objects).then(|| number + 1);
                let left = (column > 0).then(|| number - 1);
                let down = (number < objects - wide.min(objects)).then(|| number + wide);
                [right, left, down, number.checked_sub(wide)]
            }
            Pattern::Random => {
                let key = self.key.part(number.into());
                [Some(key.below(0, objects)), Some(key.below(1, objects)), None, None]
            }
        };
        let edge = move |to| Edge { from: number, to, bytes: EDGE_BYTES, messages: 1 };
        targets.into_iter().flatten().filter(move |&to| to != number).map(edge)
    }

    /// The whole database.
    ///
    /// # Errors
    /// None but those of the database's own checks, which generated objects pass.
    pub fn database(&self) -> Result<Database, BalanceError> {
        let mut database = Database::of_equal_pes(self.pes)?;
        let edges = (0..self.objects).map(|n| self.edges(n).count()).sum();
        database.reserve(self.objects as usize, edges);
        for number in 0..self.objects {
            database.push_object(self.object(number))?;
        }
        for edge in (0..self.objects).flat_map(|n| self.edges(n)) {
            database.push_edge(edge)?;
        }
        Ok(database)
    }
}

/// Factors that raise the sums, as shares of their average, to the power that makes the largest over the average the
/// imbalance: all stay above 0, and their order does not change.
fn factors(sums: &[f64], imbalance: f64) -> Option<Vec<f64>> {
    let n = sums.len() as f64;
    let average = sums.iter().sum::<f64>() / n;
    let largest = sums.iter().copied().fold(0.0, f64::max);
    // relative to the largest, so that no power overflows
    let of_power = |power: f64| n / sums.iter().map(|s| (s / largest).powf(power)).sum::<f64>();
    let mut high = 1.0;
    while of_power(high) < imbalance {
        high *= 2.0;
        if high > 1e9 {
            return None;
        }
    }
    let mut low = 0.0;
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if of_power(middle) < imbalance { low = middle } else { high = middle }
    }
    let scale = average * of_power(high);
    Some(sums.iter().map(|s| (scale * (s / largest).powf(high)) / s).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quality::Quality;
    use crate::topology::Topology;

    #[test]
    fn the_imbalance_is_the_one_asked_for() {
        for imbalance in [1.0, 1.2, 1.86, 7.0] {
            let shape = Shape { imbalance, ..Shape::lb_test(64, 4096) };
            let database = Generator::new(shape).and_then(|g| g.database()).expect("a database");
            let quality =
                Quality::of(&database, database.placement(), &Topology::Flat).expect("its placement");
            assert!((quality.imbalance - imbalance).abs() < 1e-6, "{imbalance}: {}", quality.imbalance);
        }
    }

    #[test]
    fn a_mesh_is_symmetric_and_blocks_have_their_bounds() {
        let generator = Generator::new(Shape::lb_test(7, 103)).expect("a generator");
        let edges: Vec<(u32, u32)> =
            (0..103).flat_map(|n| generator.edges(n)).map(|e| (e.from, e.to)).collect();
        assert!(edges.iter().all(|(a, b)| *b < 103 && edges.contains(&(*b, *a))));
        for pe in 0..7 {
            let own = generator.first_object(pe)..generator.first_object(pe + 1);
            assert!(!own.is_empty() && own.into_iter().all(|n| generator.pe(n) == pe));
        }
    }

    #[test]
    fn shapes_that_make_no_sense_are_errors() {
        let good = Shape::lb_test(4, 64);
        for bad in [
            Shape { pes: 0, ..good },
            Shape { objects: 3, ..good },
            Shape { imbalance: 0.5, ..good },
            Shape { imbalance: 5.0, ..good },
            Shape { imbalance: f64::NAN, ..good },
        ] {
            assert!(Generator::new(bad).is_err(), "{bad:?}");
        }
        assert!(Generator::new(Shape { pes: 1, imbalance: 1.0, ..good }).is_ok());
    }
}
