// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes the files of the `colonyd` of this node.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use colony_time::estimate::Feed;
use colony_time::{DutyCycle, Windows, text};
use nix::sys::statfs::{FUSE_SUPER_MAGIC, statfs};
use serde::de::DeserializeOwned;

use crate::clock::ClockReport;
use crate::files::File as Name;
use crate::stats::StatsReport;

/// The default directory of the files of `colonyd`.
pub const DEFAULT_MOUNT: &str = "/run/colony";

/// Names another place for the files of `colonyd` than `/run/colony`.
pub const MOUNT_VARIABLE: &str = "COLONY_MOUNT";

/// The daemon of this node.
#[derive(Clone, Debug)]
pub struct Client {
    mount: PathBuf,
}

/// The daemon did not do or say what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A write was refused.
    #[error(
        "colonyd refused `{written}` for {path}: {}",
        if reason.is_empty() { source.to_string() } else { reason.clone() }
    )]
    Refused {
        /// The file.
        path: PathBuf,
        /// The text that was written.
        written: String,
        /// Its reason, from `last_error`.
        reason: String,
        /// The error number.
        source: io::Error,
    },
    /// A file could not be read.
    #[error("cannot read {path}: {source}; is colonyd running?")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A document of another version.
    #[error("{path} does not hold what this version expects: {source}; run the colonyd of the same version")]
    Document {
        /// The file.
        path: PathBuf,
        /// The error of the document.
        source: serde_json::Error,
    },
}

impl Client {
    /// The daemon at `/run/colony`, or where `$COLONY_MOUNT` says; `None` where none runs.
    #[must_use]
    pub fn find() -> Option<Self> {
        let named = std::env::var_os(MOUNT_VARIABLE).filter(|v| !v.is_empty());
        Self::at(named.map_or_else(|| DEFAULT_MOUNT.into(), PathBuf::from))
    }

    /// The daemon whose files are at `mount`; `None` where there is none, or it does not answer.
    #[must_use]
    pub fn at(mount: impl Into<PathBuf>) -> Option<Self> {
        let client = Self { mount: mount.into() };
        let fuse = statfs(&client.mount).is_ok_and(|s| s.filesystem_type() == FUSE_SUPER_MAGIC);
        (fuse && client.clock().is_ok()).then_some(client)
    }

    /// The directory of its files.
    #[must_use]
    pub fn mount(&self) -> &Path {
        &self.mount
    }

    /// Makes process `pid` a member of the job; its children are members as well.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the daemon's reason.
    pub fn join(&self, pid: i32) -> Result<(), ClientError> {
        self.write(Name::Job, &pid.to_string())
    }

    /// Has `command` join the job itself, before its program begins. The program does not start where the
    /// daemon refuses; [`last_error`](Self::last_error) says why.
    ///
    /// # Errors
    /// [`ClientError::Refused`] where this process may not write `job`.
    pub fn join_on_start<'a>(&self, command: &'a mut Command) -> Result<&'a mut Command, ClientError> {
        let job = self.open(Name::Job, "1")?;
        // SAFETY: between fork and exec the closure only calls write(2), which is async-signal-safe.
        Ok(unsafe {
            command.pre_exec(move || match libc::write(job.as_raw_fd(), b"1\n".as_ptr().cast(), 2) {
                2 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            })
        })
    }

    /// Processes of the job.
    ///
    /// # Errors
    /// [`ClientError::Read`].
    pub fn job(&self) -> Result<Vec<i32>, ClientError> {
        Ok(self.read(Name::Job)?.lines().filter_map(|l| l.parse().ok()).collect())
    }

    /// The windows as they are set.
    ///
    /// # Errors
    /// [`ClientError::Read`] or [`ClientError::Document`].
    pub fn windows(&self) -> Result<Windows, ClientError> {
        Ok(self.clock()?.windows)
    }

    /// The windows as this node keeps them: on its own clock, with guards; none where it keeps none.
    ///
    /// # Errors
    /// As [`windows`](Self::windows).
    pub fn kept(&self) -> Result<Option<Windows>, ClientError> {
        Ok(self.clock()?.coordination.kept)
    }

    /// Gives the daemon an estimate of the cluster's clock, or takes it back.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the daemon's reason.
    pub fn feed(&self, feed: Option<&Feed>) -> Result<(), ClientError> {
        self.write(Name::Clock, &feed.map_or_else(|| "none".into(), ToString::to_string))
    }

    /// Reads the position of the node in its period.
    ///
    /// # Errors
    /// As [`windows`](Self::windows).
    pub fn clock(&self) -> Result<ClockReport, ClientError> {
        self.document(Name::Clock)
    }

    /// Reads the statistics of the windows.
    ///
    /// # Errors
    /// As [`windows`](Self::windows).
    pub fn stats(&self) -> Result<StatsReport, ClientError> {
        self.document(Name::Stats)
    }

    /// Changes the period.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the daemon's reason.
    pub fn set_period(&self, period_ns: u64) -> Result<(), ClientError> {
        self.write(Name::Period, &text::Ns(period_ns).to_string())
    }

    /// Changes the duty cycle.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the daemon's reason.
    pub fn set_duty(&self, duty: DutyCycle) -> Result<(), ClientError> {
        self.write(Name::DutyCycle, &duty.to_string())
    }

    /// The reason for which this user's last write was refused; empty if it was accepted.
    #[must_use]
    pub fn last_error(&self) -> String {
        self.read(Name::LastError).unwrap_or_default().trim_end().to_owned()
    }

    fn path(&self, file: Name) -> PathBuf {
        self.mount.join(file.name())
    }

    fn read(&self, file: Name) -> Result<String, ClientError> {
        let path = self.path(file);
        std::fs::read_to_string(&path).map_err(|source| ClientError::Read { path, source })
    }

    fn document<T: DeserializeOwned>(&self, file: Name) -> Result<T, ClientError> {
        serde_json::from_str(&self.read(file)?)
            .map_err(|source| ClientError::Document { path: self.path(file), source })
    }

    fn open(&self, file: Name, written: &str) -> Result<File, ClientError> {
        // not created where it is missing: that would leave a plain file in an unmounted directory
        OpenOptions::new().write(true).open(self.path(file)).map_err(|e| self.refused(file, written, e))
    }

    fn write(&self, file: Name, written: &str) -> Result<(), ClientError> {
        let mut open = self.open(file, written)?;
        open.write_all(format!("{written}\n").as_bytes()).map_err(|e| self.refused(file, written, e))
    }

    fn refused(&self, file: Name, written: &str, source: io::Error) -> ClientError {
        let reason = self.last_error();
        ClientError::Refused { path: self.path(file), written: written.into(), reason, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_daemon_there_is_no_client() {
        let dir = tempfile::tempdir().expect("temp dir");
        assert!(Client::at(dir.path()).is_none());
        assert!(Client::at("/nonexistent").is_none());
        let client = Client { mount: dir.path().into() };
        let error = client.join(1).expect_err("no file").to_string();
        assert!(error.contains("job"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 0, "nothing is left behind");
    }
}
