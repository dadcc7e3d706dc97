//! An election on a real Lease.

use muster_emulate::cluster::TestCluster;
use muster_kube::elect::{Elected, Election, ElectionConfig};
use muster_model::{Duration, lease::Permit};

use tokio_util::sync::CancellationToken;

use crate::support::{LIMIT, connect, namespace, until};

async fn candidate(cluster: &TestCluster, name: &str, holder: &str) -> Election {
    let config = ElectionConfig {
        duration: Duration::from_secs(3),
        renew_deadline: Duration::from_secs(2),
        retry: Duration::from_millis(500),
        ..ElectionConfig::new("election", name, holder)
    };
    Election::new(connect(cluster).await, config)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_and_another_takes_over_when_it_falls_silent_or_gives_up() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    namespace(cluster, "election");
    let mut a = candidate(cluster, "silent", "a").await;
    let mut b = candidate(cluster, "silent", "b").await;
    assert_eq!(a.step().await.unwrap(), Elected::Us);
    assert_eq!(b.step().await.unwrap(), Elected::Other(Some("a".into())));
    // As long as it is renewed, nobody else gets it.
    for _ in 0..5 {
        assert_eq!(a.step().await.unwrap(), Elected::Us);
        assert_ne!(b.step().await.unwrap(), Elected::Us);
    }
    until("the silent leader stops by itself", || async { (!a.leading()).then_some(()) }).await;
    loop {
        if b.step().await.unwrap() == Elected::Us {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(a.step().await.unwrap(), Elected::Other(Some("b".into())));
    let lease = cluster.kubectl(
        &[
            "-n",
            "election",
            "get",
            "lease",
            "silent",
            "-o",
            "jsonpath={.spec.holderIdentity} {.spec.leaseTransitions}",
        ],
        "",
    );
    assert_eq!(lease, "b 1");

    b.release().await.unwrap();
    assert!(!b.leading());
    assert_eq!(a.step().await.unwrap(), Elected::Us, "what was given back is free at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_come_at_once_one_wins() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    namespace(cluster, "election-rush");
    let mut candidates = Vec::new();
    for number in 0..8 {
        let config = ElectionConfig::new("election-rush", "rush", format!("c{number}"));
        candidates.push(Election::new(connect(cluster).await, config));
    }
    let rounds = candidates.iter_mut().map(|candidate| async { candidate.step().await.unwrap() });
    let elected = futures::future::join_all(rounds).await;
    assert_eq!(elected.iter().filter(|one| **one == Elected::Us).count(), 1, "{elected:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_stops_hands_over_at_once() {
    let cluster = TestCluster::shared();
    let _peace = cluster.in_peace().await;
    namespace(cluster, "election-stop");
    let run = async |holder: &str| {
        let (sender, receiver) = tokio::sync::watch::channel(Permit::Unknown);
        let stop = CancellationToken::new();
        let election =
            Election::new(connect(cluster).await, ElectionConfig::new("election-stop", "stop", holder));
        let task = tokio::spawn(election.run(sender, stop.clone()));
        (receiver, stop, task)
    };
    let (mut first, stop, task) = run("first").await;
    first.wait_for(|permit| *permit == Permit::Granted).await.unwrap();
    let (mut second, stop_second, task_second) = run("second").await;
    assert_ne!(*second.borrow(), Permit::Granted);
    stop.cancel();
    task.await.unwrap();
    assert_ne!(*first.borrow(), Permit::Granted, "it says so before it hands over");
    tokio::time::timeout(LIMIT, second.wait_for(|permit| *permit == Permit::Granted))
        .await
        .expect("the other leads")
        .unwrap();
    stop_second.cancel();
    task_second.await.unwrap();
}
