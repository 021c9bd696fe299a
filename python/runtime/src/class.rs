// SPDX-License-Identifier: MIT OR Apache-2.0
//! Python classes whose instances are objects of the runtime.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use colony_runtime::Schema;
use pyo3::exceptions::{PyLookupError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

/// A subclass of `colony_runtime.Object`.
#[derive(Debug)]
pub(crate) struct Class {
    /// Module and qualified name: the name of the class in all processes.
    pub(crate) key: String,
    /// The name in reports.
    pub(crate) name: String,
    pub(crate) class: Py<PyType>,
    /// The entry methods, in the order of their names, so that a number has one meaning in all processes.
    pub(crate) methods: Vec<Py<PyString>>,
    /// The number of each entry method.
    pub(crate) numbers: Py<PyDict>,
}

static CLASSES: Mutex<BTreeMap<String, Arc<Class>>> = Mutex::new(BTreeMap::new());

/// A class as an attribute of the Python class.
#[pyclass(frozen, name = "Class", module = "colony_runtime._core")]
pub(crate) struct Registered(Arc<Class>);

/// Registers a class with its entry methods. A class of the same module and name is replaced, as in notebooks.
#[pyfunction]
pub(crate) fn register(class: &Bound<'_, PyType>, mut methods: Vec<String>) -> PyResult<Registered> {
    let py = class.py();
    methods.sort_unstable();
    let key = format!("{}:{}", class.module()?, class.qualname()?);
    let numbers = PyDict::new(py);
    let mut names = Vec::with_capacity(methods.len());
    for (number, name) in methods.iter().enumerate() {
        let number = u16::try_from(number)
            .map_err(|_| PyTypeError::new_err(format!("{key} has more than 65,536 entry methods")))?;
        let name = PyString::intern(py, name);
        numbers.set_item(&name, number)?;
        names.push(name.unbind());
    }
    let class = Arc::new(Class {
        key: key.clone(),
        name: class.name()?.to_string(),
        class: class.clone().unbind(),
        methods: names,
        numbers: numbers.unbind(),
    });
    CLASSES.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&class));
    Ok(Registered(class))
}

/// Adds the classes of this process to what a checkpoint on disk says: their names, and the numbers of their entry methods.
pub(crate) fn describe_classes(py: Python<'_>, schema: Schema) -> Schema {
    let classes = CLASSES.lock().unwrap_or_else(PoisonError::into_inner);
    let methods = classes.values().flat_map(|class| {
        let key = &class.key;
        let methods = class.methods.iter().enumerate();
        methods
            .map(move |(number, name)| (format!("entry method {number} of {key}"), name.bind(py).to_string()))
    });
    methods.fold(schema, |schema, (number, name)| schema.with(number, name))
}

impl Class {
    /// The class of a Python class.
    pub(crate) fn of(class: &Bound<'_, PyAny>) -> PyResult<Arc<Self>> {
        let py = class.py();
        let registered = class.getattr(intern!(py, "_colony_class")).ok();
        let registered = registered.as_ref().and_then(|r| r.cast::<Registered>().ok());
        registered.map(|r| Arc::clone(&r.get().0)).ok_or_else(|| {
            let shown = class.repr().map_or_else(|_| "the argument".to_owned(), |r| r.to_string());
            PyTypeError::new_err(format!("{shown} is not a subclass of colony_runtime.Object"))
        })
    }

    /// The class of a name that another process has sent.
    pub(crate) fn by_key(key: &str) -> PyResult<Arc<Self>> {
        CLASSES.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned().ok_or_else(|| {
            PyLookupError::new_err(format!(
                "the class {key} is not defined in this process: define classes at the top level of a module that \
                 every process imports"
            ))
        })
    }

    /// The number of an entry method, if `name` is one.
    #[inline]
    pub(crate) fn number(&self, name: &Bound<'_, PyString>) -> PyResult<Option<u16>> {
        self.numbers.bind(name.py()).get_item(name)?.map(|number| number.extract()).transpose()
    }

    /// The name of an entry method.
    pub(crate) fn method(&self, number: u16) -> PyResult<&Py<PyString>> {
        self.methods.get(usize::from(number)).ok_or_else(|| {
            PyLookupError::new_err(format!(
                "{} has no entry method of number {number}: the processes run different programs",
                self.key
            ))
        })
    }

    /// The entry methods for people.
    pub(crate) fn list(&self, py: Python<'_>) -> String {
        let names: Vec<String> = self.methods.iter().map(|name| name.bind(py).to_string()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}
