//! Bugs on purpose, to prove that the checks see them. Without the feature `planted` there is none.
//!
//! Each is one line of production code that asks [`is`] for its name. A test plants one on its own thread; the
//! invariants of the simulated world know nothing of it.

#[cfg(feature = "planted")]
mod sown {
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// Plants a bug on this thread, or takes it out again.
    pub fn plant(name: Option<&'static str>) {
        PLANTED.set(name);
    }

    /// Whether this bug is planted here.
    pub fn is(name: &str) -> bool {
        PLANTED.get() == Some(name)
    }
}

#[cfg(feature = "planted")]
pub use sown::{is, plant};

/// No bug is planted: the feature is off.
#[cfg(not(feature = "planted"))]
#[allow(clippy::inline_always, reason = "a production build must not even ask")]
#[inline(always)]
pub const fn is(_name: &str) -> bool {
    false
}
