// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes local calls with extreme arguments: the kernel of a compute node must survive every one of them.
//!
//! ```text
//! colony-extremes NAME SEED     one call: every extreme value in every pair of arguments, then random ones
//! colony-extremes any SEED      all calls in random order: what one leaves, the next one meets
//! ```
//!
//! It runs on a compute node only: on Linux it would signal the processes of the user. Whatever the calls do to the
//! program itself (its heap may be cleared, a thread may begin anywhere), the program ends by itself or by a signal.
//! From the first call on it uses nothing but its stack and static memory.

use std::arch::asm;
use std::cell::UnsafeCell;
use std::fmt::Write as _;
use std::process::ExitCode;

use colony_fship::Class;
use colony_fship::calls::{CALLS, number as n};

/// Random calls that follow the pairs, and calls in random order.
const RANDOM: u64 = 20_000;
/// So many calls are made between two restorations of what the program itself needs.
const BETWEEN: u64 = 64;
/// Calls that end the program: their arguments are tried by the tests of jobs.
const ENDS: [u32; 3] = [n::exit, n::exit_group, n::rt_sigreturn];
/// Calls that may wait until a signal comes.
const WAITS: [u32; 6] =
    [n::pause, n::nanosleep, n::clock_nanosleep, n::rt_sigtimedwait, n::rt_sigsuspend, n::futex];

const SIGALRM: u64 = libc::SIGALRM as u64;
const ALARM_BIT: u64 = 1 << (SIGALRM - 1);

/// Memory that the arguments point to: each four words fill a row. Two are a `timespec`, four an `itimerval`.
const FILLS: [[u64; 4]; 12] = [
    [0; 4],
    [1 << 63; 4],
    [1; 4],
    [1000; 4],
    [MAX; 4],
    [u64::MAX; 4],
    [(1 << 31) - 1; 4],
    [0x7fff_ffff_7fff_ffff; 4],
    [MAX, 0, MAX, 0],
    [MAX, 999_999, 0, 1],
    [0, 1, MAX, 999_999],
    [0, MAX, 1, 0],
];
const MAX: u64 = i64::MAX as u64;
const WORDS: usize = 64;

#[repr(align(4096))]
struct Scratch(UnsafeCell<[[u64; WORDS]; FILLS.len()]>);
// SAFETY: only the kernel and the one thread of this program reach it, both by its address.
unsafe impl Sync for Scratch {}
static SCRATCH: Scratch = Scratch(UnsafeCell::new([[0; WORDS]; FILLS.len()]));

fn row(fill: usize) -> u64 {
    SCRATCH.0.get() as u64 + (fill * WORDS * 8) as u64
}

/// Does a call. A thread that it begins ends at once, without a stack.
fn call(number: u32, args: [u64; 6]) -> i64 {
    let result;
    // SAFETY: what the kernel does to this program's memory is the purpose; nothing here relies on the heap.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 3f",
            "cmp r12d, {clone}",
            "je 2f",
            "cmp r12d, {clone3}",
            "jne 3f",
            "2: mov eax, {exit}",
            "xor edi, edi",
            "syscall",
            "ud2",
            "3:",
            clone = const n::clone,
            clone3 = const n::clone3,
            exit = const n::exit,
            inlateout("rax") u64::from(number) => result,
            in("r12") u64::from(number),
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
        );
    }
    result
}

/// A `rt_sigreturn` whose frame is at `frame`: what follows is what the frame says.
fn return_to(frame: u64) -> ! {
    // SAFETY: the program goes on wherever the frame says, or is ended by the kernel.
    unsafe {
        asm!("mov rsp, {}", "syscall", "ud2", in(reg) frame, in("rax") u64::from(n::rt_sigreturn), options(noreturn))
    }
}

extern "C" fn on_alarm(_: i32) {}

/// State that the program needs for itself, to be restored after each call.
struct Own {
    fs_base: u64,
    action: [u64; 4],
}

