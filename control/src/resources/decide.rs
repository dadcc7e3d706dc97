//! What is to be done about one record and its object. Pure: the same pair always gives the same answer.

use muster_model::{
    patch::make_patch,
    resource::{REVISION, Resource, SPEC_DIGEST, shape, short_digest},
    store::Revision,
};
use serde_json::Value;

use super::{Reason, held::Refusal};

/// What the decision needs to know of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept<'a> {
    pub(super) version: Revision,
    pub(super) deleting: bool,
    /// The spec that an object of it should have.
    pub(super) spec: &'a Value,
    /// Everything between these revisions was taken from this very object: whoever edited it once more, before it was
    /// written down that the first edit was taken, is no latecomer.
    pub(super) ours: Option<(Revision, Revision)>,
}

/// What to say about the last edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Both sides say the same.
    Synced,
    /// As it was said before: nothing new has happened.
    AsBefore,
    Refused(Refusal),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// Nothing is on either side, or what is left goes by itself.
    Rest,
    /// The record has no object yet.
    MakeObject,
    /// The record is gone: so goes the object.
    RemoveObject,
    /// Somebody deleted the object: so goes the record.
    DeleteRecord,
    /// Somebody edited the object, and the record is still the one that the object was made from.
    Take { patch: Value },
    /// The object should look like this.
    Settle { spec: Value, verdict: Verdict },
}

/// Members that we fill in when they are left out.
const FILLED: [&str; 2] = ["name", "nodeCount"];

/// `agrees` says whether a patch of the record would change nothing.
pub(super) fn decide(
    kept: Option<Kept<'_>>,
    object: Option<&Resource>,
    agrees: impl Fn(&Value) -> bool,
) -> Step {
    let (kept, object) = match (kept, object) {
        (None, None) => return Step::Rest,
        (None, Some(_)) => return Step::RemoveObject,
        (Some(kept), None) => return if kept.deleting { Step::Rest } else { Step::MakeObject },
        (Some(kept), Some(object)) => (kept, object),
    };
    if object.is_deleting() && !kept.deleting {
        return Step::DeleteRecord;
    }
    if object.is_deleting() || kept.deleting {
        // On its way out: nobody's edit counts any more.
        return Step::Settle { spec: object.spec.clone(), verdict: Verdict::AsBefore };
    }
    let present = shape::canonical(object.spec.clone());
    let patch = make_patch(kept.spec, &present);
    let edited = object.annotation(SPEC_DIGEST) != Some(short_digest(&present).as_str());
    let moved =
        object.status.get("revision").and_then(Value::as_str) != Some(kept.version.to_string().as_str());
    let said = if edited || moved { Verdict::Synced } else { Verdict::AsBefore };
    if agrees(&patch) {
        return Step::Settle { spec: filled(object.spec.clone(), kept.spec), verdict: said };
    }
    if !edited {
        return Step::Settle { spec: kept.spec.clone(), verdict: said };
    }
    let base = base(object);
    let taken = kept.ours.is_some_and(|(from, to)| base == Some(from) && to == kept.version);
    if base == Some(kept.version) || taken {
        return Step::Take { patch };
    }
    let message = format!(
        "the store was changed at the same time, and it wins: {}; edit again if it is still wanted",
        shape::differences(kept.spec, &present)
    );
    Step::Settle {
        spec: kept.spec.clone(),
        verdict: Verdict::Refused(Refusal::new(Reason::Conflict, message)),
    }
}

/// The revision that an object was made from. Who replaces a whole object loses the annotation, not the status.
fn base(object: &Resource) -> Option<Revision> {
    let noted = object.annotation(REVISION).or_else(|| object.status.get("revision").and_then(Value::as_str));
    noted.and_then(|text| text.parse().ok()).map(Revision)
}

/// The spec with what we fill in.
fn filled(mut spec: Value, kept: &Value) -> Value {
    for name in FILLED {
        if let (Some(members), Some(value)) = (spec.as_object_mut(), kept.get(name)) {
            members.entry(name).or_insert_with(|| value.clone());
        }
    }
    spec
}

#[cfg(test)]
mod tests {
    use muster_model::resource::ResourceKind;
    use serde_json::json;

    use super::*;

    const R: u64 = 7;

    /// An object that we made from `made` at `base`, whose spec is `now`.
    fn object(made: &Value, base: u64, now: &Value) -> Resource {
        let mut object = Resource::new(ResourceKind::NodePool, "team", "lab.web", now.clone());
        object.set_annotation(SPEC_DIGEST, &short_digest(made));
        object.set_annotation(REVISION, &base.to_string());
        object.status = json!({ "id": "x", "revision": base.to_string() });
        object
    }

