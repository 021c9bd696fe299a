// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of time lines, read back by the rules of their readers.

mod perfetto;
mod projections;
