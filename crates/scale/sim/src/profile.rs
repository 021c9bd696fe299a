// SPDX-License-Identifier: MIT OR Apache-2.0
//! The noise of one CPU of a trace, prepared for look-ups: the time that a piece of work loses is a difference of two
//! prefix sums, however many detours the work meets. The result is to the nanosecond that of going from detour to
//! detour.

use crate::noise::CpuNoise;

/// The start of a detour in a lap, and the time of the lap that is free before it.
#[derive(Clone, Copy, Debug)]
struct Mark {
    start_ns: u64,
    free_ns: u64,
}

/// The noise of one CPU measured, ready to be asked at any instant.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    span_ns: u64,
    /// Time of a lap that is free.
    free_ns: u64,
    /// Work that meets no more than some [`NEAR`] detours, on average.
    near_ns: u64,
    /// One a detour, and one at the end of the lap: what is taken before the next is the detour's length.
    marks: Vec<Mark>,
    by_start: Parts,
    by_free: Index,
}

/// Detours of a part of the lap, on average.
const PER_PART: u64 = 2;
/// Bits of [`Part::busy`], as a power of two.
const BITS: u32 = 5;

/// A part of the lap: where its detours are in the list of marks, and a coarse picture of them. The two stand
/// together, so that one access to far memory serves both.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    /// Detours that start before the part.
    below: u32,
    /// One bit for each 2^-[`BITS`] of the part that a detour is in.
    busy: u32,
}

/// The parts of a lap, each 2^`shift` nanoseconds long.
#[derive(Clone, Debug)]
struct Parts {
    shift: u32,
    parts: Vec<Part>,
}

impl Parts {
    fn new(noise: &CpuNoise) -> Self {
        let (span_ns, detours) = (noise.span_ns(), noise.detours());
        let shift = (PER_PART * span_ns / (detours.len() as u64 + 1)).ilog2().max(BITS);
        let mut parts = vec![Part::default(); (span_ns >> shift) as usize + 2];
        let mut k = 0;
        for (part, start_ns) in parts.iter_mut().zip((0u64..).step_by(1 << shift)) {
            while detours.get(k).is_some_and(|d| d.start_ns < start_ns) {
                k += 1;
            }
            part.below = k as u32;
        }
        for d in detours {
            for bit in d.start_ns >> (shift - BITS)..=(d.start_ns + d.duration_ns - 1) >> (shift - BITS) {
                parts[(bit >> BITS) as usize].busy |= 1 << (bit & ((1 << BITS) - 1));
            }
        }
        Self { shift, parts }
    }

    /// The part that `at_ns` of the lap is in.
    #[inline]
    fn at(&self, at_ns: u64) -> Part {
        self.parts[(at_ns >> self.shift) as usize]
    }

    /// Number of detours that start before the part that holds `at_ns`.
    #[inline]
    fn before(&self, at_ns: u64) -> usize {
        self.at(at_ns).below as usize
    }

    /// Number of detours that start before the next part.
    #[inline]
    fn after(&self, at_ns: u64) -> usize {
        self.parts[(at_ns >> self.shift) as usize + 1].below as usize
    }

    /// No detour is in the lap from `at_ns`, which is in `part`, until then.
    #[inline]
    fn quiet_until(&self, part: Part, at_ns: u64) -> u64 {
        let shift = self.shift - BITS;
        let bit = at_ns >> shift;
        let (rest, of) = (bit & ((1 << BITS) - 1), 1 << BITS);
        let clear = u64::from((part.busy >> rest).trailing_zeros()).min(of - rest);
        (bit + clear) << shift
    }
}

/// A detour, by its start and its end.
pub(crate) type Stretch = (u64, u64);

/// An instant of a trace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    /// Number of the pass through the trace; the fields below are the place in it.
    lap: u64,
    p: u64,
    part: Part,
}

/// The end of a piece of work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// Then, and the next detour.
    Done(u64, Stretch),
    /// At the instant at which so much time of the lap was free, not before detour number `from`.
    Free { lap: u64, free_ns: u64, from: usize },
}

/// Detours that are tried one after the other before the index is asked.
const NEAR: usize = 3;

/// An index that tells where in a rising list a value is: about as many entries as the list has.
#[derive(Clone, Debug)]
struct Index {
    shift: u32,
    /// For each 2^`shift`: how many of the list are below it.
    below: Vec<u32>,
}

impl Index {
    /// The index of free times, of which `most` is the largest.
    fn new(most: u64, marks: &[Mark]) -> Self {
        let shift = (most / (marks.len() as u64 + 1)).max(1).ilog2();
        let mut below = Vec::with_capacity((most >> shift) as usize + 3);
        let mut k = 0;
        for bucket in 0..=(most >> shift) + 2 {
            while k < marks.len() && marks[k].free_ns < bucket << shift {
                k += 1;
            }
            below.push(k as u32);
        }
        Self { shift, below }
    }

