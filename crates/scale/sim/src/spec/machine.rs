// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine of a scenario: a profile's name, or all of it.

use serde::{Deserialize, Deserializer, Serialize, de};

use super::SpecError;
use crate::machine::Machine;

/// A machine, by name or written out.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum MachineSpec {
    /// A profile that comes with Colony.
    Named(String),
    /// Its own parameters.
    Given(Box<Machine>),
}

impl Default for MachineSpec {
    fn default() -> Self {
        Self::Named("loggopsim".into())
    }
}

impl MachineSpec {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::Given(machine) => &machine.name,
        }
    }

    pub(super) fn machine(&self) -> Result<Machine, SpecError> {
        match self {
            Self::Named(name) => Machine::named(name).map_err(|e| SpecError::value("machine", e)),
            Self::Given(machine) => {
                machine.check().map_err(|e| SpecError::value("machine", e))?;
                Ok((**machine).clone())
            }
        }
    }
}

// by hand: an untagged enum would forget in which line of the machine the mistake is
impl<'de> Deserialize<'de> for MachineSpec {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = MachineSpec;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the name of a machine, or a table of its parameters")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<MachineSpec, E> {
                Ok(MachineSpec::Named(name.to_owned()))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<MachineSpec, A::Error> {
                let machine = Machine::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(MachineSpec::Given(Box::new(machine)))
            }
        }
        d.deserialize_any(Visitor)
    }
}
