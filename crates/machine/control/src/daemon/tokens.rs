// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tokens: the proof of a user on the network. A user gets a token at the local socket, where the kernel names the user.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;

use colony_control_api::digits;
use subtle::ConstantTimeEq as _;
use tokio_rustls::rustls::crypto::ring;

use super::control::lock;
use crate::ControlError;

/// Bytes of a token: 256 bits.
const BYTES: usize = 32;

/// What follows the number of the user in the name of the file of a token that may only look.
const READ_ONLY: &str = "-read-only";

/// A user, and whether the token may only look.
pub(super) type Key = (u32, bool);

/// The tokens of all users, one file a token, which only the daemon's user can read.
#[derive(Debug)]
pub(super) struct Tokens {
    folder: PathBuf,
    known: Mutex<BTreeMap<Key, [u8; BYTES]>>,
}

fn file_name((uid, is_read_only): Key) -> String {
    format!("{uid}{}", if is_read_only { READ_ONLY } else { "" })
}

fn key(file_name: &str) -> Option<Key> {
    let uid = file_name.strip_suffix(READ_ONLY);
    Some((uid.unwrap_or(file_name).parse().ok()?, uid.is_some()))
}

impl Tokens {
    /// The tokens of a machine's folder. A file that is no token counts as none.
    pub(super) fn open(folder: PathBuf) -> Self {
        let mut known = BTreeMap::new();
        // a folder that is not there has none
        let _ = colony_node::file::remove_unfinished(&folder);
        for file in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let key = file.file_name().to_str().and_then(key);
            let token =
                std::fs::read_to_string(file.path()).ok().and_then(|text| digits::parse(text.trim_end()));
            known.extend(key.zip(token));
        }
        Self { folder, known: Mutex::new(known) }
    }

    /// The token of a user, which is made if there is none, or if a new one is asked for.
    pub(super) fn give(&self, key: Key, renew: bool) -> Result<String, ControlError> {
        let mut known = lock(&self.known);
        if let (Some(token), false) = (known.get(&key), renew) {
            return Ok(text(token));
        }
        let mut token = [0; BYTES];
        let random = ring::default_provider().secure_random;
        random
            .fill(&mut token)
            .map_err(|_| ControlError::Fault("no random numbers for a token".to_owned()))?;
        let path = self.folder.join(file_name(key));
        let written = std::fs::create_dir_all(&self.folder)
            .and_then(|()| colony_node::file::replace(&path, text(&token).as_bytes()));
        written.map_err(ControlError::io(path.display().to_string()))?;
        known.insert(key, token);
        Ok(text(&token))
    }

    /// The user of a token. The time that this takes depends on the number of tokens only.
    pub(super) fn user(&self, text: &str) -> Option<Key> {
        let given = digits::parse(text)?;
        let mut found = None;
        for (key, token) in lock(&self.known).iter() {
            if bool::from(token.ct_eq(&given)) {
                found = Some(*key);
            }
        }
        found
    }

    /// Takes the tokens of a user back.
    pub(super) fn revoke(&self, uid: u32) -> Result<(), ControlError> {
        let mut known = lock(&self.known);
        for key in [false, true].map(|is_read_only| (uid, is_read_only)) {
            let path = self.folder.join(file_name(key));
            there(std::fs::remove_file(&path)).map_err(ControlError::io(path.display().to_string()))?;
            known.remove(&key);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_its_users_until_it_is_taken_back_and_outlives_the_daemon() {
        let folder = tempfile::tempdir().expect("a folder");
        let tokens = Tokens::open(folder.path().join("tokens"));
        let give = |tokens: &Tokens, key, renew| tokens.give(key, renew).expect("made");
        let (eve, bob) = (give(&tokens, (7, false), false), give(&tokens, (8, false), false));
        let looks = give(&tokens, (7, true), false);
        assert!(eve != bob && eve != looks && eve.len() == 64);
        assert_eq!(
            (give(&tokens, (7, false), false), give(&tokens, (7, true), false)),
            (eve.clone(), looks.clone())
        );
        let again = Tokens::open(folder.path().join("tokens"));
        let users = [&eve, &bob, &looks].map(|token| again.user(token));
        assert_eq!(users, [Some((7, false)), Some((8, false)), Some((7, true))]);
        let newer = give(&again, (7, false), true);
        assert_eq!((again.user(&eve), again.user(&newer)), (None, Some((7, false))));
        assert_eq!(again.user(&looks), Some((7, true)), "each is renewed by itself");
        again.revoke(8).expect("removed");
        again.revoke(8).expect("there is none");
        assert_eq!(again.user(&bob), None);
        again.revoke(7).expect("removed");
        assert_eq!((again.user(&newer), again.user(&looks)), (None, None));
        let last = give(&again, (7, false), false);
        again.revoke_all().expect("removed");
        assert_eq!(Tokens::open(folder.path().join("tokens")).user(&last), None);
    }

    #[test]
    fn what_is_no_token_is_nobodys() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("5"), "").expect("written");
        std::fs::write(folder.path().join("eve"), "0".repeat(64)).expect("written");
        let tokens = Tokens::open(folder.path().to_owned());
        let token = tokens.give((7, false), false).expect("made");
        let long = format!("{token}0");
        for text in ["", "0", &token[1..], &long, &"0".repeat(64), &"é".repeat(32), &"+f".repeat(32)] {
            assert_eq!(tokens.user(text), None, "{text}");
        }
    }
}
