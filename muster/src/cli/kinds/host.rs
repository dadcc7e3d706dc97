//! Servers of the inventory. `describe` tells a server's story: where it stands and why, what is being done about it
//! and until when, and what happened before.

use muster_model::{
    Timestamp,
    host::{BareMetalNodeSpec, BmcBlocked, Remedy},
};
use serde_json::Value;

use super::{Column, Kind, Scope, Section, View, column, conditions, dash, energy, pool, text_at, wide};
use crate::cli::print::{
    age,
    table::{Cell, Tone},
};

pub(super) static KIND: Kind = Kind {
    kind: "BareMetalNode",
    singular: "host",
    plural: "hosts",
    aliases: &["baremetalnode", "baremetalnodes", "bmn", "server", "servers"],
    scope: Scope::Name,
    written: &["name", "spec"],
    columns: COLUMNS,
    describe,
};

const COLUMNS: &[Column] = &[
    column("NAME", ".name", |view| view.or_dash("name").into()),
    column("POOL", ".spec.pool", |view| view.or_dash("spec.pool").into()),
    column("STATE", ".status.state", state),
    column("POWER", ".status.powerState", power),
    column("NODE", ".status.kubernetesNode", node),
    column("RACK", ".spec.rack", |view| place(view).into()),
    column("GPU", ".spec.resources.gpu", |view| count(view, "spec.resources.gpu").into()),
    column("SINCE", ".status.stateSince", |view| age::since(view.at("status.stateSince"), view.now).into()),
    column("REASON", ".status.reason", |view| reason(view).into()),
    wide("HEALTH", ".health", |view| view.or_dash("health").into()),
    wide("CPU", ".spec.resources.cpu", |view| count(view, "spec.resources.cpu").into()),
    wide("MEMORY", ".spec.resources.memory", |view| count(view, "spec.resources.memory").into()),
    wide("DRIVER", ".spec.powerInterface", |view| view.or_dash("spec.powerInterface").into()),
    wide("BMC", ".spec.mgmtAddress", |view| view.or_dash("spec.mgmtAddress").into()),
    wide("MAC", ".spec.macAddress", |view| view.or_dash("spec.macAddress").into()),
    wide("WATTS", ".metrics.milliwatts", |view| watts(view).into()),
    wide("PROJECT", ".project", |view| view.or_dash("project").into()),
    wide("AGE", ".created_at", |view| age::since(view.at("created_at"), view.now).into()),
];

/// Nothing stands for what nobody said.
fn count(view: &View<'_>, path: &str) -> String {
    dash(Some(view.text(path)).filter(|text| text != "0").unwrap_or_default())
}

fn state(view: &View<'_>) -> Cell {
    if view.at("set_aside").is_some() {
        return Cell::toned("set-aside", Tone::Bad);
    }
    let (state, phase) = (view.or_dash("status.state"), view.text("status.phase"));
    let mut text = if phase.is_empty() { state.clone() } else { format!("{state}/{phase}") };
    if view.at("deletion").is_some() {
        text.push_str(",deleting");
    } else if view.text("spec.admin") == "maintenance" {
        text.push_str(",maintenance");
    } else if held(view) {
        text.push_str(",held");
    }
    let tone = match state.as_str() {
        "ready" => Tone::Good,
        "error" => Tone::Bad,
        "powering-on" | "draining" => Tone::Busy,
        _ => Tone::Plain,
    };
    Cell::toned(text, tone)
}

/// A hold without an end, or one whose end has not come.
fn held(view: &View<'_>) -> bool {
    view.at("spec.hold").is_some()
        && view.text("spec.hold.until").parse::<Timestamp>().map_or(true, |until| view.now < until)
}

fn power(view: &View<'_>) -> Cell {
    let power = view.or_dash("status.powerState");
    let tone = if power == "unknown" { Tone::Busy } else { Tone::Plain };
    Cell::toned(power, tone)
}

