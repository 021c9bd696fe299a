// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony run --pages huge` where large pages would take more memory than there is.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::{error, has_huge_pages, is_root, program, until};

const MIB: u64 = 1 << 20;

/// A cgroup with a limit of memory; removed with its test.
struct Group {
    folder: PathBuf,
    limit: PathBuf,
}

impl Group {
    /// `None`, with the reason recorded, if this node has no such groups, or this process may not make one.
    fn new(bytes: u64) -> Option<Self> {
        if !is_root() {
            return None;
        }
        let name = format!("colony-test-{}", std::process::id());
        let Some((tree, file)) = tree_of_memory() else {
            colony_testing::skip(
                "no tree of cgroups has the memory controller here, or it is mounted read-only",
            );
            return None;
        };
        let folder = tree.join(&name);
        std::fs::create_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let group = Self { limit: folder.join(file), folder };
        std::fs::write(&group.limit, bytes.to_string())
            .unwrap_or_else(|e| panic!("{}: {e}", group.limit.display()));
        // without swap a group is short of memory at its limit; a kernel without swap has no such file
        let _ = std::fs::write(group.folder.join("memory.swap.max"), "0");
        Some(group)
    }

    /// `colony run ARGS` as a member of the group.
    fn run(&self, args: &[&str]) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.folder.join("cgroup.procs"));
        shell.arg(program()).arg("run").args(args);
        shell
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        until("an empty group", || std::fs::remove_dir(&self.folder).is_ok() || !self.folder.exists());
    }
}

/// The tree of cgroups whose groups may get a limit of memory, and the name of the limit's file: version 1's own tree of memory, or
/// version 2's, if its root gives the controller to its groups. `None` where there is no such tree, or nobody may write to it.
fn tree_of_memory() -> Option<(PathBuf, &'static str)> {
    let root = Path::new("/sys/fs/cgroup");
    let gives_memory = |tree: &Path| {
        let given = std::fs::read_to_string(tree.join("cgroup.subtree_control")).unwrap_or_default();
        given.split_whitespace().any(|controller| controller == "memory")
    };
    let writable = |tree: &Path| nix::unistd::access(tree, nix::unistd::AccessFlags::W_OK).is_ok();
    let of_version_1 = root.join("memory");
    if of_version_1.join("memory.limit_in_bytes").is_file() && writable(&of_version_1) {
        return Some((of_version_1, "memory.limit_in_bytes"));
    }
    let mut of_version_2 = [root.to_owned(), root.join("unified")].into_iter();
    Some((of_version_2.find(|tree| gives_memory(tree) && writable(tree))?, "memory.max"))
}

/// The fixture that touches memory here and there.
fn sparse(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/fixtures/sparse.c");
    let path = folder.join("sparse");
    let out = Command::new("cc").args(["-O1", "-o"]).args([&path, &source]).output().expect("cc is there");
    assert!(out.status.success(), "{}", error(&out));
    path
}

#[test]
fn a_program_whose_large_pages_would_exceed_its_groups_limit_goes_on_with_base_pages() {
    let Some(group) = Group::new(300 * MIB).filter(|_| has_huge_pages()) else { return };
    let folder = tempfile::tempdir().expect("temp dir");
    let fixture = sparse(folder.path());
    // 4 MiB and 150 MiB on base pages, 1,174 MiB on large ones
    let job = [
        "--backend",
        "none",
        "--json",
        "--pages",
        "huge",
        "--",
        fixture.to_str().expect("a path"),
        "1024",
        "150",
    ];
    let out = group.run(&job).output().expect("runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(out.status.code(), Some(0), "{}\n{text}", error(&out));
    let (output, report) = text.trim_end().rsplit_once('\n').expect("its output, and the report");
    assert_eq!(output, "done 2");
    let report: Value = serde_json::from_str(report).expect("the report is the last line");
    let shortage = &report["pages"]["shortage"];
    assert_eq!(shortage["file"].as_str(), group.limit.to_str(), "{report}");
    assert_eq!(shortage["limit_bytes"].as_u64(), Some(300 * MIB), "{report}");
    let warnings = report["pages"]["warnings"].to_string();
    assert!(warnings.contains("300.0 MiB in ") && warnings.contains("base pages"), "{warnings}");
}
