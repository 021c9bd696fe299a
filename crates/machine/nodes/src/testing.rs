// SPDX-License-Identifier: MIT OR Apache-2.0
//! For tests: kernels that hang.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;

use crate::{Node, look};

/// Writes an endless loop over the first instruction of a function of a node's kernel, by the debugger's door of its emulator.
///
/// # Errors
/// If there is no such function or no monitor, or the emulator refuses.
pub fn hang_in(node: &Node, function: &str) -> io::Result<()> {
    let at = look::address(function).ok_or(io::ErrorKind::NotFound)?;
    // the emulator may run as another user
    let folder = std::env::temp_dir().join(format!("colony-debug-{}", node.pid()));
    fs::create_dir(&folder)?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
    let path = folder.join("socket");
    let command = format!("gdbserver unix:{},server=on,wait=off", path.display());
    let told = node.life().tell(command).ok_or(io::ErrorKind::Unsupported)?;
    let connected = told.and_then(|_| UnixStream::connect(&path));
    fs::remove_dir_all(folder)?;
    let mut debugger = connected?;
    // GDB's remote protocol: the node stops while a debugger is there; write two bytes; go on
    for packet in [format!("M{at:x},2:ebfe"), "D".to_owned()] {
        let sum = packet.bytes().fold(0u8, u8::wrapping_add);
        debugger.write_all(format!("${packet}#{sum:02x}").as_bytes())?;
        let mut answer = [0; 64];
        while !String::from_utf8_lossy(&answer).contains("$OK#") {
            let count = debugger.read(&mut answer)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        debugger.write_all(b"+")?;
    }
    Ok(())
}
