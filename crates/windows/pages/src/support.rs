// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transparent huge pages of the node, as sysfs shows them.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::policy::PagePolicy;

const FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";
/// Size of a huge page if the kernel does not tell.
const USUAL_HUGE_BYTES: u64 = 2 << 20;

/// A setting of `enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// In all memory.
    Always,
    /// As the setting for all sizes.
    Inherit,
    /// In memory that a program asks for.
    Madvise,
    /// Nowhere.
    Never,
}

/// The way in which a program gets its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Not at all: it has base pages.
    None,
    /// Without asking: the kernel gives pages of this size, and of no larger one, to all memory.
    Unasked,
    /// By `madvise`.
    Ask,
}

/// The node's settings for large pages; `None` where the kernel has no such file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Support {
    /// Bytes of a huge page.
    pub huge_bytes: u64,
    /// `enabled` for all sizes.
    pub all: Option<Mode>,
    /// `enabled` for huge pages.
    pub huge: Option<Mode>,
    /// `enabled` for pages of 64 KiB.
    pub medium: Option<Mode>,
}

impl Support {
    /// The settings of this node.
    #[must_use]
    pub fn here() -> Self {
        Self::read(Path::new(FOLDER))
    }

    fn read(folder: &Path) -> Self {
        let text = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
        let bytes = text("hpage_pmd_size").and_then(|t| t.trim().parse::<u64>().ok());
        let huge_bytes = bytes.filter(|b| b.is_power_of_two() && *b >= 1 << 16).unwrap_or(USUAL_HUGE_BYTES);
        let of_size =
            |bytes: u64| text(&format!("hugepages-{}kB/enabled", bytes >> 10)).as_deref().and_then(chosen);
        Self {
            huge_bytes,
            all: text("enabled").as_deref().and_then(chosen),
            huge: of_size(huge_bytes),
            medium: of_size(PagePolicy::MEDIUM_BYTES),
        }
    }

    /// `enabled` for huge pages, resolved.
    #[must_use]
    pub fn huge_mode(&self) -> Mode {
        // kernels before 6.8 know only the setting for all sizes
        self.resolved(Some(self.huge.unwrap_or(Mode::Inherit)))
    }

    /// `enabled` for pages of 64 KiB, resolved.
    #[must_use]
    pub fn medium_mode(&self) -> Mode {
        self.resolved(self.medium)
    }

    fn resolved(&self, size: Option<Mode>) -> Mode {
        match size {
            Some(Mode::Inherit) => self.all.filter(|&all| all != Mode::Inherit).unwrap_or(Mode::Never),
            Some(mode) => mode,
            None => Mode::Never,
        }
    }

    /// The way in which a program gets the pages of a policy.
    #[must_use]
    pub fn request(&self, policy: PagePolicy) -> Request {
        match (policy, self.medium_mode(), self.huge_mode()) {
            (PagePolicy::Huge, _, _) if self.all.is_some() => Request::Ask,
            (PagePolicy::Medium, Mode::Always, huge) if huge != Mode::Always => Request::Unasked,
            (PagePolicy::Medium, Mode::Always | Mode::Madvise, _) => Request::Ask,
            _ => Request::None,
        }
    }

    /// Differences between the policy and the pages that the node will give, each with its remedy.
    #[must_use]
    pub fn warnings(&self, policy: PagePolicy) -> Vec<String> {
        let huge_kib = self.huge_bytes >> 10;
        let mut warnings = Vec::new();
        match policy {
            PagePolicy::Base => {}
            _ if self.all.is_none() => {
                warnings.push(format!(
                    "the kernel has no transparent huge pages ({FOLDER}/enabled cannot be read): \
                     the program has base pages"
                ));
            }
            PagePolicy::Huge if self.huge_mode() == Mode::Never => {
                warnings.push(format!(
                    "{FOLDER}/enabled is `never` for huge pages: only moved text and data get them; \
                     as root: echo madvise > {FOLDER}/enabled"
                ));
            }
            PagePolicy::Huge => {}
            PagePolicy::Medium => match (self.request(policy), self.huge_mode()) {
                (Request::None, _) if self.medium.is_none() => warnings.push(
                    "this kernel has no pages of 64 KiB (Linux 6.8 has): the program has base pages".into(),
                ),
                (Request::None, _) => warnings.push(format!(
                    "pages of 64 KiB are off in {FOLDER}/hugepages-64kB/enabled: the program has base pages; \
                     as root: echo always > {FOLDER}/hugepages-64kB/enabled"
                )),
                (Request::Ask, Mode::Always | Mode::Madvise) => warnings.push(format!(
                    "memory of {huge_kib} KiB and more gets huge pages instead of 64 KiB: the program has to ask for both; \
                     as root: echo always > {FOLDER}/hugepages-64kB/enabled, with madvise for the other sizes"
                )),
                _ => {}
            },
        }
        warnings
    }
}

