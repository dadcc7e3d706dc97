//! Named points at which a test may stop the loop, as `kill -9` would.
//!
//! They exist only with the feature `failpoints`; without it a point is nothing at all. There is one before
//! and one after every write to the store and every effect.

/// Writes to the store, by what they are for.
pub const WRITES: [&str; 9] =
    ["enrol", "observe", "move", "begin", "announce", "settle", "end", "forget", "metrics"];

/// Effects, by name.
pub const EFFECTS: [&str; 18] = [
    "probe",
    "set-boot",
    "power-on",
    "wol-burst",
    "graceful-off",
    "force-off",
    "power-cycle",
    "reset-bmc",
    "cordon",
    "uncordon",
    "evict",
    "label",
    "remove-startup-taint",
    "taint-off",
    "remove-off-taint",
    "delete-node",
    "taint-out-of-service",
    "remove-out-of-service-taint",
];

/// On which side of the deed a point lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    Before,
    After,
}

/// All points: `write/begin/before`, `effect/power-on/after`, …
pub fn names() -> Vec<String> {
    let both = |class: &'static str, name: &'static str| {
        [Side::Before, Side::After].map(|side| name_of(class, name, side))
    };
    let writes = WRITES.into_iter().flat_map(|name| both("write", name));
    writes.chain(EFFECTS.into_iter().flat_map(|name| both("effect", name))).collect()
}

fn name_of(class: &str, name: &str, side: Side) -> String {
    let side = match side {
        Side::Before => "before",
        Side::After => "after",
    };
    format!("{class}/{name}/{side}")
}

/// Something that wants to know when a point is reached. To stop the loop there, it does not return.
#[cfg(feature = "failpoints")]
#[async_trait::async_trait]
pub trait Hook: Send + Sync + std::fmt::Debug {
    async fn reach(&self, point: &str);
}

/// The hook that is in place, if the feature is on and a test set one.
#[derive(Debug, Clone, Default)]
pub struct Failpoints {
    #[cfg(feature = "failpoints")]
    pub hook: Option<std::sync::Arc<dyn Hook>>,
}

/// Says that its point was reached, and goes no further: whoever waits for that kills the process there.
#[cfg(feature = "failpoints")]
#[derive(Debug)]
struct HangAt(String);

#[cfg(feature = "failpoints")]
#[async_trait::async_trait]
impl Hook for HangAt {
    async fn reach(&self, point: &str) {
        if point == self.0 {
            tracing::warn!(point, "failpoint reached");
            std::future::pending::<()>().await;
        }
    }
}

impl Failpoints {
    /// Stops the loop for good at the point of this name. Without the feature there are no points, and it does nothing.
    #[must_use]
    #[cfg_attr(not(feature = "failpoints"), allow(unused_variables, reason = "there are no points"))]
    pub fn hanging_at(point: Option<String>) -> Self {
        Self {
            #[cfg(feature = "failpoints")]
            hook: point.map(|point| std::sync::Arc::new(HangAt(point)) as std::sync::Arc<dyn Hook>),
        }
    }

    #[cfg(feature = "failpoints")]
    pub(super) async fn reach(&self, class: &'static str, name: &'static str, side: Side) {
        if let Some(hook) = &self.hook {
            hook.reach(&name_of(class, name, side)).await;
        }
    }

    #[cfg(not(feature = "failpoints"))]
    #[allow(clippy::unused_self, clippy::unused_async, reason = "the same call with and without the feature")]
    pub(super) async fn reach(&self, _class: &'static str, _name: &'static str, _side: Side) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_at_least_forty_and_each_once() {
        let mut all = names();
        assert!(all.len() >= 40, "{}", all.len());
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
