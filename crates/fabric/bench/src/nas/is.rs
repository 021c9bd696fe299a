// SPDX-License-Identifier: MIT OR Apache-2.0
//! IS, integer sort (RNR-94-007, 2.2.5): ranks keys by counting, bucket by bucket, ten times.

use super::check::Check;
use super::class::Class;
use super::memory::{OutOfMemory, filled};
use super::outcome::Outcome;
use super::random::Random;
use super::timer::Timer;

const SEED: u64 = 314_159_265;
const ITERATIONS: u32 = 10;
/// Keys whose rank is checked in each iteration.
const TESTED: usize = 5;

/// A problem's size, and the ranks that NPB 3 expects.
struct Problem {
    log_keys: u32,
    log_max_key: u32,
    log_buckets: u32,
    /// Places of the tested keys.
    places: [usize; TESTED],
    /// Their ranks,
    ranks: [i64; TESTED],
    /// and what is added to those in iteration `i`: plus or minus `i` with this offset.
    shift: [(i64, i64); TESTED],
}

const fn problem(class: Class) -> Problem {
    match class {
        Class::S => Problem {
            log_keys: 16,
            log_max_key: 11,
            log_buckets: 9,
            places: [48_427, 17_148, 23_627, 62_548, 4_431],
            ranks: [0, 18, 346, 64_917, 65_463],
            shift: [(1, 0), (1, 0), (1, 0), (-1, 0), (-1, 0)],
        },
        Class::W => Problem {
            log_keys: 20,
            log_max_key: 16,
            log_buckets: 10,
            places: [357_773, 934_767, 875_723, 898_999, 404_505],
            ranks: [1_249, 11_698, 1_039_987, 1_043_896, 1_048_018],
            shift: [(1, -2), (1, -2), (-1, 0), (-1, 0), (-1, 0)],
        },
        Class::A => Problem {
            log_keys: 23,
            log_max_key: 19,
            log_buckets: 10,
            places: [2_112_377, 662_041, 5_336_171, 3_642_833, 4_250_760],
            ranks: [104, 17_523, 123_928, 8_288_932, 8_388_264],
            shift: [(1, -1), (1, -1), (1, -1), (-1, -1), (-1, -1)],
        },
    }
}

struct Sort {
    problem: Problem,
    keys: Vec<u32>,
    /// The keys, bucket by bucket.
    sorted: Vec<u32>,
    /// Per key value: how many keys are not greater.
    ranks: Vec<u32>,
    /// Ends of the buckets in `sorted`.
    ends: Vec<usize>,
}

pub(super) fn run(class: Class) -> Result<Outcome, OutOfMemory> {
    let mut sort = Sort::new(problem(class))?;
    sort.rank(1);
    let timer = Timer::start();
    let mut passed = 0;
    for iteration in 1..=ITERATIONS {
        passed += sort.rank(iteration);
    }
    let timed = timer.stop();
    let keys = sort.keys.len() as f64;
    let all = ITERATIONS as usize * TESTED;
    Ok(Outcome {
        iterations: ITERATIONS,
        operations: f64::from(ITERATIONS) * keys,
        timed,
        checks: vec![
            Check::new("right ranks", passed as f64, all as f64, 0.0),
            Check::new("keys out of order", sort.disorder()? as f64, 0.0, 0.0),
        ],
    })
}

impl Sort {
    fn new(problem: Problem) -> Result<Self, OutOfMemory> {
        let (n, max_key) = (1usize << problem.log_keys, 1usize << problem.log_max_key);
        let mut random = Random::new(SEED);
        let mut keys = filled(n, 0u32)?;
        let quarter = (max_key / 4) as f64;
        for key in &mut keys {
            // the mean of four uniform numbers; added one after the other, as in the original
            let mut x = random.next();
            x += random.next();
            x += random.next();
            x += random.next();
            *key = (quarter * x) as u32;
        }
        let ends = filled(1 << problem.log_buckets, 0)?;
        Ok(Self { sorted: filled(n, 0)?, ranks: filled(max_key, 0)?, ends, keys, problem })
    }

    /// Changes two keys, ranks all, and gives how many of the tested ranks are right.
    #[inline(never)]
    fn rank(&mut self, iteration: u32) -> usize {
        let i = iteration as usize;
        self.keys[i] = iteration;
        self.keys[i + ITERATIONS as usize] = (1u32 << self.problem.log_max_key) - iteration;
        let tested = self.problem.places.map(|place| self.keys[place]);
        self.fill_buckets();
        self.count();
        (0..TESTED).filter(|&t| self.is_right(t, tested[t], iteration)).count()
    }

    fn shift(&self) -> u32 {
        self.problem.log_max_key - self.problem.log_buckets
    }

    /// Moves the keys into their buckets; `ends` are the buckets' ends afterwards.
    fn fill_buckets(&mut self) {
        let shift = self.shift();
        self.ends.fill(0);
        for &key in &self.keys {
            self.ends[(key >> shift) as usize] += 1;
        }
        let mut start = 0;
        for end in &mut self.ends {
            (start, *end) = (start + *end, start);
        }
        for &key in &self.keys {
            let at = &mut self.ends[(key >> shift) as usize];
            self.sorted[*at] = key;
            *at += 1;
        }
    }

    /// Counts each bucket's keys; sums make ranks of the counts.
    fn count(&mut self) {
        let values = 1usize << self.shift();
        let mut start = 0;
        for (bucket, (ranks, &end)) in self.ranks.chunks_exact_mut(values).zip(&self.ends).enumerate() {
            let first = (bucket * values) as u32;
            ranks.fill(0);
            for &key in &self.sorted[start..end] {
                ranks[(key - first) as usize] += 1;
            }
            let mut sum = start as u32;
            for rank in ranks {
                sum += *rank;
                *rank = sum;
            }
            start = end;
        }
    }

    /// True if the tested key has the published rank, the number of smaller keys.
    fn is_right(&self, test: usize, key: u32, iteration: u32) -> bool {
        let (sign, offset) = self.problem.shift[test];
        let expected = self.problem.ranks[test] + sign * (i64::from(iteration) + offset);
        let rank = (key as usize).checked_sub(1).and_then(|below| self.ranks.get(below));
        rank.is_some_and(|&rank| i64::from(rank) == expected)
    }

    /// Puts every key in the place its rank says; gives how many are smaller than the one before, or lost.
    fn disorder(&mut self) -> Result<usize, OutOfMemory> {
        let mut places = filled(self.keys.len(), u32::MAX)?;
        for &key in &self.sorted {
            let rank = &mut self.ranks[key as usize];
            *rank -= 1;
            places[*rank as usize] = key;
        }
        let lost = places.iter().filter(|&&key| key == u32::MAX).count();
        Ok(lost + places.windows(2).filter(|pair| pair[0] > pair[1]).count())
    }
}
