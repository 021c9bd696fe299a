// SPDX-License-Identifier: MIT OR Apache-2.0
//! A look at the processors of a node from outside, by the monitor of its emulator: in which state each is, and how far the
//! kernel is.

use std::sync::OnceLock;

use colony_fship::layout::CHANNELS;
use object::{Object as _, ObjectSymbol as _};

use crate::KERNEL;

/// The kernel's address of physical address 0 (`linker.ld`).
const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;
/// Counters in the kernel's `Area` of a CPU (`area.rs`): calls done on the node, and pulses.
const COUNTERS_AT: u64 = 8;
/// See [`COUNTERS_AT`].
const COUNTERS: usize = 2;

/// State of a virtual processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It runs a program.
    Program,
    /// It runs the kernel.
    Kernel,
    /// It waits for an interrupt.
    Halted,
    /// It is halted and takes no interrupt: for good, unless another processor starts it.
    Off,
}

/// A virtual processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cpu {
    pub state: State,
    /// Address of its next instruction.
    pub rip: u64,
    /// Its thread in the emulator.
    pub thread: i32,
    /// Counters that change when the kernel does something on it.
    pub progress: Vec<u64>,
}

/// The commands that ask the monitor for the state of all processors of a node; `cpus` is their number.
pub(crate) fn commands(cpus: u32) -> Vec<String> {
    let mut all = vec!["info cpus".to_owned(), "info registers -a".to_owned()];
    if let Some((areas, bytes)) = symbol("AREAS") {
        let first = areas - KERNEL_BASE + COUNTERS_AT;
        let each = (0..u64::from(cpus)).map(|cpu| first + cpu * (bytes / CHANNELS as u64));
        all.extend(each.map(|at| format!("xp /{COUNTERS}gx {at:#x}")));
    }
    all
}

/// The processors by the answers to [`commands`]; `None` if they say something else.
pub(crate) fn parse(answers: &[String]) -> Option<Vec<Cpu>> {
    let [threads, registers, counters @ ..] = answers else { return None };
    let threads = threads.split_whitespace().filter_map(|word| word.strip_prefix("thread_id=")?.parse().ok());
    let registers = registers.split("CPU#").skip(1);
    let cpus: Option<Vec<Cpu>> = threads
        .zip(registers)
        .zip(counters)
        .map(|((thread, registers), counters)| {
            let hex = |name| u64::from_str_radix(field(registers, name)?, 16).ok();
            let is_halted = hex("HLT=")? != 0;
            // RFL and RIP; EFL and EIP of one that has not come to 64 bits
            let takes_interrupts = hex("FL=")? >> 9 & 1 != 0;
            let state = match (is_halted, hex("CPL=")?) {
                (true, _) if takes_interrupts => State::Halted,
                (true, _) => State::Off,
                (false, 0) => State::Kernel,
                (false, _) => State::Program,
            };
            let words = counters.split_whitespace().filter_map(|word| word.strip_prefix("0x"));
            let progress: Option<Vec<u64>> = words.map(|word| u64::from_str_radix(word, 16).ok()).collect();
            let progress = progress.filter(|all| all.len() == COUNTERS)?;
            Some(Cpu { state, rip: hex("IP=")?, thread, progress })
        })
        .collect();
    cpus.filter(|all| !all.is_empty() && all.len() == counters.len())
}

/// The value behind a name and up to the next blank.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text[text.find(name)? + name.len()..].split_whitespace().next()
}

/// Functions and data of the kernel: address, bytes and name of each, by address.
fn symbols() -> &'static [(u64, u64, String)] {
    static ALL: OnceLock<Vec<(u64, u64, String)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let file = object::File::parse(KERNEL).ok();
        let named = |s: object::Symbol<'_, '_>| {
            let name = rustc_demangle::demangle(s.name().ok()?).to_string();
            // without the hash of the compiler
            let name = name.rsplit_once("::h").map_or(name.as_str(), |(path, _)| path).to_owned();
            Some((s.address(), s.size(), name))
        };
        let mut all: Vec<_> = file.iter().flat_map(|file| file.symbols().filter_map(named)).collect();
        all.sort();
        all
    })
}

/// Address and bytes of a function or data of the kernel.
fn symbol(name: &str) -> Option<(u64, u64)> {
    symbols().iter().find(|(_, _, n)| n == name).map(|&(at, bytes, _)| (at, bytes))
}

/// Address of a function of the kernel.
pub(crate) fn address(function: &str) -> Option<u64> {
    symbol(function).map(|(at, _)| at)
}

