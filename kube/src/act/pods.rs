//! The pods of one node, from the API server itself and not from what was watched.

use muster_model::{k8s::Pod, observe::ActError};
use serde::Deserialize;

use super::{Actor, is_name, refusal};
use crate::client::Call;

/// Far more than a kubelet runs. A node with more of them is not empty, and that is all that is asked.
const PODS: u32 = 1_000;

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    items: Vec<Pod>,
}

impl Actor<'_> {
    /// Without a resource version the answer is as new as the store: no cache of the API server is asked.
    pub(crate) async fn pods_on(&self, node: &str) -> Result<Vec<Pod>, ActError> {
        let what = format!("list the pods on node {node}");
        if !is_name(node) {
            let why = "an object's name has only lower case letters, digits, '-' and '.'".to_owned();
            return Err(ActError::Refused { what, why });
        }
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}&limit={PODS}");
        let list: List =
            self.client.call(&what, Call::get(&path)).await.map_err(|error| refusal(&what, error))?;
        Ok(list.items)
    }
}
