//! Piecewise-linear functions of the instant: the delay that work begun then meets, the time stolen
//! from an interval begun then.

use crate::noise::{CpuNoise, NodeNoise};

/// A straight piece of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// How long it lasts, nanoseconds.
    pub len: f64,
    /// Value at its beginning, nanoseconds.
    pub from: f64,
    /// Value at its end.
    pub to: f64,
}

/// A function of the instant over one observed span; the span is a circle.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve(Vec<Segment>);

impl Curve {
    /// For work of `work_ns` begun on the node at each instant: how much later its last CPU is done
    /// than without noise. A detour under way counts with its rest, one met on the way in full.
    #[must_use]
    pub fn delay(noise: &NodeNoise, work_ns: u64) -> Self {
        Self::of(noise, |cpu| delay(cpu, work_ns))
    }

    /// Time stolen from the `len_ns` that begin at each instant, on the CPU that loses most.
    #[must_use]
    pub fn stolen(noise: &NodeNoise, len_ns: u64) -> Self {
        Self::of(noise, |cpu| stolen(cpu, len_ns))
    }

    fn of(noise: &NodeNoise, of_cpu: impl Fn(&CpuNoise) -> Vec<Segment>) -> Self {
        Self(noise.cpus().iter().map(of_cpu).reduce(|a, b| upper(&a, &b)).unwrap_or_default())
    }

    /// The pieces, in order.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// The parts of the curve at instants when the node was free `wait_ns` before: what a node meets
    /// that finished its part of an operation then and has waited for the others since.
    #[must_use]
    pub fn given_free_before(&self, noise: &NodeNoise, wait_ns: u64) -> Self {
        let allowed = shifted(&free(noise), noise.span_ns(), wait_ns);
        let (mut kept, mut at, mut i) = (Vec::new(), 0.0, 0);
        for s in &self.0 {
            let end = at + s.len;
            while let Some(&(a, b)) = allowed.get(i) {
                let (lo, hi) = (a.max(at), b.min(end));
                if hi > lo {
                    let value = |t: f64| s.from + (s.to - s.from) * (t - at) / s.len;
                    kept.push(Segment { len: hi - lo, from: value(lo), to: value(hi) });
                }
                if b > end {
                    break;
                }
                i += 1;
            }
            at = end;
        }
        Self(kept)
    }
}

/// The detours of a CPU, over and over: start and end of number `k` on the endless timeline.
fn detour(cpu: &CpuNoise, k: usize) -> (u64, u64) {
    let n = cpu.detours().len();
    let d = cpu.detours()[k % n];
    let start = d.start_ns + (k / n) as u64 * cpu.span_ns();
    (start, start + d.duration_ns)
}

fn delay(cpu: &CpuNoise, work_ns: u64) -> Vec<Segment> {
    let span = cpu.span_ns();
    if cpu.detours().is_empty() {
        return vec![Segment { len: span as f64, from: 0.0, to: 0.0 }];
    }
    // where work begun at 0 is done: whole laps first, then along the detours
    let free_lap = span - cpu.stolen_ns();
    let (laps, mut left) = (work_ns / free_lap, work_ns % free_lap);
    let (mut done, mut j) = (0, 0);
    while detour(cpu, j).0 - done <= left {
        left -= detour(cpu, j).0 - done;
        done = detour(cpu, j).1;
        j += 1;
    }
    done += left;
    let lap_delay = laps * cpu.stolen_ns();
    // `done` - `t` - `work in this lap` is the delay; t walks the span, `done` keeps ahead of it
    let ahead = work_ns % free_lap;
    let value = |done: u64, t: u64| (done - t - ahead + lap_delay) as f64;
    let (mut t, mut i, mut out) = (0, 0, Vec::with_capacity(3 * cpu.detours().len()));
    while t < span {
        let (start, end) = detour(cpu, i);
        if t >= start {
            out.push(Segment { len: (end - t) as f64, from: value(done, t), to: value(done, end) });
            t = end;
            i += 1;
        } else {
            let next = detour(cpu, j);
            let step = (start.min(span) - t).min(next.0 - done);
            if step > 0 {
                let v = value(done, t);
                out.push(Segment { len: step as f64, from: v, to: v });
            }
            t += step;
            done += step;
            if done == next.0 {
                done = next.1;
                j += 1;
            }
        }
    }
    out
}

