//! What happens in the demo: load that breathes, and what goes wrong on purpose.
//!
//! Everything is a function of the seed and the time: minutes before or after the moment at which the page opens, which
//! is eight o'clock in the morning. A story has no end: any stretch of it can be asked for.

use muster_model::Duration;
use muster_sim::world::{Disturbance, Kind, Outage, Quirk, What, Workload, random::Random};

use super::site::{LAG_QUERY, Odd};

/// The page opens at this hour.
pub(super) const OPENS_AT_HOUR: i64 = 8;
/// Load changes in steps of this many minutes.
const STEP: i64 = 10;
const DAY: i64 = 24 * 60;

/// How busy people are at each hour of the day, in percent.
const BUSY: [i64; 24] =
    [12, 10, 8, 8, 10, 16, 26, 40, 58, 76, 90, 96, 92, 94, 98, 96, 90, 84, 78, 70, 56, 40, 26, 16];

/// Something that begins at a minute, with the words for whoever watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Beat {
    /// Minutes after the page opened.
    pub(super) minute: i64,
    pub(super) lasts: Duration,
    pub(super) what: What,
    /// What is said about it; nothing about what is only the usual breathing.
    pub(super) told: Option<String>,
}

impl Beat {
    /// In a world in which the page opens after `history`.
    pub(super) fn disturbance(&self, history: Duration) -> Disturbance {
        let minutes = i64::try_from(history.millis() / 60_000).unwrap_or(0) + self.minute;
        let at = Duration::from_mins(u64::try_from(minutes).unwrap_or(0));
        Disturbance { at, lasts: self.lasts, what: self.what.clone() }
    }
}

/// The story of a seed.
#[derive(Debug, Clone)]
pub(super) struct Story {
    random: Random,
    odd: Odd,
}

impl Story {
    pub(super) fn new(seed: u64, odd: Odd) -> Self {
        Self { random: Random::new(seed), odd }
    }

    /// What runs on the cluster from the beginning.
    pub(super) fn workloads() -> Vec<Workload> {
        let on = |pool: &str, mut workload: Workload| {
            workload.selector.insert("nodepool".to_owned(), pool.to_owned());
            workload
        };
        let shop = Workload { mebibytes: 3 << 10, ..Workload::deployment("storefront", 20, 1_500) };
        // Three are needed and three are there: none of them may be evicted.
        let payments = Workload {
            mebibytes: 4 << 10,
            min_available: Some(3),
            ..Workload::deployment("payments", 3, 2_000)
        };
        let runners = Workload { mebibytes: 8 << 10, ..Workload::deployment("ci-runner", 1, 4_000) };
        let orders = Workload { mebibytes: 12 << 10, ..Workload::deployment("orders-consumer", 6, 3_000) };
        let render = Workload {
            kind: Kind::Job { seconds: 900 },
            mebibytes: 14 << 10,
            ..Workload::deployment("render", 0, 4_000)
        };
        let train = Workload {
            kind: Kind::Job { seconds: 2_400 },
            mebibytes: 96 << 10,
            gpus: 4,
            tolerates: vec!["nvidia.com/gpu".to_owned()],
            ..Workload::deployment("train-vision", 0, 24_000)
        };
        // More than any server here has.
        let huge = Workload { mebibytes: 768 << 10, ..Workload::deployment("warehouse-export", 1, 96_000) };
        vec![
            on("web", shop),
            on("web", payments),
            on("ci", runners),
            on("stream", orders),
            on("batch", render),
            on("gpu", train),
            huge,
        ]
    }

    /// What was wrong from the beginning and never gets better.
    pub(super) fn always(&self) -> Vec<What> {
        let quirk = |machine: &str, quirk| What::Quirk { machine: machine.to_owned(), quirk };
        vec![quirk(&self.odd.never_boots, Quirk::BootHangs), quirk(&self.odd.slow, Quirk::Slow)]
    }

    /// Everything that begins from minute `from` up to, but not including, minute `to`, in order.
    pub(super) fn between(&self, from: i64, to: i64) -> Vec<Beat> {
        let mut beats = Vec::new();
        let mut minute = from.div_euclid(STEP) * STEP;
        while minute < to {
            self.breathe(minute, &mut beats);
            minute += STEP;
        }
        self.orders(from, to, &mut beats);
        self.bursts(from, to, &mut beats);
        self.training(from, to, &mut beats);
        self.trouble(from, to, &mut beats);
        beats.retain(|beat| (from..to).contains(&beat.minute));
        beats.sort_by_key(|beat| beat.minute);
        beats
    }

    fn dice(&self, subject: &str, number: i64) -> Random {
        self.random.fork(&format!("{subject} {number}"))
    }

    /// The day curve of the shop and of those who build it.
    fn breathe(&self, minute: i64, beats: &mut Vec<Beat>) {
        let mut dice = self.dice("breath", minute / STEP);
        let mut wobble = |most: u64| {
            i64::try_from(dice.between(0, most * 2)).unwrap_or(0) - i64::try_from(most).unwrap_or(0)
        };
        let busy = busy(minute);
        let shop = 12 + busy * 96 / 100 + wobble(4);
        let runners = 1 + busy * 11 / 100 + wobble(1);
        let replicas = |workload: &str, count: i64| What::Replicas {
            workload: workload.to_owned(),
            replicas: u32::try_from(count.max(1)).unwrap_or(1),
        };
        beats.push(quiet(minute, replicas("storefront", shop)));
        beats.push(quiet(minute, replicas("ci-runner", runners)));
    }

