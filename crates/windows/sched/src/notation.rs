// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times and shares in configurations, in the notation of [`text`](colony_time::text): modules for `#[serde(with = …)]`.
#![allow(missing_docs, reason = "serde asks for the same two functions of each module")]

/// Nanoseconds written as `100ms`.
pub mod ns {
    use colony_time::text;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(ns: &u64, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&text::Ns(*ns))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
        let written = String::deserialize(d)?;
        text::parse_ns(&written).map_err(|e| D::Error::custom(format!("`{written}`: {e}")))
    }
}

/// A share in millionths, written as `98%`.
pub mod share {
    use colony_time::{DutyCycle, text};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(ppm: &u32, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&DutyCycle::Ppm(*ppm))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u32, D::Error> {
        let written = String::deserialize(d)?;
        match text::parse_duty(&written) {
            Ok(DutyCycle::Ppm(ppm)) => Ok(ppm),
            Ok(_) => Err(D::Error::custom(format!("`{written}` is no share; write one as 98%"))),
            Err(e) => Err(D::Error::custom(format!("`{written}`: {e}"))),
        }
    }
}

/// A duty cycle written as `95%`, `95ms` or `0xf4000000`.
pub mod duty {
    use colony_time::{DutyCycle, text};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(duty: &DutyCycle, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(duty)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<DutyCycle, D::Error> {
        let written = String::deserialize(d)?;
        text::parse_duty(&written).map_err(|e| D::Error::custom(format!("`{written}`: {e}")))
    }
}

/// Nanoseconds that may be missing, written as `100ms`.
pub mod some_ns {
    use serde::{Deserializer, Serializer};

    // the signatures serde asks for
    #[allow(clippy::ref_option)]
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
