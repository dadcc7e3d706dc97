//! One sentence about two decisions: what they did differently, and what made them.

use std::collections::BTreeSet;

use muster_model::Duration;

use super::{Blame, Change, Comparison, Side, Subject, counted};

/// Parts that a sentence names of what was done, and of what made it so.
const MOST_PARTS: usize = 2;
/// Weight from which a difference is worth naming beside another.
const TELLING: i32 = 20;

pub(super) fn of(comparison: &Comparison, from: Side<'_>, to: Side<'_>) -> String {
    if comparison.from.id == comparison.to.id {
        return format!("Both are decision {}: nothing differs.", comparison.from.id);
    }
    let [inputs, done] = [comparison.inputs.len(), comparison.outcome.len()];
    if comparison.same {
        return "Nothing differs: both looked at the same and did the same.".to_owned();
    }
    if done == 0 {
        return if inputs == 0 {
            "They did the same; what they looked at is no longer kept.".to_owned()
        } else {
            let told = causes(comparison);
            let more = inputs.saturating_sub(told.len());
            let more = if more > 0 {
                format!(", and {} as well", counted(more, "more difference"))
            } else {
                String::new()
            };
            format!("They did the same, although {}{more}.", joined(&told))
        };
    }
    let what = joined(&effects(comparison));
    let why = match comparison.because {
        None if inputs == 0 => recorded(comparison, to),
        Some(Blame::Time) => format!(", because {} passed and nothing else changed", passed(from, to)),
        Some(Blame::Engine) => ", although both looked at the same: another version decided".to_owned(),
        _ => match causes(comparison) {
            none if none.is_empty() => String::new(),
            some => format!(", because {}", joined(&some)),
        },
    };
    let tested = match comparison.because {
        Some(Blame::World) if comparison.inputs.iter().any(|change| change.rule) => {
            "; the bounds, policies and holds that changed as well made no difference"
        }
        Some(Blame::Rules) if comparison.inputs.iter().any(|change| !change.rule) => {
            "; without the changed bounds, policies and holds it would have done as before"
        }
        _ => "",
    };
    capital(&format!("{what}{why}{tested}."))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn joined(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn passed(from: Side<'_>, to: Side<'_>) -> Duration {
    let (a, b) = (from.decision.at, to.decision.at);
    let length = if a > b { a.since(b) } else { b.since(a) };
    // Whole seconds: nobody reads further.
    if length.millis() < 1000 { length } else { Duration::from_secs(length.millis() / 1000) }
}

/// What was done differently, the most telling first.
fn effects(comparison: &Comparison) -> Vec<String> {
    let all = &comparison.outcome;
    let of = |subject: Subject| all.iter().filter(move |change| change.subject == subject);
    let moved = |change: &Change, verb: &str| {
        let pool = change.pool.as_deref().unwrap_or_default();
        if change.from == change.to {
            let named = |sign: &str| -> Vec<&str> {
                change.details.iter().filter_map(|name| name.strip_prefix(sign)).collect()
            };
            return match (named("- ").as_slice(), named("+ ").as_slice()) {
                ([gone], [came]) => format!("machine {came} is {verb} in {pool} instead of {gone}"),
                _ => format!("other machines are {verb} in {pool}"),
            };
        }
        let number = match change.to.as_str() {
            "0" => "no machine is".to_owned(),
            "1" => "1 machine is".to_owned(),
            many => format!("{many} machines are"),
        };
        format!("{number} {verb} in {pool} instead of {}", change.from)
    };
    let mut parts: Vec<String> = of(Subject::Growth).map(|change| moved(change, "called up")).collect();
    parts.extend(of(Subject::Removal).map(|change| moved(change, "stood down")));
    let waiting = of(Subject::Refusal).find(|change| change.name == "pods without a place");
    parts.extend(waiting.map(|change| {
        let pods = match change.to.as_str() {
            "0" => "no pod is".to_owned(),
            "1" => "1 pod is".to_owned(),
            many => format!("{many} pods are"),
        };
        format!("{pods} without a place instead of {}", change.from)
    }));
    let unplanned = of(Subject::Refusal).filter_map(|change| {
        let code = change.name.strip_prefix("cannot be planned, ")?;
        let can = if change.to == "0" { "can be planned again" } else { "cannot be planned" };
        Some(format!("pool {} {can} ({code})", change.pool.as_deref().unwrap_or_default()))
    });
    parts.extend(unplanned);
    if parts.is_empty() {
        let first = all.iter().find(|change| change.subject == Subject::State).or_else(|| all.first());
        parts.extend(
            first.map(|change| format!("{} went from {} to {}", change.title(), change.from, change.to)),
        );
    }
    let more = parts.len().saturating_sub(MOST_PARTS);
    parts.truncate(MOST_PARTS);
    if more > 0 {
        parts.push(counted(more, "more difference"));
    }
    parts
}

/// Without snapshots: what the second one wrote down, where the first is the one before it.
fn recorded(comparison: &Comparison, to: Side<'_>) -> String {
    let cause = &to.decision.cause;
    if cause.after.as_ref() != Some(&comparison.from.id) || cause.changes.is_empty() {
        return "; why is no longer known, because what they looked at is not kept".to_owned();
    }
    let few: Vec<String> = cause.changes.iter().take(MOST_PARTS).cloned().collect();
    format!(", because of {}", joined(&few))
}

/// What made it so: rows about the pools that differ first, and of those what decides most often.
fn causes(comparison: &Comparison) -> Vec<String> {
    // A size follows from what is called up and stood down, and from the world.
    let acting =
        |change: &&Change| matches!(change.subject, Subject::Growth | Subject::Removal | Subject::Refusal);
    let pools: BTreeSet<&str> =
        comparison.outcome.iter().filter(acting).filter_map(|change| change.pool.as_deref()).collect();
    let acts = |subject: Subject| comparison.outcome.iter().any(|change| change.subject == subject);
    let grows = acts(Subject::Growth) || acts(Subject::Refusal);
    let weight = |change: &Change| -> i32 {
        let blamed = match comparison.because {
            Some(Blame::World) => !change.rule,
            Some(Blame::Rules) => change.rule,
            _ => true,
        };
        if !blamed {
            return -1;
        }
        let kind = match change.subject {
            Subject::Pods if change.name == "pods waiting" => {
                if grows {
                    60
                } else {
                    30
                }
            }
            Subject::Pools => 40,
            Subject::Holds => 45,
            Subject::Limits => 35,
            Subject::Gaps => 30,
            Subject::Nodes if change.name == "nodes unneeded" && acts(Subject::Removal) => 45,
            Subject::Nodes => 25,
            Subject::Hosts => 20,
            Subject::Prices => 10,
            Subject::Pods => 5,
            _ => 1,
        };
        let near = match change.pool.as_deref() {
            Some(pool) if pools.contains(pool) => 30,
            Some(_) if !pools.is_empty() => -25,
            _ => 0,
        };
        kind + near
    };
    let mut ranked: Vec<&Change> = comparison.inputs.iter().filter(|change| weight(change) > 0).collect();
    ranked.sort_by_key(|change| -weight(change));
    // What hardly ever decides is named only where there is nothing else.
    let telling = ranked.iter().filter(|change| weight(change) >= TELLING).count().max(1);
    ranked.into_iter().take(telling.min(MOST_PARTS)).map(clause).collect()
}

/// `the ` before a name that is one thing's and no sentence of its own.
fn article(change: &Change) -> &'static str {
    const BARE: [&str; 10] =
        ["a ", "above", "pods", "system", "what", "replicas", "spare", "racks", "zones", "most"];
    let named = matches!(change.subject, Subject::Pools | Subject::Limits | Subject::Prices);
    if named && !BARE.iter().any(|bare| change.name.starts_with(bare)) { "the " } else { "" }
}

/// What a gap is about.
fn unknown(change: &Change) -> &str {
    change.name.strip_prefix("not known of ").unwrap_or(&change.name)
}

fn clause(change: &Change) -> String {
    let title = format!("{}{}", article(change), change.title());
    match (change.subject, change.from.as_str(), change.to.as_str()) {
        (Subject::Pools, "none", "there") => {
            format!("pool {} is new", change.pool.as_deref().unwrap_or_default())
        }
        (Subject::Pools, "there", "none") => {
            format!("pool {} is gone", change.pool.as_deref().unwrap_or_default())
        }
        (Subject::Holds, "none", why) => format!("the {} began ({why})", change.name),
        (Subject::Holds, why, "none") => format!("the {} ended ({why})", change.name),
        (Subject::Gaps, "none", why) => format!("something of {} is not known ({why})", unknown(change)),
        (Subject::Gaps, why, "none") => format!("what was not known of {} is known ({why})", unknown(change)),
        (Subject::Pools, _, now @ ("yes" | "no")) if change.name == "above its high mark" => {
            let is = if now == "yes" { "is" } else { "is no longer" };
            format!("{} {is} above its high mark", change.pool.as_deref().unwrap_or_default())
        }
        (Subject::Other, ..) => format!("{} changed: {}", change.name, change.details.join(", ")),
        (_, from, to) if from == to => format!("{title} are others"),
        (_, from, to) => format!("{title} went from {from} to {to}"),
    }
}
