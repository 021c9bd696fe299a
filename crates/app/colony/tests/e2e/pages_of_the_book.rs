// SPDX-License-Identifier: MIT OR Apache-2.0
//! A test for each page that shows commands, so that pages run side by side and a failure names its page.

use std::collections::BTreeSet;

use crate::docs::{Beside, every_command_runs, shows_commands};

/// A module of tests, one for each page, and the list of the pages.
macro_rules! pages {
    ($($(#[$meaning:meta])* $module:ident, $beside:ident { $($test:ident = $page:literal,)* })*) => {
        $($(#[$meaning])* mod $module {
            use super::{Beside, every_command_runs};
            $(
            #[test]
            fn $test() {
                every_command_runs($page, Beside::$beside);
            }
            )*
        })*

        /// Pages that a test runs.
        const TESTED: &[&str] = &[$($($page,)*)*];
    };
}

pages! {
    /// Pages whose commands wait for emulated nodes most of the time.
    on_nodes, Others {
        ciod = "docs/ciod.md",
        cnk = "docs/cnk.md",
        control = "docs/control.md",
        das_boot = "docs/das-boot.md",
        io_scaling = "docs/io-scaling.md",
        mpi = "docs/mpi.md",
        tlb = "docs/tlb.md",
        vm = "docs/vm.md",
    }
    /// Pages whose commands may run beside tests that measure.
    beside_others, Others {
        fault_tolerance = "docs/fault-tolerance.md",
        fault_tolerance_study = "docs/fault-tolerance-study.md",
        machine = "docs/machine.md",
        readme_of_the_book = "docs/README.md",
        runtime = "docs/runtime.md",
        scheduler = "docs/scheduler.md",
        timeline = "docs/timeline.md",
        tune = "docs/tune.md",
    }
    /// Pages whose commands load CPUs and run in real time.
    alone, NoMeasurement {
        balance = "docs/balance.md",
        bench = "docs/bench.md",
        checkpoint_benchmark = "docs/checkpoint-benchmark.md",
        clocks = "docs/clocks.md",
        colonyd = "docs/colonyd.md",
        compare = "docs/compare.md",
        coordinate = "docs/coordinate.md",
        doctor = "docs/doctor.md",
        formats = "docs/formats.md",
        inject = "docs/inject.md",
        machines = "docs/machines.md",
        measure = "docs/measure.md",
        nas = "docs/nas.md",
        pages = "docs/pages.md",
        readme = "README.md",
        seeds = "docs/seeds.md",
        simulate = "docs/simulate.md",
        study = "docs/study.md",
    }
}

#[test]
fn every_page_that_shows_commands_has_a_test() {
    let tested: BTreeSet<String> = TESTED.iter().map(|&page| page.to_owned()).collect();
    let showing: BTreeSet<String> = crate::docs::pages()
        .into_iter()
        .filter(|(_, text)| shows_commands(text))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(tested, showing);
}
