// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processor of an emulated machine, for Linux nodes and compute nodes alike.

use std::path::Path;

use serde::Serialize;

use crate::VmError;

/// The emulated processor: fast string instructions are the slow way to copy where each is emulated by itself.
const CPU: &str = "max,-erms,-fsrm";

/// Execution of a machine's instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accel {
    /// Emulation with one thread of the host for each CPU; time as on the host. Works everywhere.
    #[default]
    Emulated,
    /// Emulation of all CPUs in turn on one thread of the host; time as on the host.
    SingleThread,
    /// Emulation that counts instructions instead of time: each takes `1 << shift` ns, and while the machine idles its
    /// clock jumps to the next timer. Other work of the host cannot be seen in the machine. One CPU only.
    Counted {
        /// Power of two, ns; at most 10.
        shift: u8,
    },
    /// The host's processor, by `/dev/kvm`.
    Kvm,
}

impl Accel {
    /// Checks that a machine of so many CPUs can have it, on this host.
    ///
    /// # Errors
    /// [`VmError::Wrong`].
    pub fn check(self, cpus: u32) -> Result<(), VmError> {
        let wrong = |text: String| Err(VmError::Wrong(text));
        match self {
            Self::Counted { .. } if cpus != 1 => wrong(format!(
                "{cpus} CPUs cannot count instructions together: they would share one time; use 1 CPU with icount (--cpus 1)"
            )),
            Self::Counted { shift } if shift > 10 => {
                wrong(format!("an instruction of 2^{shift} ns is too slow; give icount at most 10"))
            }
            Self::Kvm if !Path::new("/dev/kvm").exists() => {
                wrong("there is no /dev/kvm here; run without KVM".into())
            }
            _ => Ok(()),
        }
    }

    /// CPUs of the host that a machine of so many keeps busy at most.
    #[must_use]
    pub const fn host_cpus(self, cpus: u32) -> u32 {
        match self {
            Self::SingleThread | Self::Counted { .. } => 1,
            Self::Emulated | Self::Kvm => cpus,
        }
    }

    /// QEMU's options for it. Emulation keeps translated code in so many MiB; `None`: as many as QEMU's default.
    #[must_use]
    pub fn options(self, translated_mib: Option<u32>) -> Vec<String> {
        let buffer = translated_mib.map_or(String::new(), |mib| format!(",tb-size={mib}"));
        let tcg = |thread: &str| format!("tcg,thread={thread}{buffer}");
        let (accel, cpu) = match self {
            Self::Emulated => (tcg("multi"), CPU.to_owned()),
            Self::SingleThread => (tcg("single"), CPU.to_owned()),
            // no randomness from the host's processor
            Self::Counted { .. } => (tcg("single"), format!("{CPU},-rdrand,-rdseed")),
            Self::Kvm => ("kvm".to_owned(), "host".to_owned()),
        };
        let mut options = vec!["-accel".to_owned(), accel, "-cpu".to_owned(), cpu];
        if let Self::Counted { shift } = self {
            options.extend(["-icount".to_owned(), format!("shift={shift},sleep=off")]);
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_name_accelerator_and_processor() {
        let line = |accel: Accel, mib| accel.options(mib).join(" ");
        assert_eq!(line(Accel::Emulated, None), "-accel tcg,thread=multi -cpu max,-erms,-fsrm");
        assert_eq!(
            line(Accel::SingleThread, Some(32)),
            "-accel tcg,thread=single,tb-size=32 -cpu max,-erms,-fsrm"
        );
        assert_eq!(
            line(Accel::Counted { shift: 1 }, None),
            "-accel tcg,thread=single -cpu max,-erms,-fsrm,-rdrand,-rdseed -icount shift=1,sleep=off"
        );
        assert_eq!(line(Accel::Kvm, Some(32)), "-accel kvm -cpu host");
    }

    #[test]
    fn a_machine_on_one_thread_keeps_one_cpu_busy() {
        let all = [Accel::Emulated, Accel::SingleThread, Accel::Counted { shift: 0 }, Accel::Kvm];
        assert_eq!(all.map(|accel| accel.host_cpus(4)), [4, 1, 1, 4]);
    }
}
