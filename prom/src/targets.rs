//! Whether those are there who should have been measured. A mean over half of the machines is a number like any other: only the
//! server knows how many of its targets it reaches.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::{
    Duration,
    pool::{Trigger, promql},
};

use crate::{
    answer::{Answer, Series},
    client::Client,
    judge::Window,
};

/// Of a job's targets, the share that may be missing before what the others say is no knowledge of all, in percent.
const MISSING: u64 = 10;
/// How far back the jobs are looked for that exported what a query reads: one all of whose targets are down has no series
/// now. Longer than a weekend on which nobody looks.
const LOOK_BACK: Duration = Duration::from_hours(7 * 24);

/// Refuses when targets are missing of which a trigger that is about to lower capacity speaks. Without a job, and for a job
/// without targets (a gateway that metrics are pushed to), nothing is known to be missing.
pub(crate) async fn there(
    client: &Client,
    trigger: &Trigger,
    window: &Window,
    answer: &Answer,
) -> Result<(), String> {
    let jobs = jobs(client, &trigger.metric_query, answer).await?;
    if jobs.is_empty() {
        return Ok(());
    }
    let up = up(&jobs);
    let now = client.instant(&format!("count_values by (job) (\"up\", {up})")).await?;
    down(&now)?;
    if window.length > Duration::ZERO {
        let length = window.length.millis();
        let over = client.instant(&format!("avg by (job) (avg_over_time({up}[{length}ms]))")).await?;
        silent(&over, window)?;
    }
    Ok(())
}

/// Whose metrics the query reads: its result may say so, and the server knows who had such series.
async fn jobs(client: &Client, query: &str, answer: &Answer) -> Result<BTreeSet<String>, String> {
    let said = answer.series.iter().filter_map(|one| one.labels.get("job").cloned());
    let mut jobs: BTreeSet<String> = said.collect();
    let selectors = promql::selectors(query);
    if !selectors.is_empty() {
        jobs.extend(client.values("job", &selectors, LOOK_BACK, answer.server_time).await?);
    }
    jobs.remove("");
    Ok(jobs)
}

/// The series that tell whether the targets of these jobs are reached.
fn up(jobs: &BTreeSet<String>) -> String {
    let names: Vec<String> = jobs.iter().map(|job| exactly(job)).collect();
    format!("up{{job=~{}}}", quoted(&names.join("|")))
}

/// A regular expression for one text.
fn exactly(text: &str) -> String {
    let mut expression = String::new();
    for c in text.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            expression.push('\\');
        }
        expression.push(c);
    }
    expression
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', "\\n"))
}

/// Now: targets that are known and not reached.
fn down(answer: &Answer) -> Result<(), String> {
    whole(answer)?;
    let mut jobs: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for one in &answer.series {
        let count = count(one)?;
        let (down, all) = jobs.entry(job(one)).or_default();
        *all += count;
        if one.labels.get("up").is_some_and(|up| up != "1") {
            *down += count;
        }
    }
    match jobs.into_iter().find(|(_, (down, all))| down * 100 > all * MISSING) {
        None => Ok(()),
        Some((job, (down, all))) => {
            let (targets, are) = if all == 1 { ("target", "is") } else { ("targets", "are") };
            Err(format!("{down} of {all} {targets} of job {job} {are} down"))
        }
    }
}

/// Over the duration: those that are back have not told what was while they were away.
fn silent(answer: &Answer, window: &Window) -> Result<(), String> {
    whole(answer)?;
    for one in &answer.series {
        let Some(share) = one.points.last().map(|point| point.value).filter(|share| share.is_finite()) else {
            return Err(format!("job {} has no number of targets that were reached", job(one)));
        };
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share lies between 0 and 1"
        )]
        let missing = ((1.0 - share.clamp(0.0, 1.0)) * 100.0).ceil() as u64;
        if missing > MISSING {
            let (job, length) = (job(one), window.length);
            return Err(format!("the targets of job {job} were down for {missing} % of the last {length}"));
        }
    }
    Ok(())
}

fn whole(answer: &Answer) -> Result<(), String> {
    answer.warnings.first().map_or(Ok(()), |warning| {
        Err(format!("how many targets are there is partial: {}", crate::answer::shown(warning)))
    })
}

fn job(series: &Series) -> &str {
    series.labels.get("job").map_or("", String::as_str)
}

fn count(series: &Series) -> Result<u64, String> {
    let value = series.points.last().map(|point| point.value).filter(|value| value.is_finite());
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of series")]
    value.map(|value| value as u64).ok_or_else(|| format!("the targets of {} are not counted", series.name))
}

#[cfg(test)]
mod tests {
    use muster_model::Timestamp;

    use super::*;

    fn answer(result: &str) -> Answer {
        let body = format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{result}]}}}}"#);
        Answer::read(body.as_bytes(), Timestamp::from_millis(0)).unwrap()
    }

    fn counted(rows: &[(&str, &str, u64)]) -> Answer {
        let rows: Vec<String> = rows
            .iter()
            .map(|(job, up, count)| {
                format!(r#"{{"metric":{{"job":"{job}","up":"{up}"}},"value":[1,"{count}"]}}"#)
            })
            .collect();
        answer(&rows.join(","))
    }

    #[test]
    fn more_than_a_tenth_of_one_job_is_missing() {
        for (rows, wanted) in [
            (&[][..], Ok(())),
            (&[("a", "1", 10)], Ok(())),
            (&[("a", "1", 9), ("a", "0", 1)], Ok(())),
            (&[("a", "1", 8), ("a", "0", 1)], Err("1 of 9 targets of job a are down")),
            (&[("a", "1", 90), ("b", "1", 5), ("b", "0", 5)], Err("5 of 10 targets of job b are down")),
            (&[("a", "0", 1)], Err("1 of 1 target of job a is down")),
        ] {
            assert_eq!(down(&counted(rows)), wanted.map_err(str::to_owned), "{rows:?}");
        }
        let mut partial = counted(&[("a", "1", 10)]);
        partial.warnings.push("store 2 is away".into());
        assert!(down(&partial).unwrap_err().contains("store 2"));
    }

    #[test]
    fn targets_that_are_back_have_not_told_of_the_time_before() {
        let trigger = serde_json::from_value(serde_json::json!({
            "metricQuery": "x", "threshold": 0.2, "duration": "5m", "scaleDirection": "down",
        }));
        let window = Window::of(&trigger.unwrap());
        let over = |share: &str| answer(&format!(r#"{{"metric":{{"job":"a"}},"value":[1,"{share}"]}}"#));
        assert_eq!(silent(&over("0.9"), &window), Ok(()));
        let why = silent(&over("0.75"), &window).unwrap_err();
        assert_eq!(why, "the targets of job a were down for 25 % of the last 5m");
        assert!(silent(&over("NaN"), &window).is_err());
    }

    #[test]
    fn names_of_jobs_are_taken_to_the_letter() {
        let jobs = ["a.b|c", r#"d"e\"#].map(str::to_owned).into();
        assert_eq!(up(&jobs), r#"up{job=~"a\\.b\\|c|d\"e\\\\"}"#);
    }
}
