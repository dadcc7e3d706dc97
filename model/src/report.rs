//! What a controller reports about a cluster or pool.
//!
//! A report is kept as it came, `metadata` to the letter. Its own times are the controller's; when it came
//! is ours.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::{
    Duration, Timestamp,
    condition::{Condition, ConditionStatus},
    field::{Choice, FieldError, FieldErrors, Findings, Object, Parsed, RawJson, choice, parse_json},
    names,
};

/// Longest `metadata`, in bytes of JSON: a status is kept in memory for every pool.
pub const MAX_METADATA: usize = 64 * 1024;
/// Conditions in one report.
pub const MAX_CONDITIONS: usize = 64;
/// Longest message of a condition or error, as in Kubernetes.
const MAX_MESSAGE: usize = 32_768;
/// Longest lease that a controller may ask for.
const MAX_LEASE: Duration = Duration::from_hours(24);

choice! {
    pub enum ErrorType("an error type") {
        /// It will probably go away by itself.
        Transient = "Transient",
        /// Somebody has to change the spec.
        Configuration = "Configuration",
        /// It will not go away.
        Fatal = "Fatal",
        /// The controller itself is in trouble.
        System = "System",
    }
}

impl ErrorType {
    /// Whether waiting cannot help.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Fatal | Self::Configuration)
    }
}

/// What went wrong, as the controller says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastError {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_name: Option<String>,
    pub error_type: ErrorType,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_actionable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestions: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<BTreeMap<String, String>>,
    /// Nanoseconds, as the seed's controllers send it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
}

/// One controller's view of one object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub controller_name: String,
    pub observed_generation: u64,
    pub conditions: Vec<Condition>,
    pub metadata: RawJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// How long this report speaks for the controller; the server's default when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Duration>,
    /// When we received it.
    pub updated_at: Timestamp,
    /// When this controller first reported this generation.
    pub generation_since: Timestamp,
}

/// What a report is checked against.
#[derive(Debug, Clone, Copy)]
pub struct ReportContext {
    /// The object's generation: nobody can have observed a later one.
    pub generation: u64,
    pub now: Timestamp,
}

/// Why a report is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    #[error(transparent)]
    Fields(#[from] FieldErrors),
    /// The report speaks of a generation that does not exist: a conflict, not a malformed body.
    #[error("observed_generation {observed} is ahead of the object, which is at generation {current}")]
    Ahead { observed: u64, current: u64 },
}

impl Report {
    /// Reads the body of a status request. See [`Self::following`] for what the last one adds to it.
    pub fn parse(body: &[u8], context: &ReportContext) -> Result<Parsed<Self>, ReportError> {
        let value = parse_json(body)?;
        let mut findings = Findings::new();
        let report = read(&value, body, context, &mut findings);
        let parsed = findings.result_of(report)?;
        let observed = parsed.value.observed_generation;
        if observed > context.generation {
            return Err(ReportError::Ahead { observed, current: context.generation });
        }
        Ok(parsed)
    }

    /// Carries over from the report that this one replaces: since when its generation is being observed.
    #[must_use]
    pub fn following(mut self, previous: Option<&Self>) -> Self {
        if let Some(previous) =
            previous.filter(|previous| previous.observed_generation == self.observed_generation)
        {
            self.generation_since = previous.generation_since;
        }
        self
    }

    /// Ready is `Available=True`, or `Ready=True` where no Available is reported.
    pub fn is_ready(&self) -> bool {
        let status = |kind| crate::condition::find(&self.conditions, kind).map(|condition| condition.status);
        status("Available").or_else(|| status("Ready")) == Some(ConditionStatus::True)
    }

    /// Whether its controller says that it is at work on what is missing: `Progressing=True`.
    pub fn is_at_work(&self) -> bool {
        let progress = crate::condition::find(&self.conditions, "Progressing");
        progress.is_some_and(|condition| condition.status == ConditionStatus::True)
    }

    /// Its own words about being ready or not.
    pub fn readiness(&self) -> Option<&str> {
        let find = |kind| crate::condition::find(&self.conditions, kind);
        let condition = find("Available").or_else(|| find("Ready"))?;
        Some(condition.message.as_str()).filter(|message| !message.is_empty())
    }

    /// When the report stops speaking for its controller.
    pub fn expires_at(&self, default_lease: Duration) -> Timestamp {
        self.updated_at.saturating_add(self.lease.unwrap_or(default_lease))
    }

