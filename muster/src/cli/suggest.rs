//! The nearest known name for one that is not known.

/// Edits that still count as a slip of the finger.
const SLIP: usize = 2;

/// The candidate closest to `name`, when it is close enough.
pub(crate) fn nearest(name: &str, candidates: impl IntoIterator<Item = String>) -> Option<String> {
    candidates
        .into_iter()
        .map(|candidate| (distance(name, &candidate), candidate))
        .filter(|(distance, candidate)| *distance <= SLIP && *distance < candidate.chars().count())
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let change = corner + usize::from(a != *b);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let names = || ["worker".to_owned(), "web".to_owned()];
        assert_eq!(nearest("wroker", names()), Some("worker".into()));
        assert_eq!(nearest("webb", names()), Some("web".into()));
        assert_eq!(nearest("database", names()), None);
        assert_eq!(nearest("xy", names()), None);
    }
}
