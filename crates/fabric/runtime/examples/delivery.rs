// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stress test of message delivery: objects send each other messages at random and migrate at random.
//!
//! A fixed number of messages is under way. An object that gets one sends the next, to an object that the message's
//! random number chooses, so one seed has the same messages on any number of PEs. Receivers check that the messages of
//! each pair of objects arrive once and in order. At the end the counts and the checksums of senders and receivers are
//! compared.

mod support;

use std::io::IsTerminal;
use std::process::ExitCode;

use colony_runtime::{Context, Entry, Main, Object, Op, Program, Reduced};
use colony_time::clock::Clock;
use serde::{Deserialize, Serialize};
use support::{arguments, mix};

const USAGE: &str =
    "delivery [--messages N] [--objects N] [--window N] [--migrate N] [--seed N] [--threads N]";
/// Time between two lines of progress.
const PROGRESS_NS: i64 = 2_000_000_000;

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Setup {
    messages: u64,
    objects: u32,
    /// Messages under way for each object.
    window: u32,
    /// An object migrates to a random PE after so many messages in the mean; never, if 0 or 1.
    migrate: u32,
    seed: u64,
}

impl Setup {
    /// Chains of messages: as many as are under way at the beginning.
    fn chains(&self) -> u64 {
        self.messages.min(u64::from(self.objects) * u64::from(self.window))
    }
}

#[derive(Serialize, Deserialize)]
struct Peer {
    setup: Setup,
    /// Messages sent to each object, and received from each.
    sent: Vec<u64>,
    received: Vec<u64>,
    /// Checksums of both.
    sums: [u64; 2],
    migrations: u64,
    /// At object 0: the chains that have ended; the beginning and the last line of progress.
    ended: u64,
    times: [i64; 2],
}

#[derive(Serialize, Deserialize)]
struct Start;

/// Message `number` from one object to another.
#[derive(Serialize, Deserialize)]
struct Note {
    from: u32,
    number: u64,
    /// Messages that follow it in its chain.
    rest: u64,
    random: u64,
}

/// A chain has ended.
#[derive(Serialize, Deserialize)]
struct Ended;

#[derive(Serialize, Deserialize)]
struct Report;

fn checksum(from: u32, to: u32, number: u64) -> u64 {
    mix(u64::from(from) << 32 | u64::from(to), number)
}

impl Peer {
    /// Sends the message of a chain that `random` stands for.
    fn send(&mut self, random: u64, rest: u64, cx: &mut Context<'_, Self>) {
        let (from, objects) = (cx.index() as u32, self.sent.len() as u64);
        let to = (random >> 16) % objects;
        let number = self.sent[to as usize];
        self.sent[to as usize] += 1;
        self.sums[0] = self.sums[0].wrapping_add(checksum(from, to as u32, number));
        cx.send(cx.array().at(to as i64), Note { from, number, rest, random });
    }

    /// Prints from time to time how many messages there were, from those of this object.
    fn progress(&mut self) {
        let now = Clock::Monotonic.now_ns();
        if now - self.times[1] > PROGRESS_NS && std::io::stderr().is_terminal() {
            self.times[1] = now;
            let about = self.received.iter().sum::<u64>() * u64::from(self.setup.objects);
            let percent = 100.0 * about as f64 / self.setup.messages as f64;
            eprintln!("about {:.0} million messages, {percent:.0} %", about as f64 * 1e-6);
        }
    }
}

impl Object for Peer {
    type Index = i64;
    type Init = Setup;

    fn new(setup: Setup, _: &mut Context<'_, Self>) -> Self {
        let (counts, now) = (vec![0; setup.objects as usize], Clock::Monotonic.now_ns());
        let (sent, received) = (counts.clone(), counts);
        Self { setup, sent, received, sums: [0; 2], migrations: 0, ended: 0, times: [now; 2] }
    }
}

impl Entry<Start> for Peer {
    fn call(&mut self, _: Start, cx: &mut Context<'_, Self>) {
        let Setup { messages, objects, seed, .. } = self.setup;
        let chains = self.setup.chains();
        for chain in (cx.index() as u64..chains).step_by(objects as usize) {
            let length = messages / chains + u64::from(chain < messages % chains);
            self.send(mix(seed, chain), length - 1, cx);
        }
    }
}

impl Entry<Note> for Peer {
    fn call(&mut self, Note { from, number, rest, random }: Note, cx: &mut Context<'_, Self>) {
        let (own, due) = (cx.index() as u32, &mut self.received[from as usize]);
        assert_eq!(number, *due, "a message of object {from} came to {own} twice, too early or too late");
        *due += 1;
        self.sums[1] = self.sums[1].wrapping_add(checksum(from, own, number));
        if own == 0 && number.is_multiple_of(4096) {
            self.progress();
        }
        if rest == 0 {
            return cx.send(cx.array().at(0), Ended);
        }
        let next = mix(random, rest);
        self.send(next, rest - 1, cx);
        let to = (next >> 40) as u32 % cx.pes();
        if next % u64::from(self.setup.migrate.max(1)) == 1 && to != cx.pe() {
            self.migrations += 1;
            cx.migrate_to(to);
        }
    }
}

impl Entry<Ended> for Peer {
    fn call(&mut self, _: Ended, cx: &mut Context<'_, Self>) {
        self.ended += 1;
        if self.ended == self.setup.chains() {
            cx.broadcast(cx.array(), Report);
        }
    }
}

impl Entry<Report> for Peer {
    fn call(&mut self, _: Report, cx: &mut Context<'_, Self>) {
        let [sent, received] = [&self.sent, &self.received].map(|counts| counts.iter().sum());
        let values = [sent, received, self.migrations, self.sums[0], self.sums[1]];
        let to = cx.reply_to(cx.array().at(0));
        cx.contribute(values.map(u64::cast_signed), Op::Sum, to);
    }
}

impl Entry<Reduced> for Peer {
    fn call(&mut self, result: Reduced, cx: &mut Context<'_, Self>) {
        let &[sent, received, migrations, sent_sum, received_sum] = result.i64s() else { return cx.exit(1) };
        if (sent, sent_sum) != (received, received_sum) || sent as u64 != self.setup.messages {
            eprintln!(
                "error: {sent} sent, checksum {sent_sum:x}; {received} received, checksum {received_sum:x}"
            );
            return cx.exit(1);
        }
        println!("{sent} messages, each once and in order, checksum {sent_sum:016x}");
        let ns = Clock::Monotonic.now_ns() - self.times[0];
        eprintln!("{migrations} migrations, {:.3} s, {} ns a message", ns as f64 * 1e-9, ns / sent);
        cx.exit(0);
    }
}

fn main() -> ExitCode {
    let (setup, options) = arguments(USAGE, |a| {
        let setup = Setup {
            messages: a.number("messages", 1_000_000, 1..=1_000_000_000_000)?,
            objects: a.number("objects", 64, 1..=4096)?,
            window: a.number("window", 16, 1..=65_536)?,
            migrate: a.number("migrate", 1000, 0..=1_000_000_000)?,
            seed: a.number("seed", 1, 0..=u64::MAX)?,
        };
        Ok((setup, a.run_options("none")?))
    });
    let program = Program::new().class::<Peer>(|c| {
        c.entry::<Start>().entry::<Note>().entry::<Ended>().entry::<Report>().entry::<Reduced>()
    });
    colony_runtime::main(program, &options, move |cx: &mut Context<'_, Main>| {
        let peers = cx.create_array::<Peer>(&[setup.objects], setup);
        cx.broadcast(peers, Start);
    })
}
