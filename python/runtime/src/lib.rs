// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine of the Python package `colony-runtime`: classes of Python as objects of the runtime. What users see, and
//! its documentation, is in `colony_runtime/*.py`.
//!
//! One Rust class for each number of dimensions, `held::Held`, carries the objects of all Python classes. An entry
//! method of Python is a number in a `call::Call`, the one message that such an object takes. While Python code runs,
//! the functions that it calls find its PE by `scope`.

mod array;
mod call;
mod class;
mod functions;
mod future;
mod held;
mod journal;
mod launch;
mod method;
mod object;
mod pe;
mod pickle;
mod proxy;
mod reduce;
mod reduction;
mod run;
mod scope;
mod session;
mod transport;

use pyo3::prelude::*;

/// The engine.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::class::{Registered, register};
    #[pymodule_export]
    use super::functions::{
        at_sync, contribute, exit, is_repeating, migrate, my_pe, pes, remove, when_quiet,
    };
    #[pymodule_export]
    use super::future::{check_owner, open_future, send_future};
    #[pymodule_export]
    use super::launch::launch;
    #[pymodule_export]
    use super::method::{Method, restore_method};
    #[pymodule_export]
    use super::proxy::{
        Array, Element, Section, create_group, create_one, insert, restore_array, restore_element,
        restore_section,
    };
    #[pymodule_export]
    use super::run::{ProgramError, RankLost, run};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
        m.add("LOST", colony_runtime::launch::LOST)?;
        m.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
