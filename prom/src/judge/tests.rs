use serde_json::{Value, json};

use super::*;

/// The end of every window.
const END: i64 = 1_700_000_000_000;

fn trigger(extra: Value) -> Trigger {
    let mut body = json!({
        "metricQuery": "x", "threshold": 0.7, "duration": "5m", "scaleDirection": "up",
    });
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    serde_json::from_value(body).unwrap()
}

/// A series whose points end at the window's end, one step of 15 s apart.
fn series(name: &str, values: &[f64]) -> Series {
    let count = i64::try_from(values.len()).unwrap();
    let points = values.iter().zip(0_i64..).map(|(value, n)| Point {
        at: Timestamp::from_millis(END - (count - 1 - n) * 15_000),
        value: *value,
    });
    Series { name: name.into(), labels: BTreeMap::new(), points: points.collect() }
}

fn flat(name: &str, value: f64) -> Series {
    series(name, &[value; 21])
}

fn judged(trigger: &Trigger, series: Vec<Series>) -> Result<Finding, String> {
    let answer = Answer { series, warnings: Vec::new(), server_time: Timestamp::from_millis(END) };
    range(trigger, &Window::of(trigger), &answer)
}

fn fires(trigger: &Trigger, series: Vec<Series>) -> Result<bool, String> {
    judged(trigger, series).map(|finding| finding.fires)
}

#[test]
fn windows_follow_the_duration() {
    for (duration, step, expected) in
        [("5m", 15_000, 21), ("20m", 60_000, 21), ("2h", 60_000, 121), ("1m", 15_000, 5), ("10s", 10_000, 2)]
    {
        let window = Window::of(&trigger(json!({ "duration": duration })));
        assert_eq!((window.step.millis(), window.expected()), (step, expected), "{duration}");
    }
}

/// Prometheus refuses a query for more than 11,000 points.
#[test]
fn the_longest_windows_are_asked_for_in_larger_steps() {
    for (duration, clear, step) in
        [("55h", true, 60_000), ("61h", true, 65_985), ("168h", true, 181_949), ("168h", false, 60_998)]
    {
        let clear = if clear { json!(0.5) } else { json!(null) };
        let window = Window::of(&trigger(json!({ "duration": duration, "clearThreshold": clear })));
        assert_eq!(window.step.millis(), step, "{duration}");
        assert!(window.span.millis() / step < 11_000, "{duration}");
    }
}

/// What a server answers that has a sample for every moment.
fn perfect(window: &Window, value: f64) -> Series {
    let from = END - i64::try_from(window.span.millis()).unwrap();
    let step = usize::try_from(window.step.millis()).unwrap();
    let points =
        (from..=END).step_by(step).map(|at| Point { at: Timestamp::from_millis(at), value }).collect();
    Series { name: "a".into(), labels: BTreeMap::new(), points }
}

#[test]
fn perfect_samples_are_enough_for_every_duration() {
    for millis in (500..=120_000).step_by(500).chain([200_001, 3_599_999, 7_201_500]) {
        for clear in [json!(null), json!(0.5)] {
            let duration = format!("{millis}ms");
            let up = trigger(json!({ "duration": duration, "clearThreshold": clear }));
            let window = Window::of(&up);
            assert_eq!(fires(&up, vec![perfect(&window, 0.9)]), Ok(true), "{duration} {clear}");
            assert_eq!(fires(&up, vec![perfect(&window, 0.1)]), Ok(false), "{duration} {clear}");
            // It held for all of the duration but the first point, and not before.
            let mut late = perfect(&window, 0.9);
            let from = END - i64::from(millis);
            let early = |point: &&mut Point| point.at.millis() < from + 1_000;
            late.points.iter_mut().filter(early).for_each(|point| point.value = 0.1);
            assert_eq!(fires(&up, vec![late]), Ok(false), "{duration} {clear}");
        }
    }
}

