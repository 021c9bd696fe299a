// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who may run jobs on a partition.

use std::ffi::CString;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

use super::control::{Control, wrong};
use super::peer::Peer;
use crate::ControlError;
use crate::api::{self, Holder, RightsRequest};

/// Groups of a user, by number.
fn groups(user: &User) -> Vec<Gid> {
    CString::new(user.name.as_str())
        .ok()
        .and_then(|name| getgrouplist(&name, user.gid).ok())
        .unwrap_or_else(|| vec![user.gid])
}

/// Returns `true` if a user is the holder of a right, or a member of the group that is.
fn is_meant(holder: &Holder, uid: u32) -> bool {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    match holder {
        Holder::User(name) => *name == uid.to_string() || user.is_some_and(|user| user.name == *name),
        Holder::Group(name) => {
            let number = name.parse().ok().map(Gid::from_raw);
            let group = number.or_else(|| Some(Group::from_name(name).ok()??.gid));
            group.zip(user).is_some_and(|(group, user)| groups(&user).contains(&group))
        }
    }
}

/// Refuses users and groups that the host does not know.
fn check_known(holder: &Holder) -> Result<(), ControlError> {
    let (kind, name, is_known) = match holder {
        Holder::User(name) => ("user", name, matches!(User::from_name(name), Ok(Some(_)))),
        Holder::Group(name) => ("group", name, matches!(Group::from_name(name), Ok(Some(_)))),
    };
    if is_known || name.parse::<u32>().is_ok() {
        return Ok(());
    }
    Err(wrong(format!("there is no {kind} {name}")))
}

impl Control {
    /// Changes who may run jobs on a partition.
    pub(super) fn set_rights(
        &self,
        peer: Peer,
        name: &str,
        request: &RightsRequest,
    ) -> Result<api::Partition, ControlError> {
        peer.check_operator("change who runs jobs on a partition")?;
        self.row(name)?;
        if request.may_run {
            check_known(&request.holder)?;
        }
        self.store().set_rights(name, request)?;
        self.partition(name)
    }

    /// Refuses users who may not run jobs on a partition.
    pub(super) fn check_may_run(&self, peer: Peer, name: &str) -> Result<(), ControlError> {
        let allowed = self.store().rights(name)?;
        let is_allowed = allowed.is_empty() || allowed.iter().any(|holder| is_meant(holder, peer.uid));
        if is_allowed || peer.check_operator("").is_ok() {
            return Ok(());
        }
        let user = peer.name();
        Err(ControlError::Forbidden(format!(
            "user {user} may not run jobs on partition {name}: an operator allows it by `colony partition allow {name} --user \
             {user}`"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_meant_by_name_number_and_group() {
        let user = |name: &str| Holder::User(name.to_owned());
        let group = |name: &str| Holder::Group(name.to_owned());
        for holder in [user("root"), user("0"), group("root"), group("0")] {
            assert!(is_meant(&holder, 0), "{holder:?}");
            assert!(!is_meant(&holder, 4_000_000), "{holder:?}");
        }
        assert!(is_meant(&user("4000000"), 4_000_000), "one whom the host does not know");
        for holder in [user(""), group(""), group("no such group"), user("-1")] {
            assert!(!is_meant(&holder, 0), "{holder:?}");
            assert!(check_known(&holder).is_err(), "{holder:?}");
        }
        assert!(check_known(&user("root")).is_ok() && check_known(&group("4000000")).is_ok());
    }
}
