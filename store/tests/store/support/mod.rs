//! What several tests need.

pub(crate) mod cluster;

use muster_model::Timestamp;
use muster_store::embedded;

pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("muster-store-").tempdir().expect("a scratch directory can be made")
}

pub(crate) fn options() -> embedded::Options {
    embedded::Options::new("store test", Timestamp::from_millis(1_700_000_000_000))
}

/// A clock that stands still.
#[derive(Debug)]
pub(crate) struct Still;

#[async_trait::async_trait]
impl muster_model::Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000)
    }

    fn monotonic(&self) -> muster_model::Duration {
        muster_model::Duration::from_secs(1000)
    }

    async fn sleep(&self, _: muster_model::Duration) {
        std::future::pending::<()>().await;
    }
}
