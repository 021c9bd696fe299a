// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any requests and any memory against the code that makes calls, in a sandbox: nothing reaches the system but what
//! makes descriptors of this process, and every place that would be handed to it is checked.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use colony_fship::Request;
use colony_fship::calls::{CALLS, Class, number as nr};
use colony_fship::layout::LARGE_PAGE;

use crate::worker::calls::{Step, World};
use crate::worker::host::Host;
use crate::worker::output::Output;
use crate::worker::process::{Descriptor, Kind, Process};
use crate::worker::waits::Progress;
use crate::worker::window::Window;

const SIZE: u64 = 16 << 20;
/// First address of the input's memory.
const AT: u64 = LARGE_PAGE + 4096 - 64;

/// Bytes as numbers, in the ways that find corners.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn number(&mut self) -> Option<u64> {
        let kind = self.byte()?;
        let small = u64::from(self.byte()?);
        Some(match kind % 8 {
            0 | 1 => small,
            2 => AT + small * 8,
            3 => SIZE - small,
            4 => LARGE_PAGE - 128 + small,
            5 => (small as i8) as u64,
            6 => 1 << (small % 64),
            _ => {
                let mut bytes = [0; 8];
                for b in &mut bytes {
                    *b = self.byte().unwrap_or(0);
                }
                u64::from_le_bytes(bytes)
            }
        })
    }
}

fn null() -> OwnedFd {
    std::fs::File::options().read(true).write(true).open("/dev/null").expect("/dev/null").into()
}

/// Decides over a call: what it would be answered, or that it may be made.
fn sandbox(base: u64) -> impl FnMut(i64, &[u64; 6]) -> Option<i64> {
    let mut count = 0u64;
    move |number, args| {
        let inside = |place: u64| (base..base + SIZE).contains(&place);
        for &arg in args {
            assert!(!inside(arg) || arg - base >= LARGE_PAGE, "call {number}: a place in the control area");
        }
        if matches!(number, libc::SYS_readv | libc::SYS_writev | libc::SYS_preadv2 | libc::SYS_pwritev2) {
            for n in 0..args[2] {
                // SAFETY: the code under test says that so many are there
                let part = unsafe { *(args[1] as *const libc::iovec).add(n as usize) };
                let (first, length) = (part.iov_base as u64, part.iov_len as u64);
                assert!(inside(first) && first - base >= LARGE_PAGE && first - base + length <= SIZE);
            }
        }
        count = count.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match number {
            // these make descriptors of this process only
            libc::SYS_pipe2 | libc::SYS_epoll_create1 | libc::SYS_eventfd2 => None,
            libc::SYS_openat2 | libc::SYS_socket | libc::SYS_memfd_create => {
                use std::os::fd::IntoRawFd as _;
                Some(i64::from(null().into_raw_fd()))
            }
            libc::SYS_socketpair => Some(-95),
            _ => Some([0, 1, 4, -11, -22, -115, -32, 0][(count >> 32) as usize % 8]),
        }
    }
}

/// Makes calls of any kind with any arguments and memory. `bytes`: the length of the memory, the memory, the calls.
///
/// # Panics
/// If a place outside of the process's memory would be handed to the system.
pub fn fuzz_calls(bytes: &[u8]) {
    let mut input = Input(bytes);
    thread_local! {
        static WINDOW: Window = Window::anonymous(SIZE).expect("memory");
    }
    let bank = WINDOW.with(|w| w.bank(0, 1));
    bank.clear().expect("clean");
    let length = input.byte().map_or(0, usize::from).min(input.0.len());
    let (memory, rest) = input.0.split_at(length);
    bank.write(AT, memory).expect("inside");
    input.0 = rest;
    let base = bank.pointer(LARGE_PAGE, 0).expect("inside") as u64 - LARGE_PAGE;
    let outputs = [Output::new(null(), None), Output::new(null(), None)];
    let mut world = World::new(
        Host::Sandbox(Box::new(sandbox(base))),
        outputs,
        None,
        length % 2 == 0,
        (1, 1),
        length as u64,
    );
    let mut process = Process::new(0, bank, Rc::new(null()));
    for n in 0..3 {
        let kind = if n == 0 { Kind::Stream } else { Kind::Output(n - 1) };
        process.files.put(n, Descriptor::new(null(), kind, false, false));
    }
    let mut waiting: BTreeMap<u32, (Request, Progress)> = BTreeMap::new();
    let shipped: Vec<_> =
        CALLS.iter().filter(|c| c.class == Class::Shipped && u32::from(c.number) != nr::execve).collect();
    for seq in 0..64 {
        let Some(choice) = input.byte() else { break };
        let mut request = Request {
            seq,
            call: shipped[usize::from(choice) % shipped.len()].number.into(),
            ..Request::default()
        };
        for arg in &mut request.args {
            *arg = input.number().unwrap_or(0);
        }
        let mut again = waiting.pop_first().map(|(_, w)| w).into_iter().collect::<Vec<_>>();
        again.push((request, Progress::default()));
        for (request, mut progress) in again {
            match world.call(&mut process, &request, &mut progress) {
                Ok(Step::Done(result)) => assert!(result > -4096, "an error of Linux"),
                Ok(Step::Wait(_)) => {
                    progress.again = true;
                    waiting.insert(request.seq, (request, progress));
                }
                Ok(Step::Exec(_)) | Err(_) => {}
            }
        }
    }
}