impl Own {
    fn new() -> Self {
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(libc::SIGALRM, on_alarm as *const () as usize) };
        let mut own = Self { fs_base: 0, action: [0; 4] };
        call(n::arch_prctl, [0x1003, &raw mut own.fs_base as u64, 0, 0, 0, 0]);
        call(n::rt_sigaction, [SIGALRM, 0, &raw mut own.action as u64, 8, 0, 0]);
        own.action[1] &= !(libc::SA_RESTART as u64);
        own
    }

    /// The words as they were; no signal but the alarm's comes, and that every millisecond.
    fn restore(&self) {
        for (fill, words) in FILLS.iter().enumerate() {
            for (place, word) in words.iter().cycle().take(WORDS).enumerate() {
                // SAFETY: in the row; only this thread is here.
                unsafe { ((row(fill) + place as u64 * 8) as *mut u64).write_volatile(*word) };
            }
        }
        let (mask, every): (u64, [u64; 4]) = (!ALARM_BIT, [0, 1000, 0, 1000]);
        call(n::rt_sigaction, [SIGALRM, &raw const self.action as u64, 0, 8, 0, 0]);
        call(n::rt_sigprocmask, [2, &raw const mask as u64, 0, 8, 0, 0]);
        call(n::setitimer, [0, &raw const every as u64, 0, 0, 0, 0]);
        call(n::arch_prctl, [0x1002, self.fs_base, 0, 0, 0, 0]);
    }
}

/// Extreme values of an argument.
const VALUES: usize = 49;

fn values(memory: u64) -> [u64; VALUES] {
    let mut all = [0; VALUES];
    let code = on_alarm as *const () as u64;
    let numbers = [
        0,
        1,
        2,
        3,
        4,
        8,
        14,
        15,
        16,
        63,
        64,
        128,
        129,
        0x1003,
        4095,
        4096,
        1 << 16 | 0x900 | 0x1f0_0000, // what begins a thread
        (1 << 31) - 1,
        1 << 31,
        u64::from(u32::MAX),
        1 << 32,
        (2 << 20) - 1,
        2 << 20,
        memory - 8,
        memory - 1,
        memory,
        memory - (8 << 20),
        1 << 46,
        0x7000_0000_0000,
        (1 << 47) - 1,
        1 << 47,
        i64::MAX as u64,
        1 << 63,
        u64::MAX - 4096,
        u64::MAX - 1,
        u64::MAX,
        code,
    ];
    let rows = (0..FILLS.len()).map(row);
    for (place, value) in all.iter_mut().zip(numbers.into_iter().chain(rows)) {
        *place = value;
    }
    all
}

/// Returns `true` if the program survives the call: nothing kills it, and no wait is without an end.
fn survivable(number: u32, args: &[u64; 6]) -> bool {
    match number {
        n::kill | n::tkill => args[1] as u32 != 9,
        n::tgkill => args[2] as u32 != 9,
        // with the alarm blocked it would wait for ever
        n::rt_sigsuspend => {
            let known = [0, 1].iter().any(|&fill| args[0] == row(fill));
            known || args[0] < 2 << 20 || args[0] >= 1 << 46
        }
        _ => !ENDS.contains(&number),
    }
}

/// Random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn of(&mut self, values: &[u64; VALUES]) -> u64 {
        // a value now and then that nobody has thought of
        match self.next() >> 32 {
            luck if luck.is_multiple_of(16) => self.next() >> (luck >> 8 & 63),
            luck => values[luck as usize % VALUES],
        }
    }
}

/// Makes calls and counts them.
struct Run {
    own: Own,
    made: u64,
}

impl Run {
    fn call(&mut self, number: u32, args: [u64; 6]) {
        if !survivable(number, &args) {
            return;
        }
        if self.made.is_multiple_of(BETWEEN) || WAITS.contains(&number) {
            self.own.restore();
        }
        if [n::clone, n::clone3].contains(&number) {
            without_signals(number, args)
        } else {
            call(number, args)
        };
        self.made += 1;
    }
}

