// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of the kernel's functions, from `/proc/kallsyms`.

/// The file with the kernel's symbols.
const KALLSYMS: &str = "/proc/kallsyms";

/// The reasons for a stack without names.
#[derive(Debug, thiserror::Error)]
pub enum SymbolsError {
    /// The file cannot be read.
    #[error("reading {KALLSYMS}: {0}; the kernel needs CONFIG_KALLSYMS")]
    Read(std::io::Error),
    /// The kernel hides the addresses from this process.
    #[error(
        "the kernel hides the addresses of its functions from this process (by kernel.kptr_restrict and \
         kernel.perf_event_paranoid); run as root or with CAP_SYSLOG"
    )]
    Privilege,
    /// The kernel hides the addresses from everybody.
    #[error(
        "the kernel hides the addresses of its functions (kernel.kptr_restrict is 2); run `sysctl kernel.kptr_restrict=1` as root"
    )]
    Hidden,
}

impl SymbolsError {
    /// The error for hidden addresses under this value of `kernel.kptr_restrict`.
    fn hidden(kptr_restrict: &str) -> Self {
        match kptr_restrict.trim() {
            "2" => Self::Hidden,
            _ => Self::Privilege,
        }
    }
}

/// Functions of the kernel and of its modules by address.
#[derive(Debug)]
pub struct Symbols {
    /// Address and name, ascending.
    functions: Vec<(u64, String)>,
}

/// Most frames of the tracing itself.
const TRACING_FRAMES: usize = 6;
/// Longest function: an address farther behind the start of one is in none of them.
const LONGEST_FUNCTION: u64 = 1 << 18;
/// Frames of the tracing itself, the innermost of a stack.
const TRACING: [&str; 5] = ["bpf_", "__bpf_", "__traceiter_", "__SCT__tp_func", "trace_call_bpf"];

impl Symbols {
    /// Reads the symbols of the running kernel.
    ///
    /// # Errors
    /// [`SymbolsError`] says why there are none, and what to do.
    pub fn of_kernel() -> Result<Self, SymbolsError> {
        let symbols = Self::parse(&std::fs::read(KALLSYMS).map_err(SymbolsError::Read)?);
        if symbols.functions.is_empty() {
            let value = std::fs::read_to_string("/proc/sys/kernel/kptr_restrict");
            return Err(SymbolsError::hidden(&value.unwrap_or_else(|_| "not readable".into())));
        }
        Ok(symbols)
    }

    /// Reads lines `address type name [module]`; addresses of 0 are hidden ones, and left out.
    pub(crate) fn parse(kallsyms: &[u8]) -> Self {
        let mut functions: Vec<(u64, String)> =
            String::from_utf8_lossy(kallsyms).lines().filter_map(function).collect();
        functions.sort();
        Self { functions }
    }

    /// The functions of a stack, the innermost first, as `function+0x1f` or `function+0x1f [module]`; without the frames of
    /// the tracing itself. An address outside of all functions is `?`: the address itself would tell where the kernel lies.
    #[must_use]
    pub fn names(&self, addresses: &[u64]) -> Vec<String> {
        let mut names: Vec<String> = addresses.iter().map(|&address| self.name(address)).collect();
        let innermost = names.get(..names.len().min(TRACING_FRAMES)).unwrap_or_default();
        let own = innermost.iter().rposition(|name| TRACING.iter().any(|own| name.starts_with(own)));
        names.drain(..own.map_or(0, |last| last + 1));
        names
    }

    /// The function that `address` lies in, without its offset: `function` or `function [module]`; `None` if it is in none.
    #[must_use]
    pub fn function_at(&self, address: u64) -> Option<String> {
        let behind = self.functions.partition_point(|(start, _)| *start <= address);
        let (start, name) = self.functions.get(behind.checked_sub(1)?)?;
        (address - start < LONGEST_FUNCTION).then(|| name.replace('\t', " "))
    }

    fn name(&self, address: u64) -> String {
        // a return address may lie behind the last instruction of its function
        let behind = self.functions.partition_point(|(start, _)| *start < address);
        let before = behind.checked_sub(1).and_then(|i| self.functions.get(i));
        match before.filter(|(start, _)| address - start < LONGEST_FUNCTION) {
            Some((start, name)) => match name.split_once('\t') {
                Some((name, module)) => format!("{name}+{:#x} {module}", address - start),
                None => format!("{name}+{:#x}", address - start),
            },
            None => "?".into(),
        }
    }
}

/// One line of the file, if it is that of a function.
fn function(line: &str) -> Option<(u64, String)> {
    let mut words = line.splitn(3, ' ');
    let address = u64::from_str_radix(words.next()?, 16).ok().filter(|&a| a != 0)?;
    let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
    is_code.then_some((address, words.next()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILE: &[u8] =
        b"ffffffff81000000 T _stext\nffffffff81000100 t schedule\nffffffff81000200 D jiffies\n\
        ffffffff81000300 t __traceiter_sched_switch\nffffffffc0000000 t virtnet_poll\t[virtio_net]\n";

    #[test]
    fn an_address_is_named_by_the_function_before_it() {
        let symbols = Symbols::parse(FILE);
        let names =
            symbols.names(&[0xffff_ffff_8100_0310, 0xffff_ffff_8100_012e, 0xffff_ffff_c000_0010, 0x10]);
        assert_eq!(
            names,
            ["schedule+0x2e", "virtnet_poll+0x10 [virtio_net]", "?"],
            "without the frames of the tracing"
        );
        // the return address behind a function's last call
        assert_eq!(symbols.names(&[0xffff_ffff_8100_0100]), ["_stext+0x100"]);
    }

    #[test]
    fn hidden_addresses_are_no_symbols() {
        let hidden = Symbols::parse(b"0000000000000000 T _stext\n0000000000000000 t schedule\n");
        assert!(hidden.functions.is_empty());
        assert!(SymbolsError::hidden("2\n").to_string().contains("sysctl kernel.kptr_restrict=1"));
        assert!(SymbolsError::hidden("1\n").to_string().contains("run as root or with CAP_SYSLOG"));
    }

    proptest! {
        #[test]
        fn no_file_and_no_address_panics(file: Vec<u8>, addresses: Vec<u64>) {
            let symbols = Symbols::parse(&file);
            let _ = symbols.names(&addresses);
            let _ = addresses.iter().map(|a| symbols.function_at(*a)).collect::<Vec<_>>();
        }
    }
}
