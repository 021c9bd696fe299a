//! periodic.
