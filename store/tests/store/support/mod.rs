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
