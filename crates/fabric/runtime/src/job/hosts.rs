// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hosts of a job's ranks: those given, which take turns, and spares for those that are lost.

/// A host of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Host {
    name: String,
    /// No rank could be started on it any more.
    is_lost: bool,
}

/// The hosts, and the place of each rank among them. Without hosts, all ranks are processes of the launcher's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hosts {
    hosts: Vec<Host>,
    /// By rank.
    of_ranks: Vec<usize>,
}

impl Hosts {
    pub(crate) fn new(hosts: &[String], spares: &[String], ranks: u32) -> Self {
        let turns = hosts.len().max(1);
        let named = |name: &String| Host { name: name.clone(), is_lost: false };
        let all = hosts.iter().chain(spares).map(named).collect();
        Self { hosts: all, of_ranks: (0..ranks as usize).map(|rank| rank % turns).collect() }
    }

    /// The host of a rank.
    pub(crate) fn of(&self, rank: u32) -> Option<&str> {
        let place = self.of_ranks.get(rank as usize)?;
        self.hosts.get(*place).map(|host| host.name.as_str())
    }

    /// A rank cannot be started on its host: its ranks are started on another one from now on, a spare or that with the
    /// fewest ranks. Returns the new host, if there is one.
    pub(crate) fn lose(&mut self, rank: u32) -> Option<&str> {
        let lost = *self.of_ranks.get(rank as usize)?;
        self.hosts.get_mut(lost)?.is_lost = true;
        let ranks_of = |place: usize| self.of_ranks.iter().filter(|of| **of == place).count();
        let left = (0..self.hosts.len()).filter(|place| !self.hosts[*place].is_lost);
        let new = left.min_by_key(|place| ranks_of(*place))?;
        self.of_ranks.iter_mut().filter(|of| **of == lost).for_each(|of| *of = new);
        self.of(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_lost_host_go_to_a_spare_and_then_to_the_host_with_the_fewest() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut hosts = Hosts::new(&names(&["a", "b", "c"]), &names(&["s"]), 7);
        let all = |hosts: &Hosts| (0..7).filter_map(|rank| hosts.of(rank)).collect::<String>();
        assert_eq!(all(&hosts), "abcabca");
        assert_eq!(hosts.lose(1), Some("s"));
        assert_eq!(all(&hosts), "ascasca");
        assert_eq!(hosts.lose(4), Some("c"), "a has three ranks");
        assert_eq!(all(&hosts), "acc".repeat(2) + "a");
        assert_eq!(hosts.lose(0), Some("c"));
        assert_eq!(hosts.lose(3), None, "no host is left");
        assert_eq!(Hosts::new(&[], &[], 2).of(1), None);
    }
}
