//! What a command has at hand: the server, the streams, the clock, and the clusters it met so far.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use muster_model::{Clock, Timestamp};
use serde_json::Value;

use super::{
    client::Client,
    context::{Connection, Settings},
    environment::Environment,
    failure::Outcome,
    kinds::{self, Kind, Scope, View, text_at},
    list::{self, Selection},
    screen::Screen,
};

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) screen: Screen,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) environment: Environment,
    pub(crate) settings: Settings,
    /// Clusters by id. Filled when first needed, so that a command about clusters alone asks only once.
    clusters: Mutex<BTreeMap<String, Value>>,
}

impl Session {
    pub(crate) fn open(connection: &Connection, tools: &super::Tools) -> Outcome<Self> {
        let settings = connection.settings(&tools.environment)?;
        let client = Client::new(&settings, Arc::clone(&tools.clock), tools.screen)?;
        Ok(Self {
            client,
            screen: tools.screen,
            clock: Arc::clone(&tools.clock),
            environment: tools.environment.clone(),
            settings,
            clusters: Mutex::default(),
        })
    }

    /// The server's time, by which everything that it tells is dated.
    pub(crate) fn now(&self) -> Timestamp {
        self.client.now()
    }

    /// Makes sure that the clusters of `objects` are known by name.
    pub(crate) async fn know_clusters(&self, kind: &Kind, objects: &[Value]) -> Outcome {
        if kind.scope != Scope::Cluster {
            return Ok(());
        }
        let unknown = {
            let known = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
            objects.iter().any(|object| !known.contains_key(&text_at(object, "cluster_id")))
        };
        if unknown {
            let found = list::pages(self, kinds::required("cluster")?, &Selection::visible()).await?;
            self.remember(found.items);
        }
        Ok(())
    }

    pub(crate) fn remember(&self, clusters: Vec<Value>) {
        let mut known = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(clusters.into_iter().map(|cluster| (text_at(&cluster, "id"), cluster)));
    }

    pub(crate) fn clusters(&self) -> BTreeMap<String, Value> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The name of `object` as people write it: `nodepool prod/web`.
    pub(crate) fn title(&self, kind: &Kind, object: &Value) -> String {
        format!("{} {}", kind.singular, self.full_name(kind, object))
    }

    pub(crate) fn full_name(&self, kind: &Kind, object: &Value) -> String {
        let clusters = self.clusters();
        kind.full_name(&View { object, clusters: &clusters, now: self.now(), related: &Value::Null })
    }
}