fn node(view: &View<'_>) -> Cell {
    let name = view.text("status.kubernetesNode");
    match (name.is_empty(), view.at("status.nodeReady") == Some(&Value::Bool(true))) {
        (true, _) => "-".into(),
        (false, true) => Cell::toned(name, Tone::Good),
        (false, false) => Cell::toned(format!("{name} (not ready)"), Tone::Busy),
    }
}

fn place(view: &View<'_>) -> String {
    let (rack, slot) = (view.text("spec.rack"), view.text("spec.slot"));
    if slot.is_empty() { dash(rack) } else { format!("{rack}/{slot}") }
}

/// Why it stands where it stands, in one line.
fn reason(view: &View<'_>) -> String {
    let aside = view.text("set_aside.reason");
    if !aside.is_empty() {
        return aside;
    }
    let why = view.text("status.reason");
    if !held(view) {
        return dash(why);
    }
    let hold = format!("held by {}: {}", view.text("spec.hold.by"), view.text("spec.hold.reason"));
    // A hold explains why nothing is done about a fault. It does not explain the fault.
    if is_faulty(view) && !why.is_empty() { format!("{why}; {hold}") } else { hold }
}

/// Whether something is wrong with it that a hold must not hide.
fn is_faulty(view: &View<'_>) -> bool {
    let bad = view.text("status.state") == "error"
        || ["degraded", "lost", "backoff", "quarantined"].contains(&view.text("status.phase").as_str());
    bad || view.at("status.bmcBlocked").is_some()
}

/// Watts that were read, else what people declared, marked as such.
fn watts(view: &View<'_>) -> String {
    if let Some(Value::Number(milliwatts)) = view.at("metrics.milliwatts.value") {
        return format!("{:.0}", milliwatts.as_f64().unwrap_or_default() / 1000.0);
    }
    let idle = view.text("spec.idleWatts");
    if idle.is_empty() { "-".into() } else { format!("~{idle}") }
}

/// Watts for a person: drawn now, by whose word, and what is declared of the machine.
fn watts_told(view: &View<'_>) -> String {
    let drawn = watts(view);
    let by = match view.text("metrics.wattsBy").as_str() {
        _ if view.text("status.powerState") == "off" => " (off)",
        "bmc" => " (measured by its BMC)",
        "declared" => " (declared)",
        _ => "",
    };
    let declared: Vec<String> = [("idle", "spec.idleWatts"), ("at most", "spec.maxWatts")]
        .into_iter()
        .map(|(what, path)| (what, view.text(path)))
        .filter(|(_, value)| !value.is_empty())
        .map(|(what, value)| format!("{what} {value}"))
        .collect();
    match declared.as_slice() {
        [] => format!("{drawn}{by}"),
        some => format!("{drawn}{by}; declared: {}", some.join(", ")),
    }
}

fn describe(view: &View<'_>) -> Vec<Section> {
    let mut sections = vec![
        Section::Facts("", facts(view)),
        Section::Facts("Now", now(view)),
        Section::Facts("Operation under way", operation(view)),
        conditions::section(view),
        Section::Facts("Machine", machine(view)),
        Section::Facts("Power", power_facts(view)),
        Section::Table("Failures of the last day", vec!["AGE", "PHASE", "REASON", "MESSAGE"], failures(view)),
        Section::Table("Last events", vec!["AGE", "WHO", "WHAT", "MESSAGE"], events(view)),
        Section::Lines("Next steps", next_steps(view)),
    ];
    let unread = unread(view);
    if !unread.is_empty() {
        sections.insert(2, Section::Table("Records that cannot be read", vec!["RECORD", "WHY"], unread));
    }
    sections
}

fn fact(facts: &mut Vec<(String, Cell)>, name: &str, value: impl Into<Cell>) {
    facts.push((name.to_owned(), value.into()));
}

/// Adds a fact only when there is something to say.
fn told(facts: &mut Vec<(String, Cell)>, view: &View<'_>, name: &str, path: &str) {
    let text = view.text(path);
    if !text.is_empty() {
        fact(facts, name, text);
    }
}

