//! Puts together what pages are made of, and answers "what if?" with the simulator.

use std::sync::Arc;

use muster_control::{
    history::History, hosts::Transcripts, inventory::Inventory, news::News, planner::Board,
    registry::Registry,
};
use muster_engine::{Snapshot, plan::Source, snapshot::HostState};
use muster_model::{Clock, ClusterId, k8s::PodKey};
use muster_server::desk::{Desk, Oracle, Question, Setting};
use muster_sim::simulate::{self, Add, Change, Loaded, Packed, Shape, Simulation, Totals};
use serde_json::{Value, json};

use crate::config::Settings;

/// Nodes that one side of an answer lists; the rest is counted.
const MOST_NODES: usize = 1_000;

pub(super) fn desk(
    settings: &Settings,
    registry: &Arc<Registry>,
    inventory: &Arc<Inventory>,
    board: &Arc<Board>,
    transcripts: Arc<Transcripts>,
    clock: &Arc<dyn Clock>,
) -> Arc<Desk> {
    let news = News::new(Arc::clone(registry), Arc::clone(inventory), Arc::clone(clock));
    let history = History::new(Arc::clone(registry.store()), Arc::clone(inventory), Arc::clone(board));
    let since = transcripts.since().unwrap_or_else(|| clock.now());
    Arc::new(Desk::new(news, history, transcripts, since, shown(settings), Arc::new(Simulator)))
}

/// The settings as people may see them: digests of tokens are nobody's business either.
fn shown(settings: &Settings) -> Vec<Setting> {
    let rows = settings.view().into_iter().map(|(name, value, origin, help)| Setting {
        value: if name == "auth.tokens" && value != "[]" { "(hidden)".to_owned() } else { value },
        name: name.to_owned(),
        origin,
        help: help.to_owned(),
    });
    rows.collect()
}

/// The simulator as an oracle.
#[derive(Debug)]
struct Simulator;

impl Oracle for Simulator {
    fn ask(&self, cluster: ClusterId, snapshot: Snapshot, question: &Question) -> Result<Value, String> {
        let asked = simulate::Question {
            pools: Vec::new(),
            add: question.add.as_ref().map(|add| {
                Add::Shape(Shape {
                    count: add.count,
                    cpu: add.cpu.clone(),
                    memory: add.memory.clone(),
                    gpu: add.gpu,
                    resources: Vec::new(),
                    tolerate: add.tolerate.clone(),
                    selector: add.selector.clone(),
                })
            }),
            remove: question.remove.clone(),
            fail: question.fail.clone(),
            set: question.set.clone(),
            consolidate: question.consolidate,
            buy: question.buy.clone(),
            currency: question.currency.clone(),
        };
        let now = snapshot.now;
        let power = Power::of(&snapshot);
        let answer = simulate::simulate(Loaded::from_snapshot(snapshot), &asked, &[])
            .map_err(|error| error.to_string())?;
        Ok(render(cluster, now, &power, &answer))
    }
}

/// What hosts draw at rest, as declared.
struct Power {
    before: i64,
    hosts: Vec<(String, Option<String>, i64, bool)>,
}

impl Power {
    fn of(snapshot: &Snapshot) -> Self {
        let hosts: Vec<_> = snapshot
            .hosts
            .iter()
            .map(|host| {
                let on = !matches!(host.state, HostState::Off | HostState::Failed | HostState::Maintenance);
                (host.name.to_string(), host.node.as_ref().map(ToString::to_string), host.idle_milliwatts, on)
            })
            .collect();
        let before = hosts.iter().filter(|host| host.3).map(|host| host.2).sum();
        Self { before, hosts }
    }

    /// After the plan: hosts that are woken count, hosts whose node goes do not.
    fn after(&self, answer: &Simulation) -> i64 {
        let woken = |name: &str| {
            let mut new = answer.plan.new_nodes.iter();
            new.any(|node| matches!(&node.source, Source::Host { host } if **host == *name))
        };
        let there = |node: &str| {
            answer.nodes_after.iter().any(|row| *row.node == *node && row.change != Change::Goes)
        };
        let drawn = self
            .hosts
            .iter()
            .filter(|(name, node, _, on)| woken(name) || (*on && node.as_deref().is_none_or(there)));
        drawn.map(|host| host.2).sum()
    }
}

fn render(cluster: ClusterId, now: muster_model::Timestamp, power: &Power, answer: &Simulation) -> Value {
    let pod = |key: &PodKey| key.to_string();
    json!({
        "cluster_id": cluster,
        "nothing_changed": true,
        "question": answer.question,
        "summary": answer.summary,
        "at": now,
        "before": side(&answer.before, power.before, &answer.nodes_before),
        "after": side(&answer.after, power.after(answer), &answer.nodes_after),
        "new_nodes": answer.new_nodes.iter().map(|row| json!({ "pool": row.pool, "template": row.template,
            "place": row.place, "count": row.count, "pods": row.pods })).collect::<Vec<_>>(),
        "removals": answer.removals,
        "unplaced": answer.unplaced.iter().map(|row| {
            let mut value = json!({ "pods": row.pods, "example": pod(&row.example), "code": row.code, "headline": row.headline });
            if let Some(fix) = &row.fix {
                value["fix"] = json!(fix);
            }
            value
        }).collect::<Vec<_>>(),
        "warnings": answer.warnings,
        "notes": answer.read.notes,
        "findings": answer.audit,
    })
}

fn side(totals: &Totals, milliwatts: i64, nodes: &[Packed]) -> Value {
    let rows: Vec<Value> = nodes
        .iter()
        .take(MOST_NODES)
        .map(|row| {
            json!({ "name": row.node, "pool": row.pool, "change": row.change, "cpu_percent": row.cpu_percent,
                "memory_percent": row.memory_percent, "pods": row.pods })
        })
        .collect();
    json!({ "machines": totals.nodes, "micros_per_hour": totals.price_per_hour_micros, "milliwatts": milliwatts,
        "running_pods": totals.running_pods, "waiting_pods": totals.pending_pods, "cpu_percent": totals.cpu_percent(),
        "memory_percent": totals.memory_percent(), "more_nodes": nodes.len().saturating_sub(MOST_NODES), "nodes": rows })
}
