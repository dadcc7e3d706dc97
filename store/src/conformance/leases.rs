//! Leading, and being replaced. Time is the case's own.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use muster_model::{
    Clock, Duration, Timestamp,
    lease::{Candidate, LeaseConfig, Standing},
    store::{Committed, Fence, Txn},
};

use super::World;

/// A clock that moves when told.
#[derive(Debug)]
struct Manual {
    monotonic: AtomicU64,
    wall: AtomicU64,
}

impl Manual {
    fn new() -> Arc<Self> {
        Arc::new(Self { monotonic: AtomicU64::new(1_000_000), wall: AtomicU64::new(1_700_000_000_000) })
    }

    fn pass(&self, seconds: u64) {
        self.monotonic.fetch_add(seconds * 1000, Ordering::SeqCst);
        self.wall.fetch_add(seconds * 1000, Ordering::SeqCst);
    }
}

#[async_trait]
impl Clock for Manual {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(i64::try_from(self.wall.load(Ordering::SeqCst)).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.monotonic.load(Ordering::SeqCst))
    }

    async fn sleep(&self, _: Duration) {
        std::future::pending::<()>().await;
    }
}

/// Two candidates, `a` and `b`, for a lease of 15 s that a leader must renew within 10 s.
struct Election {
    world: World,
    clock: Arc<Manual>,
    name: String,
}

impl Election {
    fn new(world: World) -> Self {
        let name = world.root.replace('/', "-");
        Self { world, clock: Manual::new(), name }
    }

    fn candidate(&self, holder: &str) -> Candidate {
        let config = LeaseConfig::new(&*self.name, holder);
        Candidate::new(Arc::clone(&self.world.store), self.clock.clone(), config).expect("the times fit")
    }

    /// A write that only the leader with this fence may do.
    async fn write(&self, fence: &Fence, value: &str) -> bool {
        let txn = Txn::new().fenced(fence).put(self.world.key("guarded"), value.to_owned());
        matches!(self.world.commit(txn).await, Committed::Done { .. })
    }
}

#[track_caller]
fn led(standing: Standing) -> Fence {
    match standing {
        Standing::Leading(fence) => fence,
        Standing::Following { leader } => panic!("it does not lead, {leader:?} does"),
    }
}

#[track_caller]
fn assert_following(standing: Standing, leader: Option<&str>) {
    assert_eq!(standing, Standing::Following { leader: leader.map(str::to_owned) });
}

async fn step(candidate: &mut Candidate) -> Standing {
    candidate.step().await.expect("the store answers")
}

pub(super) async fn one_of_two_candidates_leads(world: World) {
    let election = Election::new(world);
    let (mut a, mut b) = (election.candidate("a"), election.candidate("b"));
    let fence = led(step(&mut a).await);
    for _ in 0..5 {
        assert_following(step(&mut b).await, Some("a"));
        election.clock.pass(4);
        assert_eq!(led(step(&mut a).await), fence);
    }
    assert!(election.write(&fence, "a's").await);
    assert_eq!(b.leading(), None);
}

pub(super) async fn a_silent_leader_is_replaced(world: World) {
    let election = Election::new(world);
    let (mut a, mut b) = (election.candidate("a"), election.candidate("b"));
    let old = led(step(&mut a).await);
    assert_following(step(&mut b).await, Some("a"));
    election.clock.pass(14);
    assert_following(step(&mut b).await, Some("a"));
    election.clock.pass(1);
    let new = led(step(&mut b).await);
    assert!(new.epoch > old.epoch);
    assert_eq!(new.key, old.key);
    assert_following(step(&mut a).await, Some("b"));
}

pub(super) async fn a_leader_stops_before_it_is_replaced(world: World) {
    let election = Election::new(world);
    let mut a = election.candidate("a");
    let fence = led(step(&mut a).await);
    election.clock.pass(9);
    assert_eq!(a.leading(), Some(fence.clone()));
    election.clock.pass(1);
    assert_eq!(a.leading(), None, "past its deadline it does not count on itself");
    // Nobody took over: it may go on, in the same epoch.
    assert_eq!(led(step(&mut a).await), fence);
}

