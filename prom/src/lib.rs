//! Triggers answered by a Prometheus server.
//!
//! A trigger with a duration is one range query over exactly that duration: nothing is remembered between
//! two looks, so that a restart changes nothing. Whatever is missing, odd, partial or old is unknown, with a
//! reason of its own.

mod answer;
mod client;
mod judge;

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use muster_model::{
    Duration, Known, Timestamp,
    pool::{Trigger, promql},
    trigger::{Finding, Triggers},
};

pub use client::{Auth, Client, Settings, SettingsError};
use judge::Window;

/// How long an answer is used again. Scrapes are rarely closer together than this.
const REFRESH: Duration = Duration::from_secs(15);
/// How soon a question without an answer is asked again.
const RETRY: Duration = Duration::from_secs(5);
/// More distinct triggers than this are answered without being remembered.
const MAX_REMEMBERED: usize = 10_000;

/// Answers triggers, each at most once in 15 s.
#[derive(Debug)]
pub struct Prometheus {
    client: Client,
    last: Mutex<HashMap<String, Answered>>,
}

#[derive(Debug, Clone)]
struct Answered {
    at: Timestamp,
    finding: Known<Finding>,
}

impl Prometheus {
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        Ok(Self { client: Client::new(settings)?, last: Mutex::default() })
    }

    /// Asks the server, whatever is remembered.
    pub async fn ask(&self, trigger: &Trigger, now: Timestamp) -> Known<Finding> {
        match self.look(trigger).await {
            Ok(finding) => Known::Value { value: finding, at: now },
            Err(why) => Known::Unknown { why, since: now },
        }
    }

    async fn look(&self, trigger: &Trigger) -> Result<Finding, String> {
        let query = &trigger.metric_query;
        if let Some(operator) = promql::top_comparison(query) {
            return Err(format!(
                "the query ends in a comparison ({operator}), which is empty both when it is false and when 0 \
                 series exist; write `{operator} bool` or use threshold"
            ));
        }
        let instant = self.client.instant(query).await?;
        let window = Window::of(trigger);
        if promql::is_selector(query) && !instant.series.is_empty() {
            let times = self.client.instant(&format!("timestamp({query})")).await?;
            judge::age(&times, &window)?;
        }
        if window.length == Duration::from_millis(0) {
            return judge::instant(trigger, &instant);
        }
        if instant.series.is_empty() {
            return Err("the query returns 0 series".into());
        }
        let range = self.client.range(query, &window, instant.server_time).await?;
        judge::range(trigger, &window, &range)
    }

    fn remembered(&self, key: &str, now: Timestamp) -> Option<Known<Finding>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = last.get(key)?;
        let good_for = if answered.finding.value().is_some() { REFRESH } else { RETRY };
        // A clock that went back makes nothing older than it is.
        let fresh = answered.at <= now && now.since(answered.at) < good_for;
        fresh.then(|| answered.finding.clone())
    }

    /// Keeps the time since when nothing is known over repeated failures.
    fn remember(&self, key: String, mut finding: Known<Finding>, now: Timestamp) -> Known<Finding> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Known::Unknown { since, .. } = &mut finding
            && let Some(Answered { finding: Known::Unknown { since: first, .. }, .. }) = last.get(&key)
        {
            *since = (*first).min(*since);
        }
        if last.len() >= MAX_REMEMBERED && !last.contains_key(&key) {
            last.retain(|_, answered| now.since(answered.at) < REFRESH);
        }
        if last.len() < MAX_REMEMBERED || last.contains_key(&key) {
            last.insert(key, Answered { at: now, finding: finding.clone() });
        }
        finding
    }
}

#[async_trait]
impl Triggers for Prometheus {
    async fn evaluate(&self, trigger: &Trigger, now: Timestamp) -> Known<Finding> {
        let Ok(key) = serde_json::to_string(trigger) else {
            return Known::Unknown { why: "its threshold is not a number".into(), since: now };
        };
        if let Some(finding) = self.remembered(&key, now) {
            return finding;
        }
        let finding = self.ask(trigger, now).await;
        self.remember(key, finding, now)
    }
}
