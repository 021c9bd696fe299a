// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers as programs write them into JSON, where `1048576` and `1048576.0` are one value, and errors that name the field.

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

use super::FileError;

/// The first whole number that a floating point number may stand for although another one was meant.
const INEXACT: f64 = (1u64 << 53) as f64;

/// A number that names or counts: a fraction is an error.
#[derive(Clone, Copy)]
pub(super) struct Whole(pub(super) u64);

/// A number of bytes: programs may write an average, which is rounded.
#[derive(Clone, Copy)]
pub(super) struct Bytes(pub(super) u64);

/// Any number.
#[derive(Clone, Copy)]
pub(super) struct Real(pub(super) f64);

struct WholeVisitor;

impl Visitor<'_> for WholeVisitor {
    type Value = Whole;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a whole number from 0 on")
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<Whole, E> {
        Ok(Whole(n))
    }

    fn visit_f64<E: Error>(self, n: f64) -> Result<Whole, E> {
        if (0.0..INEXACT).contains(&n) && n.fract() == 0.0 {
            Ok(Whole(n as u64))
        } else {
            Err(E::invalid_value(Unexpected::Float(n), &self))
        }
    }
}

struct BytesVisitor;

impl Visitor<'_> for BytesVisitor {
    type Value = Bytes;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a number of bytes from 0 to 2^63")
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<Bytes, E> {
        Ok(Bytes(n))
    }

    fn visit_f64<E: Error>(self, n: f64) -> Result<Bytes, E> {
        if (0.0..=2f64.powi(63)).contains(&n) {
            Ok(Bytes(n.round() as u64))
        } else {
            Err(E::invalid_value(Unexpected::Float(n), &self))
        }
    }
}

struct RealVisitor;

impl Visitor<'_> for RealVisitor {
    type Value = Real;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a number")
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<Real, E> {
        Ok(Real(n as f64))
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<Real, E> {
        Ok(Real(n as f64))
    }

    fn visit_f64<E: Error>(self, n: f64) -> Result<Real, E> {
        Ok(Real(n))
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_u64(WholeVisitor)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_u64(BytesVisitor)
    }
}

impl<'de> Deserialize<'de> for Real {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_f64(RealVisitor)
    }
}

/// Reads JSON. An error names the field, which begins with `at`; a path is kept only in a second pass, after an error.
pub(super) fn parse<'a, T: Deserialize<'a>>(json: &'a [u8], at: &str) -> Result<T, FileError> {
    let error = match serde_json::from_slice(json) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let again = &mut serde_json::Deserializer::from_slice(json);
    let path = match serde_path_to_error::deserialize::<_, T>(again) {
        Err(e) if e.path().iter().len() > 0 => e.path().to_string(),
        _ => String::new(),
    };
    let text = error.to_string();
    let field = match (at, path.as_str()) {
        ("", "") => return Err(FileError::Json(text)),
        (at, "") => at.to_owned(),
        ("", path) => path.to_owned(),
        (at, path) => format!("{at}.{path}"),
    };
    // a line within a part of the file is not a line of the file
    let text = if at.is_empty() { &text } else { text.split(" at line ").next().unwrap_or(&text) };
    Err(FileError::Json(format!("{field}: {text}")))
}
