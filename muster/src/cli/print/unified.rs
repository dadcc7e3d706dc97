//! The difference of two texts in the unified format.

use std::fmt::Write as _;

/// Unchanged lines shown around a change.
const CONTEXT: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Keep(usize, usize),
    Drop(usize),
    Add(usize),
}

/// The difference from `old` to `new`, or nothing when they are equal.
pub(crate) fn diff(old_name: &str, old: &str, new_name: &str, new: &str) -> Option<String> {
    if old == new {
        return None;
    }
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let ops = script(&old, &new);
    let mut out = format!("--- {old_name}\n+++ {new_name}\n");
    for (from, to) in hunks(&ops) {
        out.push_str(&hunk(&ops[from..to], &ops[..from], &old, &new));
    }
    Some(out)
}

/// The shortest script by longest common subsequence, after equal ends are cut off. Objects here are at most
/// a few thousand lines, so that the quadratic table stays small.
fn script(old: &[&str], new: &[&str]) -> Vec<Op> {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let mut common = vec![vec![0_u32; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] =
                if a[i] == b[j] { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let mut ops: Vec<Op> = (0..head).map(|i| Op::Keep(i, i)).collect();
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            ops.push(Op::Keep(head + i, head + j));
            (i, j) = (i + 1, j + 1);
        } else if i < a.len() && (j == b.len() || common[i + 1][j] >= common[i][j + 1]) {
            ops.push(Op::Drop(head + i));
            i += 1;
        } else {
            ops.push(Op::Add(head + j));
            j += 1;
        }
    }
    ops.extend((0..tail).map(|k| Op::Keep(old.len() - tail + k, new.len() - tail + k)));
    ops
}

/// Stretches of `ops` around changes, with context, merged where they touch.
fn hunks(ops: &[Op]) -> Vec<(usize, usize)> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for (place, op) in ops.iter().enumerate() {
        if matches!(op, Op::Keep(..)) {
            continue;
        }
        let (from, to) = (place.saturating_sub(CONTEXT), (place + 1 + CONTEXT).min(ops.len()));
        match ranges.last_mut() {
            Some(last) if last.1 >= from => last.1 = to,
            _ => ranges.push((from, to)),
        }
    }
    ranges
}

fn hunk(ops: &[Op], before: &[Op], old: &[&str], new: &[&str]) -> String {
    let count = |ops: &[Op]| {
        ops.iter().fold((0, 0), |(a, b), op| match op {
            Op::Keep(..) => (a + 1, b + 1),
            Op::Drop(_) => (a + 1, b),
            Op::Add(_) => (a, b + 1),
        })
    };
    let ((old_start, new_start), (old_count, new_count)) = (count(before), count(ops));
    let start = |start: usize, count: usize| if count == 0 { start } else { start + 1 };
    let mut out = format!(
        "@@ -{},{old_count} +{},{new_count} @@\n",
        start(old_start, old_count),
        start(new_start, new_count)
    );
    for op in ops {
        let (sign, line) = match *op {
            Op::Keep(i, _) => (' ', old[i]),
            Op::Drop(i) => ('-', old[i]),
            Op::Add(j) => ('+', new[j]),
        };
        let _ = writeln!(out, "{sign}{line}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_no_difference() {
        assert_eq!(diff("a", "x\ny\n", "b", "x\ny\n"), None);
    }

    #[test]
    fn a_change_is_shown_with_its_surroundings() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = "1\n2\n3\n4\nfive\n6\n7\n8\n9\nten\n";
        let expected = "--- a\n+++ b\n@@ -2,8 +2,9 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n 9\n+ten\n";
        assert_eq!(diff("a", old, "b", new).unwrap(), expected);
    }

    #[test]
    fn a_new_text_is_all_added() {
        assert_eq!(diff("/dev/null", "", "b", "x\n").unwrap(), "--- /dev/null\n+++ b\n@@ -0,0 +1,1 @@\n+x\n");
    }
}