fn facts(view: &View<'_>) -> Vec<(String, Cell)> {
    let mut facts = Vec::new();
    fact(&mut facts, "Name", view.or_dash("name"));
    told(&mut facts, view, "Project", "project");
    fact(&mut facts, "Pool", view.or_dash("spec.pool"));
    if view.at("spec.rack").is_some() {
        fact(&mut facts, "Place", place(view));
    }
    told(&mut facts, view, "Zone", "spec.zone");
    told(&mut facts, view, "Inventory id", "spec.inventoryId");
    if view.at("created_at").is_some() {
        fact(&mut facts, "Registered", pool::stamp(view, "created_at", "created_by"));
    }
    let labels = view.at("spec.labels").and_then(Value::as_object).map(|labels| {
        let pairs = labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
        pairs.collect::<Vec<_>>().join(", ")
    });
    if let Some(labels) = labels.filter(|labels| !labels.is_empty()) {
        fact(&mut facts, "Labels", labels);
    }
    facts
}

fn now(view: &View<'_>) -> Vec<(String, Cell)> {
    let mut facts = Vec::new();
    fact(&mut facts, "State", state(view));
    fact(
        &mut facts,
        "Since",
        format!(
            "{} ({} ago)",
            view.or_dash("status.phaseSince"),
            age::since(view.at("status.phaseSince"), view.now)
        ),
    );
    fact(&mut facts, "Why", reason(view));
    fact(&mut facts, "Health", view.or_dash("health"));
    if let Some(deadline) = view.at("status.deadline") {
        fact(&mut facts, "Deadline", due(view, deadline));
    }
    told(&mut facts, view, "Last error", "status.lastError");
    when(&mut facts, view, "Retry at", "status.retryAt");
    when(&mut facts, view, "Kept off until", "status.heldUntil");
    if view.at("spec.hold").is_some() {
        let until = view.text("spec.hold.until");
        let until = if until.is_empty() { "until released".to_owned() } else { format!("until {until}") };
        let text = format!("by {} {until}: {}", view.text("spec.hold.by"), view.text("spec.hold.reason"));
        fact(&mut facts, "Hold", if held(view) { text } else { format!("{text} (lapsed)") });
    }
    told(&mut facts, view, "Power by hand", "spec.powerState");
    if !view.text("spec.admin").is_empty() && view.text("spec.admin") != "normal" {
        fact(&mut facts, "Administration", Cell::toned(view.text("spec.admin"), Tone::Busy));
    }
    if view.at("deletion").is_some() {
        let text = format!("by {}, mode {}", view.text("deletion.by"), view.text("deletion.mode"));
        fact(&mut facts, "Being deleted", Cell::toned(text, Tone::Busy));
    }
    if view.at("intent").is_some() {
        let text = format!(
            "{}, decision {}: {}",
            view.text("intent.want"),
            view.text("intent.decision"),
            view.text("intent.reason")
        );
        fact(&mut facts, "Wanted", text);
    }
    facts
}

/// Adds a time to come only when there is one.
fn when(facts: &mut Vec<(String, Cell)>, view: &View<'_>, name: &str, path: &str) {
    if let Some(time) = view.at(path) {
        fact(facts, name, due(view, time));
    }
}

/// A deadline, and how far away it is.
fn due(view: &View<'_>, deadline: &Value) -> String {
    let text = deadline.as_str().unwrap_or_default();
    match text.parse::<Timestamp>() {
        Ok(time) if time > view.now => format!("{text} (in {})", age::short(time.since(view.now))),
        Ok(time) => format!("{text} (over since {})", age::short(view.now.since(time))),
        Err(_) => text.to_owned(),
    }
}

