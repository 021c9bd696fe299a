// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of other tracers of MPI, by their first bytes.

/// How a kind of file begins, what it is, and the way to a schedule.
const KINDS: [(&[u8], &str, &str); 9] = [
    (b"\xff\xaa\xddDUMPI", DUMPI, BY_LIBALLPROF),
    (b"\x03BOTF2", OTF2, BY_LIBALLPROF),
    (b"\x03#OTF2", OTF2, BY_LIBALLPROF),
    // events and definitions: the number of their first event
    (b"\x03B\x01\0\0\0\0\0\0\0", OTF2, BY_LIBALLPROF),
    (b"\x03#\0\0\0\0\0\0\0\x01", OTF2, BY_LIBALLPROF),
    (b"# htor's PMPI Tracer", LIBALLPROF, BY_FOLDER),
    (b"MPI_Init:", LIBALLPROF, BY_FOLDER),
    (b"PAR1", "a Parquet file", "give a trace of noise with --trace"),
    (b"\x1f\x8b", "a file compressed with gzip", "unpack it first: `gzip -d FILE`"),
];

const DUMPI: &str = "a trace of MPI calls in DUMPI (`dumpi2ascii FILE` prints it)";
const OTF2: &str = "a part of an OTF2 archive (`otf2-print traces.otf2` prints it)";
const LIBALLPROF: &str = "a trace of MPI calls by liballprof";
const BY_LIBALLPROF: &str = "trace the program with LogGOPSim's liballprof, and give the folder of its files";
const BY_FOLDER: &str = "give the folder that has the files of all ranks";

/// What a file is that begins with `head`, and the way to a schedule; `None` if it may be one.
pub(super) fn kind(head: &[u8]) -> Option<(&'static str, &'static str)> {
    let of_first_bytes =
        KINDS.iter().find(|(magic, ..)| head.starts_with(magic)).map(|&(_, kind, remedy)| (kind, remedy));
    // other comments may stand above the first call
    let has_call = || head.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"MPI_Init"));
    of_first_bytes.or_else(|| has_call().then_some((LIBALLPROF, BY_FOLDER)))
}
