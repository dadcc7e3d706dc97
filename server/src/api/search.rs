//! `GET /api/v1/search`: whatever has that name, MAC, serial number or address, among what the caller sees.

use axum::{http::StatusCode, response::Response};
use muster_control::{explain::Subject, registry::Kind};
use muster_model::{field::FieldError, identity::Resource};
use serde_json::{Value, json};

use super::{Call, reply};
use crate::error::ApiError;

const DEFAULT_LIMIT: u64 = 12;
const MAX_LIMIT: u64 = 50;
const MAX_TEXT: usize = 253;

/// What was found; lower ranks come first.
struct Hits {
    wanted: String,
    found: Vec<(u8, Value)>,
}

impl Hits {
    /// How well a text fits: exactly, at its beginning, or somewhere.
    fn rank(&self, text: &str) -> Option<u8> {
        let text = text.to_lowercase();
        match text.find(&self.wanted) {
            Some(0) if text.len() == self.wanted.len() => Some(0),
            Some(0) => Some(1),
            Some(_) => Some(2),
            None => None,
        }
    }

    fn add(&mut self, texts: &[&str], kind: &str, name: &str, detail: &str, link: &str) {
        if let Some(rank) = texts.iter().filter_map(|text| self.rank(text)).min() {
            let hit = json!({ "kind": kind, "name": name, "detail": detail, "link": link });
            self.found.push((rank, hit));
        }
    }
}

/// `GET /api/v1/search?q=TEXT`
pub async fn search(call: Call) -> Result<Response, ApiError> {
    call.check_list(Resource::NodePools)?;
    let mut query = call.query()?;
    let wanted = query.text("q").map(|text| text.trim().to_lowercase()).unwrap_or_default();
    if wanted.is_empty() || wanted.len() > MAX_TEXT {
        query.fault(FieldError::new("q", format!("must have 1 to {MAX_TEXT} characters")));
    }
    let limit = query.number("limit", 1, MAX_LIMIT).unwrap_or(DEFAULT_LIMIT);
    query.finish()?;
    let mut hits = Hits { wanted, found: Vec::new() };
    for host in call.inventory().hosts(&call.host_filter())? {
        let spec = host.readable();
        let mac = spec.and_then(|spec| spec.mac_address).map(|mac| mac.to_string()).unwrap_or_default();
        let address = spec.and_then(|spec| spec.mgmt_address.as_ref()).map(ToString::to_string);
        let serial = spec.and_then(|spec| spec.serial.clone()).unwrap_or_default();
        let node = host.status.as_ref().and_then(|status| status.kubernetes_node.clone());
        let (address, node) = (address.unwrap_or_default(), node.unwrap_or_default());
        let texts = [&*host.name, mac.as_str(), address.as_str(), serial.as_str(), node.as_str()];
        let detail = format!("{} · {}", host.pool().unwrap_or("no pool"), host.state());
        hits.add(&texts, "host", &host.name, &detail, &format!("/hosts/{}", host.name));
    }
    call.app.registry.each(Kind::Pool, |pool| {
        if call.sees(&pool.project) {
            let id = pool.id.to_string();
            hits.add(&[&pool.name, &id], "pool", &pool.name, pool.platform, &format!("/pools/{id}"));
        }
    });
    call.app.registry.each(Kind::Cluster, |cluster| {
        if call.sees(&cluster.project) {
            let id = cluster.id.to_string();
            let link = format!("/decisions?cluster={id}");
            hits.add(&[&cluster.name, &id], "cluster", &cluster.name, cluster.phase, &link);
        }
    });
    let (racks, _) = call.inventory().all_named::<muster_model::rack::Rack>().await?;
    for rack in racks {
        if call.sees(&rack.project) {
            let name = rack.spec.name;
            hits.add(&[&name], "rack", &name, "rack", &format!("/racks?q={name}"));
        }
    }
    pods_and_nodes(&call, &mut hits);
    if let Some(decision) =
        call.app.explain.find(&hits.wanted.clone(), &super::decisions::clusters(&call)).await?
    {
        let id = decision.id.to_string();
        hits.add(&[&id], "decision", &id, &decision.headline, &format!("/decisions/{id}"));
    }
    hits.found.sort_by(|(a, one), (b, other)| {
        a.cmp(b).then_with(|| one["name"].as_str().cmp(&other["name"].as_str()))
    });
    let total = hits.found.len();
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let results: Vec<Value> = hits.found.into_iter().take(limit).map(|(_, hit)| hit).collect();
    Ok(reply::value(StatusCode::OK, &json!({ "results": results, "total": total })))
}

fn pods_and_nodes(call: &Call, hits: &mut Hits) {
    for live in call.app.explain.board().all() {
        let Some(view) = live.view.as_ref().filter(|_| call.sees(&live.project)) else { continue };
        for pod in &view.snapshot.cluster.pods {
            let key = pod.key();
            if hits.rank(&key.name).is_none() && hits.rank(&key.to_string()).is_none() {
                continue;
            }
            let name = key.to_string();
            let detail = match &pod.spec.node_name {
                Some(node) => format!("on {node}"),
                None if pod.is_pending() => "waits".to_owned(),
                None => String::new(),
            };
            let link = format!("/explain/{}/{name}", Subject::Pod(key.clone()).kind());
            hits.add(&[&key.name, &name], "pod", &name, &detail, &link);
        }
        for node in &view.snapshot.cluster.nodes {
            let member = view.snapshot.members.get(&node.metadata.name);
            let detail = member.map_or("no pool", |member| &member.pool);
            hits.add(&[node.name()], "node", node.name(), detail, &format!("/explain/node/{}", node.name()));
        }
    }
}
