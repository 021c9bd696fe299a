// SPDX-License-Identifier: MIT OR Apache-2.0
//! State that all processes of a job share: the node's name, and the source of random numbers.

use colony_fship::layout::JobBlock;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;
use zerocopy::IntoBytes as _;

use crate::machine::lock::{Guard, Lock};

/// Name of the node; ends with a zero.
static HOST: Lock<[u8; 32]> = Lock::new([0; 32]);

/// Source of random numbers; the job block has its seed.
static RANDOM: Lock<Option<ChaCha20Rng>> = Lock::new(None);

/// Takes both from the block of a new job.
pub fn start_job(job: &JobBlock) {
    *HOST.lock() = job.personality.host;
    let mut seed = [0; 32];
    seed.copy_from_slice(job.random.as_bytes());
    *RANDOM.lock() = Some(ChaCha20Rng::from_seed(seed));
}

/// The name of the node.
pub fn host() -> [u8; 32] {
    *HOST.lock()
}

/// The source of random numbers; `None` before the first job.
pub fn random() -> Guard<'static, Option<ChaCha20Rng>> {
    RANDOM.lock()
}
