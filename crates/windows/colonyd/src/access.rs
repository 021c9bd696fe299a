// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access rights: the credentials of a writing process, and the rights that the configuration gives.

use std::collections::BTreeSet;

use nix::unistd::{Group, User};
use serde::{Deserialize, Serialize};

/// The group whose members may register jobs if the configuration names no group and the node has this one.
pub const DEFAULT_GROUP: &str = "colony";

/// `[access]` of the configuration: names or numbers of users and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessNames {
    /// Users who may register jobs, beside root and the administrators.
    pub users: Vec<String>,
    /// Groups whose members may register jobs; without it, the group `colony` if the node has one.
    pub groups: Option<Vec<String>>,
    /// Users who may set the windows, beside root.
    pub admin_users: Vec<String>,
    /// Groups whose members may set the windows.
    pub admin_groups: Vec<String>,
}

/// A name that this node does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("[access] there is no {kind} `{name}` on this node; create it, or take it out of `{key}`")]
pub struct UnknownName {
    kind: &'static str,
    name: String,
    key: &'static str,
}

/// A right of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Register a process of the same user as a member of the job class.
    RegisterJob,
    /// Change the period or the duty cycle.
    SetWindows,
}

/// A process that opens or writes a file, as the kernel identifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The thread of the process; 0 if it is in a pid namespace that this daemon cannot see.
    pub tid: i32,
    /// The user it acts as.
    pub uid: u32,
    /// The group it acts as, and its supplementary groups.
    pub groups: BTreeSet<u32>,
}

impl Peer {
    /// The asking thread `tid` with the user and group of its request; supplementary groups are those of
    /// the thread, none where it cannot be seen.
    #[must_use]
    pub fn new(tid: i32, uid: u32, gid: u32) -> Self {
        let mut groups = status(tid).map(|s| s.groups).unwrap_or_default();
        groups.insert(gid);
        Self { tid, uid, groups }
    }
}

/// Rights as user and group numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    users: BTreeSet<u32>,
    groups: BTreeSet<u32>,
    admin_users: BTreeSet<u32>,
    admin_groups: BTreeSet<u32>,
}

impl Access {
    /// The rights that `names` give on this node.
    ///
    /// # Errors
    /// [`UnknownName`]: the first user or group that is not there.
    pub fn resolve(names: &AccessNames) -> Result<Self, UnknownName> {
        let groups = match &names.groups {
            Some(given) => numbers(given, "group", "groups", group)?,
            None => group(DEFAULT_GROUP).into_iter().collect(),
        };
        Ok(Self {
            users: numbers(&names.users, "user", "users", user)?,
            groups,
            admin_users: numbers(&names.admin_users, "user", "admin_users", user)?,
            admin_groups: numbers(&names.admin_groups, "group", "admin_groups", group)?,
        })
    }

    /// Returns `true` if `peer` has `right`. Root has every right, and the right to set the windows includes the right to register jobs.
    #[must_use]
    pub fn allows(&self, peer: &Peer, right: Right) -> bool {
        let in_one = |users: &BTreeSet<u32>, groups: &BTreeSet<u32>| {
            users.contains(&peer.uid) || !groups.is_disjoint(&peer.groups)
        };
        peer.uid == 0
            || in_one(&self.admin_users, &self.admin_groups)
            || (right == Right::RegisterJob && in_one(&self.users, &self.groups))
    }
}

fn numbers(
    names: &[String],
    kind: &'static str,
    key: &'static str,
    find: fn(&str) -> Option<u32>,
) -> Result<BTreeSet<u32>, UnknownName> {
    names
        .iter()
        .map(|name| {
            let number = || name.parse().ok();
            find(name).or_else(number).ok_or_else(|| UnknownName { kind, name: name.clone(), key })
        })
        .collect()
}

fn user(name: &str) -> Option<u32> {
    User::from_name(name).ok().flatten().map(|u| u.uid.as_raw())
}

