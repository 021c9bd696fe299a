// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine profile fitted to benchmarks.

use colony_sim::local::{Fit, Measurable};

use crate::table::{self, wrap};
use crate::units::{count, percent, time};

/// Fit of a machine: each measurement beside the time that the machine gives it.
#[must_use]
pub fn fit(f: &Fit) -> String {
    let mut t = table::new(["benchmark", "ranks", "bytes", "measured", "fitted", "off by"]);
    for (m, fitted_ns) in &f.residuals {
        let operation = match m.operation {
            Measurable::Barrier => "barrier",
            Measurable::Allreduce => "allreduce",
            Measurable::Alltoall => "alltoall",
            Measurable::Ring => "ring",
        };
        let off = fitted_ns / m.ns - 1.0;
        let sign = if off < 0.0 { "−" } else { "+" };
        t.add_row([
            operation.to_owned(),
            count(m.ranks.into()),
            count(m.bytes),
            time(m.ns),
            time(*fitted_ns),
            format!("{sign}{}", percent(off.abs())),
        ]);
    }
    let p = f.machine.loggops;
    let message = time((2 * p.overhead_ns + p.latency_ns) as f64);
    let text = format!(
        "{message} a message and {} ps a byte; relative errors of {} (root of the mean square)",
        count(p.gap_per_byte_ps),
        percent(f.rms)
    );
    format!("{t}\n{}\n", wrap(&text))
}

#[cfg(test)]
mod tests {
    use colony_sim::local::{Measurable, Measured, fit};

    #[test]
    fn each_measurement_stands_beside_its_fit() {
        let at = |bytes, ns| Measured { operation: Measurable::Ring, ranks: 2, bytes, ns };
        let fitted = fit(&[at(1, 2000.0), at(1001, 4000.0), at(1001, 6000.0)]).expect("enough");
        let table = super::fit(&fitted);
        assert!(table.lines().all(|l| l.chars().count() <= 78), "{table}");
        assert_eq!(table.matches("ring").count(), 3, "{table}");
        assert!(table.contains(" a message") && table.contains("+") && table.contains("−"), "{table}");
    }
}
