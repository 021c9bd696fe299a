// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times and duty cycles in configurations, in the notation of [`text`]: modules for `#[serde(with = …)]`.
#![allow(missing_docs, reason = "serde asks for the same two functions of each module")]

use std::fmt;

use serde::{Deserializer, Serializer, de};

use crate::{DutyCycle, text};

/// A word of a configuration, and its parser.
struct Text<T> {
    must_be: &'static str,
    parse: fn(&str) -> Result<T, String>,
    /// Converts a whole number; without it, a number is an error.
    number: Option<fn(u64) -> T>,
}

impl<T> de::Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.must_be)
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<T, E> {
        (self.parse)(word).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        let take = self.number.ok_or_else(|| E::invalid_type(de::Unexpected::Unsigned(number), &self))?;
        Ok(take(number))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        match (u64::try_from(number), self.number) {
            (Ok(number), Some(take)) => Ok(take(number)),
            _ => Err(E::invalid_type(de::Unexpected::Signed(number), &self)),
        }
    }
}

fn time(word: &str) -> Result<u64, String> {
    text::parse_ns(word).map_err(|e| format!("`{word}` is no time: {e}"))
}

fn duty_cycle(word: &str) -> Result<DutyCycle, String> {
    text::parse_duty(word).map_err(|e| format!("`{word}` is no duty cycle: {e}"))
}

/// Nanoseconds, written as `100ms`.
pub mod ns {
    use super::{Deserializer, Serializer, Text, text, time};

    pub fn serialize<S: Serializer>(ns: &u64, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&text::Ns(*ns))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
        let must_be = "a time with its unit, as \"100ms\"";
        d.deserialize_any(Text { must_be, parse: time, number: None })
    }
}

/// Nanoseconds that may be left out.
pub mod some_ns {
    use super::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(ns: &Option<u64>, s: S) -> Result<S::Ok, S::Error> {
        match ns {
            Some(ns) => super::ns::serialize(ns, s),
            None => s.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
        super::ns::deserialize(d).map(Some)
    }
}

/// Whole nanoseconds, or a time with its unit.
#[derive(Clone, Copy)]
struct Either(u64);

impl<'de> de::Deserialize<'de> for Either {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let must_be = "whole nanoseconds, or a time with its unit, as \"100ms\"";
        d.deserialize_any(Text { must_be, parse: |word| time(word).map(Either), number: Some(Either) })
    }
}

/// Reads whole nanoseconds, or a time with its unit.
pub fn ns_or_time<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    <Either as de::Deserialize>::deserialize(d).map(|ns| ns.0)
}

/// Reads a list of what [`ns_or_time`] reads.
pub fn all_ns_or_time<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u64>, D::Error> {
    let all: Vec<Either> = de::Deserialize::deserialize(d)?;
    Ok(all.into_iter().map(|ns| ns.0).collect())
}

/// A duty cycle, written as `95%`, `95ms` or in Blue Gene/L cycles.
pub mod duty {
    use super::{Deserializer, DutyCycle, Serializer, Text, duty_cycle};

    pub fn serialize<S: Serializer>(duty: &DutyCycle, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(duty)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<DutyCycle, D::Error> {
        d.deserialize_any(Text { must_be: "a duty cycle, as \"80%\"", parse: duty_cycle, number: None })
    }
}

/// A share in parts per million, written as `98%`.
pub mod share {
    use super::{Deserializer, DutyCycle, Serializer, Text, duty_cycle};

    pub fn serialize<S: Serializer>(ppm: &u32, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&DutyCycle::Ppm(*ppm))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u32, D::Error> {
        let parse = |word: &str| match duty_cycle(word)? {
            DutyCycle::Ppm(ppm) => Ok(ppm),
            _ => Err(format!("`{word}` is no share; write one as 98%")),
        };
        d.deserialize_any(Text { must_be: "a share, as \"98%\"", parse, number: None })
    }
}
