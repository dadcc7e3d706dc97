//! Triggers answered by a Prometheus server.
//!
//! A trigger with a duration is one range query over exactly that duration: nothing is remembered between
//! two looks, so that a restart changes nothing. Whatever is missing, odd, partial or old is unknown, with a
//! reason of its own. Before one lowers capacity the server is asked whether it reaches its targets: what the others say
//! may be all that is left.

mod answer;
mod client;
mod judge;
mod targets;

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use muster_model::{
    Duration, Known, Timestamp,
    pool::{ScaleDirection, Trigger, promql},
    trigger::{Finding, Triggers},
};

use answer::Answer;
pub use client::{Auth, Client, Settings, SettingsError};
use judge::Window;

/// Outages of more distinct triggers than this have no remembered beginning.
const MAX_REMEMBERED: usize = 10_000;

/// Answers triggers. How often it is asked is up to the caller.
#[derive(Debug)]
pub struct Prometheus {
    client: Client,
    /// Since when a trigger has had no answer.
    silent: Mutex<HashMap<String, Timestamp>>,
}

impl Prometheus {
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        Ok(Self { client: Client::new(settings)?, silent: Mutex::default() })
    }

    /// Asks the server once.
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
        let window = Window::of(trigger);
        let instant = self.client.instant(query).await?;
        let finding = self.judged(trigger, &window, &instant).await?;
        if finding.fires && trigger.scale_direction == ScaleDirection::Down {
            targets::there(&self.client, trigger, &window, &instant).await?;
        }
        Ok(finding)
    }

    async fn judged(&self, trigger: &Trigger, window: &Window, instant: &Answer) -> Result<Finding, String> {
        let query = &trigger.metric_query;
        if promql::is_selector(query) && !instant.series.is_empty() {
            let times = self.client.instant(&format!("timestamp({query}\n)")).await?;
            judge::age(&times, window)?;
        }
        if window.length == Duration::from_millis(0) {
            return judge::instant(trigger, instant);
        }
        if instant.series.is_empty() {
            return Err("the query returns 0 series".into());
        }
        let range = self.client.range(query, window, instant.server_time).await?;
        judge::range(trigger, window, &range)
    }

    /// Keeps the time since when nothing is known over repeated failures.
    fn dated(&self, key: String, mut finding: Known<Finding>) -> Known<Finding> {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut finding {
            Known::Value { .. } => drop(silent.remove(&key)),
            Known::Unknown { since, .. } => {
                if let Some(first) = silent.get(&key) {
                    *since = (*first).min(*since);
                } else if silent.len() < MAX_REMEMBERED {
                    silent.insert(key, *since);
                }
            }
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
        let finding = self.ask(trigger, now).await;
        self.dated(key, finding)
    }
}
