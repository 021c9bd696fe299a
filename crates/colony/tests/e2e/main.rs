//! The `colony` command as its users run it. One program, so that it is linked once.

mod common;
mod docs;
mod measure;
mod top;
mod wrong_use;