    /// A number of nodes out of the metadata: `active_nodes`, `desired_nodes`.
    pub fn node_counts(&self) -> NodeCounts {
        serde_json::from_str::<Value>(self.metadata.get()).map_or_else(
            |_| NodeCounts::default(),
            |metadata| {
                let count = |name: &str| {
                    metadata.get(name).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok())
                };
                NodeCounts {
                    active: count("active_nodes"),
                    desired: count("desired_nodes"),
                    current: count("current_nodes"),
                    ready: count("ready_nodes"),
                }
            },
        )
    }

    /// As the status answer gives it: with both names of the time.
    pub fn to_api(&self) -> ApiReport<'_> {
        ApiReport {
            controller_name: &self.controller_name,
            observed_generation: self.observed_generation,
            conditions: &self.conditions,
            metadata: &self.metadata,
            last_error: self.last_error.as_ref(),
            lease: self.lease,
            updated_at: self.updated_at,
            last_updated: self.updated_at,
        }
    }
}

/// Counts that a report's metadata carries; a missing one is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeCounts {
    pub active: Option<u32>,
    pub desired: Option<u32>,
    pub current: Option<u32>,
    pub ready: Option<u32>,
}

/// An item of `controller_status`.
#[derive(Debug, Serialize)]
pub struct ApiReport<'a> {
    controller_name: &'a str,
    observed_generation: u64,
    conditions: &'a [Condition],
    metadata: &'a RawJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'a LastError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<Duration>,
    updated_at: Timestamp,
    last_updated: Timestamp,
}

fn read(value: &Value, body: &[u8], context: &ReportContext, findings: &mut Findings) -> Option<Report> {
    let mut object = Object::read(value, "", findings)?;
    let o = &mut object;
    let controller_name = read_controller_name(o, findings);
    let observed_generation = o.integer("observed_generation", 0..=i64::MAX, findings);
    let conditions = read_conditions(o, context, findings);
    let metadata = read_metadata(o, body, findings);
    let last_error = o.object("last_error", findings).map(|error| read_error(error, findings));
    let lease = o.duration("lease", MAX_LEASE, findings).map(|lease| lease.get());
    for name in ["controller_name", "observed_generation", "conditions"] {
        if o.get(name).is_none() {
            findings.push(FieldError::new(name, "is required"));
        }
    }
    object.finish(findings);
    Some(Report {
        controller_name: controller_name?,
        observed_generation: u64::try_from(observed_generation?).ok()?,
        conditions: conditions?,
        metadata: metadata?,
        last_error: match last_error {
            Some(error) => Some(error?),
            None => None,
        },
        lease,
        updated_at: context.now,
        generation_since: context.now,
    })
}

fn read_controller_name(o: &mut Object<'_>, findings: &mut Findings) -> Option<String> {
    let name = o.text("controller_name", names::MAX_SUBDOMAIN, findings)?;
    if let Err(error) = names::check_dns_subdomain(name) {
        findings.push(
            FieldError::new("controller_name", error.problem)
                .found_text(name)
                .allowed("DNS labels with dots between them, like gcp-nodepool-controller"),
        );
        return None;
    }
    Some(name.to_owned())
}

fn read_conditions(
    o: &mut Object<'_>,
    context: &ReportContext,
    findings: &mut Findings,
) -> Option<Vec<Condition>> {
    let items = o.list("conditions", MAX_CONDITIONS, findings)?;
    if items.is_empty() {
        findings.push(
            FieldError::new("conditions", "must not be empty").hint("report at least Ready or Available"),
        );
    }
    let mut conditions: Vec<Condition> = Vec::with_capacity(items.len());
    for (path, item) in items {
        let Some(condition) = read_condition(item, &path, context, findings) else { continue };
        if crate::condition::find(&conditions, &condition.kind).is_some() {
            findings.push(
                FieldError::new(format!("{path}.type"), "is reported twice").found_text(&condition.kind),
            );
        }
        conditions.push(condition);
    }
    Some(conditions)
}

