//! From samples to a finding. Pure.
//!
//! Missing knowledge may end in unknown, never in a wrong "fires" of a trigger that lowers capacity. A
//! trigger that raises it may fire on the part that is known: one hot series is reason enough.

use std::collections::BTreeMap;

use muster_model::{
    Duration, Timestamp,
    pool::{Comparator, ScaleDirection, SeriesAggregate, Trigger},
    trigger::Finding,
};

use crate::answer::{Answer, Point, Series, shown};

/// Finest and coarsest resolution of a range query.
const FINEST: u64 = 15_000;
const COARSEST: u64 = 60_000;
/// Points that a duration is divided into, as long as the resolution allows.
const POINTS: u64 = 20;
/// Of the points that there should be, the share that has to be there, in percent.
const PRESENT: u64 = 80;
/// Points of one query at most: Prometheus refuses more than 11,000.
const MOST_POINTS: u64 = 10_000;
/// A trigger with a clear threshold looks back this many times its duration for the moment it fired.
const LOOK_BACK: u64 = 3;
/// A plain series is stale when its newest sample is older than this and than two steps: an instant query
/// would show it for five minutes.
const STALE: Duration = Duration::from_mins(2);

/// What a range query spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    /// The trigger's duration; zero asks for this moment only.
    pub(crate) length: Duration,
    pub(crate) step: Duration,
    /// From the first point to the last; longer than the duration where history matters.
    pub(crate) span: Duration,
}

impl Window {
    pub(crate) fn of(trigger: &Trigger) -> Self {
        let length = trigger.duration.get();
        // A duration shorter than the finest step still gets its two ends.
        let step = (length.millis() / POINTS).clamp(FINEST.min(length.millis().max(1_000)), COARSEST);
        let times = if trigger.clear_threshold.is_some() { LOOK_BACK } else { 1 };
        let step = step.max(length.millis().saturating_mul(times).div_ceil(MOST_POINTS * 1_000) * 1_000);
        // A whole number of steps, so that both ends of the duration have a point whatever its length.
        let steps = length.millis().div_ceil(step);
        let step = length.millis().checked_div(steps).unwrap_or(step);
        let span = Duration::from_millis(step.saturating_mul(steps).saturating_mul(times));
        Self { length, step: Duration::from_millis(step), span }
    }

    /// Points that one duration should have.
    fn expected(&self) -> u64 {
        self.length.millis() / self.step.millis() + 1
    }

    fn is_covered(&self, points: u64) -> bool {
        points * 100 >= self.expected() * PRESENT
    }
}

/// Whether the newest of these sample times (as values, in seconds) are too old.
pub(crate) fn age(times: &Answer, window: &Window) -> Result<(), String> {
    let limit = STALE.max(Duration::from_millis(window.step.millis() * 2));
    for series in &times.series {
        let Some(point) = series.points.last() else { continue };
        #[allow(clippy::cast_possible_truncation, reason = "milliseconds since 1970 fit into 2^53")]
        let at = Timestamp::from_millis((point.value * 1000.0) as i64);
        let old = point.at.since(at);
        if old > limit {
            return Err(format!("the newest sample of {} is {old} old, over {limit}", series.name));
        }
    }
    Ok(())
}

/// A trigger without a duration.
pub(crate) fn instant(trigger: &Trigger, answer: &Answer) -> Result<Finding, String> {
    decide(trigger, answer, |points| {
        let last = points.last().ok_or("has 0 samples")?;
        Ok(Seen { fires: satisfies(trigger, trigger.threshold, last.value), value: last.value })
    })
}

/// A trigger whose condition has to hold over the whole window.
pub(crate) fn range(trigger: &Trigger, window: &Window, answer: &Answer) -> Result<Finding, String> {
    let end = answer.server_time;
    decide(trigger, answer, |points| {
        let last = points.last().ok_or("has 0 samples")?;
        let old = end.since(last.at);
        if old.millis() > window.step.millis() * 2 {
            return Err(format!("has no sample in the last {old}"));
        }
        let from = end.saturating_sub(window.length);
        let recent = points.iter().filter(|point| point.at >= from).count() as u64;
        let expected = window.expected();
        if !window.is_covered(recent) {
            return Err(format!("has {recent} of {expected} samples over {}", window.length));
        }
        Ok(Seen { fires: held(trigger, window, points)?, value: last.value })
    })
}

/// What one series shows.
struct Seen {
    fires: bool,
    value: f64,
}

/// Whether the condition held over the last duration, or did before and was not cleared since. Where samples are missing it may
/// not have held, and may have been cleared.
fn held(trigger: &Trigger, window: &Window, points: &[Point]) -> Result<bool, String> {
    let clear = trigger.clear_threshold.unwrap_or(trigger.threshold);
    let mut since = None;
    let mut oldest = 0;
    // What is known, and from when on it was not.
    let mut fires = Ok(false);
    for (at, point) in points.iter().enumerate() {
        let from = point.at.saturating_sub(window.length);
        oldest += points[oldest..at].iter().take_while(|old| old.at < from).count();
        let present = (at - oldest + 1) as u64;
        let gap = (!window.is_covered(present)).then_some((present, point.at));
        if let (Ok(true), Some(gap)) = (fires, gap) {
            fires = Err(gap);
        }
        if satisfies(trigger, trigger.threshold, point.value) {
            let first = *since.get_or_insert(point.at);
            // The first point may lie up to one step inside of the window.
            if point.at.since(first).saturating_add(window.step) > window.length {
                fires = match (gap, fires) {
                    (None, _) => Ok(true),
                    (Some(gap), Ok(_)) => Err(gap),
                    (Some(_), known) => known,
                };
            }
        } else {
            since = None;
            if trigger.clear_threshold.is_none() || !satisfies(trigger, clear, point.value) {
                fires = Ok(false);
            }
        }
    }
    fires.map_err(|(present, at)| {
        let expected = window.expected();
        format!(
            "has {present} of {expected} samples over {} before {at}; it may have fired then",
            window.length
        )
    })
}

