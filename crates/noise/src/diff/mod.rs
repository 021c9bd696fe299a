//! diff.
