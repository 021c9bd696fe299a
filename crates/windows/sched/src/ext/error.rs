// SPDX-License-Identifier: MIT OR Apache-2.0
/// The error with which the scheduler did not start, or ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtError {
    /// The kernel has no sched_ext.
    #[error(
        "this kernel has no sched_ext (no /sys/kernel/sched_ext): it takes Linux 6.12 or newer with \
         CONFIG_SCHED_CLASS_EXT; the agent (--backend agent) works on every kernel"
    )]
    Kernel,
    /// Another scheduler is loaded.
    #[error(
        "another sched_ext scheduler is loaded ({0}), and there can be one: end it (a second colonyd or \
         colony run also counts), or take --backend agent"
    )]
    Taken(String),
    /// The kernel was built with type information that no scheduler can be fitted to.
    #[error(
        "this kernel's type information lacks functions of sched_ext (seen in some builds of 7.1 and 7.2), so it \
         refuses every scheduler: boot another kernel; the agent (--backend agent) works on every one"
    )]
    TypeInformation,
    /// BPF does not work here.
    #[error(transparent)]
    Bpf(#[from] colony_bpf::Unavailable),
    /// Something in the configuration cannot be.
    #[error("{what}; {advice}")]
    Config {
        /// The problem that was found.
        what: String,
        /// The remedy.
        advice: &'static str,
    },
    /// The kernel did not take the programs.
    #[error("the kernel did not take the scheduler: {0}")]
    Load(String),
}
