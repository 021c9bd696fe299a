// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words that stand for the field's own term, in the documents: a list, so that nobody has to judge.

use std::path::PathBuf;

use crate::{read, root};

/// Words, and what to write instead.
const WORDS: [(&str, &str); 12] = [
    ("as delivered", "by default"),
    ("by what means", "by which backend"),
    ("comes to nothing", "has no effect"),
    ("gave up", "stopped, or timed out"),
    ("gives up", "stops, or times out"),
    ("has patience", "waits, until the timeout"),
    ("heed", "apply, or use"),
    ("its own class", "its original scheduling policy"),
    ("mind the", "note the"),
    ("wears out", "expires"),
    ("whatever means", "any backend"),
    ("whoever", "the process, or the user, that"),
];

fn documents() -> Vec<PathBuf> {
    let pages =
        std::fs::read_dir(root().join("docs")).expect("the book").map(|e| e.expect("readable").path());
    let single = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "kernel/cnk/README.md"];
    let all = pages.chain(single.map(|name| root().join(name)));
    all.filter(|p| p.extension().is_some_and(|e| e == "md")).collect()
}

#[test]
fn documents_use_the_words_of_the_field() {
    let mut found = Vec::new();
    for page in documents() {
        for (line, text) in read(&page).to_lowercase().lines().enumerate() {
            // the name of a test or a function is one word
            let words = text.replace(|c: char| !c.is_alphanumeric() && !matches!(c, '-' | '_'), " ");
            let words = format!(" {} ", words.split_whitespace().collect::<Vec<_>>().join(" "));
            let hits = WORDS.iter().filter(|(word, _)| words.contains(&format!(" {word} ")));
            found.extend(
                hits.map(|(word, better)| {
                    format!("{}:{}: `{word}`; write: {better}", page.display(), line + 1)
                }),
            );
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