    fn kept(spec: &Value) -> Kept<'_> {
        Kept { version: Revision(R), deleting: false, spec, ours: None }
    }

    #[track_caller]
    fn check(store: &Value, object: &Resource, expected: Step) {
        let nothing_new = |patch: &Value| patch.as_object().is_some_and(serde_json::Map::is_empty);
        assert_eq!(decide(Some(kept(store)), Some(object), nothing_new), expected);
    }

    #[test]
    fn sides_that_agree_are_left_alone() {
        let spec = json!({ "name": "web", "nodeCount": 3 });
        check(
            &spec,
            &object(&spec, R, &spec),
            Step::Settle { spec: spec.clone(), verdict: Verdict::AsBefore },
        );
        // Numbers that came back in another spelling are the same numbers.
        let spelled: Value = serde_json::from_str(r#"{"nodeCount":3.0,"name":"web"}"#).unwrap();
        check(
            &spec,
            &object(&spec, R, &spelled),
            Step::Settle { spec: spelled.clone(), verdict: Verdict::AsBefore },
        );
    }

    #[test]
    fn what_the_store_got_meanwhile_is_shown() {
        let (old, new) = (json!({ "name": "web", "nodeCount": 3 }), json!({ "name": "web", "nodeCount": 4 }));
        check(&new, &object(&old, 5, &old), Step::Settle { spec: new.clone(), verdict: Verdict::Synced });
    }

    #[test]
    fn an_edit_of_the_present_revision_is_taken() {
        let (made, edit) =
            (json!({ "name": "web", "nodeCount": 3 }), json!({ "name": "web", "nodeCount": 5 }));
        check(&made, &object(&made, R, &edit), Step::Take { patch: json!({ "nodeCount": 5 }) });
        // Without annotations, as after `kubectl replace`, the status still knows.
        let mut bare = object(&made, R, &edit);
        bare.metadata.remove("annotations");
        check(&made, &bare, Step::Take { patch: json!({ "nodeCount": 5 }) });
    }

    #[test]
    fn an_edit_of_an_older_revision_loses() {
        let made = json!({ "name": "web", "nodeCount": 3 });
        let (store, edit) =
            (json!({ "name": "web", "nodeCount": 4 }), json!({ "name": "web", "nodeCount": 5 }));
        let Step::Settle { spec, verdict: Verdict::Refused(refusal) } =
            decide(Some(kept(&store)), Some(&object(&made, 5, &edit)), |_| false)
        else {
            panic!("it was not refused")
        };
        assert_eq!((spec, refusal.reason), (store, Reason::Conflict));
        assert!(refusal.message.contains("spec.nodeCount is 4, not 5"), "{}", refusal.message);
    }

    #[test]
    fn two_edits_in_a_row_are_both_taken() {
        let made = json!({ "name": "web", "nodeCount": 3 });
        let (first, second) =
            (json!({ "name": "web", "nodeCount": 4 }), json!({ "name": "web", "nodeCount": 5 }));
        let ours = Kept { ours: Some((Revision(5), Revision(R))), ..kept(&first) };
        let step = decide(Some(ours), Some(&object(&made, 5, &second)), |_| false);
        assert_eq!(step, Step::Take { patch: json!({ "nodeCount": 5 }) });
    }

    #[test]
    fn an_edit_that_the_store_has_too_is_no_conflict() {
        let (made, both) =
            (json!({ "name": "web", "nodeCount": 3 }), json!({ "name": "web", "nodeCount": 4 }));
        check(&both, &object(&made, 5, &both), Step::Settle { spec: both.clone(), verdict: Verdict::Synced });
    }

    #[test]
    fn names_and_sizes_that_were_left_out_are_filled_in() {
        let store = json!({ "name": "web", "nodeCount": 3, "cluster": "lab" });
        let sent = json!({ "cluster": "lab" });
        let step = decide(Some(kept(&store)), Some(&object(&sent, R, &sent)), |_| true);
        assert_eq!(step, Step::Settle { spec: store.clone(), verdict: Verdict::AsBefore });
    }

    #[test]
    fn deletions_go_both_ways() {
        let spec = json!({ "name": "web" });
        let mut going = object(&spec, R, &spec);
        going.metadata.insert("deletionTimestamp".into(), "2026-01-01T00:00:00Z".into());
        let deleting = Kept { deleting: true, ..kept(&spec) };
        assert_eq!(decide(Some(kept(&spec)), Some(&going), |_| true), Step::DeleteRecord);
        assert!(matches!(decide(Some(deleting), Some(&going), |_| true), Step::Settle { .. }));
        assert_eq!(decide(None, Some(&going), |_| true), Step::RemoveObject);
        assert_eq!(decide(Some(kept(&spec)), None, |_| true), Step::MakeObject);
        assert_eq!(decide(Some(deleting), None, |_| true), Step::Rest);
        assert_eq!(decide(None, None, |_| true), Step::Rest);
        // An edit of what is being deleted in the store changes nothing any more.
        let edit = object(&spec, R, &json!({ "name": "other" }));
        assert!(matches!(
            decide(Some(deleting), Some(&edit), |_| false),
            Step::Settle { verdict: Verdict::AsBefore, .. }
        ));
    }
}
