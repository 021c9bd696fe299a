// SPDX-License-Identifier: MIT OR Apache-2.0
//! All that objects can do, in rounds that end with `at_sync`: messages with priorities and delays, requests, broadcasts,
//! reductions of the array and of its rows, migrations at any time, insertions and removals, quiescence. For tests of
//! recovery: `medley [ROUNDS]`. Prints a checksum that neither deaths nor the number of PEs change.

use std::process::ExitCode;
use std::time::Duration;

use colony_runtime::{
    Array, BalanceOptions, Context, Entry, Main, Object, Op, Options, Outcome, Program, Quiet, Reduced,
    Respond, SectionKey,
};
use serde::{Deserialize, Serialize};

const PLAYERS: i64 = 12;
const ROW: i64 = 4;

/// A pseudo-random number of two others (SplitMix64).
fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(b);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

#[derive(Serialize, Deserialize)]
struct Player {
    rounds: u32,
    round: u32,
    guests: Array<Guest>,
    row: Option<SectionKey<Player>>,
    /// The sum after the last round, and so far.
    base: u64,
    sum: u64,
    /// Things that have come in this round, and that have to.
    came: u32,
    waits: bool,
}

#[derive(Serialize, Deserialize)]
struct Start(Vec<SectionKey<Player>>);

#[derive(Serialize, Deserialize)]
struct Note(u64);

#[derive(Serialize, Deserialize)]
struct Question;

#[derive(Serialize, Deserialize)]
struct Tell(u64);

impl Player {
    /// Things that come to a player in each round.
    fn expected(&self, index: i64) -> u32 {
        let quiet = u32::from(index == 2 && self.round.is_multiple_of(4));
        // notes, a question and its answer, a broadcast, a reduction; the sum of a row; the note of a guest
        3 + 2 + 1 + 1 + u32::from(index % ROW == 0) + u32::from(index == 3) + quiet
    }

    /// Takes a value. The order in a round does not matter, and a value may come before the round has begun here.
    fn take(&mut self, value: u64, cx: &mut Context<'_, Self>) {
        self.sum = self.sum.wrapping_add(mix(value, 9));
        self.came += 1;
        self.end_if_complete(cx);
    }

    fn end_if_complete(&mut self, cx: &mut Context<'_, Self>) {
        if !self.waits && self.came == self.expected(cx.index()) {
            (self.base, self.came, self.waits) = (self.sum, 0, true);
            cx.at_sync();
        }
    }

    fn begin(&mut self, cx: &mut Context<'_, Self>) {
        self.waits = false;
        self.round += 1;
        let (index, base, round) = (cx.index(), self.base, i64::from(self.round));
        let to = |distance: i64| cx.array().at((index + distance * round) % PLAYERS);
        let [first, second, third, asked] = [1, 5, 7, 11].map(to);
        cx.send_with_priority(first, Note(base), (round % 3) as i32 - 1);
        cx.send(second, Note(base ^ 1));
        cx.send_after(Duration::from_micros(base % 2000), third, Note(base ^ 2));
        cx.spawn(async move |me| {
            let answer = me.ask(asked, Question).await;
            me.with(move |player: &mut Self, cx| player.take(answer, cx)).await;
        });
        let to_all = cx.reply_to_all(cx.array());
        cx.contribute([base.cast_signed()], Op::Sum, to_all);
        if let Some(row) = self.row {
            let first = cx.reply_to(cx.array().at(index / ROW * ROW));
            cx.contribute_to(row, [base.cast_signed()], Op::Sum, first);
        }
        match index {
            0 => cx.broadcast(cx.array(), Tell(base)),
            1 => {
                cx.insert(self.guests.at(0), Some(cx.array()));
                cx.send(self.guests.at(0), Note(base));
            }
            2 if self.round.is_multiple_of(4) => {
                let this = cx.this();
                cx.when_quiet(this);
            }
            _ => {}
        }
        cx.migrate_to((mix(base, 3) % u64::from(cx.pes())) as u32);
        self.end_if_complete(cx);
    }
}

impl Object for Player {
    type Index = i64;
    type Init = (u32, Array<Guest>);

    fn new((rounds, guests): Self::Init, cx: &mut Context<'_, Self>) -> Self {
        let base = mix(cx.index() as u64, 0);
        Self { rounds, round: 0, guests, row: None, base, sum: base, came: 0, waits: true }
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        if self.round == self.rounds {
            let to = cx.reply_to(cx.array().at(0));
            self.came = u32::MAX;
            return cx.contribute([self.sum.cast_signed()], Op::Sum, to);
        }
        self.begin(cx);
    }
}

impl Entry<Start> for Player {
    fn call(&mut self, Start(rows): Start, cx: &mut Context<'_, Self>) {
        self.row = rows.get((cx.index() / ROW) as usize).copied();
        self.begin(cx);
    }
}

impl Entry<Note> for Player {
    fn call(&mut self, Note(value): Note, cx: &mut Context<'_, Self>) {
        self.take(value, cx);
    }
}

impl Entry<Tell> for Player {
    fn call(&mut self, Tell(value): Tell, cx: &mut Context<'_, Self>) {
        self.take(value, cx);
    }
}

impl Entry<Quiet> for Player {
    fn call(&mut self, _: Quiet, cx: &mut Context<'_, Self>) {
        self.take(4, cx);
    }
}

impl Respond<Question> for Player {
    type Reply = u64;

    fn respond(&mut self, _: Question, cx: &mut Context<'_, Self>) -> u64 {
        let base = self.base;
        self.take(5, cx);
        base
    }
}

impl Entry<Reduced> for Player {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        if self.came == u32::MAX {
            println!("medley {:016x}", result.i64s()[0]);
            return cx.exit(0);
        }
        self.take(result.i64s()[0].cast_unsigned(), cx);
    }
}

/// An element of a sparse array that leaves after its first message.
#[derive(Serialize, Deserialize)]
struct Guest(Option<Array<Player>>);

impl Object for Guest {
    type Index = i64;
    type Init = Option<Array<Player>>;
    const BALANCED: bool = false;

    fn new(players: Self::Init, _: &mut Context<'_, Self>) -> Self {
        Self(players)
    }
}

impl Entry<Note> for Guest {
    fn call(&mut self, Note(value): Note, cx: &mut Context<'_, Self>) {
        if let Some(players) = self.0 {
            cx.send(players.at(3), Note(value ^ 3));
        }
        cx.remove();
    }
}

fn main() -> ExitCode {
    let rounds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(40);
    let options = Options { balance: BalanceOptions::strategy("rotate").ok(), ..Options::default() };
    let program = Program::new()
        .class::<Player>(|c| {
            let c = c.entry::<Start>().entry::<Note>().entry::<Tell>().entry::<Quiet>();
            c.entry::<Reduced>().respond::<Question>()
        })
        .class::<Guest>(|c| c.entry::<Note>());
    let begin = move |cx: &mut Context<'_, Main>| {
        let guests = cx.create_sparse::<Guest>(None);
        let players = cx.create_array::<Player>(&[PLAYERS as u32], (rounds, guests));
        let row = |row: i64| players.section(row * ROW..(row + 1) * ROW).key();
        cx.broadcast(players, Start((0..PLAYERS / ROW).map(row).collect()));
    };
    colony_runtime::main_with(program, &options, begin, |_: &Outcome| {})
}
