//! A booted node.

use std::fs::File;
use std::io::{Read, Write as _};
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use colony_ciod::{Ciod, NodeLink, Proxy};
use colony_vm::qemu::memory_file;

use crate::emulator::{self, Parts};
use crate::{CnkError, KERNEL, Link, Machine};

/// Bytes of a console that are kept: its end.
const CONSOLE: usize = 64 << 10;

/// A virtual machine that runs the compute node kernel. Dropping it switches it off.
#[derive(Debug)]
pub struct Node {
    link: NodeLink,
    /// Speaks with it by frames, where they share no memory.
    _proxy: Option<Proxy>,
    child: Child,
    console: Arc<Mutex<Vec<u8>>>,
    started: Instant,
}

impl Node {
    /// Boots a node of a machine that was checked, with this kernel ([`kernel`]), this link to this I/O daemon, and this memory shared with others.
    ///
    /// # Errors
    /// If the emulator cannot be started.
    pub(crate) fn boot(
        machine: &Machine,
        kernel: &File,
        ciod: &Ciod,
        link: NodeLink,
        torus: Option<(&File, u64)>,
    ) -> Result<Self, CnkError> {
        let own = |file: &File| file.try_clone().map_err(CnkError::io("the files of a node"));
        let (proxy, socket) = connect(machine, ciod, &link).map_err(CnkError::io("the link of a node"))?;
        let kernel = own(kernel)?;
        let torus = torus.map(|(file, bytes)| Ok::<_, CnkError>((own(file)?, bytes))).transpose()?;
        let started = Instant::now();
        let mut child = emulator::start(machine, Parts { kernel, link: socket, torus })?;
        let console = Arc::new(Mutex::new(Vec::new()));
        if let Some(out) = child.stdout.take() {
            keep(out, console.clone());
        }
        if let Some(err) = child.stderr.take() {
            keep(err, console.clone());
        }
        Ok(Self { link, _proxy: proxy, child, console, started })
    }

    /// Its link to the I/O daemon.
    pub fn link(&self) -> &NodeLink {
        &self.link
    }

    /// What its kernel and its emulator have said, the last of it.
    pub fn console(&self) -> String {
        let console = self.console.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&console).into_owned()
    }

    /// How long ago its emulator was started.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Process id of its emulator.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Says why, if the emulator has ended.
    ///
    /// # Errors
    /// That it has.
    pub fn check(&mut self) -> Result<(), CnkError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            ended => {
                // its last words may be on their way
                std::thread::sleep(Duration::from_millis(20));
                let how =
                    ended.map_or_else(|e| e.to_string(), |s| s.map_or_else(String::new, |s| s.to_string()));
                let said = format!("{} ({how})", self.console().trim());
                Err(CnkError::Died { node: self.link.number(), said })
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The node's end of its link, and what is at the other end if that is not the daemon itself.
fn connect(machine: &Machine, ciod: &Ciod, link: &NodeLink) -> std::io::Result<(Option<Proxy>, OwnedFd)> {
    match machine.link {
        Link::Window => Ok((None, link.connect()?)),
        Link::Network(network) => {
            let mut proxy = ciod.proxy(link, network)?;
            let socket = proxy.socket().ok_or(std::io::ErrorKind::NotConnected)?;
            Ok((Some(proxy), socket))
        }
    }
}

/// The kernel, as a file in memory that any number of nodes boot from.
pub(crate) fn kernel() -> Result<File, CnkError> {
    let mut file = memory_file("colony-cnk")?;
    file.write_all(KERNEL).map_err(CnkError::io("the kernel's file"))?;
    Ok(file)
}

/// Keeps the end of what comes; ends with its source.
fn keep(mut from: impl Read + Send + 'static, console: Arc<Mutex<Vec<u8>>>) {
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(n @ 1..) = from.read(&mut bytes) {
            let mut all = console.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend_from_slice(&bytes[..n]);
            let surplus = all.len().saturating_sub(CONSOLE);
            all.drain(..surplus);
        }
    });
}
