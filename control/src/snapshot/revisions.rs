//! How far a cluster had come when it was last looked at.
//!
//! The watches notice by themselves when an API server shows less than it did before. A process that has just started
//! has seen nothing before: what it is shown may be the list of a replica that stands still, or of a restored backup.

use std::collections::BTreeMap;

use muster_model::{
    Duration, Timestamp,
    observe::{ClusterView, is_behind},
};
use serde::{Deserialize, Serialize};

/// How old the note may be although nothing else is written: what happened since then is not missed.
const NOTE_EVERY: Duration = Duration::from_mins(5);
/// A cluster that was restored from a backup stays behind for as long as it has lost. After this time, in which a stale
/// replica would have been noticed by others, what it shows is what there is.
const BELIEVED_AFTER: Duration = Duration::from_hours(1);

/// Revisions by kind, and when they were noted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Revisions {
    pub at: Timestamp,
    pub seen: BTreeMap<String, u64>,
    /// Since when the cluster shows less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind_since: Option<Timestamp>,
}

impl Revisions {
    /// The first kind that is shown as it was before, in words.
    pub fn older(&self, view: &ClusterView) -> Option<String> {
        let shown = |kind: &str| view.revisions.get(kind).copied();
        self.seen.iter().find_map(|(kind, seen)| {
            let shown = shown(kind).filter(|shown| shown < seen)?;
            Some(is_behind(kind, shown, *seen))
        })
    }

    /// What is to be remembered after a look at `view`.
    pub(super) fn after(
        known: Option<Self>,
        view: &ClusterView,
        changed: bool,
        now: Timestamp,
    ) -> Option<Self> {
        let noted = || {
            let seen =
                view.revisions.iter().map(|(kind, revision)| ((*kind).to_owned(), *revision)).collect();
            Some(Self { at: now, seen, behind_since: None })
        };
        if view.revisions.is_empty() || view.behind.is_some() {
            return known;
        }
        let Some(known) = known else { return noted() };
        if known.older(view).is_some() {
            let since = known.behind_since.unwrap_or(now);
            if now.since(since) >= BELIEVED_AFTER {
                return noted();
            }
            return Some(Self { behind_since: Some(since), ..known });
        }
        if changed || known.behind_since.is_some() || now.since(known.at) >= NOTE_EVERY {
            noted()
        } else {
            Some(known)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_millis(minutes * 60_000)
    }

    fn view(pods: u64) -> ClusterView {
        ClusterView { revisions: BTreeMap::from([("pods", pods), ("nodes", 50)]), ..ClusterView::default() }
    }

    #[test]
    fn what_a_later_process_is_shown_is_compared_with_what_was_seen() {
        let noted = Revisions::after(None, &view(100), false, at(0)).unwrap();
        assert_eq!(noted.older(&view(100)), None);
        assert_eq!(noted.older(&ClusterView::default()), None, "who does not count says nothing");
        let old = "the API server shows pods of revision 99, and 100 was seen before: an old copy";
        assert_eq!(noted.older(&view(99)).as_deref(), Some(old));
    }

    #[test]
    fn it_is_noted_with_other_changes_or_after_a_while() {
        #[track_caller]
        fn check(pods: u64, changed: bool, minutes: i64, noted: u64, behind_since: Option<i64>) {
            let before = Revisions::after(None, &view(100), false, at(0));
            let after = Revisions::after(before, &view(pods), changed, at(minutes)).unwrap();
            assert_eq!((after.seen["pods"], after.behind_since), (noted, behind_since.map(at)));
        }
        check(101, false, 1, 100, None);
        check(101, true, 1, 101, None);
        check(101, false, 5, 101, None);
        check(90, true, 5, 100, Some(5));
    }

    #[test]
    fn a_restored_cluster_is_believed_after_an_hour() {
        let noted = Revisions::after(None, &view(100), false, at(0));
        let behind = Revisions::after(noted, &view(40), true, at(10));
        let still = Revisions::after(behind, &view(60), true, at(69));
        assert_eq!(still.as_ref().unwrap().behind_since, Some(at(10)));
        assert!(still.as_ref().unwrap().older(&view(60)).is_some());
        let caught_up = Revisions::after(still.clone(), &view(100), false, at(69)).unwrap();
        assert_eq!((caught_up.behind_since, caught_up.older(&view(100))), (None, None));
        let believed = Revisions::after(still, &view(61), false, at(70)).unwrap();
        assert_eq!(believed.older(&view(61)), None);
    }
}
