//! Dice that fall the same way each time, and values spoiled by them.

use serde_json::{Value, json};

/// A small generator, so that a failing case is one number.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % sides.max(1) as u64).unwrap()
    }
}

fn odd(dice: &mut Dice) -> Value {
    let odd = [
        Value::Null,
        json!(""),
        json!("a"),
        json!("-1"),
        json!("NotIn"),
        json!("Gt"),
        json!("Exists"),
        json!("99e99"),
        json!("é\u{0}"),
        json!("0.0.0.0"),
        json!(-1),
        json!(0),
        json!(9_223_372_036_854_775_807_i64),
        json!(0.5),
        json!(true),
        json!([]),
        json!({}),
        json!([null]),
        json!({"": null}),
        json!("metadata.name"),
        json!("2025-01-01T00:00:00Z"),
        json!("9223372036854775807Ei"),
        json!("-9223372036854775808"),
        json!("n1"),
        json!("d/p"),
        json!("1e99"),
        json!("0"),
        json!(1),
        json!(3),
        json!(4_294_967_295_u32),
        json!(i64::MIN),
        json!(1e300),
        json!("In"),
        json!("2026-01-01T00:00:00Z"),
        json!("kubernetes.io/hostname"),
    ];
    odd[dice.roll(odd.len())].clone()
}

/// Walks down to a random place and spoils it.
pub(crate) fn spoil(value: &mut Value, dice: &mut Dice) {
    let deeper = dice.roll(12) > 0;
    match value {
        Value::Object(map) if !map.is_empty() && deeper => {
            let key = map.keys().nth(dice.roll(map.len())).unwrap().clone();
            match dice.roll(14) {
                0 => drop(map.remove(&key)),
                _ => spoil(map.get_mut(&key).unwrap(), dice),
            }
        }
        Value::Array(items) if !items.is_empty() && deeper => {
            let at = dice.roll(items.len());
            match dice.roll(14) {
                0 => drop(items.remove(at)),
                1 => items.push(items[at].clone()),
                _ => spoil(&mut items[at], dice),
            }
        }
        other => *other = odd(dice),
    }
}
