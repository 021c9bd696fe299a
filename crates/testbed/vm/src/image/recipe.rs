// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images described in TOML: those that come with Colony (`images/` in its sources), and a user's own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Image;
use crate::VmError;

/// Recipes that need no file, by name.
const KNOWN: [(&str, &str); 4] = [
    ("compute-linux", include_str!("../../../../../images/compute-linux.toml")),
    ("io-node", include_str!("../../../../../images/io-node.toml")),
    ("node", include_str!("../../../../../images/node.toml")),
    ("shell", include_str!("../../../../../images/shell.toml")),
];

/// The parts of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Recipe {
    /// True if busybox and its programs are in it.
    pub busybox: bool,
    /// Programs of the host, with the libraries they need ([`Image::program`]).
    pub programs: Vec<PathBuf>,
    /// Folders of the host with everything in them ([`Image::tree`]).
    pub trees: Vec<PathBuf>,
    /// Empty folders of the guest.
    pub folders: Vec<PathBuf>,
    /// Files of the host by their path in the guest.
    pub files: BTreeMap<PathBuf, PathBuf>,
    /// Texts by their path in the guest.
    pub texts: BTreeMap<PathBuf, String>,
    /// Programs written here, by their path in the guest; the first line names their shell.
    pub scripts: BTreeMap<PathBuf, String>,
    /// Symbolic links: where they point, by their path in the guest.
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// Kernel modules, loaded before the job starts ([`Image::module`]).
    pub modules: Vec<String>,
    /// True if programs keep symbols and debugging information.
    pub keep_symbols: bool,
}

impl Recipe {
    /// The recipe that `name` means: one that comes with Colony, or a file.
    ///
    /// # Errors
    /// No such recipe, or a file that is none.
    pub fn find(name: &str) -> Result<Self, VmError> {
        if let Some((_, text)) = KNOWN.iter().find(|(known, _)| *known == name) {
            return Self::parse(text, Path::new(name));
        }
        let path = Path::new(name);
        let text = std::fs::read_to_string(path).map_err(|e| {
            let known: Vec<&str> = KNOWN.iter().map(|(name, _)| *name).collect();
            VmError::Wrong(format!(
                "there is no image recipe {name} ({e}); name a TOML file or one of: {}",
                known.join(", ")
            ))
        })?;
        Self::parse(&text, path)
    }

    /// Reads a recipe; `path` is for errors.
    ///
    /// # Errors
    /// The text is no recipe.
    pub fn parse(text: &str, path: &Path) -> Result<Self, VmError> {
        toml::from_str(text).map_err(|e| {
            VmError::Wrong(format!("{} is no image recipe: {}", path.display(), e.to_string().trim()))
        })
    }

    /// The image it describes, of what this host has.
    ///
    /// # Errors
    /// A program, file or folder that is not here.
    pub fn image(&self) -> Result<Image, VmError> {
        let mut image = Image::new();
        for program in &self.programs {
            image.program(program)?;
        }
        for tree in &self.trees {
            image.tree(tree)?;
        }
        for folder in &self.folders {
            image.folder(folder);
        }
        for (guest, host) in &self.files {
            image.file(host, guest);
        }
        for (guest, text) in &self.texts {
            image.bytes(guest, text.as_str(), 0o644);
        }
        for (guest, text) in &self.scripts {
            image.bytes(guest, text.as_str(), 0o755);
        }
        for (guest, target) in &self.links {
            image.link(guest, target);
        }
        for module in &self.modules {
            image.module(module);
        }
        if self.keep_symbols {
            image.keep_symbols();
        }
        // last: its programs stand back where others have their names
        if self.busybox {
            image.busybox()?;
        }
        Ok(image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn those_that_come_with_colony_are_recipes() {
        for (name, _) in KNOWN {
            let recipe = Recipe::find(name).expect("known");
            assert!(recipe.busybox != (name == "io-node"), "{name}");
        }
        let error = Recipe::find("nowhere").expect_err("unknown");
        assert!(
            error.is_wrong_use() && error.to_string().contains("compute-linux, io-node, node, shell"),
            "{error}"
        );
    }

    #[test]
    fn an_unknown_word_is_an_error_with_its_line() {
        let error =
            Recipe::parse("busybox = true\nprogramms = []", Path::new("x.toml")).expect_err("misspelt");
        assert!(error.to_string().contains("line 2") && error.to_string().contains("x.toml"), "{error}");
    }

    #[test]
    fn all_it_names_is_in_the_image() {
        let recipe = r##"
            folders = ["/data"]
            texts."/etc/motd" = "hello"
            scripts."/bin/go" = "#!/bin/sh\necho gone"
            links."/bin/went" = "go"
        "##;
        let image = Recipe::parse(recipe, Path::new("x")).and_then(|r| r.image()).expect("an image");
        let paths: Vec<_> = image.contents().map(|c| c.path.display().to_string()).collect();
        for path in ["/data", "/etc/motd", "/usr/bin/go", "/usr/bin/went", "/init", "/bin"] {
            assert!(paths.iter().any(|p| p == path), "{path} is not in {paths:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-z\\[\\]=\"/.{}\n ]{0,80}") {
            let _ = Recipe::parse(&text, Path::new("x"));
        }
    }
}