    /// Number of entries of the list below the part that has `value`.
    #[inline]
    fn before(&self, value: u64) -> usize {
        self.below[(value >> self.shift) as usize] as usize
    }

    /// The same of the next part.
    #[inline]
    fn after(&self, value: u64) -> usize {
        self.below[(value >> self.shift) as usize + 1] as usize
    }
}

impl Profile {
    pub(crate) fn new(noise: &CpuNoise) -> Self {
        let mut stolen_ns = 0;
        let mark = |d: &crate::noise::Detour| {
            let free_ns = d.start_ns - stolen_ns;
            stolen_ns += d.duration_ns;
            Mark { start_ns: d.start_ns, free_ns }
        };
        let mut marks: Vec<Mark> = noise.detours().iter().map(mark).collect();
        let (span_ns, free_ns) = (noise.span_ns(), noise.span_ns() - noise.stolen_ns());
        let by_free = Index::new(free_ns, &marks);
        marks.push(Mark { start_ns: span_ns, free_ns });
        let near_ns = free_ns / marks.len() as u64 * NEAR as u64;
        Self { span_ns, free_ns, near_ns, marks, by_start: Parts::new(noise), by_free }
    }

    /// Detours of a lap.
    #[inline]
    fn detours(&self) -> usize {
        self.marks.len() - 1
    }

    /// End of detour `k`, one of the lap.
    #[inline]
    fn end_ns(&self, k: usize) -> u64 {
        let (this, next) = (self.marks[k], self.marks[k + 1]);
        this.start_ns + ((next.start_ns - next.free_ns) - (this.start_ns - this.free_ns))
    }

    /// The first detour that ends after `at_ns` of the lap; those before number `near` start no later.
    #[inline]
    fn ends_after(&self, at_ns: u64, near: usize) -> usize {
        let rest = &self.marks[near..self.by_start.after(at_ns)];
        let started = near + rest.partition_point(|m| m.start_ns <= at_ns);
        if started > 0 && self.end_ns(started - 1) > at_ns { started - 1 } else { started }
    }

    /// The first detour, not before number `from`, before which at least `free_ns` of the lap are free.
    #[inline]
    fn free_before(&self, free_ns: u64, from: usize) -> usize {
        // short work ends near where it began
        for k in from..from + NEAR {
            if self.marks.get(k).is_none_or(|m| m.free_ns >= free_ns) {
                return k;
            }
        }
        let near = self.by_free.before(free_ns);
        near + self.marks[near..self.by_free.after(free_ns)].partition_point(|m| m.free_ns < free_ns)
    }

    /// The lap that instant `at_ns` of the trace is in, and where in it.
    #[inline]
    fn lap(&self, at_ns: u64) -> (u64, u64) {
        // most runs are shorter than a trace
        if at_ns < self.span_ns { (0, at_ns) } else { (at_ns / self.span_ns, at_ns % self.span_ns) }
    }

    /// Length of the observation.
    pub(crate) const fn span_ns(&self) -> u64 {
        self.span_ns
    }

    /// Time free from the beginning of the trace to `at_ns`, all laps counted.
    pub(crate) fn free_at(&self, at_ns: u64) -> u64 {
        let (lap, p) = self.lap(at_ns);
        let k = self.ends_after(p, self.by_start.before(p));
        let Mark { start_ns, free_ns } = self.marks[k];
        lap * self.free_ns + free_ns - start_ns.saturating_sub(p)
    }

    /// The first instant by which `free_ns` were free, all laps counted.
    pub(crate) fn when_free(&self, free_ns: u64) -> u64 {
        let (lap, free_ns) = match free_ns {
            0 => return 0,
            all => ((all - 1) / self.free_ns, (all - 1) % self.free_ns + 1),
        };
        let k = self.free_before(free_ns, self.by_free.before(free_ns)).min(self.detours());
        lap * self.span_ns + free_ns + (self.marks[k].start_ns - self.marks[k].free_ns)
    }

    /// The instant at which `work_ns` that may begin at `at_ns` is done, and the next detour then, all laps counted.
    pub(crate) fn done(&self, at_ns: u64, work_ns: u64) -> (u64, Stretch) {
        self.end(self.goal(&self.enter(at_ns), 0, work_ns), 0)
    }

    /// The first instant from `at_ns` on that is in a detour.
    pub(crate) fn busy_from(&self, at_ns: u64) -> u64 {
        let (lap, p) = self.lap(at_ns);
        let k = self.ends_after(p, self.by_start.before(p));
        self.start_of(lap, k).max(at_ns)
    }

    fn start_of(&self, lap: u64, k: usize) -> u64 {
        let (lap, k) = if k < self.detours() { (lap, k) } else { (lap + 1, 0) };
        if self.detours() == 0 { u64::MAX } else { lap * self.span_ns + self.marks[k].start_ns }
    }

