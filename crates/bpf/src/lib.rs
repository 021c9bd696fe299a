//! What every BPF object of Colony shares: the small CO-RE header (`include/colony_kernel.h`), the build
//! step (`build`, for build scripts), and the check whether BPF works here ([`check`]).

#[cfg(feature = "build")]
pub mod build;

/// Why BPF programs cannot be used on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The process lacks the capabilities.
    #[error(
        "BPF needs root, or CAP_BPF and CAP_PERFMON (sudo setcap cap_bpf,cap_perfmon,cap_sys_nice+ep colony)"
    )]
    Privilege,
    /// The kernel has no type information of its own.
    #[error(
        "this kernel has no /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF); BPF programs cannot be fitted to it"
    )]
    NoBtf,
}

/// Whether BPF programs can be loaded here, as far as can be told without loading one.
///
/// # Errors
/// [`Unavailable`] says what is missing.
pub fn check() -> Result<(), Unavailable> {
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(Unavailable::NoBtf);
    }
    if !colony_node::privilege::Privileges::here().bpf {
        return Err(Unavailable::Privilege);
    }
    Ok(())
}
