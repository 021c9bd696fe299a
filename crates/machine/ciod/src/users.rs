// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users, groups, and the identity that a job has.

use std::path::PathBuf;

use nix::unistd::{Group, User, getegid, geteuid, getgrouplist, getgroups};

use crate::control::Identity;
use crate::spec::Files;
use crate::{JobError, JobSpec};

impl JobSpec {
    /// Looks up the numbers of the user and the group that the job runs as.
    ///
    /// # Errors
    /// If a name is unknown, or this process may not start jobs of that user.
    pub fn user_ids(&self) -> Result<(u32, u32), JobError> {
        identity(self).map(|identity| (identity.uid, identity.gid))
    }
}

/// Looks up who the job runs as.
pub(crate) fn identity(spec: &JobSpec) -> Result<Identity, JobError> {
    let (uid, gid) = (geteuid(), getegid());
    let root = uid.is_root();
    let system = |e: nix::Error| JobError::System(format!("looking up the user: {e}"));
    let user = match &spec.user {
        None => User::from_uid(uid).map_err(system)?,
        Some(name) => Some(find_user(name)?),
    };
    let new_uid = user.as_ref().map_or(uid, |u| u.uid);
    let new_gid = match (&spec.group, &user) {
        (Some(name), _) => find_group(name)?,
        (None, Some(user)) if new_uid != uid => user.gid,
        _ => gid,
    };
    let groups = match (&spec.groups, &user) {
        (Some(names), _) => names.iter().map(|n| find_group(n)).collect::<Result<Vec<_>, _>>()?,
        (None, Some(user)) if new_uid != uid => {
            let name = std::ffi::CString::new(user.name.as_str()).unwrap_or_default();
            getgrouplist(&name, new_gid).map_err(system)?
        }
        _ => getgroups().map_err(system)?,
    };
    let identity = Identity {
        uid: new_uid.as_raw(),
        gid: new_gid.as_raw(),
        groups: groups.iter().map(|g| g.as_raw()).collect(),
        take: root,
    };
    if !root {
        let wish = |what: &str| Err(JobError::NeedsRoot(what.into()));
        if new_uid != uid {
            return wish("another user than the caller");
        }
        if new_gid != gid {
            return wish("another group than the caller's");
        }
        if spec.groups.is_some() {
            return wish("a choice of supplementary groups");
        }
        if spec.files != Files::Host {
            return wish("another file system than the caller's");
        }
    }
    Ok(identity)
}

fn find_user(name: &str) -> Result<User, JobError> {
    let unknown = || JobError::NoUser(name.to_owned());
    if let Some(user) = User::from_name(name).map_err(|_| unknown())? {
        return Ok(user);
    }
    let number = name.parse::<u32>().map_err(|_| unknown())?;
    if number == u32::MAX {
        return Err(unknown());
    }
    let uid = nix::unistd::Uid::from_raw(number);
    if let Ok(Some(user)) = User::from_uid(uid) {
        return Ok(user);
    }
    // a number without a name is a user too, of a group with the same number
    Ok(User {
        name: name.to_owned(),
        uid,
        gid: nix::unistd::Gid::from_raw(number),
        passwd: Default::default(),
        gecos: Default::default(),
        dir: PathBuf::from("/"),
        shell: PathBuf::new(),
    })
}

fn find_group(name: &str) -> Result<nix::unistd::Gid, JobError> {
    let unknown = || JobError::NoGroup(name.to_owned());
    if let Some(group) = Group::from_name(name).map_err(|_| unknown())? {
        return Ok(group.gid);
    }
    let number = name.parse::<u32>().ok().filter(|&n| n != u32::MAX).ok_or_else(unknown)?;
    Ok(nix::unistd::Gid::from_raw(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(change: impl FnOnce(&mut JobSpec)) -> Result<Identity, JobError> {
        let mut spec = JobSpec::new("/bin/a");
        change(&mut spec);
        identity(&spec)
    }

    #[test]
    fn unknown_users_and_groups_are_errors() {
        let odd = "no such name!".to_owned();
        assert_eq!(spec(|s| s.user = Some(odd.clone())), Err(JobError::NoUser(odd.clone())));
        assert_eq!(spec(|s| s.group = Some(odd.clone())), Err(JobError::NoGroup(odd.clone())));
        assert_eq!(spec(|s| s.groups = Some(vec![odd.clone()])), Err(JobError::NoGroup(odd.clone())));
        let minus_one = u32::MAX.to_string();
        assert!(spec(|s| s.user = Some(minus_one)).is_err(), "setuid takes it for nothing to do");
    }

    #[test]
    fn the_caller_is_the_default_and_others_need_root() {
        let me = spec(|_| ()).expect("me");
        assert_eq!(me.uid, geteuid().as_raw());
        let other = spec(|s| s.user = Some("12345".into()));
        if geteuid().is_root() {
            let other = other.expect("root may");
            assert_eq!((other.uid, other.gid, other.take), (12345, 12345, true));
            assert!(!other.groups.contains(&0), "root's groups are not passed on");
        } else {
            assert!(matches!(other, Err(JobError::NeedsRoot(_))));
        }
    }
}