fn satisfies(trigger: &Trigger, threshold: f64, value: f64) -> bool {
    match trigger.comparator() {
        Comparator::Above => value > threshold,
        Comparator::Below => value < threshold,
    }
}

/// Puts the series together.
fn decide(
    trigger: &Trigger,
    answer: &Answer,
    look: impl Fn(&[Point]) -> Result<Seen, String>,
) -> Result<Finding, String> {
    let series = aggregated(trigger, &answer.series)?;
    let mut seen = Vec::new();
    let mut troubles = Vec::new();
    for one in &series {
        let trouble = |why: String| format!("series {} {why}", one.name);
        match one.points.iter().find(|point| !point.value.is_finite()) {
            Some(point) => troubles.push(trouble(format!("has the value {}", point.value))),
            None => match look(&one.points) {
                Ok(found) => seen.push((one, found)),
                Err(why) => troubles.push(trouble(why)),
            },
        }
    }
    if let Some(warning) = answer.warnings.first() {
        troubles.push(format!("the answer is partial: {}", shown(warning)));
    }
    let fires = match trigger.aggregate() {
        SeriesAggregate::All => {
            !seen.is_empty() && troubles.is_empty() && seen.iter().all(|(_, one)| one.fires)
        }
        _ => seen.iter().any(|(_, one)| one.fires),
    };
    // One that is surely false settles `all`; one that is surely true settles growth.
    let settled = match (trigger.aggregate(), trigger.scale_direction) {
        (SeriesAggregate::All, _) => seen.iter().any(|(_, one)| !one.fires),
        (_, ScaleDirection::Up) => fires,
        (_, ScaleDirection::Down) => false,
    };
    if !settled && let Some(trouble) = troubles.into_iter().next() {
        return Err(trouble);
    }
    let shown = seen.iter().find(|(_, one)| one.fires == fires).or_else(|| seen.first());
    let (one, found) = shown.ok_or("the query returns 0 series")?;
    Ok(Finding { fires, value: number(found.value), why: sentence(trigger, fires, one, found, seen.len()) })
}

fn sentence(trigger: &Trigger, fires: bool, one: &Series, found: &Seen, series: usize) -> String {
    let side = match trigger.comparator() {
        Comparator::Above => "above",
        Comparator::Below => "below",
    };
    let which = if series > 1 { format!("{} (1 of {series} series)", one.name) } else { "the value".into() };
    let length = trigger.duration.get();
    let verb = match (fires, length.millis()) {
        (true, 0) => format!("is {side}"),
        (false, 0) => format!("is not {side}"),
        (true, _) => format!("has been {side}"),
        (false, _) => format!("has not been {side}"),
    };
    let over = if length.millis() == 0 { String::new() } else { format!(" for {length}") };
    format!("{which} {verb} {}{over}; it is {} now", number(trigger.threshold), number(found.value))
}

fn number(value: f64) -> String {
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.to_owned() }
}

/// The series to look at: as they are, or one made of all.
fn aggregated(trigger: &Trigger, series: &[Series]) -> Result<Vec<Series>, String> {
    if series.is_empty() {
        return Err("the query returns 0 series".into());
    }
    match trigger.aggregate() {
        SeriesAggregate::Any | SeriesAggregate::All => Ok(series.to_vec()),
        SeriesAggregate::Single if series.len() == 1 => Ok(series.to_vec()),
        SeriesAggregate::Single => Err(format!(
            "the query returns {} series where 1 is asked for; aggregate in the query or set `aggregate` to any, all, \
             max or avg",
            series.len()
        )),
        SeriesAggregate::Max => Ok(vec![merged("max", series, |values| {
            // NaN has to survive: it is no small number.
            values
                .iter()
                .copied()
                .fold(f64::NEG_INFINITY, |a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) })
        })]),
        SeriesAggregate::Avg => Ok(vec![merged("avg", series, |values| {
            #[allow(clippy::cast_precision_loss, reason = "at most 1,000 series")]
            let count = values.len() as f64;
            values.iter().sum::<f64>() / count
        })]),
    }
}

/// One series of the moments at which every series has a sample: a mean over those that happen to be there
/// would move when one disappears.
fn merged(name: &str, series: &[Series], fold: impl Fn(&[f64]) -> f64) -> Series {
    let mut at: BTreeMap<Timestamp, Vec<f64>> = BTreeMap::new();
    for point in series.iter().flat_map(|one| &one.points) {
        at.entry(point.at).or_default().push(point.value);
    }
    let complete = at.into_iter().filter(|(_, values)| values.len() == series.len());
    let points = complete.map(|(at, values)| Point { at, value: fold(&values) }).collect();
    Series { name: format!("{name} of {} series", series.len()), labels: BTreeMap::new(), points }
}

#[cfg(test)]
mod tests;
