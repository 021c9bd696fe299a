// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signs of life of a node, as far as they are seen from outside.

use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use colony_ciod::{NodeLink, Proxy};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::boot::Emulator;
use crate::death::{Cause, Death};
use crate::hang::{Hang, Watch};

/// Bytes of a console that are kept: its end.
const CONSOLE: usize = 64 << 10;
/// The beginning of a kernel's panic message.
const PANIC: &str = "cnk: panicked at ";
/// The end of an emulator in which nothing went wrong. The kernel never switches its machine off, so this is the end
/// by `-no-reboot` after a reset, or by a signal that the emulator handles and tells.
const SUCCESS: &str = "exit status 0";
/// The message of an emulator that ends by a signal it handles.
const TERMINATED: &str = "terminating on signal";
/// Time that last words may be on their way.
const LAST_WORDS: Duration = Duration::from_millis(20);

/// The signs of life of a node. Clones are of the same node.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    link: NodeLink,
    emulator: Emulator,
    proxy: Option<Pid>,
    console: Arc<Mutex<Console>>,
    watch: Option<Arc<Mutex<Watch>>>,
}

#[derive(Debug, Default)]
struct Console {
    kept: Vec<u8>,
    panicked: bool,
}

impl Life {
    /// Of a node whose emulator was just started, with its console and the watch over its kernel.
    pub(crate) fn new(
        link: NodeLink,
        emulator: Emulator,
        console: impl Read + Send + 'static,
        watch: Option<Watch>,
        proxy: Option<&Proxy>,
    ) -> Self {
        let kept = Arc::<Mutex<Console>>::default();
        keep(console, kept.clone());
        let proxy = proxy.map(|p| Pid::from_raw(p.pid().cast_signed()));
        let watch = watch.map(|watch| Arc::new(Mutex::new(watch)));
        Self { link, emulator, proxy, console: kept, watch }
    }

    /// The node's number.
    pub(crate) fn number(&self) -> u32 {
        self.link.number()
    }

    /// The end of the output of its kernel and its emulator.
    pub(crate) fn console(&self) -> String {
        String::from_utf8_lossy(&self.lock().kept).into_owned()
    }

    /// The node's death, if it has died.
    pub(crate) fn death(&self) -> Option<Death> {
        let panic = || self.lock().panicked.then_some(Cause::Panic);
        let mut cause = self
            .emulator
            .ended()
            .or_else(|| self.proxy.and_then(ended).map(Cause::Proxy))
            .or_else(|| self.link.failed().map(|why| Cause::Proxy(why.to_owned())))
            .or_else(panic)
            .or_else(|| self.hang().map(Cause::Hang))?;
        std::thread::sleep(LAST_WORDS);
        let said = self.console();
        if matches!(&cause, Cause::Emulator(how) if how == SUCCESS) && !said.contains(TERMINATED) {
            cause = Cause::Reset;
        }
        let said = said.find(PANIC).map_or(said.trim(), |at| said[at..].trim()).to_owned();
        Some(Death { node: self.number(), cause, said })
    }

    /// Gives the monitor of its emulator a command, and says its answer; `None` without a monitor.
    pub(crate) fn tell(&self, command: String) -> Option<std::io::Result<String>> {
        let watch = self.watch.as_ref()?;
        Some(watch.lock().unwrap_or_else(PoisonError::into_inner).tell(command))
    }

    /// The way its kernel hangs, if it does. While it starts, it may halt as it likes.
    fn hang(&self) -> Option<Hang> {
        let watch = self.watch.as_ref().filter(|_| self.link.has_asked())?;
        watch.lock().unwrap_or_else(PoisonError::into_inner).look()
    }

    fn lock(&self) -> MutexGuard<'_, Console> {
        self.console.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a child of this process, if it has ended; the child is not reaped.
fn ended(child: Pid) -> Option<String> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match waitid(Id::Pid(child), flags) {
        Ok(WaitStatus::StillAlive) => None,
        Ok(WaitStatus::Exited(_, code)) => Some(format!("exit status {code}")),
        Ok(WaitStatus::Signaled(_, signal, _)) => Some(format!("signal {signal}")),
        Ok(other) => Some(format!("{other:?}")),
        Err(_) => Some("it was switched off".into()),
    }
}

/// Keeps the end of what comes; ends with its source.
fn keep(mut from: impl Read + Send + 'static, console: Arc<Mutex<Console>>) {
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(n @ 1..) = from.read(&mut bytes) {
            console.lock().unwrap_or_else(PoisonError::into_inner).add(&bytes[..n]);
        }
    });
}

