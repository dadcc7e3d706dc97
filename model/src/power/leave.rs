//! Leave to change machines, which may end at any moment.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
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
    call: Option<Arc<AtomicU8>>,
}

type Ask = dyn Fn() -> Result<Duration, String> + Send + Sync;

/// Leave was given: something may have been sent.
const USED: u8 = 1;
/// Nobody waits any more.
const OVER: u8 = 2;

/// Ends the leave of one call when it is dropped.
#[derive(Debug)]
#[must_use = "the leave ends with it"]
pub struct Waiting(Arc<AtomicU8>);

impl Waiting {
    /// Ends the leave. Whether it was made use of before, so that something which changes the machine may be under way:
    /// what was not sent by now is not sent any more.
    pub fn end(self) -> bool {
        self.0.fetch_or(OVER, Ordering::AcqRel) & USED != 0
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_or(OVER, Ordering::AcqRel);
    }
}

impl Leave {
    /// `ask` says how long one request that leaves now may take, or why none may leave.
    pub fn new(ask: impl Fn() -> Result<Duration, String> + Send + Sync + 'static) -> Self {
        Self { standing: Arc::new(ask), call: None }
    }

    /// For a caller whom nobody replaces.
    pub fn unlimited() -> Self {
        Self::new(|| Ok(Duration::from_millis(u64::MAX)))
    }

    /// The same for one call, for as long as somebody waits for it.
    pub fn for_one_call(&self) -> (Self, Waiting) {
        let call = Arc::new(AtomicU8::new(0));
        (Self { standing: Arc::clone(&self.standing), call: Some(Arc::clone(&call)) }, Waiting(call))
    }

    /// Without regard to the call that it was given for: for what is handed out after that has returned.
    pub fn beyond_the_call(&self) -> Self {
        Self { standing: Arc::clone(&self.standing), call: None }
    }

    /// How long one request that leaves now may take.
    pub fn ask(&self) -> Result<Duration, Fault> {
        let room = (self.standing)().map_err(|why| Fault::Withheld { why })?;
        // In one step with the look: whoever ends the call afterwards learns that something left.
        if self.call.as_ref().is_some_and(|call| call.fetch_or(USED, Ordering::AcqRel) & OVER != 0) {
            return Err(Fault::Withheld {
                why: "the call took too long, and 0 callers wait for it".to_owned(),
            });
        }
        Ok(room)
    }
}

impl fmt::Debug for Leave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leave").field(&(self.standing)()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn whoever_ends_a_call_learns_whether_something_left() {
        let (call, waiting) = Leave::unlimited().for_one_call();
        assert!(!waiting.end());
        assert_eq!(call.ask().map_err(|fault| fault.code()), Err("POWER_WITHHELD"));
        let (call, waiting) = Leave::unlimited().for_one_call();
        assert!(call.ask().is_ok() && format!("{call:?}").contains("Ok"));
        assert!(waiting.end());
        let (call, waiting) = Leave::new(|| Err("frozen".to_owned())).for_one_call();
        assert!(call.ask().is_err() && !waiting.end(), "nothing left");
    }

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
