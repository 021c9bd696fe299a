//! inject.
