//! The status of an object: what its record says, seen from the object.

use muster_model::{
    Timestamp,
    resource::{Resource, shape},
    store::Revision,
};
use serde_json::{Value, json};

use super::{decide::Verdict, held::Refusal};

/// The condition that says whether the last edit was taken.
const SYNCED: &str = "Synced";

/// What a status is made of beside the object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts<'a> {
    /// `None` for an object that has no record.
    pub(super) id: Option<&'a str>,
    pub(super) version: Revision,
    /// How often the spec was changed in the store: another count than the object's.
    pub(super) generation: u64,
    /// What the record says by itself.
    pub(super) says: &'a Value,
    /// Which store this is.
    pub(super) store: &'a str,
    pub(super) now: Timestamp,
}

/// The status that an object should have after `verdict`.
pub(super) fn compose(facts: Facts<'_>, object: &Resource, verdict: &Verdict) -> Value {
    let generation = object.generation();
    let mut status = facts.says.clone();
    let mut conditions: Vec<Value> = status["conditions"].as_array().cloned().unwrap_or_default();
    for condition in &mut conditions {
        // A condition about an older spec is about an older generation of the object, whatever its number.
        let lags = condition["observedGeneration"].as_u64().is_some_and(|seen| seen < facts.generation);
        condition["observedGeneration"] = generation.saturating_sub(u64::from(lags)).into();
        if let Some(members) = condition.as_object_mut() {
            members.remove("severity");
        }
    }
    let refusal = standing(object, verdict);
    let (word, reason, message) = match &refusal {
        Some((reason, message)) => ("False", reason.as_str(), message.as_str()),
        None => ("True", "Synced", "the object and the store say the same"),
    };
    conditions.push(json!({
        "type": SYNCED, "status": word, "reason": reason, "message": message,
        "lastTransitionTime": since(object, word, facts.now), "observedGeneration": generation,
    }));
    status["conditions"] = conditions.into();
    status["observedGeneration"] = generation.into();
    status["store"] = facts.store.into();
    if let Some(id) = facts.id {
        status["id"] = id.into();
        status["revision"] = facts.version.to_string().into();
    }
    if let Some((reason, message)) = &refusal {
        status["summary"] = reason.as_str().into();
        status["message"] = message.as_str().into();
        status["seen"] = match verdict {
            Verdict::AsBefore => object.status["seen"].clone(),
            Verdict::Synced | Verdict::Refused(_) => object.others.as_str().into(),
        };
    }
    shape::canonical(status)
}

/// The refusal to tell of: a new one, or the last one while nobody has touched the object since.
fn standing(object: &Resource, verdict: &Verdict) -> Option<(String, String)> {
    match verdict {
        Verdict::Synced => None,
        Verdict::Refused(Refusal { reason, message }) => Some((reason.name().to_owned(), message.clone())),
        Verdict::AsBefore => {
            let before = synced(object).filter(|condition| condition["status"] == "False")?;
            let untouched = object.status["seen"].as_str() == Some(object.others.as_str());
            let text = |name: &str| before[name].as_str().unwrap_or_default().to_owned();
            untouched.then(|| (text("reason"), text("message")))
        }
    }
}

fn synced(object: &Resource) -> Option<&Value> {
    object.status["conditions"].as_array()?.iter().find(|condition| condition["type"] == SYNCED)
}

/// Whether an object says that it is not in step.
pub(super) fn is_refused(object: &Resource) -> bool {
    synced(object).is_some_and(|condition| condition["status"] == "False")
}

/// Since when the condition is what it is.
fn since(object: &Resource, word: &str, now: Timestamp) -> Value {
    let before = synced(object).filter(|condition| condition["status"] == word);
    before.map_or_else(|| json!(now), |condition| condition["lastTransitionTime"].clone())
}

/// Whether an object already tells of a refusal.
pub(super) fn says(object: &Resource, refusal: &Refusal) -> bool {
    synced(object).is_some_and(|condition| {
        condition["status"] == "False"
            && condition["reason"] == refusal.reason.name()
            && condition["message"] == refusal.message.as_str()
    })
}

#[cfg(test)]
mod tests {
    use muster_model::resource::ResourceKind;

    use super::{super::Reason, *};

    fn object(generation: u64, status: Value, others: &str) -> Resource {
        let mut object = Resource::new(ResourceKind::NodePool, "team", "lab.web", json!({}));
        object.metadata.insert("generation".into(), generation.into());
        object.status = status;
        object.others = others.into();
        object
    }

    fn facts(says: &Value) -> Facts<'_> {
        let now = Timestamp::from_millis(5_000);
        Facts { id: Some("x"), version: Revision(9), generation: 4, says, store: "s", now }
    }

    fn condition(status: &Value, kind: &str) -> Value {
        let all = status["conditions"].as_array().unwrap();
        all.iter().find(|one| one["type"] == kind).cloned().unwrap()
    }

    #[test]
    fn a_condition_of_an_older_spec_is_of_an_older_generation() {
        for (seen, told) in [(4, 12), (3, 11), (5, 12)] {
            let says =
                json!({ "conditions": [{ "type": "Ready", "status": "True", "observedGeneration": seen }] });
            let status = compose(facts(&says), &object(12, json!({}), ""), &Verdict::Synced);
            assert_eq!(condition(&status, "Ready")["observedGeneration"], told, "{seen}");
            assert_eq!((&status["observedGeneration"], &status["revision"]), (&json!(12), &json!("9")));
        }
    }

    #[test]
    fn a_refusal_stands_until_somebody_touches_the_object() {
        let says = json!({});
        let refused = Verdict::Refused(Refusal::new(Reason::Invalid, "spec.nodeCount: too many"));
        let first = compose(facts(&says), &object(2, json!({}), "kubectl-1"), &refused);
        assert_eq!(condition(&first, SYNCED)["message"], "spec.nodeCount: too many");
        assert_eq!(first["summary"], "Invalid");
        let again = compose(facts(&says), &object(2, first.clone(), "kubectl-1"), &Verdict::AsBefore);
        assert_eq!(again, first);
        let touched = compose(facts(&says), &object(2, first.clone(), "kubectl-2"), &Verdict::AsBefore);
        assert_eq!(condition(&touched, SYNCED)["status"], "True");
        assert_eq!(touched.get("seen"), None);
        let refusal = Refusal::new(Reason::Invalid, "spec.nodeCount: too many");
        assert!(super::says(&object(2, first, ""), &refusal));
    }

    #[test]
    fn the_same_facts_give_the_same_status() {
        let says = json!({ "phase": "Ready", "conditions": [] });
        let first = compose(facts(&says), &object(2, json!({}), ""), &Verdict::Synced);
        let later = Facts { now: Timestamp::from_millis(99_000), ..facts(&says) };
        assert_eq!(compose(later, &object(2, first.clone(), ""), &Verdict::Synced), first);
    }
}
