//! What only a part of the days has, beside the trouble that every day has.
//!
//! It is drawn from a source of its own: the other days are what they are without it.

use muster_model::Duration;

use super::{
    Outage, What, Workload,
    fuzz::{CALM_START, Day},
    random::Random,
    trouble::Class,
};

/// So many days in a hundred have some of it.
const SHARE: u64 = 25;
/// What begins so long before trouble ends has ended by then.
const LAST: Duration = Duration::from_mins(80);

/// What comes once or twice on such a day.
#[derive(Debug, Clone, Copy)]
enum Rarity {
    /// The API server, or a cache, for a while.
    Cluster(Outage),
    /// Pods that are bound past the scheduler.
    Binds,
    /// Something that otherwise only days have that are full of it.
    Some(Class),
}

const RARITIES: [Rarity; 8] = [
    Rarity::Cluster(Outage::ApiSlow),
    Rarity::Cluster(Outage::HalfThePods),
    Rarity::Binds,
    Rarity::Some(Class::Clocks),
    Rarity::Some(Class::Kubelets),
    Rarity::Some(Class::Storms),
    Rarity::Some(Class::Herds),
    Rarity::Some(Class::People),
];

/// So many days in a hundred meet a stale replica, and so many of those that are full of wrong views.
const OLD_SHARE: u64 = 8;
const OLD_FOCUSED: u64 = 40;
/// Of them so many begin with a process that knows nothing but what was written down.
const RESTARTED: u64 = 60;

impl Day {
    /// A replica that stands still, and often somebody who starts and sees nothing else. It is over well before what it shows is
    /// believed, which is an hour after it was first met.
    pub(super) fn old_views(&mut self, dice: &mut Random) {
        let share = if self.focus.contains(&Class::Views) { OLD_FOCUSED } else { OLD_SHARE };
        let (first, latest) = (CALM_START.saturating_add(LAST), self.calm.saturating_sub(LAST));
        if (!self.focus.is_empty() && !self.focus.contains(&Class::Views))
            || !dice.percent(share)
            || latest <= first
        {
            return;
        }
        let at = Duration::from_millis(dice.between(first.millis(), latest.millis()));
        let lasts = Duration::from_secs(dice.between(120, 3_000));
        self.add(at, lasts, What::Outage(Outage::OldView));
        if dice.percent(RESTARTED) {
            let after = Duration::from_secs(dice.between(0, lasts.millis() / 2_000));
            self.add(at.saturating_add(after), Duration::from_secs(20), What::KillLeader);
        }
    }

    /// Adds something rare if this is one of the days that have it.
    pub(super) fn rarities(&mut self, dice: &mut Random) {
        let latest = self.calm.saturating_sub(LAST);
        if !self.focus.is_empty() || !dice.percent(SHARE) || latest <= CALM_START {
            return;
        }
        self.workloads.push(Workload::deployment("herd", 0, 6_500));
        for _ in 0..dice.between(1, 3) {
            let first = CALM_START.millis();
            let at = Duration::from_millis(dice.between(first, latest.millis()));
            match *dice.pick(&RARITIES) {
                Rarity::Cluster(outage) => {
                    let lasts = Duration::from_secs(dice.between(120, 3_600));
                    self.add(at, lasts, What::Outage(outage));
                }
                Rarity::Binds => {
                    let lasts = Duration::from_secs(dice.between(60, 1_800));
                    self.binds(dice, at, lasts);
                }
                Rarity::Some(class) => {
                    let (least, most) = class.seconds();
                    let lasts = Duration::from_secs(dice.between(least, most));
                    self.one_of(class, dice, at, lasts);
                }
            }
        }
    }
}
