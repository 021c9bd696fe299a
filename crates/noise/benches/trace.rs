//! Encoding and decoding of traces, and the search for periods.
fn main() {}
