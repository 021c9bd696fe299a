// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of a token, which its owner only may read.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::unistd::geteuid;

use crate::{ClientError, digits};

/// Bytes of a file at most.
const LONGEST: u64 = 4096;

/// The token of a file.
///
/// # Errors
/// A file that others may read or that is another user's, or that has no token.
pub(super) fn read(path: &Path) -> Result<String, ClientError> {
    let shown = path.display();
    // a pipe does not keep this waiting
    let file = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
    let file = file.map_err(ClientError::io(format!("the token file {shown}")))?;
    let about = file.metadata().map_err(ClientError::io(format!("the token file {shown}")))?;
    let wrong = |text: String| Err(ClientError::Wrong(text));
    if !about.is_file() {
        return wrong(format!("the token file {shown} is no regular file"));
    }
    if about.mode() & 0o077 != 0 {
        let mode = about.mode() & 0o777;
        return wrong(format!(
            "other users may use the token file {shown} (mode {mode:03o}): `chmod 600 {shown}`, and renew the token by `colony \
             machine web --renew`"
        ));
    }
    let own = geteuid().as_raw();
    if about.uid() != own && about.uid() != 0 {
        return wrong(format!("the token file {shown} belongs to another user ({})", about.uid()));
    }
    let mut text = String::new();
    let read = file.take(LONGEST).read_to_string(&mut text);
    let token = text.trim();
    if read.is_err() || digits::parse(token).is_none() {
        return wrong(format!(
            "the token file {shown} has no token: `colony machine web --token-file FILE` on the machine's host writes one"
        ));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_that_others_may_read_or_that_is_none_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        let token = "0123456789abcdef".repeat(4);
        let set = |text: &str, mode| {
            std::fs::write(&file, text).expect("written");
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("set");
            read(&file).map_err(|e| e.to_string())
        };
        assert_eq!(set(&format!("{token}\n"), 0o600), Ok(token.clone()));
        assert_eq!(set(&token, 0o400), Ok(token.clone()));
        for mode in [0o640, 0o604, 0o620, 0o602, 0o610, 0o777] {
            assert!(set(&token, mode).is_err_and(|e| e.contains("chmod 600")), "{mode:o}");
        }
        let long = "0".repeat(10_000);
        for text in ["", "token", &token[1..], &format!("{token}0"), &long, &"é".repeat(32)] {
            assert!(set(text, 0o600).is_err_and(|e| e.contains("has no token")), "{text}");
        }
        assert!(read(folder.path()).is_err(), "a folder");
        assert!(read(&folder.path().join("none")).is_err());
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("made");
        assert!(read(&pipe).is_err_and(|e| e.to_string().contains("regular")), "it does not wait");
    }
}