pub(super) async fn a_replaced_leader_cannot_write(world: World) {
    let election = Election::new(world);
    let (mut a, mut b) = (election.candidate("a"), election.candidate("b"));
    let old = led(step(&mut a).await);
    assert!(election.write(&old, "a's").await);
    step(&mut b).await;
    election.clock.pass(20);
    let new = led(step(&mut b).await);
    // The old leader has heard of nothing.
    assert!(!election.write(&old, "too late").await);
    assert!(election.write(&new, "b's").await);
    assert!(!election.write(&old, "too late").await);
    assert_eq!(election.world.value("guarded").await, Some("b's".into()));
    // Leading again is another epoch, and the first one does not come back to life.
    step(&mut a).await;
    election.clock.pass(20);
    let third = led(step(&mut a).await);
    assert!(third.epoch > new.epoch);
    assert!(!election.write(&old, "too late").await);
    assert!(!election.write(&new, "too late").await);
}

pub(super) async fn renewing_keeps_the_epoch(world: World) {
    let election = Election::new(world);
    let mut a = election.candidate("a");
    let fence = led(step(&mut a).await);
    for n in 0..5 {
        election.clock.pass(2);
        assert_eq!(led(step(&mut a).await), fence);
        assert!(election.write(&fence, &n.to_string()).await);
    }
}

pub(super) async fn a_released_lease_is_free_at_once(world: World) {
    let election = Election::new(world);
    let (mut a, mut b) = (election.candidate("a"), election.candidate("b"));
    let old = led(step(&mut a).await);
    step(&mut b).await;
    a.release().await.expect("the store answers");
    assert_eq!(a.leading(), None);
    let new = led(step(&mut b).await);
    assert!(new.epoch > old.epoch);
    assert!(!election.write(&old, "too late").await);
    b.release().await.expect("the store answers");
    a.release().await.expect("releasing what is not held is nothing");
}

/// Whoever can be alone with the store knows that the process named in the record is gone.
pub(super) async fn a_sole_candidate_does_not_wait(world: World) {
    let election = Election::new(world);
    let old = led(step(&mut election.candidate("killed")).await);
    assert_following(step(&mut election.candidate("one of many")).await, Some("killed"));
    let config = LeaseConfig { sole: true, ..LeaseConfig::new(&*election.name, "next") };
    let mut next = Candidate::new(Arc::clone(&election.world.store), election.clock.clone(), config)
        .expect("the times fit");
    let new = led(step(&mut next).await);
    assert!(new.epoch > old.epoch);
    assert_eq!(led(step(&mut next).await), new);
    assert!(!election.write(&old, "too late").await);
}

pub(super) async fn a_wall_clock_that_jumps_changes_nothing(world: World) {
    let election = Election::new(world);
    let (mut a, mut b) = (election.candidate("a"), election.candidate("b"));
    let fence = led(step(&mut a).await);
    step(&mut b).await;
    for wall in [4_000_000_000_000, 0, 1_700_000_000_000] {
        election.clock.wall.store(wall, Ordering::SeqCst);
        assert_following(step(&mut b).await, Some("a"));
        assert_eq!(led(step(&mut a).await), fence);
        step(&mut b).await;
    }
}

pub(super) async fn an_unanswered_renewal_is_found_again(world: World) {
    let election = Election::new(world);
    let mut a = election.candidate("a");
    let fence = led(step(&mut a).await);
    // The same holder, without what the first learnt: as if no answer had ever come.
    let mut again = election.candidate("a");
    assert_eq!(led(step(&mut again).await), fence);
    assert_eq!(led(step(&mut a).await), fence, "a record that moved on under its own name is still its own");
}
