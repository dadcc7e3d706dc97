//! Questions, as changes of a snapshot. The snapshot is a copy in memory: nothing is ever changed.

use std::{collections::BTreeSet, sync::Arc};

use muster_engine::{
    Snapshot,
    admit::{self, Classes},
    down::{Fate, fate},
    snapshot::{HostState, Member, Mode, Offering, Pool, Template},
};
use muster_model::{
    Quantity,
    k8s::{
        Container, Effect, Labels, ObjectMeta, Pod, PodKey, PodSpec, PodStatus, PodTemplate, ResourceList,
        Resources, Toleration, TolerationOperator,
    },
};
use thiserror::Error;

use super::{document::Source, pools};

/// A question that cannot be asked like that.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum QuestionError {
    #[error("{flag} is {found:?}, which is not {expected}")]
    Value { flag: String, found: String, expected: String },
    #[error("{name} is neither a node nor a host nor a rack of what was given")]
    NoSuchMachine { name: String },
    #[error("pool {name} is not among those given ({known}); name one of them, or add it with --pool")]
    NoSuchPool { name: String, known: String },
    #[error("{file} has no object with a pod template (Deployment, StatefulSet, Job, ReplicaSet) and no Pod")]
    NoTemplate { file: String },
    #[error("the pods to add would be refused: {why}")]
    Refused { why: String },
    #[error("{0}")]
    Pool(String),
}

/// Everything that may be asked at once. Nothing set means: what would be done now?
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// Pools given in short, see [`pools::from_flag`].
    pub pools: Vec<String>,
    pub add: Option<Add>,
    pub remove: Vec<String>,
    pub fail: Vec<String>,
    /// `pool.field=value`.
    pub set: Vec<String>,
    pub consolidate: bool,
    /// The machine to buy: the name of a template, or `cpu=16,memory=64Gi`.
    pub buy: Option<String>,
    /// What prices are in, where somebody has said.
    pub currency: Option<String>,
}

/// Pods that do not exist yet.
#[derive(Debug, Clone)]
pub enum Add {
    Shape(Shape),
    /// The pods of a workload's manifest; without a number as many as it says.
    From {
        source: Source,
        replicas: Option<u32>,
    },
}

#[derive(Debug, Clone, Default)]
pub struct Shape {
    pub count: u32,
    pub cpu: Option<String>,
    pub memory: Option<String>,
    pub gpu: Option<u32>,
    /// `resource=amount`.
    pub resources: Vec<String>,
    /// `key[=value][:Effect]`.
    pub tolerate: Vec<String>,
    /// `key=value`.
    pub selector: Vec<String>,
}

/// What a question did to the copy.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// In words.
    pub(super) phrases: Vec<String>,
    pub(super) warnings: Vec<String>,
    /// Pods that lost their node and come back.
    pub(super) displaced: BTreeSet<PodKey>,
    /// Pods that did not exist before.
    pub(super) added: BTreeSet<PodKey>,
    pub(super) bought: Option<Arc<str>>,
    /// Nobody said what a machine costs.
    pub(super) unpriced: bool,
}

fn wrong(flag: &str, found: &str, expected: &str) -> QuestionError {
    QuestionError::Value { flag: flag.to_owned(), found: found.to_owned(), expected: expected.to_owned() }
}

/// Applies the question to the copy.
pub(super) fn apply(snapshot: &mut Snapshot, question: &Question) -> Result<Asked, QuestionError> {
    let mut asked = Asked::default();
    for text in &question.pools {
        let pool = pools::from_flag(text).map_err(QuestionError::Pool)?;
        snapshot.pools.retain(|other| other.name != pool.name);
        snapshot.pools.push(pool);
    }
    for setting in &question.set {
        set(snapshot, setting, &mut asked)?;
    }
    for name in &question.remove {
        lose(snapshot, name, "removed", HostState::Maintenance, &mut asked)?;
    }
    for name in &question.fail {
        lose(snapshot, name, "failed", HostState::Failed, &mut asked)?;
    }
    if let Some(add) = &question.add {
        let pods = match add {
            Add::Shape(shape) => shape_pods(shape)?,
            Add::From { source, replicas } => template_pods(source, *replicas)?,
        };
        add_pods(snapshot, pods, &mut asked)?;
    }
    if let Some(machine) = &question.buy {
        buy(snapshot, machine, &mut asked)?;
    }
    Ok(asked)
}

