//! Hosts as rows of a table, for registering many at once and for exports.
//!
//! A host is one line. The first line names the columns; their order is free and unknown ones are refused. `name` is required.
//! Columns: the fields of the spec under their own names ([`COLUMNS`]), resources as `cpu`, `memory`, `gpu`,
//! `storage`, and `labels` as `key=value` pairs with `;` between them. Fields that hold lists or blocks
//! (drivers, taints, deadlines, holds) do not fit a table: use YAML or JSON for them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{
    field::{FieldError, FieldErrors},
    names, suggest,
};

use super::{BareMetalNodeSpec, DriverKind, DriverSpec, PowerInterface};

pub const COLUMNS: [&str; 25] = [
    "name",
    "mgmtAddress",
    "macAddress",
    "powerInterface",
    "bmcCredentials",
    "bootProfile",
    "rack",
    "slot",
    "height",
    "pool",
    "zone",
    "cpu",
    "memory",
    "gpu",
    "storage",
    "labels",
    "idleWatts",
    "maxWatts",
    "systemId",
    "serial",
    "tlsVerify",
    "pin",
    "broadcast",
    "inventoryId",
    "canForceOff",
];

/// One host of a table or list, under its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedHost {
    pub name: String,
    pub spec: BareMetalNodeSpec,
}

/// What became of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// From 1, as an editor counts.
    pub number: usize,
    /// What it calls the host, also when the rest cannot be used; empty when it does not say.
    pub name: String,
    /// The members of the spec that it speaks of; null where it says that there is nothing. Of resources each is one.
    pub said: Map<String, Value>,
    pub host: Result<NamedHost, FieldErrors>,
}

/// Reads a table. The outer error is about the header; each line has a verdict of its own.
pub fn read_csv(text: &str) -> Result<Vec<Line>, FieldErrors> {
    let mut rows = rows(text);
    let Some(first) = rows.next() else {
        return Err(FieldErrors::one(FieldError::new(
            "line 1",
            "is empty; the first line names the columns",
        )));
    };
    let fault =
        |problem: String| FieldErrors::one(FieldError::new(format!("line {}", first.number), problem));
    let header: Vec<String> = first.cells.map_err(fault)?.iter().map(|name| name.trim().to_owned()).collect();
    for (place, name) in header.iter().enumerate() {
        if !COLUMNS.contains(&name.as_str()) {
            let near = suggest::nearest(name, COLUMNS).map_or_else(
                || format!("known: {}", COLUMNS.join(", ")),
                |near| format!("did you mean {near}?"),
            );
            return Err(fault(format!("has a column {name:?} that is not known ({near})")));
        }
        if header[..place].contains(name) {
            return Err(fault(format!("names the column {name:?} twice")));
        }
    }
    if !header.iter().any(|name| name == "name") {
        return Err(fault("has no column \"name\"".into()));
    }
    let named = header.iter().position(|name| name == "name");
    let line = |Row { number, cells }: Row| {
        let cells = match cells {
            Ok(cells) => cells,
            Err(problem) => {
                let host = Err(FieldErrors::one(FieldError::new("", problem)));
                return Line { number, name: String::new(), said: Map::new(), host };
            }
        };
        let name = named.and_then(|place| cells.get(place)).map(|cell| cell.trim().to_owned());
        let said = said(&header, &cells);
        Line { number, name: name.unwrap_or_default(), said, host: read_row(&header, &cells) }
    };
    Ok(rows.map(line).collect())
}

/// What a cell says of the spec, in the member that its column is about.
fn value(column: &str, cell: &str) -> Result<Value, FieldErrors> {
    let number = || cell.parse::<i64>().map_or_else(|_| Value::from(cell), Value::from);
    Ok(match column {
        "gpu" | "slot" | "height" | "idleWatts" | "maxWatts" => number(),
        "canForceOff" => cell.parse::<bool>().map_or_else(|_| Value::from(cell), Value::from),
        "labels" => labels(cell)?,
        _ => Value::from(cell),
    })
}

fn is_resource(column: &str) -> bool {
    matches!(column, "cpu" | "memory" | "gpu" | "storage")
}

/// The columns of the table as members of a spec, an empty cell as null. What cannot be read is [`read_row`]'s to tell.
fn said(header: &[String], cells: &[String]) -> Map<String, Value> {
    let (mut said, mut resources) = (Map::new(), Map::new());
    let of_spec = |column: &str| !matches!(column, "name" | "broadcast");
    for (column, cell) in header.iter().zip(cells).filter(|(column, _)| of_spec(column)) {
        let cell = Some(cell.trim()).filter(|cell| !cell.is_empty());
        let value = cell.and_then(|cell| value(column, cell).ok()).unwrap_or_default();
        if is_resource(column) { &mut resources } else { &mut said }.insert(column.clone(), value);
    }
    if !resources.is_empty() {
        said.insert("resources".into(), Value::Object(resources));
    }
    said
}