fn operation(view: &View<'_>) -> Vec<(String, Cell)> {
    let mut facts = Vec::new();
    if view.at("op").is_none() {
        return facts;
    }
    fact(&mut facts, "What", format!("{} ({})", view.text("op.kind"), view.text("op.id")));
    fact(&mut facts, "Because", view.or_dash("op.reason"));
    let cause = match view.text("op.cause.kind").as_str() {
        "manual" => format!("{} by hand", view.text("op.cause.by")),
        "intent" => format!("decision {}", view.text("op.cause.decision")),
        other => other.to_owned(),
    };
    fact(&mut facts, "Cause", cause);
    fact(&mut facts, "Started", pool::stamp(view, "op.started", ""));
    for (name, path) in [("Boot by", "op.bootDeadline"), ("Drained by", "op.drainDeadline")] {
        if let Some(deadline) = view.at(path) {
            fact(&mut facts, name, due(view, deadline));
        }
    }
    for (name, path) in [("Power-on requests", "op.attempts"), ("Forced power-offs", "op.forceOffs")] {
        let text = view.text(path);
        if !text.is_empty() && text != "0" {
            fact(&mut facts, name, text);
        }
    }
    told(&mut facts, view, "Failed", "op.failed");
    facts
}

/// The serial number that the machine says it has, and the one that its record demands where they differ.
fn serial(view: &View<'_>) -> Option<Cell> {
    let (said, wanted) = (view.text("status.identity.serial"), view.text("spec.serial"));
    match (said.as_str(), wanted.as_str()) {
        ("", "") => None,
        ("", _) => Some(format!("{wanted} (not confirmed by its BMC)").into()),
        (_, "") => Some(format!("{said} (as its BMC says)").into()),
        _ if said == wanted => Some(said.into()),
        _ => Some(Cell::toned(format!("{said} says its BMC, {wanted} its record"), Tone::Bad)),
    }
}

/// How far the boot has come, by each of those who watch it.
fn boot_progress(view: &View<'_>) -> impl Iterator<Item = String> {
    let told = |report: &Value, by: String| {
        let stage = text_at(report, "stage");
        let age = age::since(report.get("at"), view.now);
        (!stage.is_empty()).then(|| format!("{stage}, told by {by} {age} ago"))
    };
    let bmc = view.at("status.bootProgress");
    let bmc = bmc.and_then(|report| told(report, format!("its BMC ({})", text_at(report, "driver"))));
    let endpoint = view.related.get("boot").filter(|report| report.is_object());
    let endpoint = endpoint.and_then(|report| told(report, text_at(report, "by")));
    [bmc, endpoint].into_iter().flatten()
}

fn machine(view: &View<'_>) -> Vec<(String, Cell)> {
    let mut facts = Vec::new();
    let identity = [view.text("status.identity.manufacturer"), view.text("status.identity.model")].join(" ");
    if !identity.trim().is_empty() {
        fact(&mut facts, "Model", identity.trim().to_owned());
    }
    if let Some(serial) = serial(view) {
        fact(&mut facts, "Serial", serial);
    }
    let resources = [("cpu", "CPU"), ("memory", "memory"), ("gpu", "GPU"), ("storage", "storage")]
        .iter()
        .map(|(name, label)| (view.text(&format!("spec.resources.{name}")), label))
        .filter(|(amount, _)| !amount.is_empty() && amount != "0")
        .map(|(amount, label)| format!("{amount} {label}"))
        .collect::<Vec<_>>()
        .join(", ");
    if !resources.is_empty() {
        fact(&mut facts, "Resources", resources);
    }
    told(&mut facts, view, "MAC", "spec.macAddress");
    told(&mut facts, view, "Node", "status.kubernetesNode");
    for (name, path) in [("Booted", "status.bootTime"), ("Joined", "status.joinTime")] {
        if view.at(path).is_some() {
            fact(&mut facts, name, pool::stamp(view, path, ""));
        }
    }
    for progress in boot_progress(view) {
        fact(&mut facts, "Boot progress", progress);
    }
    told(&mut facts, view, "Boot profile", "spec.bootProfile");
    facts
}

