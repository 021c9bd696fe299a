// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first program of a guest: mounts what programs expect, loads modules, sets up the network, runs the
//! job, sends what it wrote, and waits to be switched off.

mod network;
mod prepare;
mod run;

use std::fs::File;
use std::sync::Mutex;

use colony_init::wire::Frame;
use nix::sys::reboot::{RebootMode, reboot};

/// A step of the guest that failed.
type Failed = String;

/// The port to the host, shared by the threads that forward a program's output.
struct Port(Mutex<File>);

impl Port {
    fn send(&self, frame: &Frame) -> Result<(), Failed> {
        let mut port = self.0.lock().map_err(|_| "a thread that writes to the host has died")?;
        frame.write(&mut *port).map_err(|e| format!("writing to the host: {e}"))
    }
}

fn main() {
    if std::process::id() != 1 {
        eprintln!("error: colony-init is the first program of a virtual machine; `colony vm run` starts one");
        std::process::exit(2);
    }
    if let Err(reason) = guest() {
        // without the port, the console is all there is
        eprintln!("colony-init: {reason}");
    }
    let Err(e) = reboot(RebootMode::RB_POWER_OFF);
    eprintln!("colony-init: switching off: {e}");
}

fn guest() -> Result<(), Failed> {
    prepare::mounts()?;
    let _console = prepare::console();
    let port = Port(Mutex::new(prepare::port()?));
    match prepare::job().and_then(|job| {
        prepare::surroundings(&job)?;
        run::run(&job, &port)
    }) {
        Ok(finished) => port.send(&Frame::Finished(finished))?,
        Err(reason) => port.send(&Frame::Trouble(reason))?,
    }
    prepare::wait_for_host(&port)
}
