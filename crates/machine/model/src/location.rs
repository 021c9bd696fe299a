// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locations: names of the parts of a machine, as on Blue Gene.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ModelError;

/// Kind of a part of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The service node, `SN`.
    Service,
    /// A rack, `R00` to `RFF`: row and column as hexadecimal digits.
    Rack,
    /// A midplane, `R00-M0` or `R00-M1`.
    Midplane,
    /// A node card, `R00-M0-N00` to `R00-M0-N15`.
    NodeCard,
    /// A compute node, `R00-M0-N00-J00` to `R00-M0-N00-J31`.
    Compute,
    /// An I/O node, `R00-M0-N00-I00` to `R00-M0-N00-I03`.
    Io,
}

/// The place of a part in the machine room. Locations order as their names do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Location {
    rack: u8,
    midplane: u8,
    card: u8,
    kind: Kind,
    slot: u8,
}

impl Location {
    /// The service node.
    pub const SERVICE: Self = Self { rack: 0, midplane: 0, card: 0, kind: Kind::Service, slot: 0 };

    /// A rack; 16 times its row plus its column.
    #[must_use]
    pub const fn of_rack(rack: u8) -> Self {
        Self { rack, kind: Kind::Rack, ..Self::SERVICE }
    }

    /// A part by its numbers. Numbers that the kind does not have must be 0. `None` if one is out of range.
    #[must_use]
    pub const fn new(kind: Kind, rack: u8, midplane: u8, card: u8, slot: u8) -> Option<Self> {
        let [midplanes, cards, slots] = match kind {
            Kind::Service | Kind::Rack => [1, 1, 1],
            Kind::Midplane => [2, 1, 1],
            Kind::NodeCard => [2, 16, 1],
            Kind::Compute => [2, 16, 32],
            Kind::Io => [2, 16, 4],
        };
        let has_rack = rack == 0 || !matches!(kind, Kind::Service);
        if has_rack && midplane < midplanes && card < cards && slot < slots {
            Some(Self { rack, midplane, card, kind, slot })
        } else {
            None
        }
    }

    /// The kind of part.
    #[must_use]
    pub const fn kind(self) -> Kind {
        self.kind
    }

    /// Rack: 16 times its row plus its column.
    #[must_use]
    pub const fn rack(self) -> u8 {
        self.rack
    }

    /// Midplane in the rack: 0 or 1.
    #[must_use]
    pub const fn midplane(self) -> u8 {
        self.midplane
    }

    /// Node card in the midplane: 0 to 15.
    #[must_use]
    pub const fn card(self) -> u8 {
        self.card
    }

    /// Compute node (0 to 31) or I/O node (0 to 3) on the node card.
    #[must_use]
    pub const fn slot(self) -> u8 {
        self.slot
    }

    /// The part that contains this one: a node's node card, a node card's midplane, a midplane's rack.
    #[must_use]
    pub const fn parent(self) -> Option<Self> {
        match self.kind {
            Kind::Service | Kind::Rack => None,
            Kind::Midplane => Some(Self::of_rack(self.rack)),
            Kind::NodeCard => Some(Self { kind: Kind::Midplane, card: 0, ..self }),
            Kind::Compute | Kind::Io => Some(Self { kind: Kind::NodeCard, slot: 0, ..self }),
        }
    }

    /// Returns `true` if `other` is this part or a part of it. The service node contains nothing but itself.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        let mut at = Some(other);
        while let Some(part) = at {
            if part == self {
                return true;
            }
            at = part.parent();
        }
        false
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rack, midplane, card, slot, .. } = self;
        f.pad(&match self.kind {
            Kind::Service => "SN".into(),
            Kind::Rack => format!("R{rack:02X}"),
            Kind::Midplane => format!("R{rack:02X}-M{midplane}"),
            Kind::NodeCard => format!("R{rack:02X}-M{midplane}-N{card:02}"),
            Kind::Compute => format!("R{rack:02X}-M{midplane}-N{card:02}-J{slot:02}"),
            Kind::Io => format!("R{rack:02X}-M{midplane}-N{card:02}-I{slot:02}"),
        })
    }
}

impl From<Location> for String {
    fn from(location: Location) -> Self {
        location.to_string()
    }
}

impl TryFrom<String> for Location {
    type Error = ModelError;

    fn try_from(text: String) -> Result<Self, ModelError> {
        text.parse()
    }
}

impl FromStr for Location {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        parse(text).ok_or_else(|| ModelError::Location { found: text.chars().take(40).collect() })
    }
}

/// Exactly the names that are printed: two digits where two are printed, capitals.
fn parse(text: &str) -> Option<Location> {
    if text == "SN" {
        return Some(Location::SERVICE);
    }
    let mut words = text.split('-');
    let rack = words.next()?.strip_prefix('R').filter(|w| w.len() == 2 && is_hexadecimal(w))?;
    let rack = u8::from_str_radix(rack, 16).ok()?;
    let mut next = |letters: &[char], digits: usize| {
        let Some(word) = words.next() else { return Some(None) };
        let number = word.strip_prefix(letters).filter(|w| w.len() == digits)?;
        let number = number.bytes().all(|b| b.is_ascii_digit()).then(|| number.parse::<u8>().ok())??;
        Some(Some((word.chars().next()?, number)))
    };
    let (midplane, card, node) = (next(&['M'], 1)?, next(&['N'], 2)?, next(&['J', 'I'], 2)?);
    if words.next().is_some() {
        return None;
    }
    let kind = match (midplane, card, node) {
        (None, ..) => Kind::Rack,
        (_, None, _) => Kind::Midplane,
        (_, _, None) => Kind::NodeCard,
        (_, _, Some(('J', _))) => Kind::Compute,
        _ => Kind::Io,
    };
    let number = |word: Option<(char, u8)>| word.map_or(0, |(_, n)| n);
    Location::new(kind, rack, number(midplane), number(card), number(node))
}

fn is_hexadecimal(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_kind_of_name_is_parsed_as_it_is_printed() {
        for name in ["SN", "R00", "RFF", "R7A-M1", "R00-M0-N15", "R00-M0-N04-J12", "R12-M1-N00-I03"] {
            let location: Location = name.parse().expect("a location");
            assert_eq!(location.to_string(), name);
        }
        let node: Location = "R00-M0-N04-J12".parse().expect("a location");
        assert_eq!((node.kind(), node.card(), node.slot()), (Kind::Compute, 4, 12));
        let all: Vec<_> = std::iter::successors(Some(node), |l| l.parent()).map(|l| l.to_string()).collect();
        assert_eq!(all, ["R00-M0-N04-J12", "R00-M0-N04", "R00-M0", "R00"]);
        assert!(Location::of_rack(0).contains(node) && !Location::of_rack(1).contains(node));
    }

    #[test]
    fn other_spellings_and_parts_that_no_machine_has_are_refused() {
        let spelled =
            ["", "R", "R0", "r00", "R0a", "R00-", "R00-M", "R00-M00", "R00-M0-N4", "R00-M0-N04-J+1"];
        let absent =
            ["R00-M2", "R00-M0-N16", "R00-M0-N00-J32", "R00-M0-N00-I04", "R00-M0-N00-J00-X", "SN-M0"];
        for name in spelled.into_iter().chain(absent) {
            assert!(name.parse::<Location>().is_err(), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_printed_name_or_refused(text in "[RMNJIS0-9A-F-]{0,18}|.{0,18}") {
            if let Ok(location) = text.parse::<Location>() {
                prop_assert_eq!(location.to_string(), text);
            }
        }
    }
}
