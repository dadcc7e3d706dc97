//! The nearest valid name for a mistyped one.

/// Edits after which a name is no longer called a typo of another.
pub const MAX_EDITS: usize = 2;
/// Longer words are not compared: nobody mistypes a name of this length into another by two letters, and
/// the comparison grows with the product of the lengths.
const MAX_WORD: usize = 64;

/// The candidate nearest to `word`, if it is at most [`MAX_EDITS`] edits away. Case counts for nothing.
///
/// A word of three letters or less must be within one edit, so that `a` is not taken for `az`'s sibling
/// `zone`. Among equally near candidates the first one wins.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let lower = word.to_lowercase();
    if lower.is_empty() || lower.chars().count() > MAX_WORD {
        return None;
    }
    let allowed = if lower.chars().count() <= 3 { 1 } else { MAX_EDITS };
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        if candidate.len() > MAX_WORD {
            continue;
        }
        let edits = distance(&lower, &candidate.to_lowercase());
        if edits <= allowed && best.is_none_or(|(least, _)| edits < least) {
            best = Some((edits, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
pub fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_find_their_name() {
        #[track_caller]
        fn check(word: &str, expected: Option<&str>) {
            let names = ["nodeCount", "autoscaling", "labels", "taints", "zones", "az"];
            assert_eq!(nearest(word, names), expected, "{word}");
        }
        check("nodecount", Some("nodeCount"));
        check("nodeCuont", Some("nodeCount")); // a swap is one edit
        check("autscalng", Some("autoscaling"));
        check("label", Some("labels"));
        check("zn", None); // two edits of a two-letter word prove nothing
        check("replicas", None);
        check("", None);
        check(&"x".repeat(1000), None);
    }

    #[test]
    fn distance_is_symmetric_and_counts_edits() {
        for (a, b, edits) in [("", "", 0), ("a", "", 1), ("ab", "ba", 1), ("kitten", "sitting", 3)] {
            assert_eq!((distance(a, b), distance(b, a)), (edits, edits), "{a} {b}");
        }
    }
}