    /// Detour `k` of a lap, or the first of the next one, `offset_ns` of the trace being over at the boot.
    #[inline]
    fn stretch(&self, lap: u64, k: usize, offset_ns: u64) -> Stretch {
        if self.detours() == 0 {
            return (u64::MAX, u64::MAX);
        }
        let (lap, k) = if k < self.detours() { (lap, k) } else { (lap + 1, 0) };
        let since_boot = |ns: u64| (lap * self.span_ns + ns).saturating_sub(offset_ns);
        (since_boot(self.marks[k].start_ns), since_boot(self.end_ns(k)))
    }

    /// The entry at which the look-up begins of work that may begin at `at_ns` of the trace.
    #[inline]
    pub(crate) fn enter(&self, at_ns: u64) -> Entry {
        let (lap, p) = self.lap(at_ns);
        Entry { lap, p, part: self.by_start.at(p) }
    }

    /// From `entry` on there is no detour for so long, at least.
    #[inline]
    pub(crate) fn room_ns(&self, entry: &Entry) -> u64 {
        self.by_start.quiet_until(entry.part, entry.p).min(self.span_ns).saturating_sub(entry.p)
    }

    /// A number that the look-up from `entry` on needs, for the memory that it is in to be near afterwards.
    #[inline]
    pub(crate) fn touch(&self, entry: &Entry) -> u64 {
        self.marks[entry.part.below as usize].start_ns
    }

    /// The end of `work_ns` from `entry` on, if `offset_ns` of the trace are over at the boot.
    #[inline]
    pub(crate) fn goal(&self, entry: &Entry, offset_ns: u64, work_ns: u64) -> Goal {
        let Entry { lap, p, part } = *entry;
        let k = self.ends_after(p, part.below as usize);
        let mark = self.marks[k];
        // time of the lap that is free until the work is done
        let free_ns = match mark.start_ns {
            start_ns if start_ns > p || k == self.detours() => mark.free_ns - (start_ns - p) + work_ns,
            start_ns if lap == 0 && start_ns < offset_ns => {
                // the detour began before the boot, so it disturbs nothing
                let room_ns = self.end_ns(k) - p;
                if work_ns <= room_ns {
                    let (done_ns, next) = (p + work_ns - offset_ns, self.stretch(lap, k + 1, offset_ns));
                    return Goal::Done(done_ns, next);
                }
                mark.free_ns + work_ns - room_ns
            }
            _ => mark.free_ns + work_ns,
        };
        if free_ns > self.free_ns {
            let laps = (free_ns - 1) / self.free_ns;
            return Goal::Free { lap: lap + laps, free_ns: free_ns - laps * self.free_ns, from: 0 };
        }
        Goal::Free { lap, free_ns, from: k }
    }

    /// True if work of `work_ns` is long: then the search for the detour after it starts in the middle of the trace.
    #[inline]
    pub(crate) fn is_far(&self, work_ns: u64) -> bool {
        work_ns > self.near_ns
    }

    /// [`touch`](Self::touch) for the index that the end of long work needs.
    #[inline]
    pub(crate) fn near(&self, goal: &mut Goal) {
        if let Goal::Free { free_ns, from, .. } = goal {
            *from = self.by_free.before(*free_ns).max(*from);
        }
    }

    /// [`touch`](Self::touch) for the marks that the end of long work needs.
    #[inline]
    pub(crate) fn touch_end(&self, goal: &Goal) -> u64 {
        match goal {
            Goal::Free { from, .. } => self.marks[*from].free_ns,
            Goal::Done(..) => 0,
        }
    }

    /// The instant at which the work of `goal` is done, and the next detour then.
    #[inline]
    pub(crate) fn end(&self, goal: Goal, offset_ns: u64) -> (u64, Stretch) {
        match goal {
            Goal::Done(done_ns, next) => (done_ns, next),
            Goal::Free { lap, free_ns, from } => {
                let k = self.free_before(free_ns, from).min(self.detours());
                let taken_ns = self.marks[k].start_ns - self.marks[k].free_ns;
                // after the boot, for the work was
                (lap * self.span_ns + free_ns + taken_ns - offset_ns, self.stretch(lap, k, offset_ns))
            }
        }
    }

    /// The first detour that ends after `at_ns` of the trace, which began after the boot.
    pub(crate) fn next(&self, at_ns: u64, offset_ns: u64) -> Stretch {
        let (lap, p) = self.lap(at_ns);
        let k = self.ends_after(p, self.by_start.before(p));
        let before_boot = lap == 0 && k < self.detours() && self.marks[k].start_ns < offset_ns;
        self.stretch(lap, k + usize::from(before_boot), offset_ns)
    }
}
