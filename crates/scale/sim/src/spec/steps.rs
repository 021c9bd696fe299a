// SPDX-License-Identifier: MIT OR Apache-2.0
//! The place of a step that cannot be read. A step is decoded by its `kind`, and errors of that decoder have no place.

use toml::{Table, Value};

use crate::program::Step;

/// The path of the first step of `text` that cannot be read, with the key that causes the error `message` if there is one:
/// `program.step.1.dims`.
pub(super) fn path_of_fault(text: &str, message: &str) -> Option<String> {
    let table: Table = text.parse().ok()?;
    let steps = table.get("program")?.get("step")?.as_array()?;
    Some(format!("program.step.{}", fault_in(steps, message)?))
}

fn fault_in(steps: &[Value], message: &str) -> Option<String> {
    let (number, step) = steps.iter().enumerate().find(|(_, step)| error_of(step).is_some())?;
    let Value::Table(table) = step else { return Some(number.to_string()) };
    // a key is at fault if it causes the error without the others; a key that is missing is none of those in the table
    let is_missing = message.starts_with("missing field");
    let causes = |key: &String| {
        let alone =
            table.iter().filter(|(k, _)| *k == "kind" || *k == key).map(|(k, v)| (k.clone(), v.clone()));
        (!is_missing || key == "step") && error_of(&Value::Table(alone.collect())).as_deref() == Some(message)
    };
    let mut keys: Vec<&String> = table.keys().collect();
    // a wrong `kind` causes its error beside any other key
    keys.sort_by_key(|key| *key != "kind");
    Some(match keys.iter().find(|key| causes(key)) {
        Some(key) if *key == "step" => {
            let inner = table.get(*key).and_then(Value::as_array).and_then(|steps| fault_in(steps, message));
            inner.map_or_else(|| number.to_string(), |inner| format!("{number}.step.{inner}"))
        }
        Some(key) => format!("{number}.{key}"),
        None => number.to_string(),
    })
}

fn error_of(step: &Value) -> Option<String> {
    step.clone().try_into::<Step>().err().map(|e| e.message().to_owned())
}
