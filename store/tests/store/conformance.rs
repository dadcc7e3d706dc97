//! The conformance cases on every implementation.

mod memory {
    use std::sync::Arc;

    use muster_store::{conformance::Fixture, memory::Memory};

    #[allow(clippy::unused_async, reason = "the macro takes async functions")]
    async fn fixture(_: &'static str) -> Fixture {
        Fixture { store: Arc::new(Memory::default()), keep: Box::new(()) }
    }

    muster_store::conformance_tests!(fixture);
}

mod embedded {
    use std::sync::Arc;

    use muster_store::{conformance::Fixture, embedded::Embedded};

    use crate::support::{options, scratch};

    #[allow(clippy::unused_async, reason = "the macro takes async functions")]
    async fn fixture(_: &'static str) -> Fixture {
        let dir = scratch();
        let store = Embedded::open(dir.path(), options()).expect("a fresh store opens");
        Fixture { store: Arc::new(store), keep: Box::new(dir) }
    }

    muster_store::conformance_tests!(fixture);
}

mod etcd {
    use std::sync::Arc;

    use muster_store::{conformance::Fixture, etcd::Options};

    use crate::support::cluster;

    async fn fixture(case: &'static str) -> Fixture {
        let cluster = cluster::shared().await;
        let alone = cluster::alone().await;
        let store = cluster.open(Options { root: format!("/root-of-{case}"), ..cluster::options() }).await;
        Fixture { store: Arc::new(store), keep: Box::new((alone, cluster)) }
    }

    muster_store::conformance_tests!(fixture);
}
