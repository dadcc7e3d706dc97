//! Kubernetes quantities: exact numbers with a unit suffix (`250m`, `1536Mi`, `1e3`).
//!
//! A quantity is a whole number of billionths and the family of suffixes it was written in. Reading,
//! rounding and the canonical form follow what the API server does, with two deliberate differences:
//! arithmetic saturates where the API server's wraps, and amounts beyond the suffix `E` keep it (the API
//! server prints `1000E` as `1`). Amounts beyond about 1.7e29 are capped.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    iter::Sum,
    ops::{Add, AddAssign, Neg, Sub, SubAssign},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

const NANOS_PER_UNIT: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;
/// Powers of ten that fit an `i128`; a larger one saturates every amount but zero.
const MAX_POWER_OF_TEN: u32 = 38;
/// The API server caps binary amounts at the largest `int64`.
const MAX_BINARY: i128 = (i64::MAX as i128) * NANOS_PER_UNIT;

/// An exact amount of something. Equality, order and hash look at the amount, not at how it was written.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// The family of suffixes a quantity is printed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// `m`, none, `k`, `M`, …
    #[default]
    DecimalSi,
    /// `Ki`, `Mi`, `Gi`, …
    BinarySi,
    /// `e3`, `e6`, …
    DecimalExponent,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QuantityError {
    #[error("{found:?} is not a quantity; write it like 250m, 1.5, 512Mi or 1e3")]
    Format { found: String },
    #[error(
        "{found:?} ends in a suffix that no quantity has; use n u m k M G T P E, Ki Mi Gi Ti Pi Ei or e3"
    )]
    Suffix { found: String },
}

impl Quantity {
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    pub const fn from_nanos(nanos: i128, format: Format) -> Self {
        Self { nanos, format }
    }

    /// Whole units, printed with decimal suffixes.
    pub const fn from_units(units: i64) -> Self {
        Self { nanos: units as i128 * NANOS_PER_UNIT, format: Format::DecimalSi }
    }

    /// Thousandths, as cpu is counted, printed with decimal suffixes.
    pub const fn from_milli(milli: i64) -> Self {
        Self { nanos: milli as i128 * NANOS_PER_MILLI, format: Format::DecimalSi }
    }

    /// Bytes, printed with binary suffixes.
    pub const fn from_bytes(bytes: i64) -> Self {
        Self { nanos: bytes as i128 * NANOS_PER_UNIT, format: Format::BinarySi }
    }

    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    pub const fn format(self) -> Format {
        self.format
    }

    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// The amount in whole units, rounded away from zero; capped at the ends of `i64`.
    pub fn value(self) -> i64 {
        capped(round_away(self.nanos, NANOS_PER_UNIT))
    }

    /// The amount in thousandths, rounded away from zero; capped at the ends of `i64`.
    pub fn milli(self) -> i64 {
        capped(round_away(self.nanos, NANOS_PER_MILLI))
    }

    /// The same amount in whole thousandths, rounded away from zero, as it is stored in objects.
    #[must_use]
    pub fn rounded_to_milli(self) -> Self {
        let milli = round_away(self.nanos, NANOS_PER_MILLI);
        Self { nanos: milli.saturating_mul(NANOS_PER_MILLI), ..self }
    }

    #[must_use]
    pub fn saturating_mul(self, factor: i64) -> Self {
        Self { nanos: self.nanos.saturating_mul(i128::from(factor)), ..self }
    }
}

fn capped(amount: i128) -> i64 {
    i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX })
}

fn round_away(amount: i128, unit: i128) -> i128 {
    let whole = amount / unit;
    match (amount % unit).cmp(&0) {
        Ordering::Less => whole - 1,
        Ordering::Equal => whole,
        Ordering::Greater => whole + 1,
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl Add for Quantity {
    type Output = Self;

    /// Saturates. The result is printed like the left side, or like the right one if the left is zero.
    fn add(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self { nanos: self.nanos.saturating_add(other.nanos), format }
    }
}

impl Neg for Quantity {
    type Output = Self;

    fn neg(self) -> Self {
        Self { nanos: self.nanos.saturating_neg(), ..self }
    }
}

impl Sub for Quantity {
    type Output = Self;

    /// Saturates. Formats as for addition.
    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        items.fold(Self::ZERO, |total, item| total + item)
    }
}

/// What a suffix means: a power of two or of ten.
enum Unit {
    Binary(u32),
    Decimal(i32, Format),
}

/// A number cut into its parts; nothing is converted yet.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Parts { negative, whole, fraction, suffix } = split(text)?;
        let unit = unit(suffix).ok_or_else(|| QuantityError::Suffix { found: text.to_owned() })?;
        // A suffix without a number is zero, except where the API server takes its slow path for it.
        if let Unit::Binary(50..) | Unit::Decimal(..-9, _) = unit
            && whole.is_empty()
            && fraction.is_empty()
        {
            return Err(QuantityError::Format { found: text.to_owned() });
        }
        let (nanos, mut format) = match unit {
            Unit::Binary(power) => (binary_nanos(whole, fraction, power).min(MAX_BINARY), Format::BinarySi),
            Unit::Decimal(power, format) => (decimal_nanos(whole, fraction, power), format),
        };
        if format == Format::BinarySi && 0 < nanos && nanos < NANOS_PER_UNIT {
            format = Format::DecimalSi;
        }
        Ok(Self { nanos: if negative { -nanos } else { nanos }, format })
    }
}

