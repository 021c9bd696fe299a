//! Exit codes: 0 done, 1 the run failed, 2 wrong use.

use std::process::ExitCode;

use colony_node::NodeError;
use colony_noise::measure::MeasureError;
use colony_noise::selfish::SelfishError;

/// A wish the user can correct by other words.
#[derive(Debug)]
pub(crate) struct WrongUse(pub(crate) String);

impl std::fmt::Display for WrongUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongUse {}

/// Prints an error, if there is one, and says how to exit.
pub(crate) fn code(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(e) if is_broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            if is_wrong_use(&e) { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// Whoever reads our output has had enough (`colony … | head`).
fn is_broken_pipe(e: &anyhow::Error) -> bool {
    e.chain().any(|c| {
        c.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

fn is_wrong_use(e: &anyhow::Error) -> bool {
    let selfish = |e: &SelfishError| match e {
        SelfishError::Range { .. } | SelfishError::AllCpus => true,
        SelfishError::Node(e) => node(e),
        _ => false,
    };
    e.chain().any(|c| {
        c.is::<WrongUse>()
            || c.downcast_ref::<NodeError>().is_some_and(node)
            || c.downcast_ref::<SelfishError>().is_some_and(selfish)
            || matches!(c.downcast_ref::<MeasureError>(), Some(MeasureError::Selfish(e)) if selfish(e))
    })
}

fn node(e: &NodeError) -> bool {
    matches!(e, NodeError::CpuList { .. } | NodeError::CpuUnusable { .. })
}
