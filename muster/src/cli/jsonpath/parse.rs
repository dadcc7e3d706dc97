//! From text to pieces of a template.

use super::PathError;

/// Text, a path, or a body that is repeated for what a path finds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece {
    Text(String),
    Path(Vec<Step>),
    Range(Vec<Step>, Vec<Piece>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// One field of the current values.
    Field(String),
    /// Every field or element.
    All,
    /// The values themselves and everything below them.
    Descend,
    /// Several fields, indices or slices, in this order.
    Union(Vec<Part>),
    Keep(Filter),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    Field(String),
    Index(i64),
    Slice { from: Option<i64>, to: Option<i64>, step: i64 },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Filter {
    pub(crate) left: Operand,
    /// Without a comparison the left side must merely be there.
    pub(crate) test: Option<(Compare, Operand)>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand {
    Path(Vec<Step>),
    Literal(serde_json::Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compare {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Longer signs first, so that `<=` is not read as `<`.
const SIGNS: [(&str, Compare); 6] = [
    ("==", Compare::Equal),
    ("!=", Compare::Unequal),
    ("<=", Compare::LessOrEqual),
    (">=", Compare::GreaterOrEqual),
    ("<", Compare::Less),
    (">", Compare::Greater),
];

pub(super) fn template(text: &str) -> Result<Vec<Piece>, PathError> {
    let mut reader = Reader { text, at: 0 };
    let pieces = reader.pieces(0)?;
    Ok(pieces)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn fault(&self, what: impl Into<String>) -> PathError {
        let at = self.text[..self.at].chars().count() + 1;
        PathError { text: self.text.to_owned(), what: what.into(), at }
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let char = self.peek()?;
        self.at += char.len_utf8();
        Some(char)
    }

    fn eat(&mut self, sign: &str) -> bool {
        let found = self.rest().starts_with(sign);
        if found {
            self.at += sign.len();
        }
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), PathError> {
        if self.eat(sign) { Ok(()) } else { Err(self.fault(format!("expected {sign:?}"))) }
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.next();
        }
    }

    /// Pieces up to the end of the text, or up to the `{end}` of a range (`depth` > 0), which is eaten.
    fn pieces(&mut self, depth: usize) -> Result<Vec<Piece>, PathError> {
        let mut pieces = Vec::new();
        loop {
            let literal: String = self.rest().chars().take_while(|c| *c != '{').collect();
            self.at += literal.len();
            if !literal.is_empty() {
                pieces.push(Piece::Text(literal));
            }
            if self.peek().is_none() {
                return if depth == 0 { Ok(pieces) } else { Err(self.fault("a {range} without its {end}")) };
            }
            self.next();
            self.blanks();
            if self.keyword("end") {
                if depth == 0 {
                    return Err(self.fault("an {end} without a {range}"));
                }
                self.expect("}")?;
                return Ok(pieces);
            }
            pieces.push(self.action(depth)?);
        }
    }

    /// What stands between braces; the opening one is eaten.
    fn action(&mut self, depth: usize) -> Result<Piece, PathError> {
        if matches!(self.peek(), Some('"' | '\'')) {
            let text = self.quoted()?;
            self.blanks();
            self.expect("}")?;
            return Ok(Piece::Text(text));
        }
        let is_range = self.keyword("range");
        self.blanks();
        let steps = self.steps()?;
        self.blanks();
        self.expect("}")?;
        if is_range {
            let body = self.pieces(depth + 1)?;
            return Ok(Piece::Range(steps, body));
        }
        Ok(Piece::Path(steps))
    }

    /// Eats `word` when it stands alone.
    fn keyword(&mut self, word: &str) -> bool {
        let alone = self
            .rest()
            .strip_prefix(word)
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_whitespace() || c == '}'));
        if alone {
            self.at += word.len();
            self.blanks();
        }
        alone
    }

    fn steps(&mut self) -> Result<Vec<Step>, PathError> {
        let mut steps = Vec::new();
        if !self.eat("$") {
            self.eat("@");
        }
        loop {
            match self.peek() {
                Some('.') => {
                    self.next();
                    if self.eat(".") {
                        steps.push(Step::Descend);
                        if self.peek() == Some('[') {
                            continue;
                        }
                    }
                    self.field(&mut steps);
                }
                Some('[') => {
                    self.next();
                    steps.push(self.brackets()?);
                }
                _ => return Ok(steps),
            }
        }
    }

    fn field(&mut self, steps: &mut Vec<Step>) {
        if self.eat("*") {
            steps.push(Step::All);
            return;
        }
        let mut name = String::new();
        while let Some(char) = self.peek() {
            match char {
                '\\' => {
                    self.next();
                    name.extend(self.next());
                }
                '.' | '[' | ']' | '}' | '{' | ')' | ',' | '=' | '!' | '<' | '>' => break,
                blank if blank.is_whitespace() => break,
                _ => name.extend(self.next()),
            }
        }
        if !name.is_empty() {
            steps.push(Step::Field(name));
        }
    }

    /// What stands in brackets; the opening one is eaten.
    fn brackets(&mut self) -> Result<Step, PathError> {
        self.blanks();
        if self.eat("?(") {
            let filter = self.filter()?;
            self.blanks();
            self.expect(")")?;
            self.blanks();
            self.expect("]")?;
            return Ok(Step::Keep(filter));
        }
        if self.eat("*") {
            self.blanks();
            self.expect("]")?;
            return Ok(Step::All);
        }
        let mut parts = Vec::new();
        loop {
            self.blanks();
            parts.push(self.part()?);
            self.blanks();
            if !self.eat(",") {
                break;
            }
        }
        self.expect("]")?;
        Ok(Step::Union(parts))
    }

    fn part(&mut self) -> Result<Part, PathError> {
        if matches!(self.peek(), Some('"' | '\'')) {
            return self.quoted().map(Part::Field);
        }
        let from = self.integer();
        if !self.eat(":") {
            return from
                .map(Part::Index)
                .ok_or_else(|| self.fault("expected an index, a slice or a name in quotes"));
        }
        let to = self.integer();
        let step = if self.eat(":") { self.integer() } else { None }.unwrap_or(1);
        if step < 1 {
            return Err(self.fault("the step of a slice must be 1 or more"));
        }
        Ok(Part::Slice { from, to, step })
    }

    fn integer(&mut self) -> Option<i64> {
        let digits: String = self
            .rest()
            .chars()
            .enumerate()
            .take_while(|(i, c)| c.is_ascii_digit() || (*i == 0 && *c == '-'))
            .map(|(_, c)| c)
            .collect();
        let number = digits.parse().ok()?;
        self.at += digits.len();
        Some(number)
    }

    fn filter(&mut self) -> Result<Filter, PathError> {
        self.blanks();
        let left = self.operand()?;
        self.blanks();
        for (sign, compare) in SIGNS {
            if self.eat(sign) {
                self.blanks();
                return Ok(Filter { left, test: Some((compare, self.operand()?)) });
            }
        }
        Ok(Filter { left, test: None })
    }

    fn operand(&mut self) -> Result<Operand, PathError> {
        match self.peek() {
            Some('@' | '$' | '.') => self.steps().map(Operand::Path),
            Some('"' | '\'') => self.quoted().map(|text| Operand::Literal(text.into())),
            _ => {
                let word: String = self
                    .rest()
                    .chars()
                    .take_while(|c| !c.is_whitespace() && !")]=!<>".contains(*c))
                    .collect();
                let literal = serde_json::from_str(&word)
                    .map_err(|_| self.fault("expected a path, a number, true, false or text in quotes"))?;
                self.at += word.len();
                Ok(Operand::Literal(literal))
            }
        }
    }

    /// Text in single or double quotes, with the escapes `\n`, `\t`, `\r`, `\\` and the quote itself.
    fn quoted(&mut self) -> Result<String, PathError> {
        let quote = self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                None => return Err(self.fault("a quote that is not closed")),
                same if same == quote => return Ok(text),
                Some('\\') => match self.next() {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some(other) => text.push(other),
                    None => return Err(self.fault("a quote that is not closed")),
                },
                Some(other) => text.push(other),
            }
        }
    }
}
