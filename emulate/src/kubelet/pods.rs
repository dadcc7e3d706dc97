//! The pods of one node: they start at once, run as long as they say, and stop when they are deleted.

use std::{collections::BTreeMap, sync::Arc};

use muster_model::{Clock, Duration};
use serde_json::{Value, json};

use super::{
    RUN_FOR, STOP_AFTER,
    api::{Answer, Api},
};

pub(super) struct Pods<'a> {
    api: &'a Api,
    node: &'a str,
    clock: Arc<dyn Clock>,
    /// When each pod began to run, or to stop, on the monotonic clock; by uid.
    running: BTreeMap<String, Duration>,
    stopping: BTreeMap<String, Duration>,
}

impl<'a> Pods<'a> {
    pub(super) fn new(api: &'a Api, node: &'a str, clock: Arc<dyn Clock>) -> Self {
        Self { api, node, clock, running: BTreeMap::new(), stopping: BTreeMap::new() }
    }

    /// One look at all pods that are bound here.
    pub(super) async fn look_after(&mut self) -> Result<(), String> {
        // From the API server's memory: a few hundred milliseconds more do not matter.
        let path = format!("/api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName%3D{}", self.node);
        let Answer::Done(list) = self.api.get(&path).await? else { return Ok(()) };
        let pods = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        for pod in pods {
            let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            if pod["metadata"]["deletionTimestamp"].is_string() {
                self.stop(pod, uid).await?;
            } else {
                self.run(pod, uid).await?;
            }
        }
        let there = |uid: &str| pods.iter().any(|pod| pod["metadata"]["uid"] == uid);
        self.running.retain(|uid, _| there(uid));
        self.stopping.retain(|uid, _| there(uid));
        Ok(())
    }

    async fn run(&mut self, pod: &Value, uid: String) -> Result<(), String> {
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        if phase == "Succeeded" || phase == "Failed" {
            return Ok(());
        }
        let now = self.clock.monotonic();
        let Some(since) = self.running.get(&uid).copied() else {
            // Also after a boot: the containers of before are gone and start anew.
            self.report(pod, "Running").await?;
            self.running.insert(uid, now);
            return Ok(());
        };
        match seconds(pod, RUN_FOR) {
            Some(length) if now.saturating_sub(since) >= length => self.report(pod, "Succeeded").await,
            // Who could not be heard for a while finds its pods called unready, and says that they are not.
            _ if !is_ready(pod) => self.report(pod, "Running").await,
            _ => Ok(()),
        }
    }

    async fn stop(&mut self, pod: &Value, uid: String) -> Result<(), String> {
        let now = self.clock.monotonic();
        let since = *self.stopping.entry(uid.clone()).or_insert(now);
        let grace = pod["metadata"]["deletionGracePeriodSeconds"]
            .as_u64()
            .map_or(Duration::ZERO, Duration::from_secs);
        let takes = seconds(pod, STOP_AFTER).unwrap_or(Duration::ZERO).min(grace);
        if now.saturating_sub(since) < takes {
            return Ok(());
        }
        let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
        self.api.delete(&path(pod), &options).await.map(drop)
    }

    async fn report(&self, pod: &Value, phase: &str) -> Result<(), String> {
        let now = self.clock.now();
        let ready = if phase == "Running" { "True" } else { "False" };
        let condition =
            |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": now});
        let state = if phase == "Running" {
            json!({"running": {"startedAt": now}})
        } else {
            json!({"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now}})
        };
        let containers: Vec<Value> = pod["spec"]["containers"]
            .as_array()
            .map_or(&[][..], Vec::as_slice)
            .iter()
            .map(|container| {
                json!({"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0,
                    "ready": phase == "Running", "started": phase == "Running", "state": state})
            })
            .collect();
        let status = json!({"status": {
            "phase": phase, "startTime": now, "podIP": "127.0.0.1", "hostIP": "127.0.0.1",
            "conditions": [condition("PodScheduled", "True"), condition("Initialized", "True"),
                condition("ContainersReady", ready), condition("Ready", ready)],
            "containerStatuses": containers,
        }});
        self.api.merge(&format!("{}/status", path(pod)), &status).await.map(drop)
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn path(pod: &Value) -> String {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    format!("/api/v1/namespaces/{}/pods/{}", text("namespace"), text("name"))
}

fn seconds(pod: &Value, annotation: &str) -> Option<Duration> {
    let text = pod["metadata"]["annotations"][annotation].as_str()?;
    text.parse().ok().map(Duration::from_secs)
}
