// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders of the host that jobs on Linux I/O nodes use.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Exports of an I/O node at most.
pub const MOST_EXPORTS: usize = 8;

/// A folder of the host, for the jobs on Linux I/O nodes: `DIR`, or `DIR:ro` if they may only read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Export {
    path: PathBuf,
    read_only: bool,
}

/// A folder that cannot be exported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// It is no absolute path, or not the shortest one.
    #[error("{0:?} cannot be exported: name an absolute path without . and ..")]
    Path(String),
    /// It would hide what every job has.
    #[error("{0} cannot be exported: it hides files of the I/O node; name a folder below it")]
    Hides(Export),
    /// One is in the other.
    #[error("{0} and {1} cannot both be exported: one is inside the other; leave one out")]
    Overlap(Export, Export),
    /// There are too many.
    #[error("{0} folders cannot be exported: {MOST_EXPORTS} at most; name a folder above them")]
    TooMany(usize),
}

/// Folders of an I/O node that a job has in any case.
const OWN: [&str; 2] = ["/dev", "/proc"];

impl Export {
    /// Its path, on the host and in the I/O node.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns `true` if jobs may only read it.
    #[must_use]
    pub const fn read_only(&self) -> bool {
        self.read_only
    }

    /// Refuses folders that cannot be exported together.
    ///
    /// # Errors
    /// [`ExportError`].
    pub fn check(all: &[Self]) -> Result<(), ExportError> {
        if all.len() > MOST_EXPORTS {
            return Err(ExportError::TooMany(all.len()));
        }
        for (n, one) in all.iter().enumerate() {
            if let Some(other) =
                all[..n].iter().find(|o| o.path.starts_with(&one.path) || one.path.starts_with(&o.path))
            {
                return Err(ExportError::Overlap(other.clone(), one.clone()));
            }
        }
        Ok(())
    }
}

impl FromStr for Export {
    type Err = ExportError;

    fn from_str(text: &str) -> Result<Self, ExportError> {
        let (name, read_only) = text.strip_suffix(":ro").map_or((text, false), |name| (name, true));
        let path: PathBuf = Path::new(name).components().collect();
        let is_plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
        let is_whole = path.is_absolute() && path.components().all(is_plain) && !name.contains('\0');
        // what has no other spelling is compared by its parts
        if !is_whole || name.split('/').any(|part| part == ".") {
            return Err(ExportError::Path(name.to_owned()));
        }
        let is_hiding = path.parent().is_none() || OWN.iter().any(|own| path.starts_with(own));
        let export = Self { path, read_only };
        if is_hiding { Err(ExportError::Hides(export)) } else { Ok(export) }
    }
}

impl fmt::Display for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.path.display(), if self.read_only { ":ro" } else { "" })
    }
}

impl TryFrom<String> for Export {
    type Error = ExportError;

    fn try_from(text: String) -> Result<Self, ExportError> {
        text.parse()
    }
}

impl From<Export> for String {
    fn from(export: Export) -> Self {
        export.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(text: &str) -> Export {
        text.parse().expect("one")
    }

    #[test]
    fn exports_are_absolute_folders_that_hide_nothing() {
        let one = export("/scratch//x/:ro");
        assert_eq!((one.path(), one.read_only()), (Path::new("/scratch/x"), true));
        assert_eq!(one.to_string(), "/scratch/x:ro");
        assert_eq!(serde_json::to_string(&one).expect("JSON"), r#""/scratch/x:ro""#);
        assert!(serde_json::from_str::<Export>(r#""/a/../b""#).is_err());
        for bad in ["", "relative", "/a/../b", "/a/./b", "/a\0"] {
            assert_eq!(bad.parse::<Export>(), Err(ExportError::Path(bad.into())), "{bad:?}");
        }
        for bad in ["/", "/:ro", "/proc", "/dev/shm"] {
            assert!(matches!(bad.parse::<Export>(), Err(ExportError::Hides(_))), "{bad:?}");
        }
    }

    #[test]
    fn exports_do_not_overlap() {
        assert_eq!(Export::check(&[export("/a"), export("/ab"), export("/b/a")]), Ok(()));
        let both = [export("/a/b"), export("/a:ro")];
        let error = Export::check(&both).expect_err("one in the other").to_string();
        assert!(error.contains("/a/b and /a:ro"), "{error}");
        assert!(matches!(Export::check(&[export("/a"), export("/a")]), Err(ExportError::Overlap(..))));
        let many: Vec<Export> = (0..9).map(|n| export(&format!("/{n}"))).collect();
        assert_eq!(Export::check(&many), Err(ExportError::TooMany(9)));
    }
}
