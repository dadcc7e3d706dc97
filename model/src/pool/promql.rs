//! What can be told from the text of a query without a parser: whether it filters at its top level, and
//! whether it is a plain series.

/// The comparison at the top of `query`, unless it says `bool` or is one side of a set operation in
/// parentheses. Such a query is empty when it is false.
pub fn top_comparison(query: &str) -> Option<&'static str> {
    let mut text = query.trim();
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
    let text = query.trim();
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

/// Calls `see` for every character outside of strings and comments, with the number of brackets around it;
/// a bracket itself counts as outside of its pair.
fn scan(text: &str, mut see: impl FnMut(usize, usize)) {
    let mut depth = 0_usize;
    let mut quote = None;
    let mut escaped = false;
    let mut comment = false;
    for (at, c) in text.char_indices() {
        if comment {
            comment = c != '\n';
            continue;
        }
        if let Some(open) = quote {
            let ends = c == open && !escaped;
            escaped = c == '\\' && open != '`' && !escaped;
            if ends {
                quote = None;
            }
            continue;
        }
        match c {
            '"' | '\'' | '`' => quote = Some(c),
            '#' => comment = true,
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
            ("42", false),
            ("NaN", false),
            ("", false),
        ] {
            assert_eq!(is_selector(query), plain, "{query}");
        }
    }
}
