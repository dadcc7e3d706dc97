//! The journal on every store: bounded, replayable to the byte, refused to whoever does not lead.

use std::sync::Arc;

use muster_control::journal::{
    Also, Cause, Decision, DecisionFilter, Draft, FrameKind, Journal, JournalError, Outcome, OutcomeState,
    Side, Subject, compare, replay,
};
use muster_engine::{Plan, Snapshot};
use muster_model::{
    ClusterId, Timestamp,
    store::{Fence, List, Revision, Store, Txn},
};

use crate::world::{CLUSTER, World, pod};

fn cluster() -> ClusterId {
    CLUSTER.parse().unwrap()
}

fn draft(at: i64, unplaced: u32) -> Draft {
    let at = Timestamp::from_millis(at);
    Draft {
        cluster_id: cluster(),
        cluster_name: "lab".into(),
        project: "lab".into(),
        at,
        headline: format!("{unplaced} pods find no place"),
        cause: Cause::default(),
        new_nodes: 0,
        removals: 0,
        placed: 0,
        unplaced,
        pools: Vec::new(),
        actions: Vec::new(),
        more_actions: 0,
        also: Also::default(),
        told: Vec::new(),
        findings: Vec::new(),
        outcome: Outcome { state: OutcomeState::Quiet, at, text: "0 things".into(), effects: Vec::new() },
    }
}

/// A snapshot with `pods` pods that nothing can place.
fn snapshot(at: i64, pods: usize) -> Snapshot {
    let mut snapshot = Snapshot { now: Timestamp::from_millis(at), ..Snapshot::default() };
    snapshot.cluster.pods = (0..pods).map(|number| pod(&format!("web-{number}"), "2")).collect();
    snapshot
}

async fn fence(store: &Arc<dyn Store>) -> Fence {
    let key = "/muster/leases/leader/epoch";
    let _ = store.commit(Txn::new().put(key, "me")).await.unwrap();
    Fence { key: key.into(), epoch: store.get(key).await.unwrap().unwrap().modified }
}

async fn keys(store: &Arc<dyn Store>, prefix: &str) -> usize {
    let (mut count, mut after) = (0, None);
    loop {
        let page = store.list(List {
            after,
            keys_only: true,
            ..List::prefix(format!("/muster/journal/{CLUSTER}/{prefix}"))
        });
        let page = page.await.unwrap();
        count += page.entries.len();
        after = page.entries.last().map(|entry| entry.key.clone());
        if !page.more {
            return count;
        }
    }
}

async fn suite(store: Arc<dyn Store>) {
    let journal = Journal::new(Arc::clone(&store)).with_bounds(10, 120);
    let fence = fence(&store).await;
    let mut made: Vec<Decision> = Vec::new();
    for number in 1..=150_i64 {
        let pods = 40 + usize::try_from(number).unwrap() % 7;
        let (snapshot, plan) = (snapshot(number, pods), Plan::default());
        let decision = journal.append(&fence, draft(number, 1), &snapshot, &plan).await.unwrap();
        assert_eq!(decision.number, u64::try_from(number).unwrap());
        assert_eq!(journal.frame(&decision).await.unwrap(), (snapshot, plan));
        made.push(decision);
    }
    assert!(made.iter().any(|one| one.frame.as_ref().unwrap().kind == FrameKind::Delta));
    // The last ten can be read; the oldest keep their verdicts, until they are dropped.
    for decision in &made[140..] {
        journal.frame(decision).await.unwrap();
    }
    assert!(matches!(journal.frame(&made[20]).await, Err(JournalError::TooOld { .. })));
    assert!(journal.read(cluster(), 50).await.unwrap().is_some());
    assert!(journal.read(cluster(), 30).await.unwrap().is_none());
    assert_eq!(keys(&store, "decisions/").await, 120);
    let frames = keys(&store, "frames/").await;
    assert!((10..=110).contains(&frames), "{frames} frames are kept");
    // Newest first, page by page, and filtered by time.
    let first = journal.list(cluster(), &DecisionFilter::default(), None, 50).await.unwrap();
    assert_eq!((first.decisions[0].number, first.next), (150, Some(101)));
    let second = journal.list(cluster(), &DecisionFilter::default(), first.next, 100).await.unwrap();
    assert_eq!((second.decisions.len(), second.decisions[0].number, second.next), (70, 100, None));
    let since = DecisionFilter { since: Some(Timestamp::from_millis(146)), ..DecisionFilter::default() };
    assert_eq!(journal.list(cluster(), &since, None, 50).await.unwrap().decisions.len(), 5);
    // Whoever does not lead appends nothing, and what it wrote before is not believed.
    let stale = Fence { epoch: Revision(fence.epoch.0 + 1_000_000), ..fence.clone() };
    let refused = journal.append(&stale, draft(999, 1), &snapshot(1, 3), &Plan::default()).await;
    assert!(matches!(refused, Err(JournalError::NotLeading { .. })), "{refused:?}");
    assert_eq!(journal.last(cluster()).await.unwrap().unwrap().number, 150);
}