/// A call during which no signal arrives. A new thread, whose stack is one of the extreme addresses, inherits that: an alarm
/// would end the program before the thread ends itself, because the kernel cannot write the handler's frame.
fn without_signals(number: u32, args: [u64; 6]) -> i64 {
    const SET: u64 = libc::SIG_SETMASK as u64;
    let (all, mut before) = (u64::MAX, 0_u64);
    call(n::rt_sigprocmask, [SET, &raw const all as u64, &raw mut before as u64, 8, 0, 0]);
    let result = call(number, args);
    call(n::rt_sigprocmask, [SET, &raw const before as u64, 0, 8, 0, 0]);
    result
}

fn one(run: &mut Run, number: u32, len: usize, random: &mut Random, values: &[u64; VALUES]) {
    run.call(number, [0; 6]);
    for (first, second) in
        (0..len).flat_map(|a| (0..a).map(move |b| (a, b))).chain((len == 1).then_some((0, 1)))
    {
        for (&a, &b) in values.iter().flat_map(|a| values.iter().map(move |b| (a, b))) {
            let mut args = [0; 6];
            (args[first], args[second]) = (a, b);
            run.call(number, args);
        }
    }
    for _ in 0..if len == 0 { 1 } else { RANDOM } {
        run.call(number, std::array::from_fn(|_| random.of(values)));
    }
}

/// Text without the heap.
struct Line([u8; 64], usize);

impl std::fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for (place, byte) in self.0[self.1..].iter_mut().zip(text.bytes()) {
            *place = byte;
            self.1 += 1;
        }
        Ok(())
    }
}

/// On a node the C library's own `uname` says so.
fn on_node() -> bool {
    // SAFETY: all zeroes is a `utsname`, which the call fills.
    let names = unsafe {
        let mut names: libc::utsname = std::mem::zeroed();
        libc::uname(&raw mut names);
        names
    };
    let version = names.version.iter().take_while(|&&c| c != 0).map(|&c| c as u8);
    version.eq(*b"Colony CNK")
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let seed = args.get(1).and_then(|s| s.parse::<u64>().ok());
    let (Some(name), Some(seed), true) = (args.first(), seed, args.len() == 2) else {
        eprintln!("usage: colony-extremes NAME|any SEED");
        return ExitCode::from(2);
    };
    if !on_node() {
        eprintln!("error: colony-extremes runs on a compute node only: here it would harm other processes");
        return ExitCode::from(2);
    }
    let local = CALLS.iter().filter(|c| c.class == Class::Local);
    let row_of = local.clone().find(|c| c.name == name).map(|c| (u32::from(c.number), c.args.len()));
    let mut info = [0u64; 14];
    call(n::sysinfo, [&raw mut info as u64, 0, 0, 0, 0, 0]);
    let values = values(info[4]);
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut run = Run { own: Own::new(), made: 0 };
    match row_of {
        Some((n::rt_sigreturn, _)) => {
            run.own.restore();
            return_to(random.of(&values));
        }
        Some((number, len)) => one(&mut run, number, len, &mut random, &values),
        None if name == "any" => {
            let count = local.clone().count();
            for _ in 0..RANDOM {
                let row = random.next() as usize % count;
                let Some(row) = local.clone().nth(row) else { continue };
                run.call(row.number.into(), std::array::from_fn(|_| random.of(&values)));
            }
        }
        None => {
            eprintln!("error: {name} is no local call");
            return ExitCode::from(2);
        }
    }
    run.own.restore();
    let mut line = Line([0; 64], 0);
    let _ = writeln!(line, "{} calls", run.made);
    call(n::write, [1, line.0.as_ptr() as u64, line.1 as u64, 0, 0, 0]);
    call(n::exit_group, [0; 6]);
    ExitCode::FAILURE
}
