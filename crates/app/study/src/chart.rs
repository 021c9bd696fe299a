// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines over numbers of nodes, for a table, a plot and other programs.

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

/// A line of a chart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// A value for each number of nodes.
    pub values: Vec<f64>,
}

impl Chart {
    /// A value as people read it.
    #[must_use]
    pub fn text(&self, value: f64) -> String {
        match self.quantity {
            Quantity::Ns => format::time(value),
            Quantity::Times => format::times(value),
            Quantity::BytesPerS => format::bytes_per_s(value),
        }
    }

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
            let values = line.values.iter().map(|&v| self.text(v));
            std::iter::once(line.name.clone()).chain(values).collect()
        })
    }
}
