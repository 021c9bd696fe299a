// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reductions of sections.

use colony_runtime::{Callback, Context, Entry, Object, Op, Options, Program, Reduced, SectionKey};
use serde::{Deserialize, Serialize};

use super::{PLACES, give, run, run_with};

const ROWS: i32 = 3;
const COLUMNS: i32 = 4;
const ROUNDS: u32 = 15;

/// An element of a matrix, which takes part in the reductions of its row and of its column, by turns, and migrates.
#[derive(Serialize, Deserialize)]
struct Cell {
    key: u32,
    round: u32,
    sections: Option<[SectionKey<Self>; 2]>,
    /// At the first element of a row or column: the results that have come, of rows and of columns.
    results: [u64; 2],
}

/// The row and the column of an element.
#[derive(Serialize, Deserialize)]
struct Sections([SectionKey<Cell>; 2]);

#[derive(Serialize, Deserialize)]
struct Next;

impl Object for Cell {
    type Index = [i32; 2];
    type Init = u32;

    fn new(key: u32, _: &mut Context<'_, Self>) -> Self {
        Self { key, round: 0, sections: None, results: [0; 2] }
    }
}

impl Entry<Sections> for Cell {
    fn call(&mut self, Sections(sections): Sections, cx: &mut Context<'_, Self>) {
        self.sections = Some(sections);
        cx.send(cx.this(), Next);
    }
}

impl Entry<Next> for Cell {
    fn call(&mut self, _: Next, cx: &mut Context<'_, Self>) {
        let Some(sections) = self.sections else { return };
        let [row, column] = cx.index();
        let firsts = [[row, 0], [0, column]];
        for (section, first) in sections.into_iter().zip(firsts) {
            let to = cx.reply_to(cx.array().at(first));
            let value = i64::from(row * 10 + column) + i64::from(self.round);
            cx.contribute_to(section, [value, 1], Op::Sum, to);
        }
        self.round += 1;
        if self.round < ROUNDS {
            cx.send(cx.this(), Next);
            cx.migrate_to((cx.pe() + 1 + self.round % 2) % cx.pes());
        }
    }
}

impl Entry<Reduced> for Cell {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        let [row, column] = cx.index().map(i64::from);
        let &[sum, elements] = result.i64s() else { panic!("{result:?}") };
        // element [0, 0] gets the results of a row and of a column: of 4 and of 3 elements
        let is_row = elements == i64::from(COLUMNS);
        let round = result.number as i64;
        let (first, step, others) = if is_row { (row * 10, 1, elements) } else { (column, 10, elements) };
        let expected: i64 = (0..others).map(|other| first + other * step + round).sum();
        assert_eq!(sum, expected, "{result:?}");
        let results = &mut self.results[usize::from(is_row)];
        assert_eq!(result.number, *results, "results come in order");
        *results += 1;
        if *results == u64::from(ROUNDS) {
            let to = Callback::Exit;
            give(self.key, is_row);
            if self.results.iter().sum::<u64>() == u64::from(ROUNDS) * if row + column == 0 { 2 } else { 1 } {
                cx.contribute_to(cx.array().section(corners()).key(), [1i64], Op::Sum, to);
            }
        }
    }
}

/// The first elements of rows and columns.
fn corners() -> Vec<[i32; 2]> {
    (0..ROWS).map(|row| [row, 0]).chain((1..COLUMNS).map(|column| [0, column])).collect()
}

fn program() -> Program {
    Program::new().class::<Cell>(|c| c.entry::<Sections>().entry::<Next>().entry::<Reduced>())
}

#[test]
fn sections_reduce_in_order_while_their_elements_migrate() {
    for place in PLACES {
        let mut results: Vec<bool> = run(place, program, |cx, key| {
            let cells = cx.create_array::<Cell>(&[ROWS as u32, COLUMNS as u32], key);
            let rows: Vec<_> = (0..ROWS).map(|r| cells.section((0..COLUMNS).map(|c| [r, c])).key()).collect();
            let columns = (0..COLUMNS).map(|c| cells.section((0..ROWS).rev().map(|r| [r, c])).key());
            for (column, of_column) in columns.enumerate() {
                for (row, &of_row) in rows.iter().enumerate() {
                    cx.send(cells.at([row as i32, column as i32]), Sections([of_row, of_column]));
                }
            }
        });
        results.sort_unstable();
        assert_eq!(results, [vec![false; COLUMNS as usize], vec![true; ROWS as usize]].concat(), "{place:?}");
    }
}

/// An object that contributes to a section of others.
#[derive(Serialize, Deserialize)]
struct Stranger;

impl Object for Stranger {
    type Index = i64;
    type Init = ();

    fn new((): (), _: &mut Context<'_, Self>) -> Self {
        Self
    }
}

impl Entry<Next> for Stranger {
    fn call(&mut self, _: Next, cx: &mut Context<'_, Self>) {
        let pair = cx.array().section([0, 1]).key();
        cx.contribute_to(pair, [1i64], Op::Sum, Callback::Array { array: cx.array().id(), entry: 1 });
    }
}

impl Entry<Reduced> for Stranger {
    fn call(&mut self, _: Reduced, _: &mut Context<'_, Self>) {}
}

#[test]
fn more_contributions_than_a_section_has_elements_end_the_program() {
    let program = || Program::new().class::<Stranger>(|c| c.entry::<Next>().entry::<Reduced>());
    for place in PLACES {
        let outcomes = run_with(place, &Options::default(), program, |cx| {
            let strangers = cx.create_array::<Stranger>(&[5], ());
            cx.broadcast(strangers, Next);
        });
        let errors: Vec<_> = outcomes.into_iter().map(|o| o.expect_err("5 of 2").to_string()).collect();
        let told =
            errors.iter().filter(|e| e.contains("of a section than the 2 that the section has")).count();
        assert_eq!(told, 1, "{place:?}: {errors:?}");
    }
}
