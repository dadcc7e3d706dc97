//! What changed between two texts, piece by piece.
//!
//! A snapshot is one long line of JSON in which most objects stay as they were. It is cut after every object
//! (`},`), and what the base has already is named by place instead of repeated. Put together again the text is
//! the same to the last byte, which is what replay needs.

use std::collections::HashMap;

const COPY: u8 = 0;
const LITERAL: u8 = 1;

/// Cuts a text into pieces that together are the text.
fn pieces(text: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::with_capacity(text.len() / 128 + 1);
    let mut start = 0;
    for at in 1..text.len() {
        if text[at - 1] == b'}' && text[at] == b',' {
            pieces.push(&text[start..=at]);
            start = at + 1;
        }
    }
    if start < text.len() {
        pieces.push(&text[start..]);
    }
    pieces
}

/// Instructions that turn `base` into `text`.
pub(super) fn encode(base: &[u8], text: &[u8]) -> Vec<u8> {
    let old = pieces(base);
    let mut places: HashMap<&[u8], u32> = HashMap::with_capacity(old.len());
    for (place, piece) in (0..).zip(&old) {
        places.entry(piece).or_insert(place);
    }
    let (mut out, mut literal) = (Vec::new(), Vec::new());
    let new = pieces(text);
    let mut at = 0;
    while at < new.len() {
        let Some(&start) = places.get(new[at]) else {
            literal.extend_from_slice(new[at]);
            at += 1;
            continue;
        };
        let first = start as usize;
        let same = old[first..].iter().zip(&new[at..]).take_while(|(old, new)| old == new).count();
        flush(&mut out, &mut literal);
        out.push(COPY);
        number(&mut out, start);
        number(&mut out, u32::try_from(same).expect("pieces of a text that fits in memory"));
        at += same;
    }
    flush(&mut out, &mut literal);
    out
}

fn flush(out: &mut Vec<u8>, literal: &mut Vec<u8>) {
    if !literal.is_empty() {
        out.push(LITERAL);
        number(out, u32::try_from(literal.len()).expect("a snapshot is far below 4 GiB"));
        out.append(literal);
    }
}

fn number(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// The text that `delta` makes of `base`; `None` if it does not belong to it.
pub(super) fn decode(base: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
    let old = pieces(base);
    let (mut out, mut rest) = (Vec::with_capacity(base.len()), delta);
    while let Some((kind, after)) = rest.split_first() {
        rest = after;
        match *kind {
            COPY => {
                let (start, count) = (take(&mut rest)?, take(&mut rest)?);
                for piece in old.get(start..start.checked_add(count)?)? {
                    out.extend_from_slice(piece);
                }
            }
            LITERAL => {
                let length = take(&mut rest)?;
                let (literal, after) = rest.split_at_checked(length)?;
                out.extend_from_slice(literal);
                rest = after;
            }
            _ => return None,
        }
    }
    Some(out)
}

fn take(rest: &mut &[u8]) -> Option<usize> {
    let (bytes, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    usize::try_from(u32::from_le_bytes(*bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_enough_to_have_the_text_again() {
        #[track_caller]
        fn check(base: &str, text: &str, longest: usize) {
            let delta = encode(base.as_bytes(), text.as_bytes());
            assert_eq!(decode(base.as_bytes(), &delta).as_deref(), Some(text.as_bytes()), "{base} => {text}");
            assert!(delta.len() <= longest, "{} bytes for {base} => {text}", delta.len());
        }
        let pods = |names: &[&str]| {
            let all: Vec<String> = names.iter().map(|name| format!(r#"{{"name":"{name}"}}"#)).collect();
            format!(r#"{{"pods":[{}]}}"#, all.join(","))
        };
        let (base, many) = (pods(&["a", "b", "c", "d"]), pods(&["a"; 1000]));
        check(&base, &base, 20);
        check(&base, &pods(&["a", "b", "x", "c", "d"]), 60);
        check(&base, &pods(&["b", "c"]), 60);
        check(&many, &pods(&["a"; 999]), 10_000);
        check("", &base, 200);
        check(&base, "", 0);
        check(&base, "no object at all", 40);
    }

    #[test]
    fn nonsense_is_refused_and_never_a_panic() {
        for delta in
            [&[9_u8][..], &[COPY, 1], &[COPY, 255, 255, 255, 255, 1, 0, 0, 0], &[LITERAL, 9, 0, 0, 0, 1]]
        {
            assert_eq!(decode(b"{},{}", delta), None, "{delta:?}");
        }
    }
}
