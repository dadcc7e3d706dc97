//! What a cluster asks for, in numbers: pods that wait, and how fast pods come and jobs end.
//!
//! Fed with every look of a planner. It sees what is there at a look: a pod that came and went between two looks is
//! not counted, and neither is a job that was deleted at once. Rates are over a window that slides, so that a scrape of
//! any interval finds them.

use std::collections::{HashMap, HashSet, VecDeque};

use muster_model::{
    Duration, Timestamp,
    k8s::{Job, Objects, Pod},
};
use serde::Serialize;

/// What rates are over: long enough that single pods are not a wave, short enough that a wave is seen.
const WINDOW: Duration = Duration::from_mins(5);
/// A rate is not known before it has been watched for so long.
const LEAST: Duration = Duration::from_mins(1);

/// The load of one cluster at one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Load {
    /// Pods without a node: not bound, not gated, not going away.
    pub pending: u64,
    /// Of these, pods that the scheduler has found no node for.
    pub unschedulable: u64,
    /// Millionths of a pod per second, over the last minutes.
    pub pods_created: u64,
    /// Millionths of a job per second; `None` until it was watched for a minute.
    pub jobs_completed: Option<u64>,
}

/// Follows one cluster.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    began: Option<Timestamp>,
    /// Pods that came within the window, by uid.
    created: HashMap<Box<str>, Timestamp>,
    /// Jobs that were complete at the last look.
    complete: HashSet<Box<str>>,
    completions: VecDeque<Timestamp>,
}

impl Tracker {
    /// Takes one look in.
    pub(super) fn look(&mut self, objects: &Objects, now: Timestamp) -> Load {
        let is_first = self.began.is_none();
        let began = *self.began.get_or_insert(now);
        for pod in &objects.pods {
            if let Some(at) = pod.metadata.creation_timestamp.filter(|at| now.since(*at) < WINDOW) {
                self.created.entry(pod.metadata.uid.clone()).or_insert(at);
            }
        }
        self.created.retain(|_, at| now.since(*at) < WINDOW);
        let complete: HashSet<Box<str>> =
            objects.jobs.iter().filter(|job| is_complete(job)).map(|job| job.metadata.uid.clone()).collect();
        // Nobody knows when those ended that were complete when we came.
        if !is_first {
            let new = complete.iter().filter(|uid| !self.complete.contains(*uid)).count();
            self.completions.extend(std::iter::repeat_n(now, new));
        }
        self.complete = complete;
        while self.completions.front().is_some_and(|at| now.since(*at) >= WINDOW) {
            self.completions.pop_front();
        }
        let watched = now.since(began).min(WINDOW);
        Load {
            pending: count(&objects.pods, Pod::is_pending),
            unschedulable: count(&objects.pods, |pod| pod.is_pending() && is_refused(pod)),
            pods_created: per_second(self.created.len(), WINDOW),
            jobs_completed: (watched >= LEAST).then(|| per_second(self.completions.len(), watched)),
        }
    }
}

fn count(pods: &[Pod], is: impl Fn(&Pod) -> bool) -> u64 {
    pods.iter().filter(|pod| is(pod)).count() as u64
}

/// The scheduler has looked at it and found no node.
fn is_refused(pod: &Pod) -> bool {
    pod.status
        .condition("PodScheduled")
        .is_some_and(|condition| &*condition.status == "False" && &*condition.reason == "Unschedulable")
}

fn is_complete(job: &Job) -> bool {
    let wanted = job.spec.completions.or(job.spec.parallelism).unwrap_or(1);
    job.status.active == 0 && job.status.succeeded > 0 && job.status.succeeded >= wanted
}

/// Millionths per second.
fn per_second(many: usize, length: Duration) -> u64 {
    (many as u64).saturating_mul(1_000_000_000) / length.millis().max(1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn objects(pods: &serde_json::Value, jobs: &serde_json::Value) -> Objects {
        serde_json::from_value(json!({ "pods": pods, "jobs": jobs })).unwrap()
    }

    fn pod(uid: &str, created: &str, reason: Option<&str>) -> serde_json::Value {
        let conditions =
            reason.map(|reason| json!([{ "type": "PodScheduled", "status": "False", "reason": reason }]));
        json!({ "metadata": { "name": uid, "uid": uid, "creationTimestamp": created },
            "status": { "phase": "Pending", "conditions": conditions.unwrap_or(json!([])) } })
    }

    fn job(uid: &str, succeeded: i32) -> serde_json::Value {
        json!({ "metadata": { "name": uid, "uid": uid }, "spec": { "completions": 2 },
            "status": { "succeeded": succeeded } })
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn pods_that_wait_are_counted_and_refused_ones_apart() {
        let mut tracker = Tracker::default();
        let old = "2026-11-16T01:00:00Z";
        let mut bound = pod("d", old, None);
        bound["spec"] = json!({ "nodeName": "n1" });
        let mut gated = pod("e", old, Some("SchedulingGated"));
        gated["spec"] = json!({ "schedulingGates": [{ "name": "wait" }] });
        let pods = json!([
            pod("a", old, Some("Unschedulable")),
            pod("b", old, Some("Other")),
            pod("c", old, None),
            bound,
            gated
        ]);
        let load = tracker.look(&objects(&pods, &json!([])), at("2026-11-16T02:00:00Z"));
        assert_eq!((load.pending, load.unschedulable, load.pods_created), (3, 1, 0));
    }

    #[test]
    fn rates_slide_and_remember_what_has_gone() {
        let mut tracker = Tracker::default();
        let start = at("2026-11-16T02:00:00Z");
        let none = json!([]);
        let finished = json!([job("old", 2)]);
        let load = tracker.look(&objects(&none, &finished), start);
        assert_eq!((load.pods_created, load.jobs_completed), (0, None), "a minute has not passed");
        let pods: Vec<_> = (0..30).map(|n| pod(&format!("p{n}"), "2026-11-16T02:00:30Z", None)).collect();
        let _ = tracker.look(&objects(&json!(pods), &finished), at("2026-11-16T02:00:40Z"));
        let jobs = json!([job("old", 2), job("new", 2), job("half", 1)]);
        let load = tracker.look(&objects(&none, &jobs), at("2026-11-16T02:01:40Z"));
        // 30 pods in 5 minutes, though they are gone; one job in 100 seconds.
        assert_eq!((load.pods_created, load.jobs_completed), (100_000, Some(10_000)));
        let load = tracker.look(&objects(&none, &jobs), at("2026-11-16T02:09:00Z"));
        assert_eq!((load.pods_created, load.jobs_completed), (0, Some(0)), "the window has passed");
    }
}
