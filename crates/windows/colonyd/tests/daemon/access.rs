// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rights of users.

use crate::support::{Daemon, NOBODY, possible, text};

#[test]
fn a_stranger_reads_all_and_writes_nothing() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("[access]\ngroups = []\n");
    let out = daemon.shell_as(
        Some(NOBODY),
        "cat $M/period
         for f in period duty_cycle job stats; do
             if (echo 1 > $M/$f) 2>/dev/null || [ -w $M/$f ]; then echo $f can be written; fi
         done
         cat $M/last_error",
    );
    let said = text(&out);
    assert!(said.starts_with("100ms\n") && !said.contains("can be written"), "{said}");
    assert!(said.contains("may not register jobs") || said.contains("only be read"), "{said}");
    assert_eq!(daemon.read("last_error"), "", "root sees its own refusals, not others'");
}

#[test]
fn administrators_set_the_windows_and_users_do_not() {
    if !possible() {
        return;
    }
    let set = "echo 60ms > $M/period; cat $M/period";
    let admin = Daemon::start("[access]\ngroups = []\nadmin_groups = [\"65534\"]\n");
    assert_eq!(text(&admin.shell_as(Some(NOBODY), set)), "60ms\n");
    let user = Daemon::start("[access]\nusers = [\"65534\"]\ngroups = []\n");
    let said = text(&user.shell_as(Some(NOBODY), set));
    assert!(said.contains("Permission denied") && said.starts_with("100ms\n"), "{said}");
}

#[test]
fn a_user_cannot_register_another_users_process() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("[access]\nusers = [\"65534\"]\ngroups = []\n");
    let script = format!("echo {} > $M/job; cat $M/last_error", std::process::id());
    let said = text(&daemon.shell_as(Some(NOBODY), &script));
    assert!(said.contains("is not user 65534's"), "{said}");
    assert!(daemon.client().job().expect("readable").is_empty());
}

#[test]
fn a_descriptor_given_to_a_program_with_more_rights_does_not_borrow_them() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    // opened by root, written by somebody else: as if a set-user-id program were lent the descriptor
    let out = daemon.shell(
        "exec 3> $M/period
         setpriv --reuid 65534 --regid 65534 --clear-groups sh -c 'echo 60ms >&3' || cat $M/period",
    );
    assert_eq!(String::from_utf8_lossy(&out.stdout), "100ms\n", "the write failed: {}", text(&out));
}

#[test]
fn process_numbers_of_another_namespace_are_not_taken_for_ours() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    let out = daemon.shell("unshare --pid --fork sh -c 'echo 2 > $M/job'; cat $M/last_error");
    let said = text(&out);
    assert!(said.contains("pid namespace"), "{said}");
}
