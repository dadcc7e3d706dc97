//! Amounts as people say them.

const KIB: i64 = 1 << 10;
/// Below one and a half of a unit the next smaller one is clearer.
const UNITS: [(i64, &str); 4] =
    [(KIB * KIB * KIB * KIB, "TiB"), (KIB * KIB * KIB, "GiB"), (KIB * KIB, "MiB"), (KIB, "KiB")];

/// An amount in the scheduler's units with the unit people use: `1.5 cpu`, `12 GiB`, `2 nvidia.com/gpu`.
pub fn say(resource: &str, amount: i64) -> String {
    match resource {
        "cpu" => format!("{} cpu", milli(amount)),
        "memory" | "ephemeral-storage" => bytes(amount),
        name if name.starts_with("hugepages-") => bytes(amount),
        "pods" if amount == 1 => "1 pod".to_owned(),
        name => format!("{amount} {name}"),
    }
}

/// The same as a Kubernetes quantity, rounded down so that it surely fits.
pub(super) fn quantity(resource: &str, amount: i64) -> String {
    const MIB: i64 = KIB * KIB;
    match resource {
        "cpu" => format!("{amount}m"),
        "memory" | "ephemeral-storage" if amount >= MIB => format!("{}Mi", amount / MIB),
        _ => amount.to_string(),
    }
}

fn milli(amount: i64) -> String {
    decimal(i128::from(amount), 1000, 3)
}

/// At most one decimal; exact whole numbers without one.
fn bytes(amount: i64) -> String {
    let size = amount.unsigned_abs();
    let unit = UNITS.iter().find(|(unit, _)| size >= unit.unsigned_abs());
    match unit {
        Some((unit, name)) => format!("{} {name}", decimal(i128::from(amount), i128::from(*unit), 1)),
        None => format!("{amount} B"),
    }
}

/// `amount / unit` with up to `places` decimals, rounded half up, without trailing zeros.
fn decimal(amount: i128, unit: i128, places: u32) -> String {
    let scale = 10_i128.pow(places);
    let scaled = (amount.abs() * scale * 2 + unit) / (unit * 2);
    let (whole, fraction) = (scaled / scale, scaled % scale);
    let sign = if amount < 0 { "-" } else { "" };
    if fraction == 0 {
        return format!("{sign}{whole}");
    }
    let digits = format!("{fraction:0width$}", width = places as usize);
    format!("{sign}{whole}.{}", digits.trim_end_matches('0'))
}

/// A price in millionths of the currency.
pub fn price(micros: i64) -> String {
    decimal(i128::from(micros), 1_000_000, 4)
}

/// A price with its currency: `€0.19`, `0.19 EUR`. Where none is configured it says so, rather than leave a bare number.
pub fn money(micros: i64, currency: Option<&str>) -> String {
    let amount = price(micros);
    match currency.map(str::trim).filter(|name| !name.is_empty()) {
        Some(word) if word.chars().all(char::is_alphabetic) => format!("{amount} {word}"),
        Some(sign) => format!("{sign}{amount}"),
        None => format!("{amount} (currency not set)"),
    }
}

/// Watts from milliwatts.
pub fn watts(milliwatts: i64) -> String {
    format!("{} W", decimal(i128::from(milliwatts), 1000, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_well() {
        #[track_caller]
        fn check(resource: &str, amount: i64, expected: &str) {
            assert_eq!(say(resource, amount), expected);
        }
        check("cpu", 1500, "1.5 cpu");
        check("cpu", 250, "0.25 cpu");
        check("cpu", 4000, "4 cpu");
        check("memory", 12 << 30, "12 GiB");
        check("memory", (12 << 30) - (1181 << 20), "10.8 GiB");
        check("memory", 100, "100 B");
        check("memory", -(1 << 30), "-1 GiB");
        check("nvidia.com/gpu", 2, "2 nvidia.com/gpu");
        assert_eq!(price(190_000), "0.19");
        assert_eq!(money(190_000, Some("EUR")), "0.19 EUR");
        assert_eq!(money(190_000, Some("€")), "€0.19");
        assert_eq!(money(190_000, Some(" ")), "0.19 (currency not set)");
        assert_eq!(money(190_000, None), "0.19 (currency not set)");
        assert_eq!(quantity("memory", (3 << 30) + 5), "3072Mi");
    }
}
