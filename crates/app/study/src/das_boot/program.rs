// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that prints the time since its node was switched on, and ends: a static ELF file of any size.

/// The code: `clock_gettime(CLOCK_MONOTONIC)`, the nanoseconds as 16 hexadecimal digits to standard output, `exit_group(0)`.
const CODE: [u8; 95] = [
    0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228 (clock_gettime)
    0xbf, 0x01, 0x00, 0x00, 0x00, // mov edi, 1
    0x48, 0x8d, 0x74, 0x24, 0xc0, // lea rsi, [rsp-64]
    0x0f, 0x05, // syscall
    0x48, 0x69, 0x1e, 0x00, 0xca, 0x9a, 0x3b, // imul rbx, [rsi], 1000000000
    0x48, 0x03, 0x5e, 0x08, // add rbx, [rsi+8]
    0x48, 0x8d, 0x74, 0x24, 0xe0, // lea rsi, [rsp-32]
    0xb9, 0x10, 0x00, 0x00, 0x00, // mov ecx, 16
    0x48, 0xc1, 0xc3, 0x04, // next: rol rbx, 4
    0x89, 0xd8, // mov eax, ebx
    0x83, 0xe0, 0x0f, // and eax, 15
    0x3c, 0x0a, // cmp al, 10
    0x72, 0x02, // jb digit
    0x04, 0x27, // add al, 39
    0x04, 0x30, // digit: add al, 48
    0x88, 0x06, // mov [rsi], al
    0x48, 0xff, 0xc6, // inc rsi
    0xff, 0xc9, // dec ecx
    0x75, 0xe6, // jnz next
    0xb8, 0x01, 0x00, 0x00, 0x00, // mov eax, 1 (write)
    0xbf, 0x01, 0x00, 0x00, 0x00, // mov edi, 1
    0x48, 0x8d, 0x74, 0x24, 0xe0, // lea rsi, [rsp-32]
    0xba, 0x10, 0x00, 0x00, 0x00, // mov edx, 16
    0x0f, 0x05, // syscall
    0xb8, 0xe7, 0x00, 0x00, 0x00, // mov eax, 231 (exit_group)
    0x31, 0xff, // xor edi, edi
    0x0f, 0x05, // syscall
];

const HEADER: usize = 64;
const SEGMENT: usize = 56;
const PAGE: usize = 4096;
const CODE_AT: u64 = 0x40_0000;
const DATA_AT: u64 = 0x60_0000;

/// The program with so many bytes of initialized data, none of which is zero.
pub(super) fn with_data(bytes: usize) -> Vec<u8> {
    let segments = if bytes > 0 { 2 } else { 1 };
    let code_at = HEADER + segments * SEGMENT;
    let code_end = code_at + CODE.len();
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    // entry, program headers, section headers; flags
    for word in [CODE_AT + code_at as u64, HEADER as u64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [HEADER, SEGMENT, segments, 64, 0, 0] {
        file.extend((half as u16).to_le_bytes());
    }
    // kind and rights (read and execute, read and write), offset, two addresses, two sizes, alignment
    let mut segment = |rights: u32, offset: usize, address: u64, size: usize| {
        file.extend(1_u32.to_le_bytes());
        file.extend(rights.to_le_bytes());
        for word in [offset as u64, address, address, size as u64, size as u64, PAGE as u64] {
            file.extend(word.to_le_bytes());
        }
    };
    segment(5, 0, CODE_AT, code_end);
    if bytes > 0 {
        segment(6, PAGE, DATA_AT, bytes);
    }
    file.extend(CODE);
    if bytes > 0 {
        file.resize(PAGE, 0);
        file.resize(PAGE + bytes, 0xa5);
    }
    file
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn it_is_a_program_of_linux_too() {
        let folder = tempfile::tempdir().expect("a folder");
        for bytes in [0, 3 << 20] {
            let path = folder.path().join(bytes.to_string());
            std::fs::write(&path, with_data(bytes)).expect("written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("ours");
            let out = Command::new(&path).output().expect("it runs");
            assert!(out.status.success(), "{out:?}");
            let text = String::from_utf8(out.stdout).expect("digits");
            assert!(text.len() == 16 && u64::from_str_radix(&text, 16).expect("digits") > 0, "{text}");
        }
    }
}