fn stolen(cpu: &CpuNoise, len_ns: u64) -> Vec<Segment> {
    let span = cpu.span_ns();
    if cpu.detours().is_empty() {
        return vec![Segment { len: span as f64, from: 0.0, to: 0.0 }];
    }
    let (laps, rest) = (len_ns / span, len_ns % span);
    // a cursor knows how far the next edge is and whether it is inside a detour
    let cursor = |t: u64, mut k: usize| {
        while detour(cpu, k).1 <= t {
            k += 1;
        }
        let (start, end) = detour(cpu, k);
        if t >= start { (k, end - t, true) } else { (k, start - t, false) }
    };
    let mut value = (laps * cpu.stolen_ns()) as f64;
    let mut k = 0;
    while detour(cpu, k).0 < rest {
        let (start, end) = detour(cpu, k);
        value += (end.min(rest) - start) as f64;
        k += 1;
    }
    let (mut t, mut tail, mut head, mut out) = (0, 0, 0, Vec::new());
    while t < span {
        let (k_tail, to_tail, in_tail) = cursor(t, tail);
        let (k_head, to_head, in_head) = cursor(t + rest, head);
        (tail, head) = (k_tail, k_head);
        let step = to_tail.min(to_head).min(span - t);
        let slope = f64::from(i8::from(in_head) - i8::from(in_tail));
        let next = value + slope * step as f64;
        out.push(Segment { len: step as f64, from: value, to: next });
        (value, t) = (next, t + step);
    }
    out
}

/// The larger of two curves of the same span.
fn upper(a: &[Segment], b: &[Segment]) -> Vec<Segment> {
    let mut out = Vec::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a.iter().copied(), b.iter().copied());
    let (mut x, mut y) = (a.next(), b.next());
    while let (Some(p), Some(q)) = (x, y) {
        let len = p.len.min(q.len);
        let cut = |s: Segment| {
            let at = s.from + (s.to - s.from) * len / s.len;
            let rest = (s.len - len > 0.0).then_some(Segment { len: s.len - len, from: at, to: s.to });
            (Segment { len, from: s.from, to: at }, rest)
        };
        let ((p, p_rest), (q, q_rest)) = (cut(p), cut(q));
        let (d0, d1) = (p.from - q.from, p.to - q.to);
        if d0 * d1 < 0.0 {
            let share = d0 / (d0 - d1);
            let meet = p.from + (p.to - p.from) * share;
            let (first, second) = if d0 > 0.0 { (p, q) } else { (q, p) };
            out.push(Segment { len: len * share, from: first.from, to: meet });
            out.push(Segment { len: len * (1.0 - share), from: meet, to: second.to });
        } else {
            out.push(if d0 + d1 >= 0.0 { p } else { q });
        }
        x = p_rest.or_else(|| a.next());
        y = q_rest.or_else(|| b.next());
    }
    out
}

/// Intervals in which no CPU of the node is in a detour.
fn free(noise: &NodeNoise) -> Vec<(f64, f64)> {
    let mut taken: Vec<(u64, u64)> = noise
        .cpus()
        .iter()
        .flat_map(|c| c.detours().iter().map(|d| (d.start_ns, d.start_ns + d.duration_ns)))
        .collect();
    taken.sort_unstable();
    let (mut out, mut at) = (Vec::with_capacity(taken.len() + 1), 0);
    for (start, end) in taken.into_iter().chain([(noise.span_ns(), noise.span_ns())]) {
        if start > at {
            out.push((at as f64, start as f64));
        }
        at = at.max(end);
    }
    out
}