#[test]
fn a_condition_has_to_hold_over_the_whole_duration() {
    let up = trigger(json!({}));
    assert_eq!(fires(&up, vec![flat("a", 0.9)]), Ok(true));
    assert_eq!(fires(&up, vec![flat("a", 0.7)]), Ok(false), "equal is not above");
    let mut dip = [0.9; 21];
    dip[10] = 0.6;
    assert_eq!(fires(&up, vec![series("a", &dip)]), Ok(false));
    let mut late = [0.9; 21];
    late[..4].fill(0.1);
    assert_eq!(fires(&up, vec![series("a", &late)]), Ok(false), "4 of 5 minutes");
    let down = trigger(json!({ "scaleDirection": "down", "threshold": 0.2 }));
    assert_eq!(fires(&down, vec![flat("a", 0.1)]), Ok(true));
    assert_eq!(fires(&down, vec![flat("a", 0.3)]), Ok(false));
}

#[test]
fn missing_odd_and_old_samples_are_unknown_with_their_own_reason() {
    let down = trigger(json!({ "scaleDirection": "down", "threshold": 0.2 }));
    let mut nan = [0.1; 21];
    nan[3] = f64::NAN;
    let mut old = flat("a", 0.1);
    old.points.truncate(17);
    for (series, word) in [
        (vec![], "0 series"),
        (vec![series("a", &nan)], "NaN"),
        (vec![series("a", &[f64::INFINITY; 21])], "inf"),
        (vec![series("a", &[0.1; 16])], "16 of 21 samples"),
        (vec![old], "no sample in the last 1m"),
    ] {
        let why = judged(&down, series).unwrap_err();
        assert!(why.contains(word), "{word}: {why}");
    }
}

#[test]
fn a_partial_answer_never_lowers_and_may_raise() {
    let answer = |value| Answer {
        series: vec![flat("a", value)],
        warnings: vec!["store 2 of 3 is away".into()],
        server_time: Timestamp::from_millis(END),
    };
    let down = trigger(json!({ "scaleDirection": "down", "threshold": 0.2 }));
    let why = range(&down, &Window::of(&down), &answer(0.1)).unwrap_err();
    assert!(why.contains("store 2 of 3"), "{why}");
    let up = trigger(json!({}));
    assert!(range(&up, &Window::of(&up), &answer(0.9)).unwrap().fires);
    assert!(range(&up, &Window::of(&up), &answer(0.1)).is_err());
}

#[test]
fn several_series_are_put_together_as_asked() {
    let with = |how: &str, direction: &str| {
        trigger(json!({ "aggregate": how, "scaleDirection": direction, "comparator": "above" }))
    };
    let mixed = || vec![flat("a", 0.9), flat("b", 0.1)];
    for (how, expected) in
        [("any", Some(true)), ("all", Some(false)), ("max", Some(true)), ("avg", Some(false))]
    {
        assert_eq!(fires(&with(how, "up"), mixed()).ok(), expected, "{how}");
    }
    assert!(judged(&with("single", "up"), mixed()).unwrap_err().contains("2 series"));
    assert_eq!(fires(&with("single", "up"), vec![flat("a", 0.9)]), Ok(true));
    // Without a word on it several series are unknown, above all for fewer nodes.
    for direction in ["up", "down"] {
        let why = judged(&trigger(json!({ "scaleDirection": direction })), mixed()).unwrap_err();
        assert!(why.contains("2 series") && why.contains("set `aggregate`"), "{direction}: {why}");
    }
}

#[test]
fn a_series_without_knowledge_settles_nothing_that_lowers() {
    let with = |how: &str, direction: &str| {
        trigger(json!({ "aggregate": how, "scaleDirection": direction, "comparator": "above" }))
    };
    let broken = |value| vec![flat("a", value), flat("b", f64::NAN)];
    // (aggregate, direction, known value) -> verdict, `None` is unknown
    for (how, direction, value, expected) in [
        ("any", "up", 0.9, Some(true)),
        ("any", "up", 0.1, None),
        ("any", "down", 0.9, None),
        ("any", "down", 0.1, None),
        ("all", "up", 0.9, None),
        ("all", "up", 0.1, Some(false)),
        ("all", "down", 0.9, None),
        ("all", "down", 0.1, Some(false)),
        ("max", "up", 0.9, None),
        ("avg", "down", 0.9, None),
    ] {
        assert_eq!(fires(&with(how, direction), broken(value)).ok(), expected, "{how} {direction} {value}");
    }
}

