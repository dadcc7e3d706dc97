//! The answer of a simulation: plain data for `-o json`, and the same as tables for people.

use std::fmt::{self, Write};

use muster_engine::{
    Plan,
    explain::{self, Answer, Code},
    plan::Source,
};
use muster_model::{Timestamp, k8s::PodKey};
use serde::Serialize;

use super::{
    document::SetAside,
    packing::{Change, Packed, Totals},
};

/// What the JSON calls itself; a change of meaning raises the number.
pub const FORMAT: &str = "muster-simulation/1";
const MOST_ROWS: usize = 40;
const BAR: i64 = 20;

/// Everything a simulation says.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Simulation {
    pub format: &'static str,
    /// Always true: a simulation reads, and nothing else.
    pub nothing_changed: bool,
    /// In words.
    pub question: String,
    pub summary: String,
    /// The moment for which times were worked out.
    pub now: Timestamp,
    pub read: Read,
    pub before: Totals,
    pub after: Totals,
    pub new_nodes: Vec<NewRow>,
    pub removals: Vec<RemovalRow>,
    pub unplaced: Vec<UnplacedRow>,
    pub nodes_before: Vec<Packed>,
    pub nodes_after: Vec<Packed>,
    pub plan: Plan,
    /// What the independent check of the plan found; empty means that it may be carried out.
    pub audit: Vec<String>,
    pub warnings: Vec<String>,
    pub explanations: Vec<Answer>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Read {
    pub objects: usize,
    pub kinds: std::collections::BTreeMap<String, usize>,
    pub set_aside: Vec<SetAside>,
    pub notes: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewRow {
    pub pool: String,
    pub template: String,
    /// Zone, or name of the host.
    pub place: String,
    pub count: usize,
    pub pods: usize,
    pub price_per_hour_micros: i64,
}

#[derive(Debug, Serialize)]
pub struct RemovalRow {
    pub node: String,
    pub pool: String,
    pub moves: usize,
}

/// Pods that find no place for one reason.
#[derive(Debug, Serialize)]
pub struct UnplacedRow {
    pub pods: u32,
    pub example: PodKey,
    pub code: Code,
    pub headline: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<explain::Fix>,
}

/// Whether escape codes may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    Yes,
    No,
}

pub(super) fn new_rows(plan: &Plan) -> Vec<NewRow> {
    let mut rows: Vec<NewRow> = Vec::new();
    for (at, new) in plan.new_nodes.iter().enumerate() {
        let place = match &new.source {
            Source::Bought { zone, .. } => zone.as_deref().unwrap_or("-").to_owned(),
            Source::Host { host } => format!("host {host}"),
        };
        let on = muster_engine::plan::Target::New(u32::try_from(at).unwrap_or(u32::MAX));
        let moves = plan.removals.iter().flat_map(|removal| &removal.moves);
        let pods = plan.placements.iter().chain(moves).filter(|placement| placement.on == on).count();
        let same =
            |row: &&mut NewRow| row.pool == *new.pool && row.template == *new.template && row.place == place;
        match rows.iter_mut().find(same) {
            Some(row) => {
                row.count += 1;
                row.pods += pods;
                row.price_per_hour_micros = row.price_per_hour_micros.saturating_add(new.price);
            }
            None => rows.push(NewRow {
                pool: new.pool.to_string(),
                template: new.template.to_string(),
                place,
                count: 1,
                pods,
                price_per_hour_micros: new.price,
            }),
        }
    }
    rows
}

impl Simulation {
    /// The price of bought machines was only there to weigh them against others.
    pub(super) fn forget_prices(&mut self) {
        self.after.price_per_hour_micros = self.before.price_per_hour_micros;
        for row in &mut self.new_nodes {
            row.price_per_hour_micros = 0;
        }
        for node in &mut self.plan.new_nodes {
            node.price = 0;
        }
    }

