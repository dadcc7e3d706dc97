//! Times that were stored by somebody whose clock was not ours, or before a time without a leader.
//!
//! A deadline is a point in time, so that it survives its writer. Read by a clock that was set meanwhile it would end
//! a wait at once, or never. What is stored is put right before anything is decided on it.

use muster_model::{Duration, Known, Timestamp, host::Limits};

use super::turn::Turn;

/// A hand-over takes less than this, and a deadline goes on through it. A longer time without a leader counts for
/// nobody: no host is late because nobody looked.
pub const UNATTENDED: Duration = Duration::from_mins(1);
/// A quarantine's wait doubles with every failed self-test, up to this.
const LONGEST_PROBATION: u64 = 32;

impl Turn<'_> {
    /// Puts stored times right.
    pub(super) fn mend(&mut self) {
        if muster_model::planted::is("F18") {
            return;
        }
        self.follow_clock_back();
        self.make_up();
        self.come_back_to_now();
    }

    /// A clock that went back: everything stored is moved back with it, so that no wait becomes longer
    /// than its limit and none is cut short.
    fn follow_clock_back(&mut self) {
        let ahead = self.status.phase_since.since(self.now);
        if ahead == Duration::ZERO {
            return;
        }
        let back = |time: &mut Timestamp| *time = time.saturating_sub(ahead);
        let status = &mut self.status;
        back(&mut status.phase_since);
        back(&mut status.state_since);
        for time in [
            &mut status.power_action_time,
            &mut status.boot_time,
            &mut status.join_time,
            &mut status.deadline,
            &mut status.overdue_since,
            &mut status.paused_since,
            &mut status.off_proved_at,
            &mut status.serving_since,
            &mut status.off_since,
            &mut status.not_ready_since,
            &mut status.retry_at,
            &mut status.held_until,
            &mut status.unexpected_on_since,
            &mut status.drain_retry_at,
            &mut status.wake_proved_at,
            &mut status.bmc_reset_at,
        ] {
            time.as_mut().map(back);
        }
        status.starts.iter_mut().for_each(back);
        status.failures.iter_mut().for_each(|failure| back(&mut failure.at));
        if let Some(quarantine) = &mut status.quarantine {
            back(&mut quarantine.since);
            back(&mut quarantine.probation_at);
        }
        if let Known::Value { value, at } = &mut status.power {
            back(&mut value.since);
            back(at);
        }
        if let Some(presence) = &mut status.presence {
            back(&mut presence.since);
        }
        if let Some(proof) = &mut status.boot_proof {
            back(&mut proof.at);
        }
        if let Some(op) = &mut self.op {
            for time in [
                &mut op.boot_deadline,
                &mut op.drain_deadline,
                &mut op.stage_deadline,
                &mut op.power_requested_at,
                &mut op.off_proved_before,
                &mut op.last_sent_at,
                &mut op.asked_off_at,
            ] {
                time.as_mut().map(back);
            }
            back(&mut op.started);
            if let Some(pending) = &mut op.pending {
                back(&mut pending.at);
            }
        }
    }

    /// Nobody led for a while: what was not over by then gets that time added. What a process with a clock that was set
    /// ahead takes for such a time is added as well, and ends no wait.
    fn make_up(&mut self) {
        let gap = self.seen.unattended;
        if gap < UNATTENDED {
            return;
        }
        let left_alone = self.now.saturating_sub(gap);
        let later = |time: &mut Timestamp| {
            if *time > left_alone {
                *time = time.saturating_add(gap);
            }
        };
        let (status, limits) = (&mut self.status, &self.seen.settings.limits);
        for time in
            [&mut status.deadline, &mut status.drain_retry_at, &mut status.held_until, &mut status.retry_at]
        {
            time.as_mut().map(later);
        }
        if let Some(quarantine) = &mut status.quarantine {
            later(&mut quarantine.probation_at);
        }
        // A wait that is counted from its beginning is time in which somebody looked.
        for (since, wait) in [
            (&mut status.serving_since, limits.min_on),
            (&mut status.off_since, limits.min_off),
            (&mut status.not_ready_since, limits.not_ready),
            (&mut status.unexpected_on_since, limits.leave_on),
        ] {
            if let Some(since) = since
                && since.saturating_add(wait) > left_alone
            {
                *since = since.saturating_add(gap);
            }
        }
        if let Some(op) = &mut self.op {
            for time in [&mut op.boot_deadline, &mut op.drain_deadline, &mut op.stage_deadline] {
                time.as_mut().map(later);
            }
        }
    }

    /// Nothing that happened lies in the future, and no wait is longer than its limit from now.
    fn come_back_to_now(&mut self) {
        let now = self.now;
        let limits = &self.seen.settings.limits;
        let least = |time: &mut Timestamp, most: Timestamp| *time = (*time).min(most);
        let within = |length: Duration| now.saturating_add(length);
        let status = &mut self.status;
        least(&mut status.state_since, now);
        for time in [
            &mut status.power_action_time,
            &mut status.boot_time,
            &mut status.join_time,
            &mut status.overdue_since,
            &mut status.paused_since,
            &mut status.off_proved_at,
            &mut status.serving_since,
            &mut status.off_since,
            &mut status.not_ready_since,
            &mut status.unexpected_on_since,
            &mut status.wake_proved_at,
            &mut status.bmc_reset_at,
        ]
        .into_iter()
        .flatten()
        {
            least(time, now);
        }
        status.starts.iter_mut().for_each(|time| least(time, now));
        status.failures.iter_mut().for_each(|failure| least(&mut failure.at, now));
        if let Some(proof) = &mut status.boot_proof {
            least(&mut proof.at, now);
        }
        let longest = longest(limits);
        for (time, most) in [
            (&mut status.deadline, longest),
            (&mut status.retry_at, limits.backoff_cap),
            (&mut status.held_until, limits.hold_after_off),
            (&mut status.drain_retry_at, limits.drain_retry),
        ] {
            if let Some(time) = time {
                least(time, within(most));
            }
        }
        if let Some(quarantine) = &mut status.quarantine {
            least(&mut quarantine.since, now);
            let most = Duration::from_millis(limits.probation.millis().saturating_mul(LONGEST_PROBATION));
            least(&mut quarantine.probation_at, within(most));
        }
        let Some(op) = &mut self.op else { return };
        for time in
            [&mut op.boot_deadline, &mut op.drain_deadline, &mut op.stage_deadline].into_iter().flatten()
        {
            least(time, within(longest));
        }
        for time in
            [&mut op.power_requested_at, &mut op.last_sent_at, &mut op.asked_off_at].into_iter().flatten()
        {
            least(time, now);
        }
        least(&mut op.started, now);
        if let Some(pending) = &mut op.pending {
            least(&mut pending.at, now);
        }
    }
}

/// No phase is given more time than this.
fn longest(limits: &Limits) -> Duration {
    [
        limits.enrol,
        limits.reserve,
        limits.prepare,
        limits.power_confirm,
        limits.boot,
        limits.join,
        limits.lost,
        limits.cordon,
        limits.drain,
        limits.grace,
        limits.force_off,
        limits.confirm_off,
    ]
    .into_iter()
    .max()
    .unwrap_or_default()
}
