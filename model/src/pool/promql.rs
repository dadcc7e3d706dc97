//! What can be told from the text of a query without a parser: whether it filters at its top level, whether it is a plain
//! series, and which series it reads.

/// The comparison at the top of `query`, unless it says `bool` or is one side of a set operation in
/// parentheses. Such a query is empty when it is false.
pub fn top_comparison(query: &str) -> Option<&'static str> {
    let code = without_comments(query);
    let mut text = code.trim();
    while let Some(inner) = unwrapped(text) {
        text = inner.trim();
    }
    let mut found = None;
    scan(text, |at, depth| {
        if depth == 0 && found.is_none() {
            found = comparison(&text[at..]);
        }
    });
    found
}

fn comparison(text: &str) -> Option<&'static str> {
    let operator =
        ["==", "!=", ">=", "<=", ">", "<"].into_iter().find(|operator| text.starts_with(operator))?;
    let rest = text[operator.len()..].trim_start();
    let boolean = rest.strip_prefix("bool").is_some_and(|rest| !rest.starts_with(is_name));
    (!boolean).then_some(operator)
}

/// Whether `query` is a series by name or by labels and nothing more.
pub fn is_selector(query: &str) -> bool {
    let code = without_comments(query);
    let text = code.trim();
    let name = text.find(|c| !is_name(c)).unwrap_or(text.len());
    let rest = text[name..].trim();
    if text.starts_with(|c: char| c.is_ascii_digit()) || (name == 0 && rest.is_empty()) {
        return false;
    }
    if rest.is_empty() {
        return text.parse::<f64>().is_err();
    }
    let mut closes = None;
    scan(rest, |at, depth| {
        if depth == 0 && rest[at..].starts_with('}') {
            closes.get_or_insert(at);
        }
    });
    rest.starts_with('{') && closes == Some(rest.len() - 1)
}

/// The series that `query` reads, as selectors with the name of the metric inside of the braces; each one once. A word that
/// the server knows better may be taken for a metric: nobody has series of that name.
pub fn selectors(query: &str) -> Vec<String> {
    let code = without_comments(query);
    let mut found: Vec<String> = Vec::new();
    let mut rest = code.as_str();
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '"' | '\'' | '`' | '[' => closed(rest),
            '{' => {
                let end = closed(rest);
                note(&mut found, rest[..end].to_owned());
                end
            }
            // A number or a duration, with its unit.
            c if c.is_ascii_digit() => rest.find(|c| !is_name(c)).unwrap_or(rest.len()),
            c if is_name(c) => word(rest, &mut found),
            c => c.len_utf8(),
        };
        rest = &rest[taken..];
    }
    found
}

/// How much of `text` a word at its beginning takes, with what belongs to it.
fn word(text: &str, found: &mut Vec<String>) -> usize {
    let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
    let (name, after) = text.split_at(end);
    let next = end + (after.len() - after.trim_start().len());
    let lower = name.to_ascii_lowercase();
    match text[next..].chars().next() {
        // Names of labels, not of metrics.
        Some('(') if LABEL_LISTS.contains(&lower.as_str()) => next + closed(&text[next..]),
        Some('(') => end,
        Some('{') => {
            let braces = &text[next..];
            let length = closed(braces);
            let matchers = braces[..length].trim_start_matches('{').trim_end_matches('}').trim();
            let comma = if matchers.is_empty() { "" } else { "," };
            note(found, format!("{{__name__=\"{name}\"{comma}{matchers}}}"));
            next + length
        }
        _ if WORDS.contains(&lower.as_str()) || LABEL_LISTS.contains(&lower.as_str()) => end,
        _ => {
            note(found, format!("{{__name__=\"{name}\"}}"));
            end
        }
    }
}

/// What a list of labels follows.
const LABEL_LISTS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
/// What may stand alone without being a metric; aggregations may stand in front of `by`.
const WORDS: [&str; 20] = [
    "and",
    "or",
    "unless",
    "atan2",
    "bool",
    "offset",
    "inf",
    "nan",
    "sum",
    "min",
    "max",
    "avg",
    "group",
    "stddev",
    "stdvar",
    "count",
    "bottomk",
    "topk",
    "quantile",
    "count_values",
];

fn note(found: &mut Vec<String>, selector: String) {
    if !found.contains(&selector) {
        found.push(selector);
    }
}

/// The length of what begins with a bracket or a quotation mark, to its other end.
fn closed(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c, part) in parts(text) {
        match (part, c) {
            (Part::Code, '(' | '[' | '{') => depth += 1,
            (Part::Code, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (Part::QuoteEnds, _) if depth == 0 => return at + c.len_utf8(),
            (Part::Code | Part::Comment | Part::Quoted | Part::QuoteEnds, _) => {}
        }
        if depth == 0 && part == Part::Code {
            return at + c.len_utf8();
        }
    }
    text.len()
}

fn without_comments(query: &str) -> String {
    parts(query).filter(|(.., part)| *part != Part::Comment).map(|(_, c, _)| c).collect()
}

const fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// The text between one pair of parentheses that encloses all of `text`.
fn unwrapped(text: &str) -> Option<&str> {
    if !text.starts_with('(') {
        return None;
    }
    let mut closes = None;
    scan(text, |at, depth| {
        if depth == 0 && text[at..].starts_with(')') {
            closes.get_or_insert(at);
        }
    });
    (closes == Some(text.len() - 1)).then(|| &text[1..text.len() - 1])
}

/// What a character belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Code,
    Quoted,
    /// The mark at the end of a string.
    QuoteEnds,
    Comment,
}

/// Every character with its place and what it belongs to; the end of a line ends a comment and is code.
fn parts(text: &str) -> impl Iterator<Item = (usize, char, Part)> {
    let (mut quote, mut escaped, mut comment) = (None, false, false);
    text.char_indices().map(move |(at, c)| {
        if let Some(open) = quote {
            let ends = c == open && !escaped;
            escaped = c == '\\' && open != '`' && !escaped;
            if ends {
                quote = None;
            }
            return (at, c, if ends { Part::QuoteEnds } else { Part::Quoted });
        }
        comment = (comment || c == '#') && c != '\n';
        if comment {
            return (at, c, Part::Comment);
        }
        if matches!(c, '"' | '\'' | '`') {
            quote = Some(c);
            return (at, c, Part::Quoted);
        }
        (at, c, Part::Code)
    })
}

/// Calls `see` for every character outside of strings and comments, with the number of brackets around it;
/// a bracket itself counts as outside of its pair.
fn scan(text: &str, mut see: impl FnMut(usize, usize)) {
    let mut depth = 0_usize;
    for (at, c, _) in parts(text).filter(|(.., part)| *part == Part::Code) {
        match c {
            '(' | '[' | '{' => {
                see(at, depth);
                depth += 1;
            }
            ')' | ']' | '}' => {
                depth = depth.saturating_sub(1);
                see(at, depth);
            }
            _ => see(at, depth),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_at_the_top_is_found() {
        for (query, operator) in [
            ("x > 0.7", Some(">")),
            ("(x > 0.7)", Some(">")),
            ("((x)) >= 2", Some(">=")),
            ("x == 1 # why", Some("==")),
            ("sum(x) by (pool) != 0", Some("!=")),
            ("x > bool 0.7", None),
            ("x > boolean", Some(">")),
            ("sum(x > 0)", None),
            (r#"x{a!="b",c=~"<>"}"#, None),
            (r#"x{a="}>"}"#, None),
            ("x # > 3", None),
            ("(x > 0.7) # note", Some(">")),
            ("# note (\n(x > 0.7)", Some(">")),
            ("(x # )\n > 0.7)", Some(">")),
            ("(x{a='#'} > 0.7)", Some(">")),
            ("(a) + (b)", None),
            ("x{a='\\'>'}", None),
            ("", None),
        ] {
            assert_eq!(top_comparison(query), operator, "{query}");
        }
    }

    #[test]
    fn plain_series_are_told_from_expressions() {
        for (query, plain) in [
            ("up", true),
            (" pool:pending:max ", true),
            (r#"up{job="a"}"#, true),
            (r#"{__name__="up"}"#, true),
            (r#"up{job="}"} "#, true),
            ("sum(up)", false),
            ("up + 1", false),
            ("up[5m]", false),
            ("up offset 5m", false),
            (r#"up{job="a"} + up{job="b"}"#, false),
            ("up # note", true),
            ("42", false),
            ("NaN", false),
            ("", false),
        ] {
            assert_eq!(is_selector(query), plain, "{query}");
        }
    }

    #[test]
    fn the_series_that_a_query_reads_are_found() {
        for (query, wanted) in [
            ("load", vec![r#"{__name__="load"}"#]),
            ("load {}", vec![r#"{__name__="load"}"#]),
            ("avg(load) # of busy()", vec![r#"{__name__="load"}"#]),
            (
                r#"sum by (job) (rate(a:b{c="}",d!~'x'}[5m:1m] offset 5m))"#,
                vec![r#"{__name__="a:b",c="}",d!~'x'}"#],
            ),
            (
                r#"{__name__=~"a|b"} + on (x) group_left (y) c"#,
                vec![r#"{__name__=~"a|b"}"#, r#"{__name__="c"}"#],
            ),
            ("sum(a) by (b) / SUM(a) BY (b) or vector(0)", vec![r#"{__name__="a"}"#]),
            (r#"label_replace(a, "x", "$1", "y", "(.*)") > bool 1e5"#, vec![r#"{__name__="a"}"#]),
            ("max_over_time(a[1h]) * 0x1F - .5 + Inf", vec![r#"{__name__="a"}"#]),
            ("a @ 1609746000 and a @ end()", vec![r#"{__name__="a"}"#]),
            ("1", vec![]),
            ("", vec![]),
            // What is not closed ends somewhere all the same.
            (r#"a{b="c"#, vec![r#"{__name__="a",b="c}"#]),
        ] {
            assert_eq!(selectors(query), wanted, "{query}");
        }
    }
}
