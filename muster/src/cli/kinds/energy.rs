//! Energy in words: kilowatt-hours, and money where a price is set.

use serde_json::Value;

use super::text_at;

/// `1.08 kWh (0.32 EUR)`: what `energy` says of `used` or `saved`; nothing when it says nothing.
pub(super) fn amount(energy: &Value, what: &str) -> Option<String> {
    let milliwatt_hours = energy.get(format!("{what}_milliwatt_hours")).and_then(Value::as_u64)?;
    let money = energy.get(format!("{what}_micros")).and_then(Value::as_u64);
    let money = money.map(|micros| format!(" ({})", money_of(micros, &text_at(energy, "currency"))));
    Some(format!("{} kWh{}", hundredths(milliwatt_hours), money.unwrap_or_default()))
}

/// Millionths as a number with two digits, rounded to the nearest.
fn hundredths(millionths: u64) -> String {
    let rounded = millionths.saturating_add(5_000) / 10_000;
    format!("{}.{:02}", rounded / 100, rounded % 100)
}

fn money_of(micros: u64, currency: &str) -> String {
    match currency.trim() {
        "" => format!("{}, currency not set", hundredths(micros)),
        name => format!("{} {name}", hundredths(micros)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn energy_is_told_in_money_where_a_price_is_set() {
        let check = |energy: Value, expected: Option<&str>| {
            assert_eq!(amount(&energy, "saved").as_deref(), expected, "{energy}");
        };
        check(
            json!({ "saved_milliwatt_hours": 1_080_000, "saved_micros": 324_000, "currency": "EUR" }),
            Some("1.08 kWh (0.32 EUR)"),
        );
        check(json!({ "saved_milliwatt_hours": 1_080_000, "saved_micros": null }), Some("1.08 kWh"));
        check(
            json!({ "saved_milliwatt_hours": 1_996_000, "saved_micros": 2_500_000 }),
            Some("2.00 kWh (2.50, currency not set)"),
        );
        check(Value::Null, None);
    }
}
