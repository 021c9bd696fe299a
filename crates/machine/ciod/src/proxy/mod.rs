// SPDX-License-Identifier: MIT OR Apache-2.0
//! The proxy of a node that shares no memory with this machine.
//!
//! It speaks with the node by frames ([`colony_fship::frame`]) and plays it towards the workers of its jobs, over an
//! ordinary window: to a worker, all nodes are the same. It is a process with a user of its own: it touches the
//! window, the bells and one socket, and what a node sends can only change what any node may change.

mod link;
mod network;
mod relay;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, ExitCode};

use colony_node::process_user::ProcessUser;
use nix::unistd::{getegid, geteuid};
use serde::{Deserialize, Serialize};

use crate::control::{self, Identity};
use crate::spec::Files;
use crate::worker::filter;
use crate::worker::identity;
use crate::worker::window::Window;
use crate::{NodeLink, helper};
pub use network::{Network, PROXY_ADDRESS};
use relay::Relay;

/// The first message to the process; window, bells and socket follow.
#[derive(Serialize, Deserialize)]
struct Setup {
    window: u64,
    network: Network,
}

impl control::Message for Setup {}

/// A running proxy; dropping it ends it.
#[derive(Debug)]
pub struct Proxy {
    child: Child,
    /// The process ends when this is closed.
    control: UnixStream,
    socket: Option<OwnedFd>,
}

impl Proxy {
    pub(crate) fn start(
        program: &Path,
        arguments: &[OsString],
        node: &NodeLink,
        network: Network,
    ) -> io::Result<Self> {
        let (near, far) = UnixDatagram::pair()?;
        let mut proxy = Self::start_on(program, arguments, node, network, near.into())?;
        proxy.socket = Some(far.into());
        Ok(proxy)
    }

    /// As [`Proxy::start`], on a socket whose datagrams are the node's frames.
    pub(crate) fn start_on(
        program: &Path,
        arguments: &[OsString],
        node: &NodeLink,
        network: Network,
        near: OwnedFd,
    ) -> io::Result<Self> {
        let (control, child) = helper::start(program, arguments)?;
        let proxy = Self { child, control, socket: None };
        control::send(&proxy.control, &Setup { window: node.window(), network })?;
        control::send_fds(&proxy.control, &[node.memory(), node.bell_to_daemon(), near.as_fd()])?;
        control::send_fds(&proxy.control, &node.bells_to_node())?;
        Ok(proxy)
    }

    /// The node's end of the link, once: a socket whose datagrams are Ethernet frames, for QEMU's
    /// `-netdev dgram,id=n,local.type=fd,local.str=N`.
    pub fn socket(&mut self) -> Option<OwnedFd> {
        self.socket.take()
    }

    /// The way it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.child.try_wait().map_or_else(|e| Some(e.to_string()), |ended| ended.map(|how| how.to_string()))
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.control.shutdown(std::net::Shutdown::Both);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program of a proxy: what [`crate::Config::worker`] names calls this for [`crate::Config::proxy_args`], with the
/// supervisor's socket as its standard input.
pub fn proxy_main() -> ExitCode {
    // whoever started it sees that it is gone
    match prepare().and_then(|mut relay| relay.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Hears of the node, becomes a user of its own, and only then maps the window.
fn prepare() -> io::Result<Relay> {
    helper::ignore(&[libc::SIGPIPE, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTSTP]);
    let control = helper::socket()?;
    let setup: Setup = control::receive(&control)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let [memory, bell, socket] = control::receive_fds(&control)?;
    let bells = control::receive_fds(&control)?;
    let root = geteuid().is_root();
    let (uid, gid) = match root {
        true => [ProcessUser::here().of(std::process::id()); 2].into(),
        false => (geteuid().as_raw(), getegid().as_raw()),
    };
    identity::take(&Identity { uid, gid, groups: Vec::new(), take: root }, &Files::Host)
        .map_err(io::Error::other)?;
    filter::enter()?;
    let window = Window::map(&memory, setup.window)?;
    Ok(Relay::new(control, window, memory.into(), bell, bells, link::Link::new(socket, setup.network)))
}