/// Cuts `text` at the sign, the point and the suffix. Any of the digits may be missing, but not all of
/// the text.
fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    let wrong = || QuantityError::Format { found: text.to_owned() };
    if text.is_empty() {
        return Err(wrong());
    }
    let (negative, rest) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, rest) = digits(rest);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest),
        None => ("", rest),
    };
    let after_letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let exponent = after_letters.strip_prefix(['-', '+']).unwrap_or(after_letters);
    if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    Ok(Parts { negative, whole, fraction, suffix })
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len()))
}

fn unit(suffix: &str) -> Option<Unit> {
    let decimal = |power| Some(Unit::Decimal(power, Format::DecimalSi));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => Some(Unit::Binary(10)),
        "Mi" => Some(Unit::Binary(20)),
        "Gi" => Some(Unit::Binary(30)),
        "Ti" => Some(Unit::Binary(40)),
        "Pi" => Some(Unit::Binary(50)),
        "Ei" => Some(Unit::Binary(60)),
        _ => {
            let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let capped = exponent.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
            Some(Unit::Decimal(i32::try_from(capped).ok()?, Format::DecimalExponent))
        }
    }
}

/// `whole.fraction` times ten to the `power`, in billionths, rounded up, saturating.
fn decimal_nanos(whole: &str, fraction: &str, power: i32) -> i128 {
    let digits = || whole.bytes().chain(fraction.bytes()).map(|digit| digit - b'0');
    let Some(first) = digits().position(|digit| digit != 0) else { return 0 };
    // The last digit stands for 10^lowest billionths.
    let fraction_length = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let lowest = (i64::from(power) + 9).saturating_sub(fraction_length);
    let count = i64::try_from(whole.len() + fraction.len()).unwrap_or(i64::MAX);
    // Digits below a billionth only decide whether to round up.
    let kept = count.saturating_add(lowest.min(0)).clamp(0, count);
    let mut nanos: i128 = 0;
    for digit in digits().skip(first).take(usize::try_from(kept).unwrap_or(0).saturating_sub(first)) {
        nanos = nanos.saturating_mul(10).saturating_add(i128::from(digit));
    }
    if digits().skip(usize::try_from(kept).unwrap_or(0)).any(|digit| digit != 0) {
        return nanos.saturating_add(1);
    }
    match u32::try_from(lowest.max(0)) {
        Ok(power @ 0..=MAX_POWER_OF_TEN) => nanos.saturating_mul(10_i128.pow(power)),
        _ => i128::MAX,
    }
}

/// `whole.fraction` times two to the `power`, in billionths, rounded up, saturating.
fn binary_nanos(whole: &str, fraction: &str, power: u32) -> i128 {
    let factor = 1_i128 << power;
    let mut units: i128 = 0;
    for digit in whole.bytes() {
        units = units.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
    }
    // Long multiplication of the fraction by 2^power * 10^9, one decimal place at a time from the right:
    // `carry` is what spills over the point, `rest` whether anything non-zero stays behind it.
    let scale = factor * NANOS_PER_UNIT;
    let (mut carry, mut rest) = (0_i128, false);
    for digit in fraction.bytes().rev() {
        let sum = i128::from(digit - b'0') * scale + carry;
        rest |= sum % 10 != 0;
        carry = sum / 10;
    }
    units.saturating_mul(scale).saturating_add(carry + i128::from(rest))
}

