// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program and the libraries it cannot start without, found the way the dynamic loader finds them (ld.so(8)).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};
use object::{Endianness, StringTable};

use crate::VmError;

type Header = FileHeader64<Endianness>;

/// Folders that the loader searches last.
const DEFAULTS: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// Needs of a file, by its dynamic section.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The loader, for a program that is not static.
    pub interpreter: Option<PathBuf>,
    /// Names of libraries.
    pub libraries: Vec<String>,
    /// Folders to look in first, as written: `$ORIGIN` is the file's own.
    pub search: Vec<String>,
}

/// Reads what `data` needs; none where it is no ELF file of this machine's kind.
pub(crate) fn needs(data: &[u8]) -> Option<Result<Needs, String>> {
    if !data.starts_with(&elf::ELFMAG) {
        return None;
    }
    Some(read_needs(data).map_err(|e| e.to_string()))
}

fn read_needs(data: &[u8]) -> object::Result<Needs> {
    let header = Header::parse(data)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, data)?;
    let mut needs = Needs::default();
    for segment in segments {
        if let Some(path) = segment.interpreter(endian, data)? {
            needs.interpreter = Some(PathBuf::from(String::from_utf8_lossy(path).into_owned()));
        }
    }
    for segment in segments {
        let Some(dynamic) = segment.dynamic(endian, data)? else { continue };
        let value = |tag: i64| dynamic.iter().find(|d| d.d_tag(endian) == tag).map(|d| d.d_val(endian));
        let (Some(address), Some(size)) = (value(elf::DT_STRTAB), value(elf::DT_STRSZ)) else { continue };
        // the table is given by its address in memory
        let table = segments.iter().find_map(|s| s.data_range(endian, data, address, size).ok().flatten());
        let strings = StringTable::new(table.unwrap_or_default(), 0, size);
        let mut old_search = Vec::new();
        for d in dynamic {
            let text = || -> object::Result<String> {
                Ok(String::from_utf8_lossy(d.string(endian, strings)?).into_owned())
            };
            let folders = |text: String| text.split(':').map(str::to_owned).collect::<Vec<_>>();
            match d.d_tag(endian) {
                elf::DT_NEEDED => needs.libraries.push(text()?),
                elf::DT_RUNPATH => needs.search.extend(folders(text()?)),
                elf::DT_RPATH => old_search.extend(folders(text()?)),
                _ => {}
            }
        }
        if needs.search.is_empty() {
            needs.search = old_search;
        }
    }
    Ok(needs)
}

/// The file without the parts that are for linkers and debuggers: what follows the last segment, and the table of
/// sections. Loaders read neither. A file that carries data of its own at its end is left as it is.
pub(crate) fn strip(mut data: Vec<u8>) -> Vec<u8> {
    if let Ok(Some(end)) = end_of_segments(&data) {
        data.truncate(end);
        // offset, size and number of the section table, index of its names, in the header of a 64-bit file
        for range in [0x28..0x30, 0x3c..0x40] {
            data[range].fill(0);
        }
    }
    data
}

fn end_of_segments(data: &[u8]) -> object::Result<Option<usize>> {
    let header = Header::parse(data)?;
    let endian = header.endian()?;
    let end_of = |offset: u64, size: u64| usize::try_from(offset.saturating_add(size)).unwrap_or(usize::MAX);
    let header_end = size_of::<Header>();
    let segments = header.program_headers(endian, data)?;
    let table = usize::try_from(header.e_phoff.get(endian)).unwrap_or(usize::MAX);
    let table = table.saturating_add(size_of_val(segments));
    let ends = segments.iter().map(|s| end_of(s.p_offset(endian), s.p_filesz(endian)));
    let end = ends.chain([header_end, table]).max().unwrap_or(usize::MAX);
    // the table of sections is the last thing linkers write
    let sections = header.section_headers(endian, data)?;
    let sections_end = end_of(header.e_shoff.get(endian), size_of_val(sections) as u64);
    Ok((!sections.is_empty() && end < data.len() && sections_end >= data.len()).then_some(end))
}

/// Finds libraries, and remembers what the system's cache of them says.
#[derive(Debug, Default)]
pub(crate) struct Finder {
    cached: Option<BTreeMap<String, PathBuf>>,
}

