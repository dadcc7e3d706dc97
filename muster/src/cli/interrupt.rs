//! Ctrl-C during long work: stop waiting, say how to take it up again.

use std::future::Future;

use super::failure::{Exit, Failure, Outcome};

/// Runs `work` until it ends or Ctrl-C comes; then `resume` may say one more thing.
pub(crate) async fn or_ctrl_c<T>(
    work: impl Future<Output = Outcome<T>>,
    resume: impl FnOnce() -> Option<(String, String)>,
) -> Outcome<T> {
    tokio::select! {
        outcome = work => outcome,
        signal = tokio::signal::ctrl_c() => {
            if let Err(error) = signal {
                return Err(Failure::new(Exit::Failure, "Ctrl-C", error.to_string()).next("this terminal cannot interrupt; stop the process instead"));
            }
            Err(match resume() {
                Some((object, how)) => Failure::new(Exit::Interrupted, object, "stopped waiting; what was asked for goes on").next(how),
                None => Failure::silent(Exit::Interrupted),
            })
        }
    }
}
