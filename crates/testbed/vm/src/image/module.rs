// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel modules by name, with those they depend on. The list `modules.dep` is made where a kernel is installed,
//! and ours are only unpacked: the modules themselves say what they need (`modinfo -F depends`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::elf::{ElfFile, ElfFile64};
use object::{Object as _, ObjectSection as _};

use crate::VmError;
use crate::tool;

/// A module, ready to be loaded.
#[derive(Debug, Clone)]
pub(crate) struct Module {
    /// Its name, with `_` where its file may have `-`.
    pub name: String,
    /// The module itself, uncompressed.
    pub data: Vec<u8>,
}

/// The modules `names` and all they depend on, in the order in which they can be loaded. A name that is built into the
/// kernel needs nothing.
pub(crate) fn closure(folder: &Path, names: &[String]) -> Result<Vec<Module>, VmError> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let files = files(folder)?;
    let builtin = builtin(folder);
    let mut ordered: Vec<Module> = Vec::new();
    for name in names {
        add(&normal(name), folder, &files, &builtin, &mut ordered, 0)?;
    }
    Ok(ordered)
}

/// Far above any real chain: what goes deeper goes in a circle.
const DEEPEST: u32 = 32;

fn add(
    name: &str,
    folder: &Path,
    files: &BTreeMap<String, PathBuf>,
    builtin: &[String],
    ordered: &mut Vec<Module>,
    depth: u32,
) -> Result<(), VmError> {
    if ordered.iter().any(|m| m.name == name) || builtin.iter().any(|b| b == name) {
        return Ok(());
    }
    let no_module = |reason: &str| VmError::File { path: folder.into(), reason: reason.into() };
    let file = files.get(name).ok_or_else(|| no_module(&format!("there is no module {name}")))?;
    if depth > DEEPEST {
        return Err(no_module(&format!("the module {name} depends on itself")));
    }
    let data = read(file)?;
    for needed in depends(&data).map_err(|reason| VmError::File { path: file.clone(), reason })? {
        add(&normal(&needed), folder, files, builtin, ordered, depth + 1)?;
    }
    ordered.push(Module { name: name.into(), data });
    Ok(())
}

fn normal(name: &str) -> String {
    name.replace('-', "_")
}

fn files(folder: &Path) -> Result<BTreeMap<String, PathBuf>, VmError> {
    let mut all = BTreeMap::new();
    let mut to_read = vec![folder.to_path_buf()];
    while let Some(folder) = to_read.pop() {
        let entries = std::fs::read_dir(&folder)
            .map_err(VmError::io(format!("the kernel's modules in {}", folder.display())))?;
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                to_read.push(path);
            } else if let Some((name, "" | ".xz" | ".gz" | ".zst")) = name.split_once(".ko") {
                all.insert(normal(name), path);
            }
        }
    }
    Ok(all)
}

fn builtin(folder: &Path) -> Vec<String> {
    let list = std::fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
    let name = |line: &str| Some(normal(Path::new(line).file_name()?.to_str()?.strip_suffix(".ko")?));
    list.lines().filter_map(name).collect()
}

/// The module's bytes, uncompressed by the tool that its ending names.
fn read(file: &Path) -> Result<Vec<u8>, VmError> {
    let (tool, package) = match file.extension().and_then(|e| e.to_str()) {
        Some("xz") => ("xz", "xz-utils"),
        Some("gz") => ("gzip", "gzip"),
        Some("zst") => ("zstd", "zstd"),
        _ => return std::fs::read(file).map_err(VmError::io(file.display().to_string())),
    };
    let mut command = Command::new(tool);
    command.args(["--decompress", "--stdout"]).arg(file);
    tool::output(command, tool, package, &format!("uncompressing {}", file.display()))
}

/// The modules on which a module depends, by its own record.
fn depends(module: &[u8]) -> Result<Vec<String>, String> {
    let file: ElfFile64<'_> = ElfFile::parse(module).map_err(|e| format!("it is no kernel module ({e})"))?;
    let section = file.section_by_name(".modinfo").ok_or("it is no kernel module: it has no .modinfo")?;
    let info = section.data().map_err(|e| e.to_string())?;
    let depends = info.split(|&b| b == 0).find_map(|line| line.strip_prefix(b"depends="));
    let names = String::from_utf8_lossy(depends.unwrap_or_default()).into_owned();
    Ok(names.split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn built_in_modules_need_nothing_and_missing_ones_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("modules.builtin"), "kernel/fs/fuse/fuse.ko\n").expect("a file");
        std::fs::create_dir(folder.path().join("kernel")).expect("a folder");
        assert!(closure(folder.path(), &["fuse".into()]).expect("built in").is_empty());
        let error = closure(folder.path(), &["virtio-net".into()]).expect_err("nowhere").to_string();
        assert!(error.contains("no module virtio_net"), "{error}");
        std::fs::write(folder.path().join("kernel/virtio_net.ko"), "text").expect("a file");
        let error = closure(folder.path(), &["virtio_net".into()]).expect_err("text").to_string();
        assert!(error.contains("no kernel module"), "{error}");
    }

    proptest! {
        #[test]
        fn no_file_makes_it_panic(mut data in proptest::collection::vec(any::<u8>(), 64..512), elf: bool) {
            if elf {
                data[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x00");
            }
            let _ = depends(&data);
        }
    }
}