fn read_condition(
    item: &Value,
    path: &str,
    context: &ReportContext,
    findings: &mut Findings,
) -> Option<Condition> {
    let mut object = Object::read(item, path, findings)?;
    let o = &mut object;
    let kind = o.text("type", 316, findings).map(str::to_owned);
    let status = o.choice("status", findings);
    let reason = o.string("reason", findings).unwrap_or_default();
    let message = o.string("message", findings).unwrap_or_default();
    for (name, text, most) in [("reason", reason, 1024), ("message", message, MAX_MESSAGE)] {
        if text.len() > most {
            findings.push(
                FieldError::new(o.at(name), format!("must have at most {most} bytes")).found_text(text),
            );
        }
    }
    let time = read_time(o, "lastTransitionTime", findings);
    let observed = o.integer("observedGeneration", 0..=i64::MAX, findings);
    let severity = o.choice("severity", findings);
    if o.get("type").is_none() {
        findings.push(FieldError::new(o.at("type"), "is required"));
    }
    if o.get("status").is_none() {
        findings.push(FieldError::new(o.at("status"), "is required").allowed(ConditionStatus::words()));
    }
    object.finish(findings);
    Some(Condition {
        kind: kind?,
        status: status?,
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: time.unwrap_or(context.now),
        observed_generation: observed.and_then(|generation| u64::try_from(generation).ok()),
        severity,
    })
}

fn read_time(o: &mut Object<'_>, name: &'static str, findings: &mut Findings) -> Option<Timestamp> {
    let text = o.string(name, findings)?;
    let time = text.parse().ok();
    if time.is_none() {
        findings.push(
            FieldError::new(o.at(name), "is not an RFC 3339 time")
                .found_text(text)
                .allowed("like 2025-10-17T10:30:00Z"),
        );
    }
    time
}

#[derive(Deserialize)]
struct OnlyMetadata<'b> {
    #[serde(borrow)]
    metadata: Option<&'b RawValue>,
}

fn read_metadata(o: &mut Object<'_>, body: &[u8], findings: &mut Findings) -> Option<RawJson> {
    let Some(value) = o.get("metadata") else { return Some(RawJson::empty_object()) };
    if !value.is_object() {
        findings.push(FieldError::new("metadata", "must be an object").found(value));
        return None;
    }
    for name in ["active_nodes", "desired_nodes"] {
        let counts = value.get(name).is_none_or(|n| n.as_u64().is_some_and(|n| u32::try_from(n).is_ok()));
        if !counts {
            findings.warn(format!("metadata.{name} is not a number of nodes; it is kept but not counted"));
        }
    }
    let raw = serde_json::from_slice::<OnlyMetadata<'_>>(body).ok().and_then(|body| body.metadata);
    let kept = raw.and_then(|raw| RawJson::parse(raw.get()))?;
    if kept.get().len() > MAX_METADATA {
        findings.push(
            FieldError::new("metadata", "is too large")
                .found_text(&format!("{} bytes", kept.get().len()))
                .allowed(format!("at most {MAX_METADATA} bytes")),
        );
        return None;
    }
    Some(kept)
}

fn read_error(mut object: Object<'_>, findings: &mut Findings) -> Option<LastError> {
    let o = &mut object;
    let error_type = o.choice("errorType", findings);
    if o.get("errorType").is_none() {
        findings.push(FieldError::new(o.at("errorType"), "is required").allowed(ErrorType::words()));
    }
    let controller_name = o.text("controllerName", 253, findings).map(str::to_owned);
    let error_code = o.string("errorCode", findings).map(str::to_owned);
    let message = o.string("message", findings).map(str::to_owned);
    let user_actionable = o.boolean("userActionable", findings);
    let suggestions = o.list("suggestions", 32, findings).map(|items| read_strings(items, findings));
    let details = o.string_map("details", findings);
    let retry_after = o.integer("retryAfter", 0..=i64::MAX, findings);
    let timestamp = read_time(o, "timestamp", findings);
    for (name, text) in [("errorCode", &error_code), ("message", &message)] {
        if text.as_ref().is_some_and(|text| text.len() > MAX_MESSAGE) {
            findings.push(FieldError::new(o.at(name), format!("must have at most {MAX_MESSAGE} bytes")));
        }
    }
    object.finish(findings);
    Some(LastError {
        controller_name,
        error_type: error_type?,
        error_code,
        message,
        user_actionable,
        suggestions,
        details,
        retry_after,
        timestamp,
    })
}

fn read_strings(items: Vec<(String, &Value)>, findings: &mut Findings) -> Vec<String> {
    let mut texts = Vec::with_capacity(items.len());
    for (path, item) in items {
        if let Some(text) = item.as_str() {
            texts.push(text.to_owned());
        } else {
            findings.push(FieldError::new(path, "must be a string").found(item));
        }
    }
    texts
}
