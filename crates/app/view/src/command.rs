// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands in a report of 80 columns. They are there to be pasted, so one that is shown in part, or on several lines, must not run as
//! another command than it is.

use crate::table::{clipped, name};

/// Most lines of a command in a report.
const MOST_LINES: usize = 4;

/// A command in a report.
pub(crate) struct Shown {
    pub(crate) lines: Vec<String>,
    /// `true` if the lines have only its beginning.
    pub(crate) is_cut: bool,
}

/// The command in lines of at most `room` columns. A shell reads them as the command if all are pasted. A command that has no such lines
/// is one line with its beginning, as a comment.
pub(crate) fn shown(command: &str, room: usize) -> Shown {
    let clean = name(command, usize::MAX - 1);
    if clean.chars().count() <= room {
        return Shown { lines: vec![clean], is_cut: false };
    }
    let is_comment = clean.starts_with('#');
    let lines = match is_comment {
        true => joined(clean.split(' '), room, ""),
        false => joined(words(&clean).into_iter(), room, " \\"),
    };
    lines.map_or_else(
        || {
            let comment = if is_comment { clean } else { format!("# {clean}") };
            Shown { lines: vec![clipped(&comment, room)], is_cut: true }
        },
        |lines| Shown { lines, is_cut: false },
    )
}

/// Words on lines of at most `room` columns, each line but the last with `end` behind it; `None` if a word is too long or there are more
/// than [`MOST_LINES`].
fn joined<'a>(words: impl Iterator<Item = &'a str>, room: usize, end: &str) -> Option<Vec<String>> {
    let room = room.checked_sub(end.len())?;
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        let (width, count) = (word.chars().count(), lines.len());
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + width <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ if width > room || count == MOST_LINES => return None,
            _ => lines.push(word.to_owned()),
        }
    }
    let last = lines.len().checked_sub(1)?;
    lines[..last].iter_mut().for_each(|line| line.push_str(end));
    Some(lines)
}

/// The parts of a shell command between blanks. A blank inside quotes, or behind a backslash, belongs to its part.
fn words(command: &str) -> Vec<&str> {
    let (mut words, mut begin) = (Vec::new(), 0);
    let (mut quote, mut is_escaped) = (None, false);
    for (at, c) in command.char_indices() {
        match (c, quote) {
            _ if is_escaped => is_escaped = false,
            // a backslash inside single quotes is a backslash
            ('\\', Some('"') | None) => is_escaped = true,
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            (' ', None) => {
                words.push(&command[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    words.push(&command[begin..]);
    words
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use colony_doctor::remedy::quote;

    use super::*;

    /// A list of CPUs whose commands are wider than a report.
    const LIST: &str = "1-127,129-255,257-383,385-511,513-639,641-767,769-895,897-1023";

    #[test]
    fn a_command_that_has_no_room_is_a_comment_and_is_not_cut_within_a_number() {
        let parameter = format!("# add to the kernel command line, then reboot: nohz_full={LIST}");
        let shown = shown(&parameter, 71);
        assert!(shown.is_cut);
        assert_eq!(shown.lines, ["# add to the kernel command line, then reboot: nohz_full=1-127,…"]);
        let shown = super::shown(&format!("echo {LIST},1025-2047 > /sys/fs/cgroup/job/cpuset.cpus"), 71);
        assert!(shown.is_cut);
        assert_eq!(shown.lines, [format!("# echo {LIST},…")]);
        let files: Vec<String> = (100..200).map(|n| format!("/proc/irq/{n}/smp_affinity_list")).collect();
        let shown = super::shown(&format!("echo 0 | tee {} > /dev/null", files.join(" ")), 71);
        assert!(
            shown.is_cut && shown.lines.len() == 1 && shown.lines[0].starts_with("# echo 0 | tee /proc/")
        );
    }

    #[test]
    fn a_parameter_that_fits_a_line_is_whole_on_its_own() {
        let shown = shown(
            "# add to the kernel command line, then reboot: isolcpus=managed_irq,domain,1-127,129-255",
            71,
        );
        assert_eq!(
            shown.lines,
            ["# add to the kernel command line, then reboot:", "isolcpus=managed_irq,domain,1-127,129-255"]
        );
        assert!(!shown.is_cut);
    }

    #[test]
    fn pasted_lines_are_the_command() {
        let printed =
            |script: &str| Command::new("sh").args(["-c", script]).output().expect("a shell").stdout;
        let texts = [
            "a b",
            "it's",
            r"c\d \",
            "\"e f\"",
            "  ",
            "$HOME",
            "1-127,129-255",
            "äöü ß",
            "\t\n",
            "# g",
            "",
            "; h",
        ];
        let quoted: Vec<String> = texts.iter().map(|text| quote(text)).collect();
        let plain = r#"printf '%s;' a\ b "c \" d" e"#.to_owned();
        for command in [format!("printf '%s;' {}; echo {}", quoted.join(" "), quoted[0]), plain] {
            let mut whole = 0;
            for room in (5..200).step_by(6) {
                let shown = shown(&command, room);
                assert!(shown.lines.iter().all(|line| line.chars().count() <= room), "{:?}", shown.lines);
                // as a terminal has them, indented
                let script = shown.lines.join("\n         ");
                let wanted = if shown.is_cut { Vec::new() } else { printed(&command) };
                assert_eq!(printed(&script), wanted, "{script}");
                whole += usize::from(!shown.is_cut && shown.lines.len() > 1);
            }
            assert!(whole > 0, "{command}");
        }
    }
}
