//! A server without a case: power that takes time, firmware, and an operating system that comes up.
//!
//! Whoever plays the kubelet subscribes with [`Machine::watch`] and learns when the operating system runs,
//! under which boot id, and when it is gone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_model::{Clock, Duration};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// What the power supply does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Power {
    Off,
    PoweringOn,
    On,
    PoweringOff,
}

/// How long things take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Timing {
    /// From the request to power.
    pub on: Duration,
    /// From power to a running operating system.
    pub boot: Duration,
    /// How long the operating system takes to shut down.
    pub shutdown: Duration,
    /// How long power stays away in a cycle.
    pub gap: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            on: Duration::from_millis(200),
            boot: Duration::from_secs(2),
            shutdown: Duration::from_millis(500),
            gap: Duration::from_millis(200),
        }
    }
}

/// What can be seen of a machine at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    pub power: Power,
    /// The operating system runs.
    pub running: bool,
    /// Changes with every boot; empty before the first.
    pub boot_id: String,
    /// How often power was given.
    pub boots: u32,
}

/// One machine. Cheap: an idle one holds no task.
#[derive(Debug)]
pub struct Machine {
    clock: Arc<dyn Clock>,
    timing: Timing,
    state: Mutex<State>,
    seen: watch::Sender<Seen>,
}

#[derive(Debug)]
struct State {
    power: Power,
    running: bool,
    boot_id: String,
    boots: u32,
    hangs: bool,
    /// What happens next, and when on the monotonic clock.
    next: Option<(Duration, Step)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    PowerComes,
    SystemRuns,
    PowerGoes { then: Then },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    StayOff,
    ComeBack,
}

impl Machine {
    pub fn new(clock: Arc<dyn Clock>, timing: Timing) -> Arc<Self> {
        let state = State {
            power: Power::Off,
            running: false,
            boot_id: String::new(),
            boots: 0,
            hangs: false,
            next: None,
        };
        let seen = watch::Sender::new(state.seen());
        Arc::new(Self { clock, timing, state: Mutex::new(state), seen })
    }

    /// Follows the machine. The present state counts as unseen.
    pub fn watch(&self) -> watch::Receiver<Seen> {
        let mut receiver = self.seen.subscribe();
        receiver.mark_changed();
        receiver
    }

    pub fn look(&self) -> Seen {
        self.settled().seen()
    }

    pub fn power(&self) -> Power {
        self.settled().power
    }

    /// Whether its boots from now on stop in the firmware.
    pub fn hang(&self, hangs: bool) {
        self.settled().hangs = hangs;
    }

    /// Gives power. Nothing happens when it is there or coming.
    pub fn switch_on(self: &Arc<Self>) {
        let mut state = self.settled();
        match state.power {
            Power::Off => {
                state.power = Power::PoweringOn;
                self.after(state, self.timing.on, Step::PowerComes);
            }
            Power::PoweringOff => {
                let next = state.next.map(|(at, _)| (at, Step::PowerGoes { then: Then::ComeBack }));
                state.next = next;
            }
            Power::On | Power::PoweringOn => {}
        }
    }

    /// Asks the operating system to stop. Without one nothing happens, as on a real machine.
    pub fn shut_down(self: &Arc<Self>) {
        let mut state = self.settled();
        if state.power == Power::On && state.running {
            state.power = Power::PoweringOff;
            self.after(state, self.timing.shutdown, Step::PowerGoes { then: Then::StayOff });
        }
    }

    /// Takes the power away at once.
    pub fn cut(self: &Arc<Self>) {
        let mut state = self.settled();
        state.next = None;
        state.lose_power();
        self.publish(state);
    }

    /// Takes the power away and gives it back.
    pub fn cycle(self: &Arc<Self>) {
        let mut state = self.settled();
        if state.power == Power::Off {
            return;
        }
        state.lose_power();
        state.power = Power::PoweringOn;
        self.after(state, self.timing.gap.saturating_add(self.timing.on), Step::PowerComes);
    }

