// SPDX-License-Identifier: MIT OR Apache-2.0
//! The preemption model is the one that the kernel's files name, and models that a kernel lacks are not proposed.

use crate::node::{Made, Ruled};

const MODELS: &str = "/sys/kernel/debug/sched/preempt";
const VERSION: &str = "/proc/sys/kernel/version";

/// A node without the file of the models.
fn by_version(release: &str, version: &str, cmdline: &str, config: Option<&str>) -> Made {
    let made = Made::new(&[("/proc/cmdline", cmdline), (VERSION, version)]);
    made.put("/proc/sys/kernel/osrelease", release);
    if let Some(text) = config {
        made.put(&format!("/boot/config-{release}"), text);
    }
    made
}

#[test]
fn lazy_is_proposed_only_if_the_kernel_lists_it() {
    let advice = |models: &str| {
        let finding = Made::new(&[(MODELS, models)]).finding("preemption");
        assert!(finding.remedies.is_empty());
        (finding.title, finding.advice.expect("an advice"))
    };
    let (title, text) = advice("none (voluntary) full lazy");
    assert!(title.contains("model voluntary"), "{title}");
    assert!(text.contains("echo lazy"), "{text}");
    // Linux 7.0 has two models on x86
    let (title, text) = advice("(full) lazy");
    assert!(title.contains("model full") && text.contains("echo lazy"), "{title} {text}");
    let (_, text) = advice("none voluntary (full)");
    assert!(!text.contains("lazy"), "{text}");
    // a real-time kernel has the file, too
    let real_time = Made::new(&[(MODELS, "full (lazy)"), (VERSION, "#1 SMP PREEMPT_RT Debian")]);
    assert!(real_time.finding("preemption").title.contains("PREEMPT_RT"));
    for unknown in ["none voluntary full", "(new) full", ""] {
        assert!(
            matches!(Made::new(&[(MODELS, unknown)]).rule("preemption"), Ruled::Undecided(_)),
            "{unknown}"
        );
    }
}

#[test]
fn without_the_file_the_version_the_command_line_and_the_configuration_tell() {
    const DYNAMIC: &str = "#1 SMP PREEMPT_DYNAMIC Debian 6.12.9-1";
    const LAZY: Option<&str> =
        Some("CONFIG_PREEMPT_DYNAMIC=y\nCONFIG_PREEMPT_LAZY=y\n# CONFIG_PREEMPT is not set\n");
    const FULL: Option<&str> = Some("CONFIG_PREEMPT=y\n# CONFIG_PREEMPT_LAZY is not set\n");
    for (made, model) in [
        (by_version("6.12.9", DYNAMIC, "preempt=full", None), "model full"),
        (by_version("6.12.9", DYNAMIC, "preempt=none", None), "model none)"),
        (by_version("6.12.9", DYNAMIC, "", Some("CONFIG_PREEMPT_VOLUNTARY=y\n")), "model voluntary"),
        (by_version("6.1.0", "#1 SMP PREEMPT", "", None), "model full"),
        (by_version("6.18.0", "#1 SMP PREEMPT", "", FULL), "model full"),
        (by_version("6.1.0", "#1 SMP Debian", "", None), "none or voluntary"),
        (by_version("6.12.9", "#1 SMP PREEMPT_RT Debian", "", None), "PREEMPT_RT"),
    ] {
        let finding = made.finding("preemption");
        assert!(finding.title.contains(model), "{model}: {}", finding.title);
        // which other models there are is not known
        assert!(finding.advice.is_some_and(|a| !a.contains("echo lazy")), "{model}");
    }
    for made in [
        by_version("6.18.0", "#1 SMP PREEMPT", "", LAZY),
        by_version("6.18.0", DYNAMIC, "preempt=lazy", None),
    ] {
        assert!(matches!(made.rule("preemption"), Ruled::Passed));
    }
}

#[test]
fn a_model_that_the_files_do_not_tell_is_not_known() {
    const DYNAMIC: &str = "#1 SMP PREEMPT_DYNAMIC";
    for (made, reason) in [
        (by_version("6.12.9", DYNAMIC, "quiet", None), "default model of this kernel is not known"),
        // Linux 7.0 may have dropped it
        (by_version("7.0.1", DYNAMIC, "preempt=none", None), "may ignore preempt=none"),
        (by_version("6.12.9", DYNAMIC, "preempt=hard", None), "may ignore preempt=hard"),
        // lazy came with Linux 6.13
        (by_version("5.14.0", DYNAMIC, "preempt=lazy", None), "may ignore preempt=lazy"),
        (by_version("6.18.0", "#1 SMP PREEMPT", "", None), "full or lazy"),
    ] {
        let Ruled::Undecided(why) = made.rule("preemption") else { panic!("{reason}") };
        assert!(why.contains(reason) && why.contains(MODELS), "{why}");
    }
}

#[test]
fn a_version_line_that_no_kernel_prints_is_not_known() {
    for version in ["", "garbage", "SMP PREEMPT", "#1 SMP PREEMPT_LAZY Debian", "#1 SMP preempt_dynamic"] {
        let Ruled::Undecided(why) = by_version("6.18.0", version, "", None).rule("preemption") else {
            panic!("{version}")
        };
        assert!(why.contains(VERSION), "{why}");
    }
}

#[test]
fn the_configuration_that_decided_is_the_evidence_also_if_the_kernel_has_it_itself() {
    const DYNAMIC: &str = "#1 SMP PREEMPT_DYNAMIC Debian";
    let evidence = |made: &Made| {
        let seen = made.finding("preemption").evidence;
        (seen[0].file.clone(), seen[0].value.clone())
    };
    let installed = by_version("6.12.9", DYNAMIC, "", Some("CONFIG_PREEMPT_VOLUNTARY=y\n"));
    assert_eq!(evidence(&installed), ("/boot/config-6.12.9".into(), "CONFIG_PREEMPT_VOLUNTARY=y".into()));
    let own = by_version("6.12.9", DYNAMIC, "", None);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, b"CONFIG_PREEMPT_NONE=y\n").expect("packed");
    own.put("/proc/config.gz", packed.finish().expect("packed"));
    assert_eq!(evidence(&own), ("/proc/config.gz".into(), "CONFIG_PREEMPT_NONE=y".into()));
    own.put("/proc/config.gz", b"no gzip");
    assert!(matches!(own.rule("preemption"), Ruled::Undecided(_)));
}