/// The number of group `name`.
pub(super) fn group(name: &str) -> Option<u32> {
    Group::from_name(name).ok().flatten().map(|g| g.gid.as_raw())
}

/// The identity of a task, from `/proc/<tid>/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// Real, effective and saved user.
    pub(crate) uids: [u32; 3],
    /// Supplementary groups.
    pub(crate) groups: BTreeSet<u32>,
    /// True if the task is in a pid namespace below this one, so that its process numbers are not ours.
    pub(crate) own_numbers: bool,
    /// True if it has memory of its own: a thread of the kernel has none.
    pub(crate) program: bool,
}

/// Reads the identity of a task; `None` if the task has ended or is not visible.
pub(crate) fn status(tid: i32) -> Option<Status> {
    if tid <= 0 {
        return None;
    }
    // the name in it is any bytes a user chose
    parse_status(&String::from_utf8_lossy(&std::fs::read(format!("/proc/{tid}/status")).ok()?))
}

fn parse_status(text: &str) -> Option<Status> {
    let field = |name: &str| {
        text.lines().find_map(|l| l.strip_prefix(name)).map(|rest| rest.split_whitespace().map(str::parse))
    };
    let uids: Vec<u32> = field("Uid:")?.take(3).collect::<Result<_, _>>().ok()?;
    Some(Status {
        uids: uids.try_into().ok()?,
        groups: field("Groups:")?.collect::<Result<_, _>>().ok()?,
        own_numbers: field("NSpid:").is_some_and(|n| n.count() > 1),
        program: field("VmSize:").is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn peer(uid: u32, groups: &[u32]) -> Peer {
        Peer { tid: 1, uid, groups: groups.iter().copied().collect() }
    }

    #[test]
    fn root_may_all_members_register_and_admins_set() {
        let access = Access {
            users: [1000].into(),
            groups: [50].into(),
            admin_users: [2000].into(),
            admin_groups: [60].into(),
        };
        for (who, register, set) in [
            (peer(0, &[0]), true, true),
            (peer(1000, &[1000]), true, false),
            (peer(1001, &[1001, 50]), true, false),
            (peer(1001, &[1001]), false, false),
            (peer(2000, &[2000]), true, true),
            (peer(1001, &[60]), true, true),
        ] {
            assert_eq!(access.allows(&who, Right::RegisterJob), register, "{who:?}");
            assert_eq!(access.allows(&who, Right::SetWindows), set, "{who:?}");
        }
    }

    #[test]
    fn names_and_numbers_resolve_and_unknown_ones_are_named() {
        let names = AccessNames {
            users: vec!["root".into(), "12345".into()],
            groups: Some(vec![]),
            ..AccessNames::default()
        };
        let access = Access::resolve(&names).expect("root is known everywhere");
        assert_eq!(access.users, [0, 12345].into());
        let wrong = AccessNames { admin_groups: vec!["no such group".into()], ..AccessNames::default() };
        let error = Access::resolve(&wrong).expect_err("unknown").to_string();
        assert!(error.contains("no such group") && error.contains("admin_groups"), "{error}");
    }

    #[test]
    fn this_process_can_be_seen_and_a_stranger_not() {
        let me = status(std::process::id() as i32).expect("alive");
        assert_eq!(me.uids[0], nix::unistd::getuid().as_raw());
        assert!(status(0).is_none() && status(i32::MAX).is_none());
        assert_eq!(Peer::new(0, 7, 8).groups, [8].into());
    }

    #[test]
    fn a_task_that_counts_for_itself_is_noticed() {
        let text = "Uid:\t1\t2\t3\t4\nGroups:\t5 6 \nNStgid:\t9\t1\nNSpid:\t9\t1\n";
        let s = parse_status(text).expect("valid");
        assert_eq!(s, Status { uids: [1, 2, 3], groups: [5, 6].into(), own_numbers: true, program: false });
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(Uid|Groups|NSpid|x):.{0,20}\n.{0,80}") {
            let _ = parse_status(&text);
        }
    }
}
