// SPDX-License-Identifier: MIT OR Apache-2.0
//! The attributes of the tree's files: inode numbers, permission bits, and the right that a write needs.

use colony_client::File;

use crate::access::Right;

/// The right that a writer of `file` needs; `None` if nobody may write it.
pub(crate) const fn right_to_write(file: File) -> Option<Right> {
    match file {
        File::Period | File::DutyCycle | File::Clock => Some(Right::SetWindows),
        File::Job => Some(Right::RegisterJob),
        File::Stats | File::Limits | File::LastError => None,
    }
}

/// The inode number of `file`; 1 is the directory.
pub(crate) const fn inode(file: File) -> u64 {
    2 + file as u64
}

/// The file of that inode number.
pub(crate) fn of_inode(number: u64) -> Option<File> {
    File::ALL.into_iter().find(|&f| inode(f) == number)
}

/// Permission bits that `file` shows. They inform; the daemon decides by the configuration.
pub(crate) const fn mode(file: File) -> u16 {
    match file {
        File::Job => 0o666,
        File::Period | File::DutyCycle | File::Clock => 0o644,
        File::Stats | File::Limits | File::LastError => 0o444,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_found_by_number() {
        for file in File::ALL {
            assert_eq!(of_inode(inode(file)), Some(file));
        }
        assert_eq!((of_inode(1), of_inode(99)), (None, None));
    }
}
