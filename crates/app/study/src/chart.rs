// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines over numbers of nodes, and heat maps over two parameters, for a table, a plot and other programs.

use serde::{Deserialize, Serialize};

use crate::format;

/// Lines of one quantity over numbers of nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// Name for programs, and of the figure in a page.
    pub id: String,
    /// Title: the quantity and its program.
    pub title: String,
    /// One sentence that tells a reader what the lines show.
    pub caption: String,
    /// Unit of the values.
    pub quantity: Quantity,
    /// Numbers of nodes, ascending.
    pub nodes: Vec<u32>,
    /// The lines.
    pub lines: Vec<Line>,
}

/// Unit of a chart's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Nanoseconds.
    Ns,
    /// A ratio.
    Times,
    /// Bytes a second.
    BytesPerS,
}

impl Quantity {
    /// A value as people read it.
    #[must_use]
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Ns => format::time(value),
            Self::Times => format::times(value),
            Self::BytesPerS => format::bytes_per_s(value),
        }
    }
}

/// A line of a chart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// A value for each number of nodes.
    pub values: Vec<f64>,
}

impl Chart {
    /// Headings of the chart's table: one column of names, then one for each number of nodes.
    #[must_use]
    pub fn headings(&self) -> Vec<String> {
        let nodes = self.nodes.iter().enumerate();
        let heading = |(i, &n): (usize, &u32)| match i {
            0 => format::counted(n.into(), "node"),
            _ => format::count(n.into()),
        };
        std::iter::once("system".to_owned()).chain(nodes.map(heading)).collect()
    }

    /// Rows of that table.
    pub fn rows(&self) -> impl Iterator<Item = Vec<String>> + '_ {
        self.lines.iter().map(|line| {
            let values = line.values.iter().map(|&v| self.quantity.text(v));
            std::iter::once(line.name.clone()).chain(values).collect()
        })
    }
}

/// One quantity over two parameters: a heat map for each number of nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Surface {
    /// Name for programs.
    pub id: String,
    /// Title: the quantity and its program.
    pub title: String,
    /// One sentence that tells a reader what rows and columns are.
    pub caption: String,
    /// Unit of the values.
    pub quantity: Quantity,
    /// Heading of the rows.
    pub row_name: String,
    /// Values of the parameter of the rows.
    pub rows: Vec<String>,
    /// Values of the parameter of the columns.
    pub columns: Vec<String>,
    /// The heat maps, by ascending number of nodes.
    pub maps: Vec<HeatMap>,
}

/// The values of a surface for one number of nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeatMap {
    /// The number of nodes.
    pub nodes: u32,
    /// A value for each column of each row; `None`: these parameters cannot be together.
    pub values: Vec<Vec<Option<f64>>>,
}

/// Steps of colour of a heat map.
pub const HEAT_LEVELS: u8 = 9;

impl Surface {
    /// Headings of the table of a heat map.
    pub fn headings(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.row_name.as_str()).chain(self.columns.iter().map(String::as_str))
    }

    /// Rows of the table of a heat map, the name of the row first.
    pub fn table_rows<'a>(&'a self, map: &'a HeatMap) -> impl Iterator<Item = Vec<String>> + 'a {
        self.rows.iter().zip(&map.values).map(|(name, values)| {
            let text =
                |v: &Option<f64>| v.map_or_else(|| format::NOT_KNOWN.into(), |v| self.quantity.text(v));
            std::iter::once(name.clone()).chain(values.iter().map(text)).collect()
        })
    }

    /// The step of colour of a value, 0 for the smallest value of all maps, [`HEAT_LEVELS`] − 1 for the largest: equal steps are
    /// equal ratios.
    #[must_use]
    pub fn heat(&self, value: f64) -> u8 {
        let all = || self.maps.iter().flat_map(|m| m.values.iter().flatten().flatten().copied());
        let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
        let place = (value / low).ln() / (high / low).ln();
        if place.is_finite() { (place.clamp(0.0, 1.0) * f64::from(HEAT_LEVELS - 1)).round() as u8 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ratios_are_equal_steps_of_colour() {
        let map = HeatMap { nodes: 512, values: vec![vec![Some(1.0), Some(10.0), None, Some(100.0)]] };
        let surface = Surface {
            id: "s".into(),
            title: "t".into(),
            caption: "c".into(),
            quantity: Quantity::Times,
            row_name: "detour".into(),
            rows: vec!["16 µs".into()],
            columns: (1..5).map(|n| n.to_string()).collect(),
            maps: vec![map],
        };
        assert_eq!([1.0, 10.0, 100.0, 1e6].map(|v| surface.heat(v)), [0, 4, 8, 8]);
        let rows: Vec<Vec<String>> = surface.table_rows(&surface.maps[0]).collect();
        assert_eq!(rows, [["16 µs", "1×", "10×", "–", "100×"].map(str::to_owned)]);
        let flat = HeatMap { nodes: 1, values: vec![vec![Some(3.0)]] };
        assert_eq!(Surface { maps: vec![flat], ..surface }.heat(3.0), 0);
    }
}
