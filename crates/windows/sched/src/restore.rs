// SPDX-License-Identifier: MIT OR Apache-2.0
//! Putting a task back into its own class.

use colony_node::class::{self, Class};

/// Returns `true` if a task can be put back into this class. A deadline task cannot, so it is left alone.
pub(crate) fn can_be_put_back(own: Class) -> bool {
    const EXT: u32 = 7;
    !matches!(own, Class::Foreign(policy) if policy != EXT)
}

/// Returns `true` if a task that has `own` for its own class can have the class `now` only by a choice of its program: Colony gives nobody
/// `SCHED_BATCH` in place of another class, and no child gets it by a reset on fork.
pub(crate) const fn is_chosen(now: Class, own: Class) -> bool {
    matches!(now, Class::Batch(_)) && !matches!(own, Class::Batch(_))
}

/// Puts a task into a class. Its children inherit the class, except with `reset` or without the privilege to lift the reset
/// on fork. The task keeps its nice value: no class it was given has changed that, and its program may have.
pub(crate) fn put_back(tid: i32, class: Class, reset: bool) -> std::io::Result<()> {
    let class = class.with_nice(class::nice(tid)?);
    if reset {
        return class::switch(tid, class, false);
    }
    class::switch(tid, class, true).or_else(|_| class::switch(tid, class, false))
}