    /// Every ninety minutes a supplier sends all its orders at once; they are taken forty minutes later.
    fn orders(&self, from: i64, to: i64, beats: &mut Vec<Beat>) {
        for number in repeats(from - 60, to, 90) {
            let mut dice = self.dice("orders", number);
            let minute = number * 90 + 20;
            let (lag, rest) = (dice.between(70, 130) * 100, dice.between(3, 8) * 100);
            let waiting = |lag: u64| What::Signal {
                query: LAG_QUERY.to_owned(),
                millis: i64::try_from(lag).unwrap_or(0) * 1000,
            };
            let told = Some(format!("orders pile up: {lag} wait in the queue"));
            beats.push(Beat { told, ..quiet(minute, waiting(lag)) });
            let told = Some(format!("the orders are taken: {rest} wait"));
            beats.push(Beat { told, ..quiet(minute + 40, waiting(rest)) });
        }
    }

    /// A batch every hundred minutes, done half an hour later.
    fn bursts(&self, from: i64, to: i64, beats: &mut Vec<Beat>) {
        for number in repeats(from - 60, to, 100) {
            let mut dice = self.dice("burst", number);
            let minute = number * 100 + 6 + i64::try_from(dice.between(0, 3)).unwrap_or(0);
            let count = u32::try_from(dice.between(26, 46)).unwrap_or(26);
            let of = |replicas| What::Replicas { workload: "render".to_owned(), replicas };
            let told = Some(format!("somebody submits a batch: {count} render jobs of 4 cores"));
            beats.push(Beat { told, ..quiet(minute, of(count)) });
            beats.push(quiet(minute + 28, of(0)));
        }
    }

    /// A training job every three hours, for pool `gpu`, which is at zero.
    fn training(&self, from: i64, to: i64, beats: &mut Vec<Beat>) {
        for number in repeats(from - 120, to, 180) {
            let mut dice = self.dice("training", number);
            let minute = number * 180 + 1;
            let count = u32::try_from(dice.between(2, 3)).unwrap_or(2);
            let of = |replicas| What::Replicas { workload: "train-vision".to_owned(), replicas };
            let told = Some(format!("a training job asks for {} GPUs; pool gpu is at zero", count * 4));
            beats.push(Beat { told, ..quiet(minute, of(count)) });
            // As the cluster's own controller does with jobs that are done.
            beats.push(quiet(minute + 50, of(0)));
        }
    }

    fn trouble(&self, from: i64, to: i64, beats: &mut Vec<Beat>) {
        let Odd { lies, pressed, .. } = &self.odd;
        let quirk = |machine: &str, quirk| What::Quirk { machine: machine.to_owned(), quirk };
        let mut at = |minute: i64, lasts: u64, what: What, told: Option<String>| {
            beats.push(Beat { minute, lasts: Duration::from_mins(lasts), what, told });
        };
        for number in repeats(from - DAY, to, 240) {
            let said = format!("the BMC of {lies} says off while the machine runs: the kubelet is believed");
            at(number * 240 - 45, 150, quirk(lies, Quirk::LiesOff), Some(said));
            let said =
                "Prometheus answers 503: a trigger that nobody can evaluate removes nothing".to_owned();
            at(number * 240 + 24, 22, What::Outage(Outage::MetricsRefused), Some(said));
            let said = format!("somebody presses the power button of {pressed}");
            at(number * 240 + 14, 0, What::Button { machine: pressed.clone(), on: false }, Some(said));
            let said = format!("somebody presses the power button of {pressed} again");
            at(number * 240 + 95, 0, What::Button { machine: pressed.clone(), on: true }, Some(said));
        }
    }
}

/// The numbers whose multiples of `every` lie around a stretch.
fn repeats(from: i64, to: i64, every: i64) -> std::ops::RangeInclusive<i64> {
    from.div_euclid(every) - 1..=to.div_euclid(every) + 1
}

fn quiet(minute: i64, what: What) -> Beat {
    Beat { minute, lasts: Duration::ZERO, what, told: None }
}

/// How busy people are, between the values of the full hours.
fn busy(minute: i64) -> i64 {
    let of_day = (minute + OPENS_AT_HOUR * 60).rem_euclid(DAY);
    let (hour, past) = (usize::try_from(of_day / 60).unwrap_or(0), of_day % 60);
    let (now, next) = (BUSY[hour % 24], BUSY[(hour + 1) % 24]);
    now + (next - now) * past / 60
}

#[cfg(test)]
mod tests {
    use super::{super::site::Bmcs, super::site::Yard, *};

    fn story(seed: u64) -> Story {
        Story::new(seed, Yard::new(seed, Bmcs::Memory).odd)
    }

    #[test]
    fn a_seed_has_one_story() {
        assert_eq!(story(1).between(-DAY, DAY), story(1).between(-DAY, DAY));
        assert_ne!(story(1).between(-DAY, DAY), story(2).between(-DAY, DAY));
    }

    #[test]
    fn a_story_in_parts_is_the_story_in_one() {
        let whole = story(5).between(-DAY, 2 * DAY);
        let parts: Vec<Beat> = [-DAY, -400, 0, 37, 600, DAY, 2 * DAY]
            .windows(2)
            .flat_map(|pair| story(5).between(pair[0], pair[1]))
            .collect();
        assert_eq!(parts, whole);
    }

    /// Whoever opens the page sees something of every kind within its first half hour: half a minute at the usual speed.
    #[test]
    fn the_first_half_hour_has_something_of_everything() {
        let told: Vec<String> = story(1).between(0, 30).into_iter().filter_map(|beat| beat.told).collect();
        for word in ["training job", "batch", "power button", "503"] {
            assert!(told.iter().any(|text| text.contains(word)), "{word}: {told:?}");
        }
        assert!(busy(0) < busy(180), "the morning rises");
    }
}
