// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work that waits until its CPU and its interface are both free.

use std::collections::VecDeque;

use super::engine::Engine;
use super::queue::Happening;
use super::queues::{Blocked, Line};

impl Engine<'_> {
    /// True if work may begin now. Otherwise it waits until its CPU and its interface are both free, and holds neither
    /// of them meanwhile. If interfaces do not matter, it may begin at once: work that becomes ready later is behind it
    /// on its only CPU.
    pub(super) fn may_begin(
        &mut self,
        now_ns: u64,
        rank: u32,
        cpu: u8,
        slot: Option<u32>,
        work: Blocked,
    ) -> bool {
        if self.slots == 0 {
            return true;
        }
        if self.waiting[rank as usize].is_some() {
            // what waits and can begin now was ready before
            self.serve(now_ns, rank);
        }
        if self.free_ns(rank, cpu, slot) <= now_ns {
            return true;
        }
        let all = self.waiting[rank as usize].get_or_insert_default();
        all.entered += 1;
        let entry = (all.entered, work);
        match all.lines.iter_mut().find(|l| (l.cpu, l.slot) == (cpu, slot)) {
            Some(line) => line.waiting.push_back(entry),
            None => all.lines.push(Line { cpu, slot, waiting: VecDeque::from([entry]) }),
        }
        self.wake(now_ns, rank);
        false
    }

    /// The instant at which both a CPU and an interface are free.
    fn free_ns(&self, rank: u32, cpu: u8, slot: Option<u32>) -> u64 {
        let cpu_ns = self.free[rank as usize * self.cpus + cpu as usize];
        match slot {
            Some(slot) => cpu_ns.max(self.interfaces[rank as usize * self.slots + slot as usize]),
            None => cpu_ns,
        }
    }

    /// Begins what waits on a rank and can begin now, the longest ready first.
    fn serve(&mut self, now_ns: u64, rank: u32) {
        loop {
            let Some(all) = &self.waiting[rank as usize] else { return };
            let can_begin = |(i, l): (usize, &Line)| {
                let &(entered, _) = l.waiting.front()?;
                (self.free_ns(rank, l.cpu, l.slot) <= now_ns).then_some((entered, i))
            };
            let Some((_, first)) = all.lines.iter().enumerate().filter_map(can_begin).min() else { return };
            let Some(all) = &mut self.waiting[rank as usize] else { return };
            let line = &mut all.lines[first].waiting;
            let work = line.pop_front();
            if line.is_empty() {
                all.lines.swap_remove(first);
                if all.lines.is_empty() {
                    self.waiting[rank as usize] = None;
                }
            }
            match work {
                Some((_, Blocked::Calc(operation))) => self.calc(now_ns, rank, operation),
                Some((_, Blocked::Send(operation))) => self.send(now_ns, rank, operation),
                Some((_, Blocked::Message(receive, send))) => self.take(now_ns, rank, receive, send),
                None => return,
            }
        }
    }

    /// Sees to it that a rank is looked after when the first of what waits there can begin.
    fn wake(&mut self, now_ns: u64, rank: u32) {
        let Some(all) = &self.waiting[rank as usize] else { return };
        let next = all.lines.iter().map(|l| self.free_ns(rank, l.cpu, l.slot)).min();
        let due = all.wake_ns.filter(|&at| at > now_ns);
        if let Some(next) = next
            && due.is_none_or(|due| next < due)
        {
            if let Some(all) = &mut self.waiting[rank as usize] {
                all.wake_ns = Some(next);
            }
            self.push(next, rank, Happening::Free);
        }
    }

    /// A CPU or an interface may be free for what waits for it.
    pub(super) fn freed(&mut self, now_ns: u64, rank: u32) {
        self.serve(now_ns, rank);
        self.wake(now_ns, rank);
    }
}
