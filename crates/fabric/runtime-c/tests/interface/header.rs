// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony.h` against the library: functions, and the layout of types as the C compiler sees it.

use std::collections::BTreeSet;
use std::mem::offset_of;

use colony_runtime_c::*;
use object::{Object as _, ObjectSymbol as _};

use crate::examples::{compile, folder, library, run};

/// The functions that the header declares: names before a parenthesis at the beginning of a declaration.
fn declared() -> BTreeSet<String> {
    let text = std::fs::read_to_string(folder().join("include/colony.h")).expect("the header");
    let mut code = String::new();
    for (number, part) in text.split("/*").enumerate() {
        code += if number == 0 { part } else { part.split_once("*/").map_or("", |(_, rest)| rest) };
    }
    let lines = code.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let lines = lines.filter(|line| !line.starts_with("typedef") && !line.starts_with("static"));
    let names = lines.filter_map(|line| {
        let before = line.split_once('(')?.0;
        before.rsplit([' ', '*']).next().map(str::to_owned)
    });
    names.collect()
}

#[test]
fn the_header_declares_exactly_what_the_library_exports() {
    let bytes = std::fs::read(library()).expect("the library");
    let file = object::File::parse(&*bytes).expect("ELF");
    let exported = file.dynamic_symbols().filter(|s| s.is_definition());
    let exported: BTreeSet<String> = exported
        .filter_map(|s| s.name().ok())
        .filter(|n| n.starts_with("colony_"))
        .map(str::to_owned)
        .collect();
    assert!(exported.len() > 30, "{exported:?}");
    assert_eq!(declared(), exported);
}

/// Sizes and offsets of a type, as the library has them.
macro_rules! layout {
    ($type:ty: $($field:ident),*) => { vec![size_of::<$type>(), $(offset_of!($type, $field)),*] };
}

#[test]
fn types_have_the_layout_that_a_c_compiler_gives_them() {
    let expected = [
        ("colony_array", layout!(ColonyArray: id, type_, dimensions, kind)),
        ("colony_index", layout!(ColonyIndex: at)),
        ("colony_element", layout!(ColonyElement: array, index)),
        ("colony_target", layout!(ColonyTarget: kind, unused, element)),
        (
            "colony_reduction",
            layout!(ColonyReduction: number, type_, elements, count, doubles, integers, indices, offsets),
        ),
        (
            "colony_class",
            layout!(ColonyClass: size, name, entries, entry_count, create, destroy, pack, unpack, entry, arrived,
                resume, reduced, quiet, state_bytes),
        ),
        ("colony_options", layout!(ColonyOptions: size, threads, steal, balance)),
    ];
    let fields: [&[&str]; 7] = [
        &["id", "type", "dimensions", "kind"],
        &["at"],
        &["array", "index"],
        &["kind", "unused", "element"],
        &["number", "type", "elements", "count", "doubles", "integers", "indices", "offsets"],
        &[
            "size",
            "name",
            "entries",
            "entry_count",
            "create",
            "destroy",
            "pack",
            "unpack",
            "entry",
            "arrived",
            "resume",
            "reduced",
            "quiet",
            "state_bytes",
        ],
        &["size", "threads", "steal", "balance"],
    ];
    let mut source = "#include <colony.h>\n#include <stdio.h>\nint main(void) {\n".to_owned();
    let mut wanted = String::new();
    for ((name, numbers), fields) in expected.iter().zip(fields) {
        source += &format!("printf(\"{name} %zu\", sizeof({name}));\n");
        wanted += &format!("{name} {}", numbers[0]);
        for (field, number) in fields.iter().zip(&numbers[1..]) {
            source += &format!("printf(\" %zu\", offsetof({name}, {field}));\n");
            wanted += &format!(" {number}");
        }
        source += "puts(\"\");\n";
        wanted += "\n";
    }
    source += "return colony_abi_version() != COLONY_ABI_VERSION;\n}\n";
    let temporary = tempfile::tempdir().expect("a folder");
    let file = temporary.path().join("layout.c");
    std::fs::write(&file, source).expect("a file");
    let Some(program) = compile("cc", &["-std=c11"], &[&file], temporary.path(), false) else { return };
    assert_eq!(run(&program, &[], 1), (Some(0), wanted, String::new()));
}
