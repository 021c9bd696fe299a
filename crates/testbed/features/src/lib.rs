// SPDX-License-Identifier: MIT OR Apache-2.0
//! No code: features that the workspace's other packages ask of dependencies (see `Cargo.toml`).