fn power_facts(view: &View<'_>) -> Vec<(String, Cell)> {
    let mut facts = Vec::new();
    let reading = match view.at("status.power.value") {
        // The record is written when a reading is another one; the readings go on.
        Some(reading) => format!(
            "{} by {}, in every reading for {}",
            text_at(reading, "power"),
            text_at(reading, "driver"),
            age::since(reading.get("since"), view.now)
        ),
        None => format!("unknown: {}", dash(view.text("status.power.why"))),
    };
    fact(&mut facts, "Reading", reading);
    let drivers = view.at("spec.drivers").and_then(Value::as_array).filter(|list| !list.is_empty());
    let drivers = drivers.map_or_else(
        || view.text("spec.powerInterface"),
        |list| list.iter().map(|driver| text_at(driver, "kind")).collect::<Vec<_>>().join(", then "),
    );
    fact(&mut facts, "Drivers", dash(drivers));
    told(&mut facts, view, "BMC", "spec.mgmtAddress");
    let credentials = credentials(view);
    if !credentials.is_empty() {
        fact(&mut facts, "Credential", credentials);
    }
    told(&mut facts, view, "Approved key", "spec.pin");
    if view.at("status.driverFallback").is_some() {
        let text = format!(
            "{} until {}: {}",
            view.text("status.driverFallback.driver"),
            view.text("status.driverFallback.until"),
            view.text("status.driverFallback.reason")
        );
        fact(&mut facts, "Fallback", Cell::toned(text, Tone::Busy));
    }
    if view.at("status.bmcBlocked").is_some() {
        let text =
            format!("{}: {}", view.text("status.bmcBlocked.cause"), view.text("status.bmcBlocked.message"));
        fact(&mut facts, "Not called", Cell::toned(text, Tone::Bad));
    }
    if let Some(action) = last_action(view) {
        fact(&mut facts, "Last action", action);
    }
    if let Some(health) = bmc_health(view) {
        fact(&mut facts, "BMC health", health);
    }
    if let Some(Value::Number(millicelsius)) = view.at("metrics.millicelsius.value") {
        let degrees = millicelsius.as_f64().unwrap_or_default() / 1000.0;
        let read = age::since(view.at("metrics.millicelsius.at"), view.now);
        fact(&mut facts, "Hottest sensor", format!("{degrees:.0} °C, read {read} ago"));
    }
    let watts = watts_told(view);
    if !watts.starts_with('-') {
        fact(&mut facts, "Watts", watts);
    }
    for (name, what) in [("Energy used", "used"), ("Energy saved", "saved")] {
        if let Some(amount) = energy_of(view, what) {
            fact(&mut facts, name, format!("{amount} since registration"));
        }
    }
    facts
}

/// Energy with its price, as the server counts it; an older one says only what stands in the record.
fn energy_of(view: &View<'_>, what: &str) -> Option<String> {
    view.at("metrics")?;
    let told = view.related.get("energy").and_then(|energy| energy::amount(energy, what));
    told.or_else(|| {
        let recorded = view.at(&format!("metrics.{what}MilliwattHours"))?;
        let name = format!("{what}_milliwatt_hours");
        energy::amount(&Value::Object([(name, recorded.clone())].into_iter().collect()), what)
    })
}

/// The credentials in use: the host's own, and those that a driver of its list names instead.
fn credentials(view: &View<'_>) -> String {
    let mut all = vec![view.text("spec.bmcCredentials")];
    for driver in view.at("spec.drivers").and_then(Value::as_array).into_iter().flatten() {
        let own = text_at(driver, "credentials");
        if !own.is_empty() {
            all.push(format!("{own} ({})", text_at(driver, "kind")));
        }
    }
    all.retain(|name| !name.is_empty());
    all.join(", ")
}