/// An address in the kernel, with the function that it is in.
pub(crate) fn place(at: u64) -> String {
    let all = symbols();
    let inside = |(first, bytes, name): &(u64, u64, String)| (at - first < *bytes).then(|| name.clone());
    let named =
        all.partition_point(|(first, _, _)| *first <= at).checked_sub(1).and_then(|n| inside(&all[n]));
    named.map_or_else(|| format!("{at:#x}"), |name| format!("{at:#x}, in {name}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As QEMU 7.2 says it, without the lines that do not matter here.
    pub(crate) fn said(cpus: &[(u64, u64, u64, [u64; 2])]) -> Vec<String> {
        let (mut threads, mut registers, mut counters) = (String::new(), String::new(), Vec::new());
        for (n, (rflags, cpl, hlt, progress)) in cpus.iter().enumerate() {
            threads += &format!("* CPU #{n}: thread_id={}\r\n", 100 + n);
            registers += &format!(
                "\r\nCPU#{n}\r\nRAX=0000000000000000 RBX=00000000e0100000\r\n\
                 RIP=ffffffff80200e4a RFL={rflags:08x} [--S--P-] CPL={cpl} II=0 A20=1 SMM=0 HLT={hlt}\r\n\
                 ES =0000 0000000000000000 00000000 00000000\r\n"
            );
            counters.push(format!("0000000000503048: {:#018x} {:#018x}\r\n", progress[0], progress[1]));
        }
        [threads, registers].into_iter().chain(counters).collect()
    }

    #[test]
    fn states_are_read_as_the_emulator_says_them() {
        let said =
            said(&[(0x246, 3, 0, [1, 2]), (0x86, 0, 1, [3, 4]), (0x286, 0, 1, [0, 0]), (2, 0, 0, [5, 6])]);
        let cpus = parse(&said).expect("well-formed");
        let states: Vec<State> = cpus.iter().map(|c| c.state).collect();
        assert_eq!(states, [State::Program, State::Off, State::Halted, State::Kernel]);
        assert_eq!((cpus[1].thread, &cpus[3].progress), (101, &vec![5, 6]));
        assert_eq!(cpus[0].rip, 0xffff_ffff_8020_0e4a);
    }

    #[test]
    fn a_processor_that_was_never_started_is_off() {
        let mut said = said(&[(0x246, 3, 0, [1, 2])]);
        said[1] = said[1].replace("RIP=ffffffff80200e4a RFL=00000246", "EIP=0000fff0 EFL=00000002");
        said[1] = said[1].replace("CPL=3", "CPL=0").replace("HLT=0", "HLT=1");
        let cpus = parse(&said).expect("well-formed");
        assert_eq!((cpus[0].state, cpus[0].rip), (State::Off, 0xfff0));
    }

    #[test]
    fn answers_that_say_something_else_are_none() {
        let good = said(&[(0x246, 3, 0, [1, 2])]);
        for (at, wrong) in
            [(0, ""), (1, ""), (1, "CPU#0"), (2, ""), (2, "Cannot access memory"), (2, "0x1 0x2 0x3")]
        {
            let mut said = good.clone();
            said[at] = wrong.into();
            assert_eq!(parse(&said), None, "{at} {wrong}");
        }
        assert_eq!(parse(&good[..2]), None);
        assert_eq!(parse(&[]), None);
    }

    proptest! {
        #[test]
        fn no_answer_of_an_emulator_is_fatal(
            any in prop::collection::vec(".*", 0..6),
            at in 0..3usize,
            cut in 0..400usize,
            with in ".{0,12}",
        ) {
            let _ = parse(&any);
            let mut said = said(&[(0x246, 3, 0, [1, 2])]);
            let cut = cut.min(said[at].len());
            said[at].replace_range(cut.., &with);
            let _ = parse(&said);
        }

        #[test]
        fn every_address_has_a_place(at: u64) {
            prop_assert!(place(at).starts_with("0x"));
        }
    }

    #[test]
    fn the_kernel_has_the_counters_and_its_functions_have_names() {
        assert_eq!(commands(2).len(), 4);
        let at = address("syscall_dispatch").expect("a function of the kernel");
        assert_eq!(place(at + 1), format!("{:#x}, in syscall_dispatch", at + 1));
        assert_eq!(place(0x1234), "0x1234");
        assert!(symbols().iter().any(|(_, _, name)| name == "cnk::job::prepare"), "{:?}", symbols());
    }
}
