//! Prints the reference of reason codes, for `docs/reference/reasons.md`.

use std::{io::Write, process::ExitCode};

fn main() -> ExitCode {
    let text = muster_sim::reasons();
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