fn set(snapshot: &mut Snapshot, setting: &str, asked: &mut Asked) -> Result<(), QuestionError> {
    let expected = "POOL.max=N, POOL.min=N, POOL.count=N, POOL.price=P or POOL.frozen=true";
    let (target, value) = setting.split_once('=').ok_or_else(|| wrong("--set", setting, expected))?;
    let (name, field) = target.rsplit_once('.').ok_or_else(|| wrong("--set", setting, expected))?;
    let known: Vec<String> = snapshot.pools.iter().map(|pool| pool.name.to_string()).collect();
    let pool = snapshot
        .pools
        .iter_mut()
        .find(|pool| *pool.name == *name)
        .ok_or_else(|| QuestionError::NoSuchPool { name: name.to_owned(), known: known.join(", ") })?;
    let number = || value.parse::<u32>().map_err(|_| wrong("--set", setting, "a whole number after ="));
    match field {
        "max" => pool.max = number()?,
        "min" => pool.min = number()?,
        "count" => pool.fixed = Some(number()?),
        "frozen" => pool.mode = if value == "true" { Mode::Frozen } else { Mode::Act },
        "price" => {
            let price: Quantity = value.parse().map_err(|_| wrong("--set", setting, "a price after ="))?;
            let price = i64::try_from(price.nanos() / 1000).unwrap_or(i64::MAX);
            for offering in pool.templates.iter_mut().flat_map(|template| &mut template.offerings) {
                offering.price = price;
            }
        }
        _ => return Err(wrong("--set", setting, expected)),
    }
    if pool.max < pool.min {
        return Err(wrong(
            "--set",
            setting,
            &format!("possible: the pool's minimum is {}, its maximum {}", pool.min, pool.max),
        ));
    }
    asked.phrases.push(format!("{name}.{field} is {value}"));
    Ok(())
}

/// Nodes and hosts that go by a name.
#[derive(Debug, Default)]
pub(super) struct Machines {
    pub(super) nodes: BTreeSet<Arc<str>>,
    hosts: BTreeSet<Arc<str>>,
}

/// The machines of that name: a node, a host, or all of a rack. The kind may be written before it.
pub(super) fn machines(snapshot: &Snapshot, name: &str) -> Result<Machines, QuestionError> {
    let (kind, own) = match name.split_once('/') {
        Some((kind @ ("node" | "host" | "rack"), own)) => (Some(kind), own),
        _ => (None, name),
    };
    let wants = |wanted: &str| kind.is_none_or(|kind| kind == wanted);
    let mut found = Machines::default();
    for node in &snapshot.cluster.nodes {
        let rack = node.metadata.labels.text("topology.kubernetes.io/rack");
        if wants("node") && node.name() == own || wants("rack") && rack == Some(own) {
            found.nodes.insert(node.metadata.name.clone());
        }
    }
    for host in &snapshot.hosts {
        let runs = host.node.as_ref().is_some_and(|node| found.nodes.contains(node));
        let named = wants("host") && *host.name == *own || wants("rack") && host.rack.as_deref() == Some(own);
        if named || runs {
            found.nodes.extend(host.node.clone());
            found.hosts.insert(host.name.clone());
        }
    }
    if found.nodes.is_empty() && found.hosts.is_empty() {
        return Err(QuestionError::NoSuchMachine { name: name.to_owned() });
    }
    Ok(found)
}

/// Takes a node, a host or a rack away. Pods with a controller come back as pending pods.
fn lose(
    snapshot: &mut Snapshot,
    name: &str,
    how: &str,
    state: HostState,
    asked: &mut Asked,
) -> Result<(), QuestionError> {
    let Machines { nodes, hosts } = machines(snapshot, name)?;
    for host in snapshot.hosts.iter_mut().filter(|host| hosts.contains(&host.name)) {
        host.node = None;
        host.state = state;
    }
    snapshot.cluster.nodes.retain(|node| !nodes.contains(&node.metadata.name));
    snapshot.members.retain(|node, _| !nodes.contains(node));
    pools::forget(snapshot, &nodes);
    let now = snapshot.now;
    snapshot.cluster.pods.retain_mut(|pod| {
        let on = pod.spec.node_name.as_deref().is_some_and(|node| nodes.contains(node));
        if !on {
            return true;
        }
        if fate(pod, now) != Fate::Moves {
            return false;
        }
        if pod.metadata.controller().is_none() {
            asked.warnings.push(format!("pod {} has no controller: it would be lost", pod.key()));
            return false;
        }
        Arc::make_mut(&mut pod.spec).node_name = None;
        pod.status = PodStatus::default();
        asked.displaced.insert(pod.key());
        true
    });
    asked.phrases.push(match nodes.len() {
        0 => format!("host {} {how}", name.trim_start_matches("host/")),
        1 if nodes.iter().next().is_some_and(|node| name.ends_with(&**node)) => {
            format!("node {} {how}", name.trim_start_matches("node/"))
        }
        1 => format!("{name} {how} (1 node)"),
        many => format!("{name} {how} ({many} nodes)"),
    });
    Ok(())
}

