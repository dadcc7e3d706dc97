//! The objects as we last saw or wrote them.

use std::{collections::HashMap, sync::Arc};

use muster_model::resource::{MADE_FOR, ObjectKey, Resource, ResourceKind};

#[derive(Debug, Default)]
pub(super) struct Mirror {
    objects: HashMap<ObjectKey, Arc<Resource>>,
    /// Which object stands for a record: settled ones, and those that were made or marked for it.
    ids: HashMap<(ResourceKind, String), ObjectKey>,
}

/// The record that an object stands for, or is about to.
pub(super) fn record_of(object: &Resource) -> Option<&str> {
    object.id().or_else(|| object.annotation(MADE_FOR))
}

impl Mirror {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<Arc<Resource>> {
        self.objects.get(key).cloned()
    }

    /// The object of a record, which is in the namespace of its project.
    pub(super) fn of(&self, kind: ResourceKind, id: &str) -> Option<Arc<Resource>> {
        self.get(self.ids.get(&(kind, id.to_owned()))?)
    }

    pub(super) fn keys(&self, kind: ResourceKind) -> Vec<ObjectKey> {
        self.objects.keys().filter(|key| key.kind == kind).cloned().collect()
    }

    /// Objects of a kind, and how many of them say that they are not in step.
    pub(super) fn count(&self, kind: ResourceKind) -> (u64, u64) {
        let mut found = (0, 0);
        for (_, object) in self.objects.iter().filter(|(key, _)| key.kind == kind) {
            found.0 += 1;
            found.1 += u64::from(super::status::is_refused(object));
        }
        found
    }

    /// Objects of a kind that have no record yet.
    pub(super) fn strays(&self, kind: ResourceKind) -> Vec<ObjectKey> {
        let all = self.objects.iter().filter(|(key, object)| key.kind == kind && object.id().is_none());
        all.map(|(key, _)| key.clone()).collect()
    }

    /// Takes in an object; `false` when a newer state of it is known.
    pub(super) fn put(&mut self, object: Resource) -> bool {
        let key = object.key();
        if let Some(known) = self.objects.get(&key) {
            if known.uid() == object.uid() && known.version() > object.version() {
                return false;
            }
            self.forget_id(&key);
        }
        if let Some(id) = record_of(&object) {
            let place = (object.kind, id.to_owned());
            // Who was settled first stays; a mark alone does not push it aside.
            let taken = self
                .ids
                .get(&place)
                .and_then(|key| self.objects.get(key))
                .is_some_and(|known| known.id().is_some());
            if !taken {
                self.ids.insert(place, key.clone());
            }
        }
        self.objects.insert(key, Arc::new(object));
        true
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Resource>> {
        self.forget_id(key);
        self.objects.remove(key)
    }

    fn forget_id(&mut self, key: &ObjectKey) {
        let Some(known) = self.objects.get(key) else { return };
        for id in [known.id(), known.annotation(MADE_FOR)].into_iter().flatten() {
            let place = (key.kind, id.to_owned());
            if self.ids.get(&place) == Some(key) {
                self.ids.remove(&place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, version: u64, id: Option<&str>, made_for: Option<&str>) -> Resource {
        let mut object = Resource::new(ResourceKind::NodePool, "team", name, json!({}));
        object.metadata.insert("uid".into(), name.into());
        object.metadata.insert("resourceVersion".into(), version.to_string().into());
        if let Some(id) = id {
            object.status = json!({ "id": id });
        }
        if let Some(id) = made_for {
            object.set_annotation(MADE_FOR, id);
        }
        object
    }

    #[test]
    fn older_news_are_no_news() {
        let mut mirror = Mirror::default();
        assert!(mirror.put(object("a", 5, None, None)));
        assert!(!mirror.put(object("a", 4, None, None)));
        assert!(mirror.put(object("a", 5, Some("x"), None)));
        assert_eq!(mirror.of(ResourceKind::NodePool, "x").unwrap().name(), "a");
    }

    #[test]
    fn one_object_stands_for_a_record() {
        let mut mirror = Mirror::default();
        mirror.put(object("made", 1, None, Some("x")));
        assert_eq!(mirror.of(ResourceKind::NodePool, "x").unwrap().name(), "made");
        mirror.put(object("settled", 2, Some("x"), None));
        mirror.put(object("copy", 3, None, Some("x")));
        // A copy that carries the mark of another does not take its place.
        assert_eq!(
            mirror.of(ResourceKind::NodePool, "x").map(|found| found.name().to_owned()),
            Some("settled".into())
        );
        mirror.remove(&object("settled", 2, None, None).key());
        assert_eq!(mirror.of(ResourceKind::NodePool, "x"), None);
    }
}
