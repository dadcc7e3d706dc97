//! What happened before the page opens: the same story and the same loops, in simulated time, as fast as it goes; and
//! how the records of it come into the store that is served.

use std::sync::Arc;

use anyhow::Context;
use muster_control::{history::History, inventory::ManualRequest, registry::WriteContext};
use muster_model::{
    Duration, Timestamp,
    host::ManualPower,
    store::{Committed, Entry, List, Store, Txn},
};
use muster_sim::world::{Disturbance, World, fleet, fuzz, process::Manner, simulation::Simulation, site};

use super::{
    site::{PROJECT, Yard},
    story::Story,
};

/// A person wants a server off this long before the page opens, and a budget is in the way.
const WISH: Duration = Duration::from_mins(12);
/// Who wants it.
pub(super) const PERSON: &str = "ann@example.com";
/// The planner gathers news for longer than in production: whoever waits for a page to open does not want every plan.
const PATIENT: Duration = Duration::from_secs(10);
/// For the loops to write down what they have in hand.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long a person's wish may take to be registered, in the world's time.
const PATIENCE: Duration = Duration::from_secs(30);
/// Entries and bytes of one commit.
const BATCH: usize = 100;
const BATCH_BYTES: usize = 1 << 20;
/// Written by whoever opens a store; not part of what is copied.
const FORMAT_KEY: &str = "/muster/format";

/// The world as it is when the page opens, and the store that the loops have filled.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) world: Arc<World>,
    pub(super) store: Arc<dyn Store>,
    /// Over everything that happened: equal for equal seeds.
    pub(super) digest: u64,
    /// The server that a person wants off, and that a budget keeps on.
    pub(super) blocked: Option<String>,
}

/// Lives through `length` of a story. Must not be called from within a runtime: it has its own time.
pub(super) fn live_through(
    yard: &Yard,
    story: &Story,
    start: Timestamp,
    length: Duration,
) -> anyhow::Result<Past> {
    fleet::on_one_thread(live(yard, story, start, length))
}

async fn live(yard: &Yard, story: &Story, start: Timestamp, length: Duration) -> anyhow::Result<Past> {
    let mut simulation = Simulation::new(start, Manner { debounce: PATIENT, ..fuzz::quick() });
    simulation.plan_for(site::cluster_id());
    let number = simulation.start().await?;
    let world = Arc::clone(simulation.world());
    world.measure_watts();
    simulation.furnish(number, &yard.site)?;
    keep_history(&mut simulation, number);
    for workload in Story::workloads() {
        world.add_workload(workload);
    }
    for what in story.always() {
        world.disturb(Disturbance { at: Duration::ZERO, lasts: Duration::ZERO, what });
    }
    let minutes = i64::try_from(length.millis() / 60_000).unwrap_or(i64::MAX);
    for beat in story.between(-minutes, 0) {
        world.disturb(beat.disturbance(length));
    }
    simulation.run_until(length.saturating_sub(WISH)).await?;
    let blocked = wish(&mut simulation, number);
    simulation.run_until(length).await?;
    if let Some(process) = simulation.process(number) {
        process.end();
    }
    simulation.run_for(FAREWELL).await?;
    let (digest, _) = world.digest();
    for broken in world.violations() {
        tracing::error!(row = broken.row, text = broken.text, "an invariant was broken; this is a bug");
    }
    world.dismiss_judge();
    Ok(Past { world, store: Arc::clone(simulation.store()), digest, blocked })
}

/// The figures that charts are made of.
fn keep_history(simulation: &mut Simulation, number: usize) {
    let Some(process) = simulation.process(number) else { return };
    let store = Arc::clone(process.registry.store());
    let history = History::new(store, Arc::clone(&process.inventory), Arc::clone(&process.board));
    let (leading, clock) = (process.lead.subscribe(), Arc::clone(&process.clock));
    let stop = tokio_util::sync::CancellationToken::new();
    simulation.attend(number, Box::pin(async move { history.run(leading, clock, stop).await }));
}

/// Somebody wants a server off that a pod runs on which may not be evicted.
fn wish(simulation: &mut Simulation, number: usize) -> Option<String> {
    let host = simulation.world().nodes_of("payments").into_iter().next()?;
    let inventory = Arc::clone(&simulation.process(number)?.inventory);
    let context =
        WriteContext { actor: PERSON.to_owned(), now: simulation.wall(), dry_run: false, idempotency: None };
    let name = host.clone();
    let done = simulation.block(PATIENCE, async move {
        let request = ManualRequest {
            action: ManualPower::Off,
            reason: "a fan is to be replaced".to_owned(),
            until: None,
        };
        inventory.power(&context, &name, &|_| true, &request, PROJECT).await.map(drop)
    });
    matches!(done, Some(Ok(()))).then_some(host)
}

/// Fails when `store` holds anything: a demo never begins on somebody's records.
pub(super) async fn require_empty(store: &dyn Store, name: &str) -> anyhow::Result<()> {
    let page = store.list(List { limit: 2, keys_only: true, ..List::default() }).await?;
    match page.entries.iter().find(|entry| entry.key != FORMAT_KEY) {
        None => Ok(()),
        Some(entry) => anyhow::bail!(
            "{name} holds records already ({} for one); the demo begins with an empty store, so name another one",
            entry.key
        ),
    }
}

/// Copies every record. What is written later has larger revisions than anything in `from`.
pub(super) async fn hand_over(from: &dyn Store, to: &dyn Store) -> anyhow::Result<()> {
    to.advance(from.revision().await?).await?;
    let mut list = List::default();
    let (mut batch, mut bytes): (Vec<Entry>, usize) = (Vec::new(), 0);
    loop {
        let page = from.list(list.clone()).await?;
        list.after = page.entries.last().map(|entry| entry.key.clone());
        for entry in page.entries.into_iter().filter(|entry| entry.key != FORMAT_KEY) {
            bytes += entry.key.len() + entry.value.len();
            if batch.len() >= BATCH || bytes > BATCH_BYTES {
                bytes = entry.key.len() + entry.value.len();
                put(to, std::mem::take(&mut batch)).await?;
            }
            batch.push(entry);
        }
        if !page.more {
            return put(to, batch).await;
        }
    }
}

async fn put(store: &dyn Store, entries: Vec<Entry>) -> anyhow::Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let txn = entries.into_iter().fold(Txn::new(), |txn, entry| txn.put(entry.key, entry.value));
    match store.commit(txn).await.context("the history cannot be written into the store")? {
        Committed::Done { .. } => Ok(()),
        Committed::Refused { .. } => anyhow::bail!("somebody else writes into the store of the demo"),
    }
}

/// Removes every record, for a store that outlives the demo.
pub(super) async fn clear(store: &dyn Store) -> anyhow::Result<()> {
    loop {
        let page = store.list(List { limit: BATCH, keys_only: true, ..List::default() }).await?;
        if page.entries.is_empty() {
            return Ok(());
        }
        let txn = page.entries.into_iter().fold(Txn::new(), |txn, entry| txn.delete(entry.key));
        if let Committed::Refused { .. } = store.commit(txn).await? {
            anyhow::bail!("somebody else writes into the store of the demo");
        }
    }
}