fn amount(flag: &str, text: &str) -> Result<Quantity, QuestionError> {
    text.parse().map_err(|_| wrong(flag, text, "an amount like 500m, 4 or 16Gi"))
}

fn shape_pods(shape: &Shape) -> Result<Vec<Pod>, QuestionError> {
    let mut requests = ResourceList::default();
    if let Some(cpu) = &shape.cpu {
        requests.insert("cpu", amount("--cpu", cpu)?);
    }
    if let Some(memory) = &shape.memory {
        requests.insert("memory", amount("--memory", memory)?);
    }
    if let Some(gpu) = shape.gpu {
        requests.insert("nvidia.com/gpu", Quantity::from_units(i64::from(gpu)));
    }
    for text in &shape.resources {
        let (name, value) = text.split_once('=').ok_or_else(|| wrong("--resource", text, "NAME=AMOUNT"))?;
        requests.insert(name, amount("--resource", value)?);
    }
    let mut selector = Labels::default();
    for text in &shape.selector {
        let (key, value) = text.split_once('=').ok_or_else(|| wrong("--selector", text, "KEY=VALUE"))?;
        selector.insert(key, value.into());
    }
    let tolerations: Result<Vec<Toleration>, QuestionError> =
        shape.tolerate.iter().map(|text| toleration(text)).collect();
    let container = Container {
        name: "app".into(),
        resources: Resources { requests, ..Resources::default() },
        ..Container::default()
    };
    let spec = Arc::new(PodSpec {
        containers: [container].into(),
        node_selector: selector,
        tolerations: tolerations?.into(),
        ..PodSpec::default()
    });
    let template = PodTemplate { metadata: ObjectMeta::default(), spec };
    Ok((0..shape.count).map(|at| admit::instance(&template, "default", &format!("added-{at}"))).collect())
}

fn toleration(text: &str) -> Result<Toleration, QuestionError> {
    let (pair, effect) = match text.rsplit_once(':') {
        Some((pair, effect)) => (pair, Some(effect)),
        None => (text, None),
    };
    let effect = match effect {
        None => None,
        Some("NoSchedule") => Some(Effect::NoSchedule),
        Some("NoExecute") => Some(Effect::NoExecute),
        Some("PreferNoSchedule") => Some(Effect::PreferNoSchedule),
        Some(_) => {
            return Err(wrong("--tolerate", text, "KEY[=VALUE][:NoSchedule|NoExecute|PreferNoSchedule]"));
        }
    };
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    let operator = if pair.contains('=') { TolerationOperator::Equal } else { TolerationOperator::Exists };
    Ok(Toleration { key: key.into(), operator, value: value.into(), effect, toleration_seconds: None })
}

/// The pods that the workloads of a manifest would make.
fn template_pods(source: &Source, replicas: Option<u32>) -> Result<Vec<Pod>, QuestionError> {
    let (documents, faults) = super::document::parse(source);
    if let Some(fault) = faults.first() {
        return Err(QuestionError::Pool(fault.to_string()));
    }
    let mut pods = Vec::new();
    for document in &documents {
        let value = &document.value;
        let fault = |error: muster_model::k8s::ReadError| {
            QuestionError::Pool(document.fault(&error.path, error.source.to_string()).to_string())
        };
        let (template, said): (PodTemplate, u64) = match value["kind"].as_str() {
            Some("Pod") => (muster_model::k8s::from_value("Pod", value).map_err(fault)?, 1),
            _ if value["spec"]["template"].is_object() => {
                let said =
                    value["spec"]["replicas"].as_u64().or_else(|| value["spec"]["parallelism"].as_u64());
                (
                    muster_model::k8s::from_value("PodTemplate", &value["spec"]["template"])
                        .map_err(fault)?,
                    said.unwrap_or(1),
                )
            }
            _ => continue,
        };
        let count = replicas.map_or(said, u64::from);
        let name = value["metadata"]["name"].as_str().unwrap_or("added");
        let namespace = value["metadata"]["namespace"].as_str().unwrap_or("default");
        pods.extend(
            (0..count).map(|at| admit::instance(&template, namespace, &format!("{name}-added-{at}"))),
        );
    }
    if pods.is_empty() {
        return Err(QuestionError::NoTemplate { file: source.name.clone() });
    }
    Ok(pods)
}

