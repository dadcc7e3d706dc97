//! Following a path through a document.

use serde_json::Value;

use super::{Compare, Filter, Operand, Part, Piece, Step, plain};

/// Fills `pieces` at `current`.
pub(super) fn render(pieces: &[Piece], current: &Value, out: &mut String) {
    for piece in pieces {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Path(steps) => {
                let found: Vec<String> = walk(steps, current).into_iter().map(plain).collect();
                out.push_str(&found.join(" "));
            }
            Piece::Range(steps, body) => {
                for item in walk(steps, current) {
                    render(body, item, out);
                }
            }
        }
    }
}

/// What the first path in `pieces` finds.
pub(super) fn first<'a>(pieces: &[Piece], document: &'a Value) -> Vec<&'a Value> {
    pieces
        .iter()
        .find_map(|piece| match piece {
            Piece::Path(steps) | Piece::Range(steps, _) => Some(walk(steps, document)),
            Piece::Text(_) => None,
        })
        .unwrap_or_default()
}

fn walk<'a>(steps: &[Step], start: &'a Value) -> Vec<&'a Value> {
    steps.iter().fold(vec![start], |current, step| apply(step, current))
}

fn apply<'a>(step: &Step, current: Vec<&'a Value>) -> Vec<&'a Value> {
    match step {
        Step::Field(name) => current.into_iter().filter_map(|value| value.get(name.as_str())).collect(),
        Step::All => current.into_iter().flat_map(children).collect(),
        Step::Descend => {
            let mut all = Vec::new();
            for value in current {
                descend(value, &mut all);
            }
            all
        }
        // By part first, as kubectl does: all names, then all counts.
        Step::Union(parts) => {
            parts.iter().flat_map(|part| current.iter().flat_map(|value| pick(part, value))).collect()
        }
        Step::Keep(filter) => {
            current.into_iter().flat_map(children).filter(|value| holds(filter, value)).collect()
        }
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}

fn descend<'a>(value: &'a Value, all: &mut Vec<&'a Value>) {
    all.push(value);
    for child in children(value) {
        descend(child, all);
    }
}

fn pick<'a>(part: &Part, value: &'a Value) -> Vec<&'a Value> {
    match (part, value) {
        (Part::Field(name), _) => value.get(name.as_str()).into_iter().collect(),
        (Part::Index(index), Value::Array(items)) => {
            let place = if *index < 0 { clamp(*index, items.len(), 0) } else { usize::try_from(*index).ok() };
            let inside = index.unsigned_abs() <= items.len() as u64 || *index >= 0;
            place.filter(|_| inside).and_then(|place| items.get(place)).into_iter().collect()
        }
        (Part::Slice { from, to, step }, Value::Array(items)) => {
            let from = clamp(from.unwrap_or(0), items.len(), 0).unwrap_or(0);
            let to =
                to.map_or(Some(items.len()), |to| clamp(to, items.len(), 0)).unwrap_or(0).min(items.len());
            let step = usize::try_from(*step).unwrap_or(1);
            items.iter().take(to).skip(from).step_by(step).collect()
        }
        _ => Vec::new(),
    }
}

/// A place counted from the end when negative.
fn clamp(index: i64, length: usize, least: i64) -> Option<usize> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    usize::try_from(if index < 0 { (length + index).max(least) } else { index }).ok()
}

fn holds(filter: &Filter, value: &Value) -> bool {
    let left = operand(&filter.left, value);
    let Some((compare, right)) = &filter.test else {
        return left.is_some_and(|found| !found.is_null());
    };
    let (Some(left), Some(right)) = (left, operand(right, value)) else { return false };
    match compare {
        Compare::Equal => same(&left, &right),
        Compare::Unequal => !same(&left, &right),
        Compare::Less => order(&left, &right).is_some_and(std::cmp::Ordering::is_lt),
        Compare::LessOrEqual => order(&left, &right).is_some_and(std::cmp::Ordering::is_le),
        Compare::Greater => order(&left, &right).is_some_and(std::cmp::Ordering::is_gt),
        Compare::GreaterOrEqual => order(&left, &right).is_some_and(std::cmp::Ordering::is_ge),
    }
}

fn operand(operand: &Operand, value: &Value) -> Option<Value> {
    match operand {
        Operand::Path(steps) => walk(steps, value).first().map(|found| (*found).clone()),
        Operand::Literal(literal) => Some(literal.clone()),
    }
}

fn same(left: &Value, right: &Value) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left.total_cmp(&right).is_eq(),
        _ => left == right,
    }
}

/// Order of two values of one kind: numbers by size, text by its bytes.
pub(crate) fn order(left: &Value, right: &Value) -> Option<std::cmp::Ordering> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        _ => Some(left.as_f64()?.total_cmp(&right.as_f64()?)),
    }
}