/// The word in brackets.
fn chosen(text: &str) -> Option<Mode> {
    let (_, rest) = text.split_once('[')?;
    match rest.split_once(']')?.0 {
        "always" => Some(Mode::Always),
        "inherit" => Some(Mode::Inherit),
        "madvise" => Some(Mode::Madvise),
        "never" => Some(Mode::Never),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node(all: &str, huge: Option<&str>, medium: Option<&str>) -> Support {
        let folder = tempfile::tempdir().expect("temp dir");
        let put = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("ours");
            std::fs::write(path, text).expect("writable");
        };
        put("hpage_pmd_size", "2097152\n");
        put("enabled", all);
        for (name, text) in [("2048", huge), ("64", medium)] {
            text.into_iter().for_each(|t| put(&format!("hugepages-{name}kB/enabled"), t));
        }
        Support::read(folder.path())
    }

    const INHERIT: Option<&str> = Some("always [inherit] madvise never");
    const NEVER: Option<&str> = Some("always inherit madvise [never]");
    const MADVISE: Option<&str> = Some("always inherit [madvise] never");
    const ALWAYS: Option<&str> = Some("[always] inherit madvise never");

    #[test]
    fn a_size_inherits_the_setting_for_all_sizes() {
        let modes = |all, huge, medium| {
            let s = node(all, huge, medium);
            (s.huge_mode(), s.medium_mode())
        };
        assert_eq!(modes("always [madvise] never", INHERIT, NEVER), (Mode::Madvise, Mode::Never));
        assert_eq!(modes("always madvise [never]", INHERIT, INHERIT), (Mode::Never, Mode::Never));
        assert_eq!(modes("[always] madvise never", NEVER, INHERIT), (Mode::Never, Mode::Always));
        // an older kernel
        assert_eq!(modes("[always] madvise never", None, None), (Mode::Always, Mode::Never));
    }

    #[test]
    fn a_program_asks_for_64_kib_only_if_it_must() {
        let request = |huge, medium| node("[madvise]", huge, medium).request(PagePolicy::Medium);
        assert_eq!(request(INHERIT, ALWAYS), Request::Unasked);
        assert_eq!(request(INHERIT, INHERIT), Request::Ask);
        assert_eq!(request(NEVER, MADVISE), Request::Ask);
        assert_eq!(request(ALWAYS, ALWAYS), Request::Ask);
        assert_eq!(request(INHERIT, NEVER), Request::None);
        let never = node("[never]", INHERIT, NEVER);
        assert_eq!(never.request(PagePolicy::Huge), Request::Ask, "MADV_COLLAPSE works without the setting");
        assert_eq!(never.request(PagePolicy::Base), Request::None);
    }

    #[test]
    fn what_the_node_will_not_give_is_told_with_its_remedy() {
        let off = node("always madvise [never]", INHERIT, NEVER);
        assert!(off.warnings(PagePolicy::Huge)[0].contains("echo madvise >"));
        assert!(off.warnings(PagePolicy::Medium)[0].contains("hugepages-64kB/enabled"));
        assert!(off.warnings(PagePolicy::Base).is_empty());
        let both = node("[madvise]", INHERIT, MADVISE);
        assert!(both.warnings(PagePolicy::Huge).is_empty());
        assert!(both.warnings(PagePolicy::Medium)[0].contains("huge pages instead of 64 KiB"));
        for exact in [node("[madvise]", INHERIT, ALWAYS), node("[madvise]", NEVER, MADVISE)] {
            assert!(exact.warnings(PagePolicy::Medium).is_empty());
        }
        assert!(node("[madvise]", None, None).warnings(PagePolicy::Medium)[0].contains("Linux 6.8"));
        let none = Support::read(Path::new("/nonexistent"));
        assert!(none.warnings(PagePolicy::Huge)[0].contains("no transparent huge pages"));
        assert_eq!(none.request(PagePolicy::Huge), Request::None);
    }

    proptest! {
        #[test]
        fn no_setting_panics(text in ".{0,40}") {
            let _ = chosen(&text);
        }
    }
}
