// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guards on both sides of favored windows: how wide they are, and when windows move.

use colony_time::{Windows, text};

use super::held::AHEAD_NS;
use super::rules::ClockRules;

/// Guards come in steps of this share of the regular window, so that windows do not move with every judgement.
const GUARD_STEPS: u64 = 64;
/// Windows are moved where they would be off by more than this.
pub(super) const MOVE_NS: u64 = 500;

/// The largest error that `wanted` windows are coordinated with.
pub(super) fn max_error_ns(rules: &ClockRules, wanted: &Windows) -> u64 {
    let regular_ns = wanted.regular_ns();
    rules.max_error_ns.unwrap_or(regular_ns / 10).min(regular_ns / 4)
}

/// `windows` with guards for an error of `bound_ns`, and their width; it is `before_ns` so far.
pub(super) fn guards(
    windows: &Windows,
    bound_ns: u64,
    max_error_ns: u64,
    before_ns: u64,
) -> Result<(Windows, u64), String> {
    if bound_ns > max_error_ns {
        return Err(format!(
            "the clock may be off by {}, and {} is allowed (max_error in [clock])",
            rough(bound_ns),
            rough(max_error_ns)
        ));
    }
    let step = (windows.regular_ns() / GUARD_STEPS).max(1);
    let least = bound_ns.div_ceil(step) * step;
    // narrower only where it is worth the change
    let guard_ns = if (least..=least + 2 * step).contains(&before_ns) { before_ns } else { least };
    let fits = windows.guarded(guard_ns).map(|w| (w, guard_ns));
    fits.or_else(|_| windows.guarded(bound_ns).map(|w| (w, bound_ns))).map_err(|e| e.to_string())
}

/// Returns `true` if `old` and `new` differ noticeably from `tai_ns` on.
pub(super) fn differ(old: &Windows, new: &Windows, tai_ns: i64) -> bool {
    let apart = |t: i64| {
        let d = old.phase(t).abs_diff(new.phase(t));
        d.min(new.period_ns().abs_diff(d))
    };
    old.favored_ns().abs_diff(new.favored_ns()) > MOVE_NS
        || old.period_ns().abs_diff(new.period_ns()) > MOVE_NS
        || apart(tai_ns) > MOVE_NS
        || apart(tai_ns.saturating_add(AHEAD_NS)) > MOVE_NS
}

/// A time to three digits, for people.
pub(super) fn rough(ns: u64) -> text::Ns {
    let unit = 10u64.pow(ns.max(1).ilog10().saturating_sub(2));
    text::Ns(ns / unit * unit)
}