fn read_row(header: &[String], cells: &[String]) -> Result<NamedHost, FieldErrors> {
    let fault = |path: &str, problem: &str| FieldErrors::one(FieldError::new(path, problem));
    if cells.len() != header.len() {
        let text = format!("has {} cells where the header has {}", cells.len(), header.len());
        return Err(fault("", &text));
    }
    let (mut spec, mut resources) = (Map::new(), Map::new());
    let (mut name, mut broadcast) = (String::new(), None);
    for (column, cell) in header.iter().zip(cells) {
        let cell = cell.trim();
        if let Some(control) = cell.chars().find(|c| c.is_control()) {
            let problem = format!("has the control character U+{:04X}", u32::from(control));
            return Err(fault(column, &problem));
        }
        match column.as_str() {
            _ if cell.is_empty() => {}
            "name" => cell.clone_into(&mut name),
            "broadcast" => broadcast = Some(cell),
            one => {
                let members = if is_resource(one) { &mut resources } else { &mut spec };
                members.insert(column.clone(), value(one, cell)?);
            }
        }
    }
    if let Err(error) = names::check_dns_label(&name) {
        return Err(FieldErrors::one(
            FieldError::new("name", error.problem).found_text(&name).allowed(names::DNS_LABEL),
        ));
    }
    if !resources.is_empty() {
        spec.insert("resources".into(), Value::Object(resources));
    }
    let mut spec = BareMetalNodeSpec::read(&Value::Object(spec), "")?.value;
    match (broadcast, spec.power_interface) {
        (Some(address), PowerInterface::Wol) => spec.drivers = woken_by(&spec, address),
        (Some(address), other) => {
            let error =
                FieldError::new("broadcast", format!("means nothing for {other}")).found_text(address);
            return Err(FieldErrors::one(error.hint("leave it empty, or set powerInterface to wol")));
        }
        (None, _) => {}
    }
    Ok(NamedHost { name, spec })
}

/// The drivers of a host with magic packets alone, which leave to `broadcast`.
fn woken_by(spec: &BareMetalNodeSpec, broadcast: &str) -> Vec<DriverSpec> {
    let mut drivers = BareMetalNodeSpec { drivers: Vec::new(), ..spec.clone() }.effective_drivers();
    for driver in drivers.iter_mut().filter(|driver| driver.kind == DriverKind::Wol) {
        driver.settings.insert("broadcast".to_owned(), broadcast.to_owned());
    }
    drivers
}

fn labels(cell: &str) -> Result<Value, FieldErrors> {
    let mut map = Map::new();
    for pair in cell.split(';').map(str::trim).filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(FieldErrors::one(
                FieldError::new("labels", "must be key=value pairs with ; between them").found_text(pair),
            ));
        };
        map.insert(key.trim().to_owned(), Value::from(value.trim()));
    }
    Ok(Value::Object(map))
}

/// One line of a table as cells; a fault is about the line as a whole.
struct Row {
    number: usize,
    cells: Result<Vec<String>, String>,
}

/// The lines of a table. A record is one line, so that a quote that nobody closed costs that line alone. Blank lines, and
/// those that begin with `#`, are skipped: in quotes that is a cell like any other.
fn rows(text: &str) -> impl Iterator<Item = Row> {
    let text = text.trim_start_matches('\u{feff}');
    let lines = text.lines().enumerate().map(|(place, line)| (place + 1, line));
    let said = lines.filter(|(_, line)| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    said.map(|(number, line)| Row { number, cells: cells(line) })
}

/// Splits a line at its commas. Quoted cells may hold commas and doubled quotes.
fn cells(line: &str) -> Result<Vec<String>, String> {
    /// Where the reader is within a cell.
    enum In {
        Plain,
        Quotes,
        Behind,
    }
    let mut cells = vec![String::new()];
    let mut place = In::Plain;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let count = cells.len();
        let cell = cells.last_mut().expect("there is always a cell under way");
        match (&place, c) {
            (In::Quotes, '"') if chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            (In::Quotes, '"') => place = In::Behind,
            (In::Plain, '"') if cell.trim().is_empty() => {
                cell.clear();
                place = In::Quotes;
            }
            (In::Plain | In::Behind, ',') => {
                cells.push(String::new());
                place = In::Plain;
            }
            (In::Behind, c) if c.is_whitespace() => {}
            (In::Behind, _) => {
                return Err(format!(
                    "has text behind the closing quote of cell {count}; double a quote that belongs to it"
                ));
            }
            (In::Plain | In::Quotes, c) => cell.push(c),
        }
    }
    match place {
        In::Quotes => Err(format!("has a quote in cell {} that is not closed on this line", cells.len())),
        In::Plain | In::Behind => Ok(cells),
    }
}

