//! The `colony` command: parse, call, print.
fn main() {}