    /// Tables and a paragraph.
    pub fn text(&self, colour: Colour) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut out, colour);
        out
    }

    fn write(&self, out: &mut String, colour: Colour) -> fmt::Result {
        let paint = |text: &str, code: &str| match colour {
            Colour::Yes => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            Colour::No => text.to_owned(),
        };
        writeln!(out, "{}", paint(&format!("Question: {}", self.question), "1"))?;
        for line in wrap(&self.summary, 100) {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
        self.totals(out)?;
        if !self.new_nodes.is_empty() {
            writeln!(out, "\n{}", paint("New nodes", "1"))?;
            let rows = self.new_nodes.iter().map(|row| {
                vec![
                    row.count.to_string(),
                    row.pool.clone(),
                    row.template.clone(),
                    row.place.clone(),
                    row.pods.to_string(),
                    match row.price_per_hour_micros {
                        0 => "-".to_owned(),
                        price => explain::price(price),
                    },
                ]
            });
            table(out, &["COUNT", "POOL", "TEMPLATE", "PLACE", "PODS", "PRICE/H"], rows.collect())?;
        }
        if !self.removals.is_empty() {
            writeln!(out, "\n{}", paint("Nodes that can go", "1"))?;
            let rows = self
                .removals
                .iter()
                .map(|row| vec![row.node.clone(), row.pool.clone(), row.moves.to_string()]);
            table(out, &["NODE", "POOL", "PODS MOVED"], rows.collect())?;
        }
        if !self.unplaced.is_empty() {
            writeln!(out, "\n{}", paint("Pods without a place", "1;31"))?;
            for row in self.unplaced.iter().take(MOST_ROWS) {
                let pods = if row.pods == 1 { "pod" } else { "pods" };
                writeln!(out, "  {} {pods}: {}", row.pods, row.headline)?;
                if let Some(fix) = &row.fix {
                    writeln!(out, "    would help: {}", fix.text)?;
                    writeln!(out, "    patch {}: {}", fix.object, fix.patch)?;
                }
            }
        }
        self.bars(out, &paint)?;
        for warning in &self.warnings {
            writeln!(out, "\n{} {warning}", paint("Warning:", "33"))?;
        }
        for finding in &self.audit {
            writeln!(out, "\n{} the plan breaks a rule: {finding}", paint("Defect:", "31"))?;
        }
        for answer in &self.explanations {
            writeln!(out, "\n{}", paint("Explanation", "1"))?;
            write!(out, "{}", explain::text::render(answer))?;
        }
        self.reading(out)?;
        writeln!(out, "\nThis was a simulation: nothing was changed.")
    }

    fn totals(&self, out: &mut String) -> fmt::Result {
        let priced = self.before.price_per_hour_micros != 0 || self.after.price_per_hour_micros != 0;
        let row = |name: &str, totals: &Totals| {
            let mut row = vec![
                name.to_owned(),
                totals.nodes.to_string(),
                totals.running_pods.to_string(),
                totals.pending_pods.to_string(),
                format!("{} %", totals.cpu_percent()),
                format!("{} %", totals.memory_percent()),
            ];
            row.extend(priced.then(|| explain::price(totals.price_per_hour_micros)));
            row
        };
        let mut head = vec!["", "NODES", "PODS", "PENDING", "CPU", "MEMORY"];
        head.extend(priced.then_some("PRICE/H"));
        table(out, &head, vec![row("before", &self.before), row("after", &self.after)])
    }

    fn bars(&self, out: &mut String, paint: &impl Fn(&str, &str) -> String) -> fmt::Result {
        if self.nodes_after.is_empty() && self.nodes_before.is_empty() {
            return Ok(());
        }
        writeln!(
            out,
            "\n{}",
            paint("Packing (█ requested now, ▓ placed or moved by this plan, ░ free)", "1")
        )?;
        let width =
            self.nodes_after.iter().map(|row| row.node.chars().count()).max().unwrap_or(4).clamp(4, 32);
        writeln!(out, "  {:<width$}   {:<22} {:<5} {:<22} {:<5} PODS", "NODE", "CPU", "", "MEMORY", "")?;
        for row in self.nodes_after.iter().take(MOST_ROWS) {
            let mark = match row.change {
                Change::Stays => ' ',
                Change::New => '+',
                Change::Goes => '-',
            };
            let name: String = row.node.chars().take(width).collect();
            if row.change == Change::Goes {
                writeln!(out, "{mark} {}", paint(&format!("{name:<width$}   goes"), "2"))?;
                continue;
            }
            let cpu = bar(row.parts.iter().map(|(cpu, _, moved)| (*cpu, *moved)));
            let memory = bar(row.parts.iter().map(|(_, memory, moved)| (*memory, *moved)));
            writeln!(
                out,
                "{mark} {name:<width$}   {cpu}   {:>3} % {memory}   {:>3} % {}",
                row.cpu_percent, row.memory_percent, row.pods
            )?;
        }
        if self.nodes_after.len() > MOST_ROWS {
            writeln!(out, "  … and {} more nodes", self.nodes_after.len() - MOST_ROWS)?;
        }
        Ok(())
    }

    fn reading(&self, out: &mut String) -> fmt::Result {
        writeln!(out)?;
        let kinds: Vec<String> =
            self.read.kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        for line in wrap(&format!("Read {} objects: {}.", self.read.objects, kinds.join(", ")), 100) {
            writeln!(out, "{line}")?;
        }
        for note in &self.read.notes {
            writeln!(out, "Note: {note}")?;
        }
        if !self.read.set_aside.is_empty() {
            writeln!(out, "{} objects could not be read and were set aside:", self.read.set_aside.len())?;
            for fault in self.read.set_aside.iter().take(MOST_ROWS) {
                writeln!(out, "  {fault}")?;
            }
        }
        Ok(())
    }
}

fn bar(parts: impl Iterator<Item = (i64, bool)>) -> String {
    let (mut old, mut new) = (0, 0);
    for (size, moved) in parts {
        if moved { new += size } else { old += size }
    }
    let cells = |thousandths: i64| ((thousandths * BAR + 500) / 1000).clamp(0, BAR);
    let solid = cells(old);
    let fresh = (cells(old + new) - solid).max(0);
    let times = |text: &str, count: i64| text.repeat(usize::try_from(count).unwrap_or(0));
    format!("{}{}{}", times("█", solid), times("▓", fresh), times("░", BAR - solid - fresh))
}

fn table(out: &mut String, head: &[&str], rows: Vec<Vec<String>>) -> fmt::Result {
    let width = |at: usize| {
        rows.iter().map(|row| row[at].chars().count()).chain([head[at].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("  {}", padded.join("  ")).trim_end().to_owned()
    };
    writeln!(out, "{}", line(head.to_vec()))?;
    for row in rows.iter().take(MOST_ROWS) {
        writeln!(out, "{}", line(row.iter().map(String::as_str).collect()))?;
    }
    if rows.len() > MOST_ROWS {
        writeln!(out, "  … and {} more", rows.len() - MOST_ROWS)?;
    }
    Ok(())
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !lines[last].is_empty() {
                lines[last].push(' ');
            }
            lines[last].push_str(word);
        }
    }
    lines
}