/// Writes hosts as a table that [`read_csv`] reads.
pub fn write_csv<'h>(hosts: impl IntoIterator<Item = (&'h str, &'h BareMetalNodeSpec)>) -> String {
    let mut out = COLUMNS.join(",");
    out.push('\n');
    for (name, spec) in hosts {
        let row = row(name, spec);
        let cells: Vec<_> =
            COLUMNS.iter().map(|column| quote(row.get(column).map_or("", String::as_str))).collect();
        out.push_str(&cells.join(","));
        out.push('\n');
    }
    out
}

/// The cells of one host, by column.
pub fn row(name: &str, spec: &BareMetalNodeSpec) -> BTreeMap<&'static str, String> {
    let mut cells = BTreeMap::from([
        ("name", name.to_owned()),
        ("powerInterface", spec.power_interface.to_string()),
        ("pool", spec.pool.clone()),
        ("cpu", spec.resources.cpu.to_string()),
        ("memory", spec.resources.memory.to_string()),
        ("gpu", spec.resources.gpu.to_string()),
        ("storage", spec.resources.storage.to_string()),
        ("tlsVerify", spec.tls_verify.to_string()),
        ("canForceOff", spec.can_force_off.to_string()),
        (
            "labels",
            spec.labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(";"),
        ),
    ]);
    let mut put = |column: &'static str, value: Option<String>| {
        if let Some(value) = value {
            cells.insert(column, value);
        }
    };
    put("mgmtAddress", spec.mgmt_address.as_ref().map(ToString::to_string));
    put("macAddress", spec.mac_address.as_ref().map(ToString::to_string));
    put("bmcCredentials", spec.bmc_credentials.clone());
    put("bootProfile", spec.boot_profile.clone());
    put("rack", spec.rack.clone());
    put("slot", spec.slot.map(|n| n.to_string()));
    put("height", spec.height.map(|n| n.to_string()));
    put("zone", spec.zone.clone());
    put("idleWatts", spec.idle_watts.map(|n| n.to_string()));
    put("maxWatts", spec.max_watts.map(|n| n.to_string()));
    put("systemId", spec.system_id.clone());
    put("serial", spec.serial.clone());
    put("pin", spec.pin.map(|pin| pin.to_string()));
    let broadcast = spec.drivers.first().and_then(|driver| driver.settings.get("broadcast"));
    put("broadcast", broadcast.filter(|address| spec.drivers == woken_by(spec, address)).cloned());
    put("inventoryId", spec.inventory_id.clone());
    cells
}

