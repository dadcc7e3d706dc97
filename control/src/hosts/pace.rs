//! When to look at a host again, and how old what was read of it may be.

use muster_model::{
    Duration,
    host::{DriverKind, DriverSpec, HostOp, Phase},
};

use super::ways::fnv;

/// Between looks at a host at rest that is on.
const POLL: Duration = Duration::from_secs(60);
/// Between looks at a host that is off and wanted off: nothing can happen to it but a person.
const POLL_IDLE: Duration = Duration::from_secs(300);
/// Longest pause before a host whose BMC does not answer is tried again.
const POLL_SILENT: Duration = Duration::from_mins(10);
/// Between two conversations with one BMC: slow firmware chokes on less.
const SPACING: Duration = Duration::from_secs(1);
/// The same for a BMC that is spoken to by IPMI: some are known to crash when they are asked more often.
const SPACING_IPMI: Duration = Duration::from_secs(5);
/// How old a reading may be that a decision under way builds on.
pub(super) const FRESH: Duration = Duration::from_secs(5);

/// Time limits divided by a factor, so that tests which wait for real need not wait long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub factor: u32,
}

impl Pace {
    pub(super) fn scaled(self, length: Duration) -> Duration {
        Duration::from_millis((length.millis() / u64::from(self.factor.max(1))).max(1))
    }

    /// Between two conversations with the BMC of a host with these drivers.
    pub(super) fn spacing(self, drivers: &[DriverSpec]) -> Duration {
        let ipmi = drivers.iter().any(|driver| driver.kind == DriverKind::Ipmi);
        self.scaled(if ipmi { SPACING_IPMI } else { SPACING })
    }

    /// Between looks at a host in this phase when nothing else asks for one.
    pub(super) fn poll(self, phase: Phase, op: Option<&HostOp>, failed_contacts: u32) -> Duration {
        let length = match phase {
            Phase::Cordoned => Duration::from_secs(2),
            Phase::Reserved
            | Phase::PreparingBoot
            | Phase::PowerRequested
            | Phase::Evicting
            | Phase::Drained => Duration::from_secs(5),
            Phase::Powered
            | Phase::Booting
            | Phase::Joining
            | Phase::Stopping
            | Phase::ForcingOff
            | Phase::ConfirmingOff => Duration::from_secs(10),
            Phase::Quarantined | Phase::Lost if op.is_some() => Duration::from_secs(10),
            // Longer than two readings have to lie apart, so that the second one comes when it counts.
            Phase::Enrolling => Duration::from_secs(30),
            Phase::Idle => POLL_IDLE,
            Phase::Serving | Phase::Degraded | Phase::Lost | Phase::Backoff | Phase::Quarantined => POLL,
        };
        let rests = matches!(phase, Phase::Idle | Phase::Serving | Phase::Degraded | Phase::Quarantined);
        let length = if rests && failed_contacts > 1 {
            // A dead BMC costs its time limit at every poll: it is asked less often, not never.
            let doubled = length.millis() << failed_contacts.min(6);
            Duration::from_millis(doubled.min(POLL_SILENT.millis().max(length.millis())))
        } else {
            length
        };
        self.scaled(length)
    }

    /// How old a reading may be for a look that nothing but time asked for.
    pub(super) fn reread(self, phase: Phase, op: Option<&HostOp>) -> Duration {
        let poll = self.poll(phase, op, 0);
        if op.is_some() || poll <= self.scaled(Duration::from_secs(30)) {
            self.scaled(FRESH)
        } else {
            // A little less than the poll, so that each one reads.
            Duration::from_millis(poll.millis() * 9 / 10)
        }
    }

    /// Where in the poll's interval a host's turn comes, so that they come evenly.
    pub(super) fn offset(host: &str, poll: Duration) -> Duration {
        Duration::from_millis(fnv(host.bytes()) % poll.millis().max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_are_spread_evenly() {
        let mut seconds = [0_u32; 60];
        for number in 0..5_000 {
            let offset = Pace::offset(&format!("host-{number:05}"), POLL);
            seconds[usize::try_from(offset.millis() / 1000).unwrap()] += 1;
        }
        // 83 each if it were perfect.
        assert!(seconds.iter().all(|count| (40..140).contains(count)), "{seconds:?}");
    }

    #[test]
    fn quiet_hosts_are_asked_seldom_and_dead_ones_more_seldom() {
        let pace = Pace { factor: 1 };
        assert_eq!(pace.poll(Phase::Idle, None, 0), POLL_IDLE);
        assert_eq!(pace.poll(Phase::Serving, None, 0), POLL);
        assert_eq!(pace.poll(Phase::Serving, None, 2), Duration::from_mins(4));
        assert_eq!(pace.poll(Phase::Serving, None, 60), POLL_SILENT);
        assert!(pace.reread(Phase::Serving, None) < POLL);
        assert_eq!(pace.reread(Phase::PowerRequested, None), FRESH);
    }
}
