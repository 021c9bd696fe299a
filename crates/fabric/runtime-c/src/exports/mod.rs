// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of `colony.h`. The header documents them; these modules check their arguments.

pub(crate) mod array;
pub(crate) mod buffer;
mod check;
pub(crate) mod message;
pub(crate) mod object;
pub(crate) mod program;