#[test]
fn a_clear_threshold_keeps_firing_until_it_is_passed() {
    let up = trigger(json!({ "clearThreshold": 0.5 }));
    assert_eq!(Window::of(&up).span.millis(), 900_000);
    let mut values = vec![0.9; 25];
    values.extend([0.6; 20]);
    assert_eq!(fires(&up, vec![series("a", &values)]), Ok(true), "between the two");
    values.push(0.4);
    values.extend([0.6; 3]);
    assert_eq!(fires(&up, vec![series("a", &values)]), Ok(false), "cleared once");
    assert_eq!(fires(&up, vec![flat("a", 0.6)]), Ok(false), "never fired");
}

/// Between the two thresholds all depends on what was before, and nobody knows what a gap hides.
#[test]
fn a_gap_in_the_past_neither_holds_nor_keeps_a_clear_threshold() {
    let up = trigger(json!({ "clearThreshold": 0.5 }));
    let with = |values: Vec<f64>, missing: std::ops::Range<usize>| {
        let mut one = series("a", &values);
        one.points.drain(missing);
        fires(&up, vec![one])
    };
    let past = |high: usize| [vec![0.9; high], vec![0.6; 61 - high]].concat();
    assert_eq!(with(past(25), 0..0), Ok(true));
    assert_eq!(with(past(25), 3..6), Ok(true), "a few may be missing, as in the last minutes");
    // High at both ends of 6 minutes, of which nothing is known in between.
    let why = with(past(25), 1..24).unwrap_err();
    assert!(why.contains("of 21 samples over 5m before"), "{why}");
    // It fired, and may have been cleared since.
    assert!(with(past(25), 26..40).is_err());
    // What is known settles it: high for all of the last minutes, or cleared.
    assert_eq!(with(vec![0.9; 61], 1..24), Ok(true));
    let mut cleared = past(25);
    cleared[50] = 0.4;
    assert_eq!(with(cleared, 1..24), Ok(false));
}

#[test]
fn the_sentence_has_the_numbers() {
    let finding = judged(&trigger(json!({})), vec![flat("a", 0.9)]).unwrap();
    assert_eq!(finding.why, "the value has been above 0.7 for 5m; it is 0.9 now");
    assert_eq!(finding.value, "0.9");
    let any = trigger(json!({ "aggregate": "any" }));
    let two = judged(&any, vec![flat("{pool=\"a\"}", 0.9), flat("b", 0.8)]).unwrap();
    assert_eq!(two.why, "{pool=\"a\"} (1 of 2 series) has been above 0.7 for 5m; it is 0.9 now");
}

#[test]
fn without_a_duration_this_moment_counts() {
    let up = trigger(json!({ "duration": "0s" }));
    let answer = |value| Answer {
        series: vec![series("a", &[value])],
        warnings: Vec::new(),
        server_time: Timestamp::from_millis(END),
    };
    assert!(instant(&up, &answer(0.9)).unwrap().fires);
    assert!(!instant(&up, &answer(0.7)).unwrap().fires);
    assert!(instant(&up, &answer(f64::NAN)).is_err());
}

#[test]
fn an_old_sample_of_a_plain_series_is_stale() {
    let window = Window::of(&trigger(json!({})));
    #[allow(clippy::cast_precision_loss, reason = "whole seconds")]
    let times = |age: i64| Answer {
        series: vec![Series {
            name: "a".into(),
            labels: BTreeMap::new(),
            points: vec![Point { at: Timestamp::from_millis(END), value: (END / 1000 - age) as f64 }],
        }],
        warnings: Vec::new(),
        server_time: Timestamp::from_millis(END),
    };
    assert_eq!(age(&times(60), &window), Ok(()));
    assert!(age(&times(200), &window).unwrap_err().contains("3m20s old"));
}
