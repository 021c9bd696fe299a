// SPDX-License-Identifier: MIT OR Apache-2.0
//! All that objects can do, in rounds that end with `at_sync`: messages with priorities and delays, requests, broadcasts,
//! reductions of the array and of its rows, migrations at any time, insertions and removals, also while a round ends,
//! quiescence. For tests of recovery: `medley [ROUNDS]`. Prints a checksum that neither deaths nor the number of PEs change.

use std::process::ExitCode;
use std::time::Duration;

use colony_runtime::{
    Array, BalanceOptions, Context, Entry, Main, Object, Op, Options, Outcome, Program, Quiet, Reduced,
    Respond, SectionKey,
};
use serde::{Deserialize, Serialize};

const PLAYERS: i64 = 12;
const ROW: i64 = 4;
/// Visitors that are inserted one after the other while a player waits in `at_sync`.
const VISITORS: i64 = 4;
/// Rounds after which another visitor takes the index of one that has been removed.
const REUSE: i64 = 8;

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
    hosts: Array<Host>,
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
        // the last visitor of the round before has been inserted
        let visitors = u32::from(self.round > 1);
        // notes, a question and its answer, a broadcast, a reduction; the sum of a row; the note of a guest
        3 + 2 + 1 + 1 + u32::from(index % ROW == 0) + u32::from(index == 3) + quiet + visitors
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
            if self.round < self.rounds {
                let (round, player) = (i64::from(self.round), cx.index());
                let invite = Invite { players: cx.array(), round, player, inserted: 0 };
                cx.send(self.hosts.at(player), invite);
            }
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
    type Init = (u32, Array<Guest>, Array<Host>);

    fn new((rounds, guests, hosts): Self::Init, cx: &mut Context<'_, Self>) -> Self {
        let base = mix(cx.index() as u64, 0);
        Self { rounds, round: 0, guests, hosts, row: None, base, sum: base, came: 0, waits: true }
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
            return cx.send(self.hosts.at(0), Total(result.i64s()[0].cast_unsigned()));
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

/// Inserts visitors while players wait, and takes no part in load balancing, so the round may end meanwhile.
#[derive(Serialize, Deserialize)]
struct Host {
    rounds: u32,
    visitors: Array<Visitor>,
    /// At host 0: the visitors that have left, their sum, and the sum of the players.
    left: i64,
    sum: u64,
    total: Option<u64>,
}

/// Asks a host for the next visitor of a player that waits in a round.
#[derive(Clone, Serialize, Deserialize)]
struct Invite {
    players: Array<Player>,
    round: i64,
    player: i64,
    inserted: i64,
}

/// To host 0, from a visitor that leaves.
#[derive(Serialize, Deserialize)]
struct Farewell(u64);

/// To host 0: the sum of the players.
#[derive(Serialize, Deserialize)]
struct Total(u64);

impl Host {
    fn end_if_complete(&self, cx: &mut Context<'_, Self>) {
        let all_left = self.left == i64::from(self.rounds.saturating_sub(1)) * PLAYERS * VISITORS;
        if let Some(total) = self.total.filter(|_| all_left) {
            println!("medley {:016x}", total.wrapping_add(self.sum));
            cx.exit(0);
        }
    }
}

impl Object for Host {
    type Index = i64;
    type Init = (u32, Array<Visitor>);
    const BALANCED: bool = false;

    fn new((rounds, visitors): Self::Init, _: &mut Context<'_, Self>) -> Self {
        Self { rounds, visitors, left: 0, sum: 0, total: None }
    }
}

impl Entry<Invite> for Host {
    fn call(&mut self, invite: Invite, cx: &mut Context<'_, Self>) {
        let index = (invite.round % REUSE * PLAYERS + invite.player) * VISITORS + invite.inserted;
        cx.insert(self.visitors.at(index), Some((cx.array(), invite)));
    }
}

impl Entry<Farewell> for Host {
    fn call(&mut self, Farewell(value): Farewell, cx: &mut Context<'_, Self>) {
        self.left += 1;
        self.sum = self.sum.wrapping_add(value);
        self.end_if_complete(cx);
    }
}

impl Entry<Total> for Host {
    fn call(&mut self, Total(total): Total, cx: &mut Context<'_, Self>) {
        self.total = Some(total);
        self.end_if_complete(cx);
    }
}

/// Calls `at_sync` as soon as it is inserted, and leaves when it goes on.
#[derive(Serialize, Deserialize)]
struct Visitor {
    hosts: Array<Host>,
    value: u64,
}

impl Object for Visitor {
    type Index = i64;
    type Init = Option<(Array<Host>, Invite)>;

    fn new(init: Self::Init, cx: &mut Context<'_, Self>) -> Self {
        let Some((hosts, invite)) = init else { unreachable!("the array has only inserted elements") };
        let Invite { players, round, player, inserted } = invite;
        cx.at_sync();
        let inserted = inserted + 1;
        if inserted == VISITORS {
            cx.send(players.at(player), Note(mix(round as u64, 8)));
        } else {
            cx.send(hosts.at((player + inserted) % PLAYERS), Invite { players, round, player, inserted });
        }
        Self { hosts, value: mix(round as u64, cx.index() as u64) }
    }

    fn resume(&mut self, cx: &mut Context<'_, Self>) {
        cx.send(self.hosts.at(0), Farewell(self.value));
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
        .class::<Guest>(|c| c.entry::<Note>())
        .class::<Host>(|c| c.entry::<Invite>().entry::<Farewell>().entry::<Total>())
        .class::<Visitor>(|c| c);
    let begin = move |cx: &mut Context<'_, Main>| {
        let guests = cx.create_sparse::<Guest>(None);
        let visitors = cx.create_sparse::<Visitor>(None);
        let hosts = cx.create_array::<Host>(&[PLAYERS as u32], (rounds, visitors));
        let players = cx.create_array::<Player>(&[PLAYERS as u32], (rounds, guests, hosts));
        let row = |row: i64| players.section(row * ROW..(row + 1) * ROW).key();
        cx.broadcast(players, Start((0..PLAYERS / ROW).map(row).collect()));
    };
    colony_runtime::main_with(program, &options, begin, |_: &Outcome| {})
}