impl Finder {
    /// All libraries that `program` needs, and those they need, with its loader. Empty for a static program or for
    /// what is no ELF file.
    pub(crate) fn closure(&mut self, program: &Path) -> Result<BTreeSet<PathBuf>, VmError> {
        let mut found = BTreeSet::new();
        let mut to_read = vec![(program.to_path_buf(), Vec::new())];
        while let Some((path, inherited)) = to_read.pop() {
            let data = fs::read(&path).map_err(VmError::io(path.display().to_string()))?;
            let Some(needs) = needs(&data) else { continue };
            let needs = needs.map_err(|e| VmError::File {
                path: path.clone(),
                reason: format!("it is no program or library of a 64-bit Linux ({e})"),
            })?;
            let mut search = resolved(&needs.search, &path);
            search.extend(inherited);
            found.extend(needs.interpreter);
            for name in &needs.libraries {
                let library = self.find(name, &search).ok_or_else(|| VmError::File {
                    path: path.clone(),
                    reason: format!("it needs the library {name}, which is in none of the loader's folders"),
                })?;
                if found.insert(library.clone()) {
                    to_read.push((library, search.clone()));
                }
            }
        }
        Ok(found)
    }

    fn find(&mut self, name: &str, search: &[PathBuf]) -> Option<PathBuf> {
        if name.contains('/') {
            return Some(name.into()).filter(|p: &PathBuf| p.is_file());
        }
        if let Some(found) = search.iter().map(|f| f.join(name)).find(|p| p.is_file()) {
            return Some(found);
        }
        if let Some(found) = self.cached.get_or_insert_with(ldconfig).get(name) {
            return Some(found.clone());
        }
        DEFAULTS.iter().map(|f| Path::new(f).join(name)).find(|p| p.is_file())
    }
}

fn resolved(search: &[String], file: &Path) -> Vec<PathBuf> {
    let real = file.canonicalize().unwrap_or_else(|_| file.into());
    let origin = real.parent().unwrap_or(Path::new("/")).display().to_string();
    let place = |s: &String| PathBuf::from(s.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin));
    search.iter().filter(|s| !s.is_empty()).map(place).collect()
}

/// Libraries by name, as the loader's cache has them. Without one, its default folders remain.
fn ldconfig() -> BTreeMap<String, PathBuf> {
    let listed = Command::new("/sbin/ldconfig").arg("-p").output();
    let text = listed.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    let mut all = BTreeMap::new();
    for (name, path) in text.lines().filter_map(cached_library) {
        // the first is the one the loader takes
        all.entry(name.to_owned()).or_insert_with(|| path.into());
    }
    all
}

/// A line of `ldconfig -p`, where it is about a library of every 64-bit processor of this kind.
fn cached_library(line: &str) -> Option<(&str, &str)> {
    let (head, path) = line.trim().split_once(" => ")?;
    let (name, kind) = head.split_once(" (")?;
    (kind.contains("x86-64") && !kind.contains("hwcap")).then_some((name, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn own() -> Vec<u8> {
        fs::read(std::env::current_exe().expect("linux")).expect("this program")
    }

    #[test]
    fn this_test_needs_the_c_library_and_a_loader_and_they_are_found() {
        let needs = needs(&own()).expect("ELF").expect("whole");
        assert!(needs.interpreter.is_some());
        assert!(needs.libraries.iter().any(|l| l.starts_with("libc.so")), "{needs:?}");
        let all = Finder::default().closure(&std::env::current_exe().expect("linux")).expect("found");
        assert!(
            all.iter().any(|l| l.ends_with("libc.so.6")) && all.contains(&needs.interpreter.expect("one"))
        );
    }

    #[test]
    fn a_stripped_program_is_smaller_and_still_runs() {
        use std::os::unix::fs::PermissionsExt as _;
        let (whole, folder) = (own(), tempfile::tempdir().expect("a folder"));
        let stripped = strip(whole.clone());
        assert!(stripped.len() < whole.len());
        let path = folder.path().join("program");
        fs::write(&path, &stripped).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
        let out = Command::new(&path).arg("--list").output().expect("it runs");
        assert!(String::from_utf8_lossy(&out.stdout).contains("a_stripped_program"));
    }

    #[test]
    fn a_script_needs_nothing_and_a_library_that_is_nowhere_is_named() {
        assert_eq!(needs(b"#!/bin/sh\n").map(|r| r.is_ok()), None);
        assert!(Finder::default().find("libnowhere.so.1", &[]).is_none());
        let line = "\tlibc.so.6 (libc6,x86-64, OS ABI: Linux 3.2.0) => /lib/x86_64-linux-gnu/libc.so.6";
        assert_eq!(cached_library(line), Some(("libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6")));
        assert_eq!(cached_library("\tlibc.so.6 (libc6) => /lib32/libc.so.6"), None);
        let origin = resolved(&["$ORIGIN/../lib".into(), String::new()], Path::new("/nowhere/bin/x"));
        assert_eq!(origin, [PathBuf::from("/nowhere/bin/../lib")]);
    }

    proptest! {
        #[test]
        fn no_file_makes_it_panic(cut in 0_usize..4096, at in 0_usize..1024, value: u8) {
            let mut data = own();
            data.truncate(cut.max(64));
            let last = data.len() - 1;
            data[at.min(last)] = value;
            let _ = needs(&data);
            let _ = strip(data);
        }
    }
}
