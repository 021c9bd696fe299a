// SPDX-License-Identifier: MIT OR Apache-2.0
//! The user at the other end of the local socket, and the rights of that user.

use nix::unistd::{Uid, User, geteuid};
use tokio::net::UnixStream;

use crate::ControlError;
use crate::api::Job;

/// The user of a connection, as the kernel tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) uid: u32,
    /// Whether the user has come with a token that may only look: it may be in the hands of others.
    pub(super) is_read_only: bool,
}

impl Peer {
    /// The daemon itself.
    pub(super) fn own() -> Self {
        Self::new(geteuid().as_raw())
    }

    /// A user with all rights of that user.
    pub(super) fn new(uid: u32) -> Self {
        Self { uid, is_read_only: false }
    }

    /// The user at the other end of a connection. One that the kernel does not name may do nothing.
    pub(super) fn of(stream: &UnixStream) -> Self {
        Self::new(stream.peer_cred().map_or(u32::MAX, |peer| peer.uid()))
    }

    /// The user's name, or number.
    pub(super) fn name(self) -> String {
        let user = User::from_uid(Uid::from_raw(self.uid)).ok().flatten();
        user.map_or_else(|| self.uid.to_string(), |user| user.name)
    }

    /// Operators are root and the daemon's own user.
    pub(super) fn is_operator(self) -> bool {
        !self.is_read_only && (self.uid == 0 || self == Self::own())
    }

    /// Refuses a user whose token may only look.
    fn check_token(self) -> Result<(), ControlError> {
        if self.is_read_only {
            let text = "this token may only look, and sees no output of jobs: `colony machine web` prints a link with your own";
            return Err(ControlError::Forbidden(text.to_owned()));
        }
        Ok(())
    }

    pub(super) fn check_operator(self, what: &str) -> Result<(), ControlError> {
        self.check_token()?;
        if self.is_operator() {
            return Ok(());
        }
        let name = self.name();
        Err(ControlError::Forbidden(format!(
            "user {name} may not {what}: only root and the daemon's user may"
        )))
    }

    /// Refuses users who are neither operators nor the owner of a job.
    pub(super) fn check_owner(self, owner: Option<u32>, job: u64) -> Result<(), ControlError> {
        self.check_token()?;
        if self.is_operator() || owner == Some(self.uid) {
            return Ok(());
        }
        Err(ControlError::Forbidden(format!("job {job} belongs to another user")))
    }

    /// A job as this user sees it: its environment, which may hold secrets, and its token are for its owner and operators.
    pub(super) fn shown(self, mut job: Job) -> Job {
        if !self.is_operator() && (self.is_read_only || job.user != self.name()) {
            job.request.environment.clear();
            job.request.token = None;
        }
        job
    }

    /// The user whose rights a job has: the caller's, or for root anybody's.
    pub(super) fn user_of_job(self, asked: Option<String>) -> Result<Option<String>, ControlError> {
        match asked {
            Some(name) if self.uid != 0 && name != self.name() && name != self.uid.to_string() => {
                let own = self.name();
                Err(ControlError::Forbidden(format!("user {own} may not run a job as {name}: only root may")))
            }
            Some(name) => Ok(Some(name)),
            None if geteuid().is_root() && self.uid != 0 => Ok(Some(self.uid.to_string())),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_of_jobs_are_for_their_owners_and_operators() {
        let job = r#"{"id": 1, "user": "4000000", "state": "queued", "submitted": 0.0, "request": {"partition": "A",
            "executable": "/bin/a", "directory": "/", "environment": {"A": "secret"}, "token": "t"}}"#;
        let shown = |uid| Peer::new(uid).shown(serde_json::from_str(job).expect("a job")).request;
        for uid in [0, Peer::own().uid, 4_000_000] {
            assert_eq!((shown(uid).environment.len(), shown(uid).token.is_some()), (1, true), "{uid}");
        }
        assert_eq!((shown(4_000_001).environment.len(), shown(4_000_001).token), (0, None));
        for uid in [0, Peer::own().uid, 4_000_000] {
            let looks = Peer { uid, is_read_only: true };
            let request = looks.shown(serde_json::from_str(job).expect("a job")).request;
            assert_eq!((request.environment.len(), request.token), (0, None), "{uid} may only look");
            assert!(looks.check_operator("x").is_err() && looks.check_owner(Some(uid), 1).is_err());
        }
    }

    #[test]
    fn only_root_and_the_daemons_user_operate_and_only_root_chooses_users() {
        let eve = Peer::new(4_000_000);
        assert!(Peer::own().check_operator("x").is_ok() && Peer::new(0).check_operator("x").is_ok());
        assert!(matches!(eve.check_operator("x"), Err(ControlError::Forbidden(_))));
        assert!(eve.check_owner(Some(4_000_000), 1).is_ok());
        assert!(eve.check_owner(Some(1), 1).is_err() && eve.check_owner(None, 1).is_err());
        assert!(eve.user_of_job(Some("root".to_owned())).is_err());
        assert!(eve.user_of_job(Some("4000000".to_owned())).is_ok());
        assert_eq!(Peer::new(0).user_of_job(Some("eve".to_owned())).ok(), Some(Some("eve".to_owned())));
        assert_eq!(Peer::own().user_of_job(None).ok(), Some(None));
    }
}