/// What was last asked of its power, when, and of which driver.
fn last_action(view: &View<'_>) -> Option<String> {
    let mut text = view.text("status.lastPowerAction");
    if text.is_empty() {
        return None;
    }
    let driver = view.text("status.powerActionDriver");
    if !driver.is_empty() {
        text = format!("{text} by {driver}");
    }
    if view.at("status.powerActionTime").is_some() {
        let age = age::since(view.at("status.powerActionTime"), view.now);
        text = format!("{text}, {age} ago ({})", view.text("status.powerActionTime"));
    }
    Some(text)
}

/// What the BMC says about the machine; nothing when it says nothing.
fn bmc_health(view: &View<'_>) -> Option<Cell> {
    let health = view.text("metrics.health.value");
    let tone = match health.as_str() {
        "" => return None,
        "OK" => Tone::Good,
        "Warning" => Tone::Busy,
        _ => Tone::Bad,
    };
    Some(Cell::toned(health, tone))
}

/// Records beside the spec that cannot be read: what they say is not known, and nothing is done about it.
fn unread(view: &View<'_>) -> Vec<Vec<Cell>> {
    let list = view.at("unread").and_then(Value::as_array).cloned().unwrap_or_default();
    list.iter()
        .map(|one| vec![Cell::toned(text_at(one, "record"), Tone::Bad), text_at(one, "reason").into()])
        .collect()
}

fn failures(view: &View<'_>) -> Vec<Vec<Cell>> {
    let list = view.at("status.failures").and_then(Value::as_array).cloned().unwrap_or_default();
    list.iter()
        .map(|failure| {
            vec![
                age::since(failure.get("at"), view.now).into(),
                text_at(failure, "phase").into(),
                Cell::toned(text_at(failure, "reason"), Tone::Bad),
                text_at(failure, "message").into(),
            ]
        })
        .collect()
}

fn events(view: &View<'_>) -> Vec<Vec<Cell>> {
    pool::related(view, "events").iter().map(|event| event_row(event, view.now)).collect()
}

/// One line of a host's history.
pub(crate) fn event_row(event: &Value, now: Timestamp) -> Vec<Cell> {
    let (from, to) = (text_at(event, "from"), text_at(event, "to"));
    let what = if to.is_empty() || from == to { text_at(event, "what") } else { format!("{from} → {to}") };
    let count = event["count"].as_u64().unwrap_or(1);
    let message = text_at(event, "message");
    let message = if count > 1 { format!("{message} ({count} times)") } else { message };
    vec![
        age::since(event.get("at"), now).into(),
        dash(text_at(event, "by")).into(),
        what.into(),
        message.into(),
    ]
}

/// The way out for a host whose BMC is not called any more.
fn remedy(view: &View<'_>, name: &str) -> Option<Remedy> {
    let blocked: BmcBlocked = serde_json::from_value(view.at("status.bmcBlocked")?.clone()).ok()?;
    let spec: BareMetalNodeSpec = serde_json::from_value(view.at("spec")?.clone()).ok()?;
    Some(blocked.remedy(name, &spec))
}

