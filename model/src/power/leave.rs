//! Leave to change machines, which may end at any moment.

use std::{fmt, sync::Arc};

use super::Fault;
use crate::Duration;

/// Whether a caller may still change machines. A driver asks directly before every request or packet that changes
/// something: the queue in front of a BMC, its login and its slow answers may take longer than a leadership lasts, and
/// a task goes on when nobody waits for it any more.
#[derive(Clone)]
pub struct Leave(Arc<Ask>);

type Ask = dyn Fn() -> Result<Duration, String> + Send + Sync;

impl Leave {
    /// `ask` says how long one request that leaves now may take, or why none may leave.
    pub fn new(ask: impl Fn() -> Result<Duration, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }

    /// For a caller whom nobody replaces.
    pub fn unlimited() -> Self {
        Self::new(|| Ok(Duration::from_millis(u64::MAX)))
    }

    /// How long one request that leaves now may take.
    pub fn ask(&self) -> Result<Duration, Fault> {
        (self.0)().map_err(|why| Fault::Withheld { why })
    }
}

impl fmt::Debug for Leave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leave").field(&(self.0)()).finish()
    }
}
