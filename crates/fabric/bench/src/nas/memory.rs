// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that may not be there.

/// Bytes that could not be had.
#[derive(Debug)]
pub(super) struct OutOfMemory(pub(super) usize);

/// `n` copies of `value`, in memory that has been written to: its page faults are over.
pub(super) fn filled<T: Copy>(n: usize, value: T) -> Result<Vec<T>, OutOfMemory> {
    let mut v = Vec::new();
    v.try_reserve_exact(n).map_err(|_| OutOfMemory(n.saturating_mul(size_of::<T>())))?;
    v.resize(n, value);
    Ok(v)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_too_large_for_memory_is_an_error_and_no_abort() {
        let OutOfMemory(bytes) = filled(usize::MAX / 8, 0.0f64).expect_err("more than any machine has");
        assert!(bytes > 1 << 60);
    }
}