fn quote(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) || cell.starts_with('#') {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\u{feff}name,powerInterface,mgmtAddress,pool,cpu,gpu,labels,zone\r\n\
        # the first rack\r\n\
        gpu-01,redfish,10.0.0.1,gpu,64,8,gpu=h100;team=ml,\"hall 1, row \"\"a\"\"\"\r\n\
        \r\n\
        gpu-02,redfsh,10.0.0.2,gpu,64,many,,\r\n\
        gpu-03,redfish\r\n";

    #[test]
    fn each_line_has_its_own_verdict() {
        let lines = read_csv(TABLE).unwrap();
        let numbers: Vec<_> =
            lines.iter().map(|line| (line.number, line.name.as_str(), line.host.is_ok())).collect();
        assert_eq!(numbers, [(3, "gpu-01", true), (5, "gpu-02", false), (6, "gpu-03", false)]);
        let host = lines[0].host.as_ref().unwrap();
        assert_eq!((host.name.as_str(), host.spec.resources.gpu), ("gpu-01", 8));
        assert_eq!(host.spec.zone.as_deref(), Some("hall 1, row \"a\""));
        assert_eq!(host.spec.labels["team"], "ml");
        let text = lines[1].host.as_ref().unwrap_err().to_string();
        assert!(text.contains("did you mean redfish?") && text.contains("resources.gpu"), "{text}");
        assert!(lines[2].host.as_ref().unwrap_err().to_string().contains("2 cells where the header has 8"));
    }

    #[test]
    fn a_header_with_a_typo_names_the_column() {
        assert!(read_csv("name,mgmtAdress\n").unwrap_err().to_string().contains("did you mean mgmtAddress?"));
        assert!(read_csv("pool\n").unwrap_err().to_string().contains("no column \"name\""));
        assert!(read_csv("name,name\n").is_err());
        assert!(read_csv("").is_err());
    }

    #[test]
    fn a_quote_that_is_not_closed_costs_its_own_line_alone() {
        let table = "name,powerInterface,mgmtAddress,pool,zone\n\
            a,redfish,10.0.0.1,gpu,\"hall 1\n\
            b,redfish,10.0.0.2,gpu,\"hall 1\"\n\
            c,redfish,10.0.0.3,gpu,\"hall 1\" x\n\
            d,redfish,10.0.0.4,gpu,\"hall \u{7}\"\n\
            e,redfish,10.0.0.5,gpu,\"hall 1\" \n";
        let lines = read_csv(table).unwrap();
        let why: Vec<_> = lines
            .iter()
            .map(|line| (line.number, line.host.as_ref().map_or_else(ToString::to_string, |_| String::new())))
            .collect();
        assert_eq!(why.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
        assert!(why[0].1.contains("a quote in cell 5 that is not closed"), "{why:?}");
        assert!(why[2].1.contains("text behind the closing quote of cell 5"), "{why:?}");
        assert!(why[3].1.contains("zone") && why[3].1.contains("U+0007"), "{why:?}");
        assert!(why[1].1.is_empty() && why[4].1.is_empty(), "{why:?}");
        let header = read_csv("# servers\nname,\"pool\na,b\n").unwrap_err().to_string();
        assert!(header.contains("line 2") && header.contains("not closed"), "{header}");
    }

    #[test]
    fn only_a_line_that_begins_with_a_hash_is_a_remark() {
        let table = "inventoryId,name,powerInterface,mgmtAddress,pool\n\
            \"#1001\",a,redfish,10.0.0.1,gpu\n #1002,b,redfish,10.0.0.2,gpu\n";
        let hosts: Vec<_> = read_csv(table).unwrap().into_iter().map(|line| line.host.unwrap()).collect();
        assert_eq!(hosts.len(), 1);
        assert_eq!(hosts[0].spec.inventory_id.as_deref(), Some("#1001"));
        let again = read_csv(&write_csv([(hosts[0].name.as_str(), &hosts[0].spec)])).unwrap();
        assert_eq!(again[0].host.as_ref(), Ok(&hosts[0]));
    }

    proptest::proptest! {
        #[test]
        fn an_inventory_id_survives_a_table(id in "[ -~äß€]{1,40}") {
            proptest::prop_assume!(!id.trim().is_empty());
            let mut spec = BareMetalNodeSpec::new("gpu", PowerInterface::Redfish);
            spec.mgmt_address = Some("10.0.0.1".parse().unwrap());
            spec.inventory_id = Some(id.trim().to_owned());
            let mut lines = read_csv(&write_csv([("a", &spec)])).unwrap();
            proptest::prop_assert_eq!(lines.remove(0).host.unwrap().spec, spec);
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let hosts: Vec<_> = read_csv(TABLE).unwrap().into_iter().filter_map(|line| line.host.ok()).collect();
        let table = write_csv(hosts.iter().map(|host| (host.name.as_str(), &host.spec)));
        let again: Vec<_> = read_csv(&table).unwrap().into_iter().map(|line| line.host.unwrap()).collect();
        assert_eq!(again, hosts);
    }

    #[test]
    fn keys_are_approved_by_a_column_and_come_back_with_an_export() {
        let pin = format!("sha256:{}", "ab".repeat(32));
        let table = format!(
            "name,powerInterface,mgmtAddress,pool,pin\ngpu-01,redfish,10.0.0.1,gpu,{pin}\ngpu-02,redfish,10.0.0.2,gpu,12\n"
        );
        let lines = read_csv(&table).unwrap();
        let host = lines[0].host.as_ref().unwrap();
        assert_eq!(host.spec.pin.map(|pin| pin.to_string()), Some(pin));
        assert!(lines[1].host.as_ref().unwrap_err().to_string().contains("is not a key pin"));
        let again = read_csv(&write_csv([(host.name.as_str(), &host.spec)])).unwrap();
        assert_eq!(again[0].host.as_ref(), Ok(host));
    }

    #[test]
    fn a_host_that_packets_wake_says_where_they_go() {
        let table = "name,powerInterface,macAddress,pool,mgmtAddress,broadcast\n\
            edge-01,wol,02:00:00:00:00:03,edge,,10.20.0.255\n\
            gpu-01,redfish,,gpu,10.0.0.1,10.20.0.255\n";
        let lines = read_csv(table).unwrap();
        let host = lines[0].host.as_ref().unwrap();
        assert!(host.spec.check_ways("spec").is_ok(), "{:?}", host.spec.drivers);
        let again = read_csv(&write_csv([(host.name.as_str(), &host.spec)])).unwrap();
        assert_eq!(again[0].host.as_ref(), Ok(host));
        assert!(lines[1].host.as_ref().unwrap_err().to_string().contains("means nothing for redfish"));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "(name|pool|,|\"|\n|#|x){0,40}") {
            if let Ok(lines) = read_csv(&text) {
                proptest::prop_assert!(lines.len() <= text.lines().count());
            }
        }
    }
}
