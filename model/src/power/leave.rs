//! Leave to change machines, which may end at any moment.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::Fault;
use crate::Duration;

/// Whether a caller may still change machines. A driver asks directly before every request or packet that changes
/// something: the queue in front of a BMC, its login and its slow answers may take longer than a leadership lasts, and
/// a task goes on when nobody waits for it any more.
#[derive(Clone)]
pub struct Leave {
    standing: Arc<Ask>,
    over: Option<Arc<AtomicBool>>,
}

type Ask = dyn Fn() -> Result<Duration, String> + Send + Sync;

/// Ends the leave of one call when it is dropped.
#[derive(Debug)]
#[must_use = "the leave ends with it"]
pub struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Leave {
    /// `ask` says how long one request that leaves now may take, or why none may leave.
    pub fn new(ask: impl Fn() -> Result<Duration, String> + Send + Sync + 'static) -> Self {
        Self { standing: Arc::new(ask), over: None }
    }

    /// For a caller whom nobody replaces.
    pub fn unlimited() -> Self {
        Self::new(|| Ok(Duration::from_millis(u64::MAX)))
    }

    /// The same for one call, for as long as somebody waits for it.
    pub fn for_one_call(&self) -> (Self, Waiting) {
        let over = Arc::new(AtomicBool::new(false));
        (Self { standing: Arc::clone(&self.standing), over: Some(Arc::clone(&over)) }, Waiting(over))
    }

    /// Without regard to the call that it was given for: for what is handed out after that has returned.
    pub fn beyond_the_call(&self) -> Self {
        Self { standing: Arc::clone(&self.standing), over: None }
    }

    /// How long one request that leaves now may take.
    pub fn ask(&self) -> Result<Duration, Fault> {
        if self.over.as_ref().is_some_and(|over| over.load(Ordering::Acquire)) {
            return Err(Fault::Withheld {
                why: "the call took too long, and 0 callers wait for it".to_owned(),
            });
        }
        (self.standing)().map_err(|why| Fault::Withheld { why })
    }
}

impl fmt::Debug for Leave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leave").field(&self.ask()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leave_of_a_call_ends_with_it_and_what_outlives_the_call_keeps_its_own() {
        let leads = Arc::new(AtomicBool::new(true));
        let asked = Arc::clone(&leads);
        let leave = Leave::new(move || {
            let leads = asked.load(Ordering::Relaxed);
            leads.then_some(Duration::from_secs(5)).ok_or_else(|| "this process no longer leads".to_owned())
        });
        let (call, waiting) = leave.for_one_call();
        let handed_out_later = call.beyond_the_call();
        assert_eq!(call.ask(), Ok(Duration::from_secs(5)));
        drop(waiting);
        assert_eq!(call.ask().map_err(|fault| fault.code()), Err("POWER_WITHHELD"));
        assert_eq!(handed_out_later.ask(), Ok(Duration::from_secs(5)));
        leads.store(false, Ordering::Relaxed);
        assert_eq!(handed_out_later.ask().map_err(|fault| fault.code()), Err("POWER_WITHHELD"));
    }
}
