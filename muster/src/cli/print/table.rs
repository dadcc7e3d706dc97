//! Columns without borders, as kubectl prints them.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr;

/// Blanks between two columns.
const GAP: usize = 3;

/// How a cell is to be read at a glance. Colour is added only where a terminal shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Good,
    Busy,
    Bad,
}

impl Tone {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Good => "\u{1b}[32m",
            Self::Busy => "\u{1b}[33m",
            Self::Bad => "\u{1b}[31m",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

impl Cell {
    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::toned(text, Tone::Plain)
    }
}

/// Rows under headers. Widths may be kept from one table to the next, so that a watch stays aligned.
#[derive(Debug, Default)]
pub(crate) struct Table {
    headers: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new<T: Into<String>>(headers: impl IntoIterator<Item = T>) -> Self {
        Self { headers: headers.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    pub(crate) fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// The table as text, each line ended. `widths` grows to what was needed here.
    pub(crate) fn render(&self, headers: bool, colour: bool, widths: &mut Vec<usize>) -> String {
        let head: Vec<Cell> = self.headers.iter().map(|text| Cell::from(text.as_str())).collect();
        let lines: Vec<&Vec<Cell>> = headers.then_some(&head).into_iter().chain(&self.rows).collect();
        widths.resize(self.headers.len().max(widths.len()), 0);
        for line in &lines {
            for (width, cell) in widths.iter_mut().zip(line.iter()) {
                *width = (*width).max(one_line(&cell.text).width());
            }
        }
        let mut out = String::new();
        for line in lines {
            let mut text = String::new();
            for (column, cell) in line.iter().enumerate() {
                let shown = one_line(&cell.text);
                let pad = widths[column].saturating_sub(shown.width()) + GAP;
                let (on, off) = if colour && cell.tone != Tone::Plain {
                    (cell.tone.code(), "\u{1b}[0m")
                } else {
                    ("", "")
                };
                let _ = write!(text, "{on}{shown}{off}{}", " ".repeat(pad));
            }
            out.push_str(text.trim_end());
            out.push('\n');
        }
        out
    }
}

/// A cell never breaks its line and never carries control characters of others to the terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_by_what_is_seen() {
        let mut table = Table::new(["NAME", "STATUS", "AGE"]);
        table.push(vec!["a".into(), Cell::toned("Ready", Tone::Good), "5s".into()]);
        table.push(vec!["münchen".into(), "Pending".into(), "12m".into()]);
        let plain = table.render(true, false, &mut Vec::new());
        assert_eq!(plain, "NAME      STATUS    AGE\na         Ready     5s\nmünchen   Pending   12m\n");
        let coloured = table.render(true, true, &mut Vec::new());
        assert!(coloured.contains("\u{1b}[32mReady\u{1b}[0m     5s"), "{coloured:?}");
    }

    #[test]
    fn widths_are_kept_for_later_rows() {
        let mut widths = Vec::new();
        let mut first = Table::new(["NAME", "AGE"]);
        first.push(vec!["long-name".into(), "1s".into()]);
        first.render(true, false, &mut widths);
        let mut second = Table::new(["NAME", "AGE"]);
        second.push(vec!["b".into(), "2s".into()]);
        assert_eq!(second.render(false, false, &mut widths), "b           2s\n");
    }

    #[test]
    fn a_cell_cannot_write_to_the_terminal_on_its_own() {
        let mut table = Table::new(["MESSAGE"]);
        table.push(vec!["red\u{1b}[31m\nnext".into()]);
        assert_eq!(table.render(false, true, &mut Vec::new()), "red [31m next\n");
    }
}
