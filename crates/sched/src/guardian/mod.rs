//! The guardian: a process of its own that puts tasks back into their own class when the agent dies.

/// Becomes the guardian if this process was started as one, and then does not return; call it first
/// thing in the `main` of every program that starts an [agent](crate::agent).
pub fn main_if_asked() {}