#[tokio::test]
async fn the_journal_is_bounded_in_memory() {
    suite(Arc::new(muster_store::memory::Memory::default())).await;
}

#[tokio::test]
async fn the_journal_is_bounded_in_the_embedded_store() {
    let directory = tempfile::tempdir().unwrap();
    let options =
        muster_store::embedded::Options::new("journal test", Timestamp::from_millis(1_700_000_000_000));
    let store = muster_store::embedded::Embedded::open(directory.path(), options).unwrap();
    suite(Arc::new(store)).await;
}

#[tokio::test]
async fn the_journal_is_bounded_on_etcd() {
    let (store, _member) = crate::etcd::store().await;
    suite(store).await;
}

/// A snapshot larger than one value is cut into pieces and put together again.
#[tokio::test]
async fn large_snapshots_are_kept_in_pieces() {
    let store: Arc<dyn Store> = Arc::new(muster_store::memory::Memory::default());
    let journal = Journal::new(Arc::clone(&store));
    let fence = fence(&store).await;
    let mut large = snapshot(1, 0);
    // Names that do not compress: 4 MiB of hexadecimal digits have 2 MiB of content.
    large.cluster.pods = (0..40_000_u64)
        .map(|number| {
            let word =
                number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number.rotate_left(29).wrapping_mul(0xD1B5_4A32);
            let other = word.rotate_right(23).wrapping_mul(0xBF58_476D_1CE4_E5B9) ^ word;
            pod(&format!("{word:016x}{other:016x}{:016x}", other.wrapping_mul(word | 1)), "2")
        })
        .collect();
    let decision = journal.append(&fence, draft(1, 1), &large, &Plan::default()).await.unwrap();
    assert!(decision.frame.as_ref().unwrap().pieces > 1, "{:?}", decision.frame);
    assert_eq!(journal.frame(&decision).await.unwrap().0, large);
}

/// OPS-U11: replaying gives the same plan byte for byte, after a restart too; two decisions can be compared.
#[tokio::test]
async fn ops_u11_replay_gives_the_same_plan() {
    let mut world = World::new().await;
    world.metal("web", 0, 30).await;
    for number in 0..12 {
        world.host(&format!("h{number:02}"), "web").await;
    }
    for number in 0..10 {
        world.show(|objects| objects.pods.push(pod(&format!("web-{number}"), "7")));
        let _ = world.turn().await;
        world.pass(muster_model::Duration::from_secs(11));
        world.show(|_| {});
    }
    world.fail_over().await;
    let decisions = world.decisions().await;
    assert!(decisions.len() >= 10, "{}", decisions.len());
    for decision in &decisions {
        let (snapshot, plan) = world.journal().frame(decision).await.unwrap();
        let again = replay(decision, &snapshot, plan);
        assert!(again.same, "{again:#?}");
        assert!(again.headline.starts_with("the same plan again: "), "{}", again.headline);
    }
    let (newest, oldest) = (&decisions[0], &decisions[decisions.len() - 1]);
    let (before, old) = world.journal().frame(oldest).await.unwrap();
    let (after, new) = world.journal().frame(newest).await.unwrap();
    let side = |decision, (snapshot, plan)| Side { decision, frame: Some((snapshot, plan)) };
    let compared = compare(side(oldest, (&before, &old)), side(newest, (&after, &new)));
    let found =
        |what: Subject, name: &str| compared.inputs.iter().any(|one| one.subject == what && one.name == name);
    assert!(found(Subject::Pods, "pods waiting") && found(Subject::Hosts, "hosts off"), "{compared:#?}");
    assert!(compared.summary.contains(" is called up in web instead of "), "{}", compared.summary);
}
