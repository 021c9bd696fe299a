// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C interface: the header against the library, programs of C, C++ and Fortran, calls and misuse.

mod calls;
mod examples;
mod header;
mod misuse;
mod probe;
