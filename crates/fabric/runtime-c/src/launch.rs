// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network of the job and the PEs of this process, from the environment.

pub(crate) use colony_runtime::launch::{LOST, transport_from_environment};

use crate::status::Refusal;

/// Variable with the PEs of each process.
const THREADS: &str = "COLONY_THREADS";
/// The most PEs of a process: more would be a mistake.
const MOST_THREADS: u32 = 4096;

/// PEs of this process: as the program says, else as the environment says, else 1.
pub(crate) fn threads(asked: u32) -> Result<u32, Refusal> {
    let wrong = |from: &str, value: &str| {
        Refusal::Invalid(format!("{from} is {value}: it has to be a number of PEs from 1 to {MOST_THREADS}"))
    };
    if asked > MOST_THREADS {
        return Err(wrong("threads of colony_options", &asked.to_string()));
    }
    if asked > 0 {
        return Ok(asked);
    }
    let Some(value) = std::env::var_os(THREADS) else { return Ok(1) };
    let value = value.to_string_lossy();
    let threads = value.parse().ok().filter(|threads| (1..=MOST_THREADS).contains(threads));
    threads.ok_or_else(|| wrong(THREADS, &format!("`{value}`")))
}
