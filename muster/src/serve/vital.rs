//! The loops without which a server only looks alive. One that ends before it is told to takes the process with it: whoever started
//! the process starts it again, and it goes on with what the store says.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::bail;
use futures::FutureExt as _;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Whether all loops of a process run.
#[derive(Debug, Default)]
pub(super) struct Vital {
    lost: CancellationToken,
    first: Mutex<Option<&'static str>>,
}

impl Vital {
    /// Runs a loop that ends when `stop` says so.
    pub(super) fn spawn(
        self: &Arc<Self>,
        name: &'static str,
        stop: &CancellationToken,
        run: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let (this, stop) = (Arc::clone(self), stop.clone());
        tokio::spawn(async move {
            let broke_off = AssertUnwindSafe(run).catch_unwind().await.is_err();
            if stop.is_cancelled() && !broke_off {
                return;
            }
            tracing::error!(
                part = name,
                broke_off,
                "a loop ended by itself; this is a bug. The process stops, so that it is started again"
            );
            this.first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(name);
            this.lost.cancel();
        })
    }

    /// Until a loop is lost.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// An error if a loop was lost.
    pub(super) fn verdict(&self) -> anyhow::Result<()> {
        match *self.first.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(name) => bail!("the loop of {name} ended by itself; this is a bug, and the log says where"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ops_f4_a_loop_that_ends_by_itself_is_an_error_of_the_process() {
        for broken in [false, true] {
            let (vital, stop) = (Arc::new(Vital::default()), CancellationToken::new());
            let fine = vital.spawn("fine", &stop, {
                let stop = stop.clone();
                async move { stop.cancelled().await }
            });
            assert!(vital.verdict().is_ok());
            let bad = vital.spawn("bad", &stop, async move { assert!(!broken, "as the test wants it") });
            vital.lost().await;
            stop.cancel();
            let _ = (fine.await, bad.await);
            let error = vital.verdict().unwrap_err().to_string();
            assert!(error.contains("the loop of bad"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_loop_that_was_told_to_end_is_none() {
        let (vital, stop) = (Arc::new(Vital::default()), CancellationToken::new());
        let fine = vital.spawn("fine", &stop, {
            let stop = stop.clone();
            async move { stop.cancelled().await }
        });
        stop.cancel();
        fine.await.unwrap();
        assert!(vital.verdict().is_ok());
    }
}
