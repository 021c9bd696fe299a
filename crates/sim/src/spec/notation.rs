//! Times and duty cycles as people write them: `1ms`, `95%`.

use colony_time::text;
use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

/// A time.
pub(super) mod ns {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(ns: &u64, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&text::Ns(*ns))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
        let word = String::deserialize(d)?;
        text::parse_ns(&word).map_err(|e| D::Error::custom(format!("`{word}` is no time: {e}")))
    }
}

/// A time that may be left out.
pub(super) mod maybe_ns {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(ns: &Option<u64>, s: S) -> Result<S::Ok, S::Error> {
        match ns {
            Some(ns) => super::ns::serialize(ns, s),
            None => s.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
        super::ns::deserialize(d).map(Some)
    }
}

/// A duty cycle.
pub(super) mod duty {
    use super::*;
    use colony_time::DutyCycle;

    pub(crate) fn serialize<S: Serializer>(duty: &DutyCycle, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(duty)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<DutyCycle, D::Error> {
        let word = String::deserialize(d)?;
        text::parse_duty(&word).map_err(|e| D::Error::custom(format!("`{word}` is no duty cycle: {e}")))
    }
}
