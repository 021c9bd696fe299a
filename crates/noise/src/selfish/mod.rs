//! selfish.
