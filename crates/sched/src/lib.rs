//! Coordinated scheduling on Linux: agent, guardian, colonyd and its file tree, the proof of a run.
