// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tokens: the proof of a user on the network. A user gets a token at the local socket, where the kernel names the user.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;

use subtle::ConstantTimeEq as _;
use tokio_rustls::rustls::crypto::ring;

use super::control::lock;
use crate::ControlError;

/// Bytes of a token: 256 bits.
const BYTES: usize = 32;

/// The tokens of all users, one file a user, which only the daemon's user can read.
#[derive(Debug)]
pub(super) struct Tokens {
    folder: PathBuf,
    known: Mutex<BTreeMap<u32, [u8; BYTES]>>,
}

impl Tokens {
    /// The tokens of a machine's folder. A file that is no token counts as none.
    pub(super) fn open(folder: PathBuf) -> Self {
        let mut known = BTreeMap::new();
        for file in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let uid = file.file_name().to_str().and_then(|name| name.parse().ok());
            let token = std::fs::read_to_string(file.path()).ok().and_then(|text| parse(text.trim_end()));
            known.extend(uid.zip(token));
        }
        Self { folder, known: Mutex::new(known) }
    }

    /// The token of a user, which is made if there is none, or if a new one is asked for.
    pub(super) fn give(&self, uid: u32, renew: bool) -> Result<String, ControlError> {
        let mut known = lock(&self.known);
        if let (Some(token), false) = (known.get(&uid), renew) {
            return Ok(text(token));
        }
        let mut token = [0; BYTES];
        let random = ring::default_provider().secure_random;
        random
            .fill(&mut token)
            .map_err(|_| ControlError::Fault("no random numbers for a token".to_owned()))?;
        let path = self.folder.join(uid.to_string());
        let written = std::fs::create_dir_all(&self.folder)
            .and_then(|()| colony_node::file::replace(&path, text(&token).as_bytes()));
        written.map_err(ControlError::io(path.display().to_string()))?;
        known.insert(uid, token);
        Ok(text(&token))
    }

    /// The user of a token. The time that this takes depends on the number of users only.
    pub(super) fn user(&self, text: &str) -> Option<u32> {
        let given = parse(text)?;
        let mut found = None;
        for (uid, token) in lock(&self.known).iter() {
            if bool::from(token.ct_eq(&given)) {
                found = Some(*uid);
            }
        }
        found
    }

    /// Takes the token of a user back.
    pub(super) fn revoke(&self, uid: u32) -> Result<(), ControlError> {
        let mut known = lock(&self.known);
        let path = self.folder.join(uid.to_string());
        there(std::fs::remove_file(&path)).map_err(ControlError::io(path.display().to_string()))?;
        known.remove(&uid);
        Ok(())
    }

    /// Takes all tokens back.
    pub(super) fn revoke_all(&self) -> Result<(), ControlError> {
        let mut known = lock(&self.known);
        let removed = there(std::fs::remove_dir_all(&self.folder));
        removed.map_err(ControlError::io(self.folder.display().to_string()))?;
        known.clear();
        Ok(())
    }
}

/// Removing what is not there succeeds.
fn there(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn text(token: &[u8; BYTES]) -> String {
    token.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse(text: &str) -> Option<[u8; BYTES]> {
    let mut token = [0; BYTES];
    if text.len() != 2 * BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, at) in token.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    Some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_its_users_until_it_is_taken_back_and_outlives_the_daemon() {
        let folder = tempfile::tempdir().expect("a folder");
        let tokens = Tokens::open(folder.path().join("tokens"));
        let (eve, bob) = (tokens.give(7, false).expect("made"), tokens.give(8, false).expect("made"));
        assert!(eve != bob && eve.len() == 64);
        assert_eq!(tokens.give(7, false).expect("known"), eve);
        let again = Tokens::open(folder.path().join("tokens"));
        assert_eq!((again.user(&eve), again.user(&bob)), (Some(7), Some(8)));
        let newer = again.give(7, true).expect("made");
        assert_eq!((again.user(&eve), again.user(&newer)), (None, Some(7)));
        again.revoke(8).expect("removed");
        again.revoke(8).expect("there is none");
        assert_eq!(again.user(&bob), None);
        again.revoke_all().expect("removed");
        assert_eq!(Tokens::open(folder.path().join("tokens")).user(&newer), None);
    }

    #[test]
    fn what_is_no_token_is_nobodys() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("5"), "").expect("written");
        std::fs::write(folder.path().join("eve"), "0".repeat(64)).expect("written");
        let tokens = Tokens::open(folder.path().to_owned());
        let token = tokens.give(7, false).expect("made");
        let long = format!("{token}0");
        for text in ["", "0", &token[1..], &long, &"0".repeat(64), &"é".repeat(32), &"+f".repeat(32)] {
            assert_eq!(tokens.user(text), None, "{text}");
        }
    }
}