/// The intervals `by_ns` later on a circle of `span_ns`, in order.
fn shifted(intervals: &[(f64, f64)], span_ns: u64, by_ns: u64) -> Vec<(f64, f64)> {
    let (span, by) = (span_ns as f64, (by_ns % span_ns.max(1)) as f64);
    let (mut early, mut late) = (Vec::new(), Vec::with_capacity(intervals.len() + 1));
    for &(a, b) in intervals {
        let (a, b) = (a + by, b + by);
        if a >= span {
            early.push((a - span, b - span));
        } else if b > span {
            late.push((a, span));
            early.push((0.0, b - span));
        } else {
            late.push((a, b));
        }
    }
    early.sort_unstable_by(|x, y| x.0.total_cmp(&y.0));
    early.extend(late);
    early
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Detour;
    use proptest::prelude::*;

    fn cpu(span: u64, detours: &[(u64, u64)]) -> CpuNoise {
        let d = detours.iter().map(|&(start_ns, duration_ns)| Detour { start_ns, duration_ns });
        CpuNoise::new(span, d).expect("leaves time")
    }

    /// Delay by stepping nanosecond by nanosecond.
    fn stepped(cpu: &CpuNoise, t: u64, work: u64) -> u64 {
        let taken = |t: u64| {
            let t = t % cpu.span_ns();
            cpu.detours().iter().any(|d| (d.start_ns..d.start_ns + d.duration_ns).contains(&t))
        };
        let (mut at, mut left) = (t, work);
        while left > 0 || taken(at) {
            left -= u64::from(!taken(at));
            at += 1;
        }
        at - t - work
    }

    fn value_at(segments: &[Segment], t: f64) -> f64 {
        let mut at = 0.0;
        for s in segments {
            if t < at + s.len {
                return s.from + (s.to - s.from) * (t - at) / s.len;
            }
            at += s.len;
        }
        panic!("{t} is past the end");
    }

    fn node() -> impl Strategy<Value = CpuNoise> {
        prop::collection::vec((0u64..200, 1u64..30), 0..8).prop_filter_map("leaves time", |d| {
            let d = d.into_iter().map(|(start_ns, duration_ns)| Detour { start_ns, duration_ns });
            CpuNoise::new(200, d).ok()
        })
    }

    #[test]
    fn one_detour_by_hand() {
        let n = NodeNoise::new(vec![cpu(100, &[(50, 10)])]).expect("valid");
        let c = Curve::delay(&n, 5);
        let s = |len, from, to| Segment { len, from, to };
        assert_eq!(
            c.segments(),
            [s(45.0, 0.0, 0.0), s(5.0, 10.0, 10.0), s(10.0, 10.0, 0.0), s(40.0, 0.0, 0.0)]
        );
        // free 0 ns before: the instants inside the detour fall away
        let running = c.given_free_before(&n, 0);
        assert_eq!(running.segments().iter().map(|s| s.len).sum::<f64>(), 90.0);
        // free 4 ns before: inside the detour only its first 4 ns remain
        let waited = c.given_free_before(&n, 4);
        let inside: Vec<_> = waited.segments().iter().filter(|s| s.from > s.to).collect();
        assert_eq!(inside, [&s(4.0, 10.0, 6.0)]);
    }

    proptest! {
        #[test]
        fn the_delay_is_what_stepping_finds(n in node(), work in 0u64..500) {
            let curve = delay(&n, work);
            prop_assert!((curve.iter().map(|s| s.len).sum::<f64>() - 200.0).abs() < 1e-9);
            for t in 0..200 {
                // half a nanosecond before the next, so that no jump is asked about
                let expected = stepped(&n, t, work) as f64;
                let next = stepped(&n, t + 1, work) as f64;
                let found = value_at(&curve, t as f64 + 0.5);
                prop_assert!(
                    (expected.min(next) - 0.51..=expected.max(next) + 0.51).contains(&found),
                    "t {t}: {found} is not between {expected} and {next}"
                );
            }
        }

        #[test]
        fn stolen_time_is_what_counting_finds(n in node(), len in 0u64..500) {
            let curve = stolen(&n, len);
            let taken = |t: u64| n.detours().iter().any(|d| (d.start_ns..d.start_ns + d.duration_ns).contains(&(t % 200)));
            for t in 0..200u64 {
                let counted = (t..t + len).filter(|&t| taken(t)).count() as f64;
                prop_assert!((value_at(&curve, t as f64) - counted).abs() < 1e-6);
            }
        }

        #[test]
        fn a_node_is_as_late_as_its_latest_cpu(a in node(), b in node(), work in 0u64..300) {
            let (x, y) = (delay(&a, work), delay(&b, work));
            let both = Curve::delay(&NodeNoise::new(vec![a, b]).expect("one span"), work);
            for t in 0..200 {
                let t = f64::from(t) + 0.37;
                let expected = value_at(&x, t).max(value_at(&y, t));
                prop_assert!((value_at(both.segments(), t) - expected).abs() < 1e-6);
            }
        }

        #[test]
        fn the_condition_keeps_exactly_the_instants_with_a_free_past(n in node(), wait in 0u64..600) {
            let node = NodeNoise::new(vec![n.clone()]).expect("one");
            let kept: f64 =
                Curve::delay(&node, 3).given_free_before(&node, wait).segments().iter().map(|s| s.len).sum();
            prop_assert!((kept - (200 - n.stolen_ns()) as f64).abs() < 1e-6);
        }
    }
}