fn add_pods(snapshot: &mut Snapshot, pods: Vec<Pod>, asked: &mut Asked) -> Result<(), QuestionError> {
    let count = pods.len();
    let cluster = &snapshot.cluster;
    let classes = Classes { priority: &cluster.priority_classes, runtime: &cluster.runtime_classes };
    let admitted: Result<Vec<Pod>, _> = pods.into_iter().map(|pod| admit::admit(pod, classes)).collect();
    let admitted = admitted.map_err(|refused| QuestionError::Refused { why: refused.to_string() })?;
    if let Some(pod) = admitted.first() {
        let request = muster_engine::fit::requests::of_pending(pod);
        let amounts: Vec<String> =
            request.entries().map(|(name, amount)| muster_engine::explain::say(name, amount)).collect();
        let each = if amounts.is_empty() {
            "that ask for nothing".to_owned()
        } else {
            format!("of {}", amounts.join(", "))
        };
        asked.phrases.push(format!("{count} more pods {each}"));
    }
    asked.added.extend(admitted.iter().map(Pod::key));
    snapshot.cluster.pods.extend(admitted);
    Ok(())
}

/// Own machines come first, the rest is bought: other pools may start hosts, but buy nothing.
fn buy(snapshot: &mut Snapshot, machine: &str, asked: &mut Asked) -> Result<(), QuestionError> {
    let known = snapshot
        .pools
        .iter()
        .flat_map(|pool| &pool.templates)
        .find(|template| *template.name == *machine)
        .cloned();
    let mut pool = match known {
        Some(mut template) => {
            template.offerings = vec![Offering::default()];
            Pool { name: "buy".into(), max: u32::MAX, templates: vec![template], ..Pool::default() }
        }
        None => pools::from_flag(&format!("buy:{machine}")).map_err(QuestionError::Pool)?,
    };
    // It may join any pool, with the labels, the taints and the zones of that pool.
    let machine_node = pool.templates[0].node.clone();
    let offering = Offering {
        price: pool.templates[0].offerings.first().map_or(0, |known| known.price),
        ..Offering::default()
    };
    for other in &mut snapshot.pools {
        if let Some(first) = other.templates.first() {
            let mut node = muster_model::k8s::Node::clone(&first.node);
            node.status = machine_node.status.clone();
            let mut zones: Vec<Option<Arc<str>>> =
                first.offerings.iter().map(|known| known.zone.clone()).collect();
            zones.dedup();
            if zones.is_empty() {
                zones.push(None);
            }
            let offerings = zones.into_iter().map(|zone| Offering { zone, ..offering.clone() }).collect();
            let name = format!("for pool {}", other.name).into();
            pool.templates.push(Template { name, node: Arc::new(node), csi: first.csi.clone(), offerings });
        }
        for template in &mut other.templates {
            template.offerings.clear();
        }
    }
    // Dearer than anything that is there, so that what is there is used first.
    for offering in pool.templates.iter_mut().flat_map(|template| &mut template.offerings) {
        offering.supply = None;
        if offering.price == 0 {
            asked.unpriced = true;
            offering.price = 1_000_000;
        }
    }
    asked.bought = Some(pool.name.clone());
    asked.phrases.push(format!("machines of {machine} may be bought"));
    snapshot.pools.push(pool);
    Ok(())
}

/// Puts nodes without a pool into one, for questions that would otherwise have no answer.
pub(super) fn adopt(snapshot: &mut Snapshot) -> usize {
    let loose: Vec<Arc<str>> = snapshot
        .cluster
        .nodes
        .iter()
        .map(|node| node.metadata.name.clone())
        .filter(|name| !snapshot.members.contains_key(name))
        .collect();
    if loose.is_empty() || !snapshot.members.is_empty() {
        return 0;
    }
    let name: Arc<str> = "(all nodes)".into();
    let size = u32::try_from(loose.len()).unwrap_or(u32::MAX);
    snapshot.pools.push(Pool { name: name.clone(), max: size, ..Pool::default() });
    for node in &loose {
        snapshot.members.insert(node.clone(), Member { pool: name.clone(), ..Member::default() });
    }
    loose.len()
}
