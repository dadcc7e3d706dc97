//! The packing before and after as a picture: one bar of cpu and one of memory per node, pod by pod.

use std::fmt::Write;

use super::packing::{Change, Packed};

const BAR: i64 = 300;
const ROW: i64 = 34;
const LEFT: i64 = 170;
const GAP: i64 = 40;
const TOP: i64 = 84;
/// More rows make a picture that nobody reads.
const MOST_ROWS: usize = 200;

/// A complete SVG document. Colours carry no meaning alone: new pods are hatched, nodes are labelled.
pub fn draw(title: &str, before: &[Packed], after: &[Packed]) -> String {
    let rows = before.len().max(after.len()).min(MOST_ROWS);
    let width = 2 * (LEFT + BAR) + 3 * GAP;
    let height = TOP + ROW * i64::try_from(rows).unwrap_or(i64::MAX / ROW) + 40;
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" role=\"img\">\n<title>{0}</title>\n\
         <style>.b{{fill:#eceef1}}.c{{fill:#4f7cac;stroke:#fff;stroke-width:.5}}.m{{fill:#8fa98f;stroke:#fff;stroke-width:.5}}\
         .n{{fill:url(#h);stroke:#fff;stroke-width:.5}}text{{fill:#23272e}}.q{{fill:#6b7280}}\
         @media(prefers-color-scheme:dark){{.p{{fill:#16181d}}.b{{fill:#2a2e36}}text{{fill:#e6e8ec}}.q{{fill:#9aa1ac}}}}</style>\n\
         <defs><pattern id=\"h\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
         <rect width=\"6\" height=\"6\" fill=\"#c98a2b\"/><rect width=\"2\" height=\"6\" fill=\"#e0b062\"/></pattern></defs>\n\
         <rect class=\"p\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{GAP}\" y=\"30\" font-size=\"16\" font-weight=\"600\">{0}</text>\n\
         <text x=\"{GAP}\" y=\"50\" class=\"q\">upper bar cpu, lower bar memory, as requested; hatched: placed or moved by this plan. Nothing was changed.</text>\n",
        escape(title)
    );
    column(&mut out, GAP, "before", before);
    column(&mut out, 2 * GAP + LEFT + BAR, "after", after);
    out.push_str("</svg>\n");
    out
}

fn column(out: &mut String, x: i64, title: &str, rows: &[Packed]) {
    let here = rows.iter().filter(|row| row.change != Change::Goes).count();
    let _ =
        writeln!(out, "<text x=\"{x}\" y=\"{}\" font-weight=\"600\">{title}: {here} nodes</text>", TOP - 12);
    for (row, at) in rows.iter().take(MOST_ROWS).zip(0_i64..) {
        let y = TOP + ROW * at;
        let note = match row.change {
            Change::Stays => "",
            Change::New => " (new)",
            Change::Goes => " (goes)",
        };
        let name = shorten(&row.node, 20);
        let _ = writeln!(
            out,
            "<g><title>{}: cpu {} %, memory {} %, {} pods</title>",
            escape(&row.node),
            row.cpu_percent,
            row.memory_percent,
            row.pods
        );
        let _ = writeln!(out, "<text x=\"{x}\" y=\"{}\">{}{note}</text>", y + 12, escape(&name));
        let _ = writeln!(
            out,
            "<text x=\"{x}\" y=\"{}\" class=\"q\" font-size=\"10\">{} · {} pods</text>",
            y + 24,
            escape(&shorten(&row.pool, 20)),
            row.pods
        );
        let start = x + LEFT;
        if row.change != Change::Goes {
            bar(out, start, y + 2, row.parts.iter().map(|(cpu, _, moved)| (*cpu, *moved)), "c");
            bar(out, start, y + 15, row.parts.iter().map(|(_, memory, moved)| (*memory, *moved)), "m");
        }
        let _ = writeln!(out, "</g>");
    }
    if rows.len() > MOST_ROWS {
        let y = TOP + ROW * i64::try_from(MOST_ROWS).unwrap_or(0) + 14;
        let _ =
            writeln!(out, "<text x=\"{x}\" y=\"{y}\" class=\"q\">and {} more</text>", rows.len() - MOST_ROWS);
    }
}

fn bar(out: &mut String, x: i64, y: i64, parts: impl Iterator<Item = (i64, bool)>, class: &str) {
    let _ = writeln!(out, "<rect class=\"b\" x=\"{x}\" y=\"{y}\" width=\"{BAR}\" height=\"10\" rx=\"2\"/>");
    let mut at = 0_i64;
    for (thousandths, moved) in parts.filter(|(size, _)| *size > 0) {
        let from = (at * BAR / 1000).min(BAR);
        let to = ((at + thousandths) * BAR / 1000).min(BAR);
        at += thousandths;
        if to > from {
            let class = if moved { "n" } else { class };
            let _ = writeln!(
                out,
                "<rect class=\"{class}\" x=\"{}\" y=\"{y}\" width=\"{}\" height=\"10\"/>",
                x + from,
                to - from
            );
        }
    }
}

fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let end: String = text.chars().skip(text.chars().count() - (most - 1)).collect();
    format!("…{end}")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
