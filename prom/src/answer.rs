//! What the server sent, read strictly: values are text, and what is not a number is not zero.

use std::collections::BTreeMap;

use muster_model::Timestamp;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

/// More series than this are no basis for one decision, and much work to look at.
pub(crate) const MAX_SERIES: usize = 1_000;
/// Part of a foreign text that is shown.
const SHOWN: usize = 200;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) series: Vec<Series>,
    /// What the server says about missing parts.
    pub(crate) warnings: Vec<String>,
    /// By the server's own clock.
    pub(crate) server_time: Timestamp,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    /// For people: `{pool="a"}`.
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) points: Vec<Point>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) at: Timestamp,
    pub(crate) value: f64,
}

#[derive(Debug, Deserialize)]
#[serde(bound = "D: DeserializeOwned")]
struct Envelope<D> {
    status: String,
    #[serde(default)]
    data: Option<D>,
    #[serde(default, rename = "errorType")]
    error_type: Option<String>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Data {
    #[serde(rename = "resultType")]
    kind: String,
    result: Value,
}

#[derive(Debug, Deserialize)]
struct Row {
    #[serde(default)]
    metric: BTreeMap<String, String>,
    #[serde(default)]
    value: Option<Value>,
    #[serde(default)]
    values: Option<Vec<Value>>,
}

impl Answer {
    pub(crate) fn read(body: &[u8], server_time: Timestamp) -> Result<Self, String> {
        let (data, warnings) = open::<Data>(body)?;
        let series = read_result(&data.kind, data.result)?;
        Ok(Self { series, warnings, server_time })
    }
}

/// The values of a label. What the server warns of makes them none.
pub(crate) fn values(body: &[u8]) -> Result<Vec<String>, String> {
    let (values, warnings) = open(body)?;
    warnings.first().map_or(Ok(values), |warning| Err(format!("the answer is partial: {}", shown(warning))))
}

fn open<D: DeserializeOwned>(body: &[u8]) -> Result<(D, Vec<String>), String> {
    let envelope: Envelope<D> = serde_json::from_slice(body)
        .map_err(|error| format!("the answer is not Prometheus' JSON ({} bytes: {error})", body.len()))?;
    if envelope.status != "success" {
        return Err(format!(
            "the server refuses the query ({}): {}",
            shown(envelope.error_type.as_deref().unwrap_or("no type")),
            shown(envelope.error.as_deref().unwrap_or("no reason given"))
        ));
    }
    Ok((envelope.data.ok_or("the answer has no data")?, envelope.warnings))
}

/// The first of a foreign text, in one line.
pub(crate) fn shown(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut short: String = plain.take(SHOWN).collect();
    if text.chars().nth(SHOWN).is_some() {
        short.push('…');
    }
    short
}

fn read_result(kind: &str, result: Value) -> Result<Vec<Series>, String> {
    match kind {
        "scalar" => {
            Ok(vec![Series { name: "scalar".into(), labels: BTreeMap::new(), points: vec![point(&result)?] }])
        }
        "vector" | "matrix" => {
            let rows: Vec<Row> = serde_json::from_value(result)
                .map_err(|error| format!("the answer's {kind} cannot be read: {error}"))?;
            if rows.len() > MAX_SERIES {
                return Err(format!(
                    "the query returns {} series, over the limit of {MAX_SERIES}",
                    rows.len()
                ));
            }
            rows.into_iter().map(read_row).collect()
        }
        other => Err(format!("the query returns a {other}, not numbers over series")),
    }
}

fn read_row(row: Row) -> Result<Series, String> {
    let labels: Vec<_> = row.metric.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
    let name = format!("{{{}}}", labels.join(","));
    let points = match (row.value, row.values) {
        (Some(value), _) => vec![point(&value)?],
        (None, Some(values)) => values.iter().map(point).collect::<Result<_, _>>()?,
        (None, None) => return Err(format!("series {name} has 0 values")),
    };
    Ok(Series { name, labels: row.metric, points })
}

/// `[seconds, "number"]`.
fn point(value: &Value) -> Result<Point, String> {
    let read = || {
        let [at, value] = value.as_array()?.as_slice() else { return None };
        #[allow(clippy::cast_possible_truncation, reason = "milliseconds since 1970 fit into 2^53")]
        let at = Timestamp::from_millis((at.as_f64()? * 1000.0).round() as i64);
        // Rust reads NaN, +Inf and -Inf as Prometheus writes them.
        Some(Point { at, value: value.as_str()?.parse().ok()? })
    };
    read().ok_or_else(|| format!("a sample is not a time and a number: {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Answer, String> {
        Answer::read(body.as_bytes(), Timestamp::from_millis(0))
    }

    #[test]
    fn values_are_read_and_odd_ones_are_kept_odd() {
        let body = r#"{"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"pool":"a"},"value":[1700000000.5,"NaN"]},
            {"metric":{},"value":[1700000000,"+Inf"]}]}}"#;
        let answer = read(body).unwrap();
        assert_eq!(answer.series[0].name, r#"{pool="a"}"#);
        assert!(answer.series[0].points[0].value.is_nan());
        assert_eq!(answer.series[0].points[0].at.millis(), 1_700_000_000_500);
        assert!(answer.series[1].points[0].value.is_infinite());
    }

    #[test]
    fn what_is_no_answer_says_why() {
        for (body, word) in [
            ("<html>", "not Prometheus' JSON"),
            (r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#, "bad_data"),
            (r#"{"status":"success"}"#, "no data"),
            (r#"{"status":"success","data":{"resultType":"string","result":[1,"a"]}}"#, "returns a string"),
            (r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}}"#, "0 values"),
            (
                r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,2]}]}}"#,
                "not a time and a number",
            ),
        ] {
            let why = read(body).unwrap_err();
            assert!(why.contains(word), "{body}: {why}");
        }
    }

    #[test]
    fn a_foreign_text_is_cut_and_in_one_line() {
        let long = format!("1:2: parse error\\n{}", "x".repeat(5_000));
        let why =
            read(&format!(r#"{{"status":"error","errorType":"bad_data","error":"{long}"}}"#)).unwrap_err();
        assert!(why.chars().count() < 300 && !why.contains('\n'), "{why}");
        assert!(why.contains("1:2: parse error x"), "{why}");
    }

    #[test]
    fn values_of_a_label_are_read_and_not_when_they_are_partial() {
        assert_eq!(values(br#"{"status":"success","data":["a","b"]}"#).unwrap(), ["a", "b"]);
        let partial = br#"{"status":"success","data":["a"],"warnings":["store 2 is away"]}"#;
        assert!(values(partial).unwrap_err().contains("store 2"));
    }
}
