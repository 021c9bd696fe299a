// SPDX-License-Identifier: MIT OR Apache-2.0
//! RA, random access: updates at random places of one table, as in HPC Challenge. Not a kernel of NAS: every update touches
//! another page, so its time shows what page sizes cost.
//!
//! A second pass makes the same updates again, and exclusive or undoes itself: afterwards each word must be as at first.

use super::check::Check;
use super::class::Class;
use super::memory::{OutOfMemory, filled};
use super::outcome::Outcome;
use super::timer::Timer;

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Words of the table, as a power of two: 8 MiB, 64 MiB, 512 MiB.
const fn log_words(class: Class) -> u32 {
    match class {
        Class::S => 20,
        Class::W => 23,
        Class::A => 26,
    }
}

pub(super) fn run(class: Class) -> Result<Outcome, OutOfMemory> {
    let words = 1u64 << log_words(class);
    let mut table = filled(1 << log_words(class), 0u64)?;
    for (word, n) in table.iter_mut().zip(0..) {
        *word = n;
    }
    let timer = Timer::start();
    update(&mut table, words);
    let timed = timer.stop();
    let changed = table.iter().zip(0..).filter(|&(&word, n)| word != n).count();
    update(&mut table, words);
    let wrong = table.iter().zip(0..).filter(|&(&word, n)| word != n).count();
    Ok(Outcome {
        iterations: 1,
        operations: words as f64,
        timed,
        checks: vec![
            Check::new("wrong words", wrong as f64, 0.0, 0.0),
            Check::new("passes that change something", f64::from(u8::from(changed > 0)), 1.0, 0.0),
        ],
    })
}

/// As many updates as the table has words, a power of two.
#[inline(never)]
fn update(table: &mut [u64], updates: u64) {
    let last = table.len() - 1;
    let mut state = SEED;
    for _ in 0..updates {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let value = state.wrapping_mul(0x2545_f491_4f6c_dd1d);
        table[(value >> 20) as usize & last] ^= value;
    }
}
