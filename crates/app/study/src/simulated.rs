// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulations that several programs of one test run need: each is made once, and its outcome is kept in a folder.
//!
//! The environment variable [`FOLDER`] names the folder. Without the variable, nothing is kept. Several programs may use the
//! folder at the same time: while one program computes an outcome, other programs that need the outcome wait. A file holds the
//! whole input of its simulation, so inputs with equal hashes are distinguished. The version of the engine is not part of the
//! input, so each build needs a new folder.

use std::fmt::Debug;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;

use colony_sim::simulate::{Outcome, Simulation, simulate};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::StudyError;
use crate::error::step;

/// The environment variable with the folder of the outcomes.
pub const FOLDER: &str = "COLONY_SIMULATED";

/// A file of the folder.
#[derive(Serialize, Deserialize)]
struct Kept<T> {
    /// The whole input, as text for debugging.
    input: String,
    outcome: T,
}

/// Simulates `simulation`, or returns the outcome that is kept.
///
/// # Errors
/// [`StudyError::Sim`] where the simulation makes no sense, [`StudyError::Step`] where the folder cannot be used.
pub(crate) fn once(simulation: &Simulation) -> Result<Outcome, StudyError> {
    of(&("outcome", simulation), || Ok(simulate(simulation)?))
}

/// Returns the result of `compute`, or the result that an earlier call with the same `input` has kept. `compute` must depend on
/// `input` only.
///
/// # Errors
/// Errors of `compute`, and [`StudyError::Step`] where the folder cannot be used.
pub(crate) fn of<T: Serialize + DeserializeOwned>(
    input: &impl Debug,
    compute: impl FnOnce() -> Result<T, StudyError>,
) -> Result<T, StudyError> {
    match std::env::var_os(FOLDER) {
        None => compute(),
        Some(folder) => kept(folder.as_ref(), format!("{input:?}"), compute),
    }
}

fn kept<T: Serialize + DeserializeOwned>(
    folder: &Path,
    input: String,
    compute: impl FnOnce() -> Result<T, StudyError>,
) -> Result<T, StudyError> {
    let failed = |path: &Path| {
        let what = format!("cannot keep the outcomes of simulations ({FOLDER}), {}", path.display());
        move |e: io::Error| step(&what, &e)
    };
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let file = folder.join(format!("{:016x}.json", hasher.finish()));
    let lock = file.with_extension("lock");
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let held = File::create(&lock).map_err(failed(&lock))?;
    // until the end of this function; the kernel opens the lock of a program that is killed
    held.lock().map_err(failed(&lock))?;
    let kept = fs::read(&file).ok().and_then(|bytes| serde_json::from_slice::<Kept<T>>(&bytes).ok());
    if let Some(kept) = kept.filter(|kept| kept.input == input) {
        return Ok(kept.outcome);
    }
    let kept = Kept { input, outcome: compute()? };
    let text = serde_json::to_vec(&kept).map_err(|e| failed(&file)(e.into()))?;
    let whole = file.with_extension("new");
    fs::write(&whole, text).map_err(failed(&whole))?;
    fs::rename(&whole, &file).map_err(failed(&file))?;
    Ok(kept.outcome)
}

#[cfg(test)]
mod tests {
    use colony_sim::node::Node;
    use colony_sim::scheduler::Preempt;
    use colony_sim::source::{Model, Source};

    use super::*;
    use crate::project;

    fn once_in(folder: &Path, simulation: &Simulation) -> Result<Outcome, StudyError> {
        kept(folder, format!("{simulation:?}"), || Ok(simulate(simulation)?))
    }

    fn simulation(period_ns: u64) -> Simulation {
        let tick = Source::new("tick", Model::periodic(period_ns, 5_000));
        Simulation {
            program: project::allreduce(50),
            machine: project::blue_gene(1).expect("a profile of ours"),
            node: Node::new(vec![tick], Preempt),
            nodes: 16,
            begin_ns: None,
            repetitions: 2,
            seed: 7,
        }
    }

    #[test]
    fn what_was_simulated_is_read_back_to_the_last_digit_and_each_input_is_its_own() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (one, other) = (simulation(100_000), simulation(100_001));
        let fresh = simulate(&one).expect("sound");
        assert_eq!(once_in(dir.path(), &one).expect("computed"), fresh);
        let jsons = || {
            let files = fs::read_dir(dir.path()).expect("there").flatten().map(|f| f.path());
            files.filter(|f| f.extension().is_some_and(|e| e == "json")).collect::<Vec<_>>()
        };
        let [file] = &jsons()[..] else { panic!("one file: {:?}", jsons()) };
        // a mark that only a reader of the file sees
        let text = fs::read_to_string(file).expect("text").replace("\"nodes\":16", "\"nodes\":17");
        fs::write(file, &text).expect("writable");
        assert_eq!(once_in(dir.path(), &one).expect("kept"), Outcome { nodes: 17, ..fresh.clone() });
        assert_ne!(once_in(dir.path(), &other).expect("computed").nodes, 17);
        assert_eq!(jsons().len(), 2);
        // the file of another input, and a damaged one, are computed again
        fs::write(file, text.replace("100000", "100009")).expect("writable");
        assert_eq!(once_in(dir.path(), &one).expect("computed"), fresh);
        fs::write(file, "{").expect("writable");
        assert_eq!(once_in(dir.path(), &one).expect("computed"), fresh);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error_with_its_path() {
        let error =
            once_in(Path::new("/proc/none"), &simulation(100_000)).expect_err("no folder").to_string();
        assert!(error.contains("/proc/none"), "{error}");
    }
}