impl Console {
    fn add(&mut self, bytes: &[u8]) {
        // the words may have come in two parts
        let seen = self.kept.len().saturating_sub(PANIC.len() - 1);
        self.kept.extend_from_slice(bytes);
        self.panicked |= self.kept[seen..].windows(PANIC.len()).any(|w| w == PANIC.as_bytes());
        let surplus = self.kept.len().saturating_sub(CONSOLE);
        self.kept.drain(..surplus);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::unix::net::UnixDatagram;

    use colony_ciod::{Ciod, Config, Network};
    use colony_vm::qemu::memory_file;
    use nix::sys::signal::{Signal, kill};

    use crate::boot::Booter;
    use crate::emulator::{self, Parts};
    use crate::{Link, Machine};

    use super::*;

    /// A kernel for PVH of these instructions: a 32-bit ELF file with a note and one segment, at 1 MiB.
    pub(crate) fn kernel(code: &[u8]) -> File {
        let (at, entry) = (0x10_0000u32, 0x10_0000 + 52 + 64 + 20);
        let note: Vec<u8> =
            [4, 4, 18, u32::from_le_bytes(*b"Xen\0"), entry].iter().flat_map(|w| w.to_le_bytes()).collect();
        let size = (52 + 64 + note.len() + code.len()) as u32;
        let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0".to_vec();
        for word in [1, entry, 52, 0, 0] {
            file.extend(u32::to_le_bytes(word));
        }
        for half in [52u16, 32, 2, 0, 0, 0] {
            file.extend(half.to_le_bytes());
        }
        // kind, offset, two addresses, two sizes, flags, alignment
        for header in [[1, 0, at, at, size, size, 7, 4096], [4, 116, at + 116, at + 116, 20, 20, 4, 4]] {
            header.iter().for_each(|word: &u32| file.extend(word.to_le_bytes()));
        }
        file.extend(note);
        file.extend(code);
        let mut memory = memory_file("kernel").expect("a file in memory");
        memory.write_all(&file).expect("it has room");
        memory
    }

    /// The death of a node whose kernel is this code.
    fn end_of(code: &[u8], signal: Option<Signal>) -> Death {
        let machine = Machine { cpus: 1, link: Link::Network(Network::default()), ..Machine::default() };
        let (link, _other) = UnixDatagram::pair().expect("a pair of sockets");
        let parts = Parts { kernel: kernel(code), link: link.into(), torus: None };
        let booter = Booter::in_thread();
        let started = emulator::start(&booter, &machine, parts).expect("the emulator is here");
        // any program will do: no worker is started
        let ciod = Ciod::new(Config::new("/bin/true")).expect("a daemon");
        let node = ciod.attach(3, 16 << 20).expect("a link");
        let life = Life::new(node, started.emulator, started.console, started.watch, None);
        if let Some(signal) = signal {
            // after its first word it handles signals
            while life.console().is_empty() {
                assert_eq!(life.emulator.ended(), None, "{}", life.console());
                std::thread::sleep(LAST_WORDS);
            }
            kill(Pid::from_raw(life.emulator.pid().cast_signed()), signal).expect("ours");
        }
        loop {
            match life.death() {
                Some(death) => break death,
                None => std::thread::sleep(LAST_WORDS),
            }
        }
    }

    #[test]
    fn a_triple_fault_is_reported_as_one_and_an_ended_emulator_is_not() {
        if let Some(reason) = colony_vm::testing::missing() {
            return colony_testing::skip(reason);
        }
        // an exception without a table of handlers
        let death = end_of(&[0x0f, 0x0b], None);
        assert_eq!(death.cause, Cause::Reset, "{death}");
        assert_eq!(death.to_string(), "node 3 died: its processor was reset by a triple fault");
        // mov dx, 0x3f8; mov al, 'x'; out dx, al; for ever
        let talks = [0x66, 0xba, 0xf8, 0x03, 0xb0, b'x', 0xee, 0xeb, 0xfe];
        let death = end_of(&talks, Some(Signal::SIGTERM));
        assert_eq!(death.cause, Cause::Emulator(SUCCESS.into()), "{death}");
    }

    #[test]
    fn a_kernel_that_loops_or_halts_for_good_is_seen_while_its_emulator_runs() {
        if let Some(reason) = colony_vm::testing::missing() {
            return colony_testing::skip(reason);
        }
        // for ever; cli, hlt and for ever
        for (code, loops) in [(&[0xeb, 0xfe][..], true), (&[0xfa, 0xf4, 0xeb, 0xfd], false)] {
            let machine = Machine { cpus: 1, link: Link::Network(Network::default()), ..Machine::default() };
            let (link, _other) = UnixDatagram::pair().expect("a pair of sockets");
            let parts = Parts { kernel: kernel(code), link: link.into(), torus: None };
            let booter = Booter::in_thread();
            let started = emulator::start(&booter, &machine, parts).expect("it starts");
            let (emulator, mut watch) = (started.emulator, started.watch.expect("it has a monitor"));
            let hang = loop {
                assert_eq!(emulator.ended(), None);
                match watch.look() {
                    Some(hang) => break hang,
                    None => std::thread::sleep(LAST_WORDS),
                }
            };
            assert_eq!((hang.cpu, hang.looped_ns.is_some()), (0, loops), "{hang}");
            assert!(hang.at.starts_with("0x1000"), "{hang}");
            emulator.kill();
        }
    }

    #[test]
    fn a_panic_is_seen_in_any_parts() {
        let words = format!("cnk: 2 CPUs\n{PANIC}src/job.rs:1:1:\nno\n");
        for part in [1, 5, 4096] {
            let mut console = Console::default();
            assert!(!console.panicked);
            words.as_bytes().chunks(part).for_each(|bytes| console.add(bytes));
            assert!(console.panicked && console.kept == words.as_bytes(), "{part}");
            console.add(&[b'x'; 2 * CONSOLE]);
            assert!(console.panicked && console.kept.len() == CONSOLE);
        }
    }

    #[test]
    fn an_ended_child_is_seen_and_not_reaped() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("cat is there");
        let pid = Pid::from_raw(child.id().cast_signed());
        assert_eq!(ended(pid), None);
        child.kill().expect("ours");
        while ended(pid).is_none() {}
        assert_eq!(ended(pid).as_deref(), Some("signal SIGKILL"));
        assert!(!child.wait().expect("ours").success());
        assert!(ended(pid).is_some());
    }
}
