// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machine profiles as TOML: those that come with the crate, and files.

use std::path::Path;

use super::Machine;
use crate::SimError;

const PROFILES: [(&str, &str); 4] = [
    ("bgl", include_str!("../../profiles/bgl.toml")),
    ("jaguar-xt5", include_str!("../../profiles/jaguar-xt5.toml")),
    ("loggopsim", include_str!("../../profiles/loggopsim.toml")),
    ("local", include_str!("../../profiles/local.toml")),
];

impl Machine {
    /// Names of the profiles that come with the crate: Blue Gene/L, the Cray XT5 of Oak Ridge, LogGOPSim's
    /// defaults, and cores that share memory as measured on a small virtual machine.
    pub const NAMES: [&str; PROFILES.len()] = [PROFILES[0].0, PROFILES[1].0, PROFILES[2].0, PROFILES[3].0];

    /// The profile called `name`.
    ///
    /// ```
    /// let bgl = colony_sim::machine::Machine::named("bgl")?;
    /// assert!(bgl.hardware_barrier.is_some());
    /// # Ok::<(), colony_sim::SimError>(())
    /// ```
    ///
    /// # Errors
    /// [`SimError::UnknownMachine`] where none is.
    pub fn named(name: &str) -> Result<Self, SimError> {
        match PROFILES.iter().find(|p| p.0 == name) {
            Some((name, text)) => Self::from_toml(text, name),
            None => Err(SimError::UnknownMachine { name: name.into(), known: &Self::NAMES }),
        }
    }

    /// The profile of a name, or of the file where `name` ends in `.toml`.
    ///
    /// # Errors
    /// As [`Machine::named`] and [`Machine::read`].
    pub fn named_or_file(name: &str) -> Result<Self, SimError> {
        match name.ends_with(".toml") {
            true => Self::read(Path::new(name)),
            false => Self::named(name),
        }
    }

    /// The profile in a file.
    ///
    /// # Errors
    /// [`SimError::BadProfile`] where it cannot be read, or as [`Machine::from_toml`].
    pub fn read(path: &Path) -> Result<Self, SimError> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::from_toml(&text, &file),
            Err(e) => Err(SimError::BadProfile { at: file, fault: format!("cannot be read: {e}") }),
        }
    }

    /// The profile in `text`; `file` is what errors call it.
    ///
    /// # Errors
    /// [`SimError::BadProfile`] with file and line, where it is no TOML or no profile, or
    /// [`SimError::BadMachine`] where its figures make no sense.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, SimError> {
        let machine: Self = toml::from_str(text).map_err(|e| {
            let line = e.span().map(|s| 1 + text.bytes().take(s.start).filter(|&b| b == b'\n').count());
            let at = line.map_or_else(|| file.into(), |line| format!("{file}:{line}"));
            let path = e.span().and_then(|s| crate::spec::path_at(text, s.start));
            SimError::BadProfile { at, fault: crate::spec::plain(e.message(), path.as_deref()) }
        })?;
        machine.check()?;
        Ok(machine)
    }

    /// The profile as TOML, which [`Machine::from_toml`] reads.
    ///
    /// # Errors
    /// [`SimError::BadMachine`] where its figures make no sense.
    pub fn to_toml(&self) -> Result<String, SimError> {
        self.check()?;
        let bad =
            |e: toml::ser::Error| SimError::BadMachine { name: self.name.clone(), fault: e.to_string() };
        toml::to_string_pretty(self).map_err(bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Topology;

    #[test]
    fn every_profile_reads_names_its_sources_and_survives_writing() {
        for name in Machine::NAMES {
            let m = Machine::named(name).expect(name);
            assert_eq!(m.name, name);
            assert!(!m.sources.is_empty(), "{name} does not say where its figures come from");
            assert_eq!(Machine::from_toml(&m.to_toml().expect(name), name), Ok(m));
        }
        assert_eq!(Machine::named("loggopsim").expect("there").loggops, crate::LogGops::default());
    }

    #[test]
    fn the_error_for_an_unknown_name_lists_the_known_names() {
        let e = Machine::named("bg").expect_err("no such machine").to_string();
        assert!(e.contains("`bg`") && e.contains("bgl, jaguar-xt5, loggopsim, local"), "{e}");
    }

    #[test]
    fn errors_name_file_and_line() {
        let text = Machine::named("bgl").expect("there").to_toml().expect("sound");
        let line = |needle: &str| 1 + text.lines().position(|l| l.contains(needle)).expect("there");
        let error = |text: &str| Machine::from_toml(text, "my.toml").expect_err("wrong").to_string();
        let e = error(&text.replace("gap_ns = 1000", "gap_ns = -1000"));
        assert!(e.contains(&format!("my.toml:{}", line("gap_ns = 1000"))), "{e}");
        let e = error(&text.replace("gap_ns = 1000", "gap_us = 1000"));
        assert!(e.contains("my.toml") && e.contains("gap_us"), "{e}");
        let e = Machine::read(Path::new("/nowhere/at-all.toml")).expect_err("no file").to_string();
        assert!(e.contains("/nowhere/at-all.toml"), "{e}");
    }

    #[test]
    fn figures_that_make_no_sense_are_refused() {
        let bgl = Machine::named("bgl").expect("there");
        let refused = |change: &dyn Fn(&mut Machine)| {
            let mut m = bgl.clone();
            change(&mut m);
            m.check().expect_err("senseless").to_string()
        };
        assert!(refused(&|m| m.ranks_per_node = 0).contains("ranks_per_node"));
        assert!(refused(&|m| m.loggops.latency_ns = u64::MAX).contains("latency_ns"));
        assert!(refused(&|m| m.inside_ns = Some(u64::MAX)).contains("inside_ns"));
        assert!(refused(&|m| m.topology = Topology::Torus { dims: [8, 0, 8], hop_ns: 1 }).contains("dims"));
        assert!(refused(&|m| m.topology = Topology::FatTree { radix: 1, hop_ns: 1 }).contains("radix"));
        let barrier = |f: &dyn Fn(&mut super::super::HardwareCollective)| {
            refused(&|m| f(m.hardware_barrier.as_mut().expect("has one")))
        };
        assert!(barrier(&|b| b.phases = 0).contains("phases"));
        assert!(barrier(&|b| b.cpu_ns = 600).contains("hardware_barrier"));
        assert!(barrier(&|b| b.time = crate::BaseTime::Measured(vec![])).contains("time"));
    }

    #[test]
    fn a_torus_has_a_place_for_every_node() {
        let mut m = Machine::named("bgl").expect("there");
        m.topology = Topology::Torus { dims: [8, 8, 8], hop_ns: 100 };
        assert!(m.network(512).is_ok());
        assert_eq!(m.network(513), Err(crate::SimError::Torus { dims: [8, 8, 8], nodes: 513 }));
    }
}