impl fmt::Display for Quantity {
    /// The canonical form: no fraction, the largest suffix that loses nothing. Binary amounts below 1024
    /// or with a fraction are printed with decimal suffixes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let small = self.nanos.unsigned_abs() < 1024 * NANOS_PER_UNIT.unsigned_abs();
        if self.format == Format::BinarySi && !small && self.nanos % NANOS_PER_UNIT == 0 {
            return print_binary(self.nanos / NANOS_PER_UNIT, f);
        }
        let (mut amount, mut exponent) = (self.nanos, -9);
        while amount % 1000 == 0 && (self.format == Format::DecimalExponent || exponent < 18) {
            amount /= 1000;
            exponent += 3;
        }
        let suffix = match exponent {
            _ if self.format == Format::DecimalExponent && exponent != 0 => {
                return write!(f, "{amount}e{exponent}");
            }
            -9 => "n",
            -6 => "u",
            -3 => "m",
            3 => "k",
            6 => "M",
            9 => "G",
            12 => "T",
            15 => "P",
            18 => "E",
            _ => "",
        };
        write!(f, "{amount}{suffix}")
    }
}

fn print_binary(mut amount: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut step = 0;
    while amount % 1024 == 0 && step + 1 < SUFFIXES.len() {
        amount /= 1024;
        step += 1;
    }
    write!(f, "{amount}{}", SUFFIXES[step])
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}

struct QuantityVisitor;

impl de::Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity such as \"250m\", \"512Mi\" or 2")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, units: i64) -> Result<Quantity, E> {
        Ok(Quantity::from_units(units))
    }

    fn visit_u64<E: de::Error>(self, units: u64) -> Result<Quantity, E> {
        Ok(Quantity::from_nanos(i128::from(units) * NANOS_PER_UNIT, Format::DecimalSi))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
        // The shortest decimal text that reads back as this number is what the author wrote.
        number.to_string().parse().map_err(E::custom)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Quantity, E> {
        Ok(Quantity::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, value: i64, milli: i64, printed: &str) {
        let read: Quantity = text.parse().unwrap();
        assert_eq!(
            (read.value(), read.milli(), read.to_string().as_str()),
            (value, milli, printed),
            "{text}"
        );
    }

    #[test]
    fn quantities_are_exact_and_print_in_canonical_form() {
        // text => whole units, thousandths (both away from zero), canonical form
        check("0", 0, 0, "0");
        check("1.5Gi", 1_610_612_736, 1_610_612_736_000, "1536Mi");
        check("0.1Ki", 103, 102_400, "102400m");
        check("1.0001Ki", 1025, 1_024_103, "1024102400u");
        check("0.5Ki", 512, 512_000, "512");
        check("1024Ki", 1 << 20, 1_048_576_000, "1Mi");
        check("1000m", 1, 1000, "1");
        check("1001m", 2, 1001, "1001m");
        check("1n", 1, 1, "1n");
        check("0.0000000001", 1, 1, "1n");
        check("-1.5", -2, -1500, "-1500m");
        check("1e3", 1000, 1_000_000, "1e3");
        check("1500e0", 1500, 1_500_000, "1500");
        check("m", 0, 0, "0");
        check("-", 0, 0, "0");
        check("1000E", i64::MAX, i64::MAX, "1000E");
        check("16Ei", i64::MAX, i64::MAX, "9223372036854775807");
    }

    #[test]
    fn sums_keep_the_form_of_the_first_amount() {
        let sum =
            |texts: &[&str]| texts.iter().map(|text| text.parse::<Quantity>().unwrap()).sum::<Quantity>();
        assert_eq!(sum(&["512Mi", "512Mi"]).to_string(), "1Gi");
        assert_eq!(sum(&["100m", "0.9"]).to_string(), "1");
        assert_eq!(sum(&["1Ki", "1m"]).to_string(), "1024001m");
        assert_eq!(sum(&["1n", "1n"]).milli(), 1); // rounding happens once, after adding
    }

    #[test]
    fn numbers_and_text_are_read_and_text_is_written() {
        let read: Vec<Quantity> =
            serde_json::from_str(r#"["1Ki", 3, 0.5, -2, null, 18446744073709551615]"#).unwrap();
        let printed: Vec<String> = read.iter().map(ToString::to_string).collect();
        assert_eq!(printed, ["1Ki", "3", "500m", "-2", "0", "18446744073709551615"]);
        assert_eq!(serde_json::to_string(&read[0]).unwrap(), r#""1Ki""#);
        let error = serde_json::from_str::<Quantity>(r#""1GB""#).unwrap_err().to_string();
        assert!(error.contains("1GB"), "{error}");
    }
}