fn next_steps(view: &View<'_>) -> Vec<String> {
    let name = view.text("name");
    let mut steps = Vec::new();
    if view.at("set_aside").is_some() {
        steps.push(format!(
            "correct its record: muster edit host {name}, or delete it: muster delete host {name}"
        ));
        return steps;
    }
    if let Some(remedy) = remedy(view, &name) {
        steps.push(format!("{}: {}", remedy.step, remedy.command));
    } else if view.text("status.phase") == "quarantined" {
        steps.push(format!("when it is mended: muster acknowledge host {name} --reason …"));
    }
    if held(view) {
        steps.push(format!("let the autoscaler have it again: muster release host {name}"));
    } else {
        steps.push(format!("keep it as it is: muster hold host {name} --reason …"));
    }
    steps.push(format!("what it could do and why it does not: muster explain host {name}"));
    steps.push(format!("its whole history: muster history host {name}"));
    steps
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use muster_model::{
        Known,
        host::{
            BareMetalNodeStatus, BlockCause, BmcBlocked, BmcProgress, DriverFallback, DriverKind,
            HostIdentity, Phase, Power, PowerAction, PowerReading, PublicPower, State,
        },
    };
    use serde_json::json;

    use super::*;
    use crate::cli::describe::render;

    const NOW: &str = "2026-11-17T03:00:00Z";

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap_or(Timestamp::EPOCH)
    }

    fn status(state: State, phase: Phase, reason: &str) -> BareMetalNodeStatus {
        let since = at("2026-11-17T02:50:00Z");
        let mut status = BareMetalNodeStatus::enrolling(since);
        (status.state, status.phase, status.reason) = (state, phase, reason.to_owned());
        status.power_state = PublicPower::On;
        let value = PowerReading { power: Power::On, driver: DriverKind::Redfish, since };
        status.power = Known::Value { value, at: at("2026-11-17T02:59:30Z") };
        status
    }

    fn host(status: &BareMetalNodeStatus, more: Value) -> Value {
        let mut object = json!({ "kind": "BareMetalNode", "name": "gpu-07", "health": "Healthy",
            "spec": { "pool": "gpu", "powerInterface": "redfish", "mgmtAddress": "10.0.0.7", "bmcCredentials": "rack-a",
                "drivers": [{ "kind": "redfish" }, { "kind": "ipmi" }],
                "resources": { "cpu": "64", "memory": "512Gi", "gpu": 8 } },
            "status": status });
        muster_model::patch::merge_patch(&mut object, &more);
        object
    }

    /// What an operator sees: the row of `get hosts` and the whole of `describe`.
    fn shown(object: &Value, related: &Value) -> (String, String) {
        let clusters = BTreeMap::new();
        let view = View { object, clusters: &clusters, now: at(NOW), related };
        let text = render(&describe(&view), false);
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let raw = line.contains('{') || words.contains(&"null") || words.last() == Some(&"-");
            assert!(!raw, "nothing raw and nothing empty: {line:?}\n{text}");
        }
        (reason(&view), text)
    }

    #[track_caller]
    fn says(text: &str, parts: &[&str]) {
        // Columns are as wide as their widest word; how wide does not matter here.
        let plain: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let plain = plain.join("\n");
        for part in parts {
            assert!(plain.contains(part), "{part:?} is missing:\n{text}");
        }
    }

    #[test]
    fn a_blocked_host_says_what_is_wrong_before_who_holds_it() {
        let why = "its BMC refuses the account rack-a since 10m";
        let mut status = status(State::Error, Phase::Quarantined, why);
        let message = "BMC 10.0.0.7 refused the account in rack-a".to_owned();
        let since = at("2026-11-17T02:50:00Z");
        status.bmc_blocked = Some(BmcBlocked {
            cause: BlockCause::CredentialsRefused,
            message,
            since,
            credential_version: 3,
            driver: Some(0),
            seen_key: None,
        });
        status.held_until = Some(at("2026-11-17T04:00:00Z"));
        status.identity = Some(HostIdentity { serial: Some("SN-1".into()), ..HostIdentity::default() });
        let more = json!({ "spec": { "serial": "SN-2", "hold": { "by": "kim", "reason": "new disks" } },
            "unread": [{ "record": "op", "reason": "expected value at line 1 column 1" }] });
        let (row, text) = shown(&host(&status, more), &Value::Null);
        assert_eq!(row, format!("{why}; held by kim: new disks"));
        says(
            &text,
            &[
                "Kept off until: 2026-11-17T04:00:00Z (in 60m)",
                "Serial: SN-1 says its BMC, SN-2 its record",
                "Records that cannot be read:",
                "op expected value at line 1 column 1",
                "Not called: CredentialsRefused: BMC 10.0.0.7 refused the account in rack-a",
                "muster explain host gpu-07",
                "muster release host gpu-07",
            ],
        );
        // A hold alone is the whole reason.
        let quiet = self::status(State::Off, Phase::Idle, "0 pods need it");
        let held = json!({ "spec": { "hold": { "by": "kim", "reason": "new disks" } } });
        assert_eq!(shown(&host(&quiet, held), &Value::Null).0, "held by kim: new disks");
    }

    #[test]
    fn a_draining_host_says_what_was_done_and_how_it_is() {
        let mut status = status(State::Draining, Phase::Stopping, "told to shut down");
        status.last_power_action = Some(PowerAction::GracefulOff);
        status.power_action_time = Some(at("2026-11-17T02:58:20Z"));
        status.power_action_driver = Some(DriverKind::Redfish);
        status.kubernetes_node = Some("gpu-07".into());
        status.join_time = Some(at("2026-11-16T03:00:00Z"));
        let progress = BmcProgress {
            stage: "os-starting".into(),
            driver: DriverKind::Ipmi,
            at: at("2026-11-17T02:30:00Z"),
        };
        status.boot_progress = Some(progress);
        let known = |value: Value| json!({ "value": value, "at": "2026-11-17T02:59:00Z" });
        let more = json!({
            "op": { "id": "gpu-07-4", "kind": "off", "reason": "2 pods fit elsewhere", "started": "2026-11-17T02:50:00Z",
                "cause": { "kind": "intent", "intent": "i", "decision": "d-9" }, "drainDeadline": "2026-11-17T03:05:00Z" },
            "metrics": { "health": known("Warning".into()), "millicelsius": known(71_400.into()),
                "milliwatts": known(212_500.into()), "wattsBy": "bmc",
                "usedMilliwattHours": 2_000_000, "savedMilliwattHours": 500_000 } });
        let boot = json!({ "boot": { "stage": "kernel", "by": "pxe", "at": "2026-11-17T02:00:00Z" },
            "energy": { "used_milliwatt_hours": 2_000_000, "used_micros": 560_000, "saved_milliwatt_hours": 500_000,
                "saved_micros": 140_000, "currency": "EUR" } });
        let (row, text) = shown(&host(&status, more), &boot);
        assert_eq!(row, "told to shut down");
        says(
            &text,
            &[
                "Drained by: 2026-11-17T03:05:00Z (in 5m)",
                "Last action: graceful-off by redfish, 100s ago (2026-11-17T02:58:20Z)",
                "BMC health: Warning",
                "Hottest sensor: 71 °C, read 60s ago",
                "Watts: 212 (measured by its BMC)",
                "Energy used: 2.00 kWh (0.56 EUR) since registration",
                "Energy saved: 0.50 kWh (0.14 EUR) since registration",
                "Boot progress: os-starting, told by its BMC (ipmi) 30m ago",
                "Boot progress: kernel, told by pxe 60m ago",
                "Joined: 2026-11-16T03:00:00Z (24h ago)",
            ],
        );
        assert!(!text.contains("Serial") && !text.contains("cannot be read"), "{text}");
    }

    #[test]
    fn a_host_on_its_fallback_driver_says_so() {
        let mut status = status(State::Ready, Phase::Serving, "its node serves");
        let reason = "redfish did not answer within 10s".to_owned();
        let until = at("2026-11-17T03:10:00Z");
        status.driver_fallback = Some(DriverFallback { index: 1, driver: DriverKind::Ipmi, reason, until });
        status.last_power_action = Some(PowerAction::On);
        status.power_action_time = Some(at("2026-11-17T01:00:00Z"));
        status.power_action_driver = Some(DriverKind::Ipmi);
        let (_, text) = shown(&host(&status, json!({})), &Value::Null);
        says(
            &text,
            &[
                "Drivers: redfish, then ipmi",
                "Fallback: ipmi until 2026-11-17T03:10:00Z: redfish did not answer within 10s",
                "Last action: on by ipmi, 120m ago",
            ],
        );
        assert!(
            !text.contains("Watts") && !text.contains("Hottest"),
            "what nobody knows has no line: {text}"
        );
    }
}
