//! Lengths of time as kubectl prints them: two figures that matter, no more.

use muster_model::{Duration, Timestamp};
use serde_json::Value;

/// `45s`, `3m20s`, `12m`, `5h3m`, `30h`, `3d4h`, `40d`, `2y`: coarser as it grows.
pub(crate) fn short(length: Duration) -> String {
    let seconds = length.millis() / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |big: u64, unit: &str, small: u64, sub: &str| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{sub}") }
    };
    match (seconds, minutes, hours, days) {
        (s, ..) if s < 120 => format!("{s}s"),
        (s, m, ..) if m < 10 => two(m, "m", s % 60, "s"),
        (_, m, ..) if m < 180 => format!("{m}m"),
        (_, m, h, _) if h < 8 => two(h, "h", m % 60, "m"),
        (_, _, h, _) if h < 48 => format!("{h}h"),
        (_, _, h, d) if d < 8 => two(d, "d", h % 24, "h"),
        (_, _, _, d) if d < 730 => format!("{d}d"),
        (_, _, _, d) if d < 2920 => two(d / 365, "y", d % 365, "d"),
        (_, _, _, d) => format!("{}y", d / 365),
    }
}

/// How long ago the time in `value` was, or `-` when there is none that can be read.
pub(crate) fn since(value: Option<&Value>, now: Timestamp) -> String {
    let time = value.and_then(Value::as_str).and_then(|text| text.parse::<Timestamp>().ok());
    time.map_or_else(|| "-".to_owned(), |time| short(now.since(time)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_grow_coarser() {
        #[track_caller]
        fn check(seconds: u64, expected: &str) {
            assert_eq!(short(Duration::from_secs(seconds)), expected, "{seconds} s");
        }
        check(0, "0s");
        check(119, "119s");
        check(120, "2m");
        check(200, "3m20s");
        check(720, "12m");
        check(3 * 3600 + 60, "3h1m");
        check(30 * 3600, "30h");
        check(3 * 86_400 + 4 * 3600, "3d4h");
        check(40 * 86_400, "40d");
        check(3 * 365 * 86_400, "3y");
    }

    #[test]
    fn an_unreadable_time_has_no_age() {
        assert_eq!(since(Some(&"soon".into()), Timestamp::EPOCH), "-");
        assert_eq!(since(None, Timestamp::EPOCH), "-");
        assert_eq!(since(Some(&"1970-01-01T00:00:00Z".into()), Timestamp::from_millis(5000)), "5s");
    }
}