    /// Restarts the operating system without a loss of power.
    pub fn restart(self: &Arc<Self>) {
        let mut state = self.settled();
        if state.power == Power::On {
            state.running = false;
            state.begin_boot();
            self.after(state, self.timing.boot, Step::SystemRuns);
        }
    }

    /// What a finger on the button does: it toggles. Only an operating system makes a shutdown of it; before that one
    /// runs, the power goes.
    pub fn press_button(self: &Arc<Self>) {
        match self.look() {
            Seen { power: Power::Off, .. } => self.switch_on(),
            Seen { running: true, .. } => self.shut_down(),
            Seen { .. } => self.cut(),
        }
    }

    /// Waits until `wanted` holds.
    pub async fn until(&self, wanted: impl FnMut(&Seen) -> bool) -> Seen {
        let mut receiver = self.seen.subscribe();
        let seen =
            receiver.wait_for(wanted).await.expect("the machine that is borrowed here holds the sender");
        seen.clone()
    }

    fn settled(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.monotonic();
        while let Some((at, step)) = state.next
            && at <= now
        {
            state.next = match step {
                Step::PowerComes => {
                    state.power = Power::On;
                    state.begin_boot();
                    Some((at.saturating_add(self.timing.boot), Step::SystemRuns))
                }
                Step::SystemRuns => {
                    state.running = !state.hangs;
                    None
                }
                Step::PowerGoes { then } => {
                    state.lose_power();
                    (then == Then::ComeBack).then(|| {
                        state.power = Power::PoweringOn;
                        (at.saturating_add(self.timing.on), Step::PowerComes)
                    })
                }
            };
        }
        state
    }

    fn after(self: &Arc<Self>, mut state: MutexGuard<'_, State>, length: Duration, step: Step) {
        state.next = Some((self.clock.monotonic().saturating_add(length), step));
        self.publish(state);
        let machine = Arc::clone(self);
        tokio::spawn(async move { machine.follow().await });
    }

    /// Publishes what happens by itself, until nothing more will.
    async fn follow(self: Arc<Self>) {
        while let Some(at) = self.catch_up() {
            self.clock.sleep(at.saturating_sub(self.clock.monotonic())).await;
        }
    }

    /// Publishes the present and tells when the next thing happens.
    fn catch_up(&self) -> Option<Duration> {
        let state = self.settled();
        let next = state.next;
        self.publish(state);
        next.map(|(at, _)| at)
    }

    fn publish(&self, state: MutexGuard<'_, State>) {
        let seen = state.seen();
        self.seen.send_if_modified(|old| {
            let changed = *old != seen;
            *old = seen;
            changed
        });
    }
}

impl State {
    fn seen(&self) -> Seen {
        Seen { power: self.power, running: self.running, boot_id: self.boot_id.clone(), boots: self.boots }
    }

    fn begin_boot(&mut self) {
        self.boots += 1;
        self.boot_id = format!("{:032x}", rand::random::<u128>());
    }

    fn lose_power(&mut self) {
        self.power = Power::Off;
        self.running = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RealClock;

    #[tokio::test]
    async fn a_machine_boots_shuts_down_and_gets_a_new_boot_id() {
        let machine = Machine::new(Arc::new(RealClock::default()), Timing::default());
        machine.shut_down();
        assert_eq!(machine.power(), Power::Off);
        machine.switch_on();
        assert_eq!(machine.power(), Power::PoweringOn);
        let first = machine.until(|seen| seen.running).await;
        machine.shut_down();
        machine.until(|seen| seen.power == Power::Off).await;
        machine.switch_on();
        let second = machine.until(|seen| seen.running).await;
        assert_ne!(first.boot_id, second.boot_id);
        assert_eq!(second.boots, 2);
        machine.cut();
        assert!(!machine.look().running);
        machine.hang(true);
        machine.switch_on();
        machine.until(|seen| seen.power == Power::On).await;
        RealClock::default().sleep(Timing::default().boot).await;
        assert!(!machine.look().running, "it stopped in the firmware");
    }
}
