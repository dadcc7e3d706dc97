//! The seed's `ResourceCapacity`: what a host has, and sums of it.

use std::{collections::BTreeMap, ops::AddAssign};

use serde::{Deserialize, Serialize};

use crate::Quantity;

/// Resources of one host or of many.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ResourceCapacity {
    pub cpu: Quantity,
    pub memory: Quantity,
    /// Count of devices.
    pub gpu: u32,
    /// Bytes of local storage.
    pub storage: Quantity,
    /// Everything else, by the name that Kubernetes knows it under.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub custom_resources: BTreeMap<String, Quantity>,
}

impl AddAssign<&Self> for ResourceCapacity {
    fn add_assign(&mut self, other: &Self) {
        self.cpu += other.cpu;
        self.memory += other.memory;
        self.gpu = self.gpu.saturating_add(other.gpu);
        self.storage += other.storage;
        for (name, amount) in &other.custom_resources {
            *self.custom_resources.entry(name.clone()).or_default() += *amount;
        }
    }
}

impl<'a> std::iter::Sum<&'a Self> for ResourceCapacity {
    fn sum<I: Iterator<Item = &'a Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut total, one| {
            total += one;
            total
        })
    }
}
