// SPDX-License-Identifier: MIT OR Apache-2.0
//! State that all processes of a job share: the source of random numbers.

use colony_fship::layout::JobBlock;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;
use spin::Mutex;
use zerocopy::IntoBytes as _;

/// Source of random numbers; the job block has its seed, so there is none before the first job.
pub static RANDOM: Mutex<Option<ChaCha20Rng>> = Mutex::new(None);

/// Seeds it anew from the block of a new job.
pub fn start_job(job: &JobBlock) {
    let mut seed = [0; 32];
    seed.copy_from_slice(job.random.as_bytes());
    *RANDOM.lock() = Some(ChaCha20Rng::from_seed(seed));
}
