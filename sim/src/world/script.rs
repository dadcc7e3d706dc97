//! Stories in a few words: who is there, what happens, and what must be true afterwards.
//!
//! One command in a line; `#` begins a remark. The output is every command with what happened since, so that the
//! story can be read and compared. See `docs/reference/simulation.md` for the commands.

use std::collections::BTreeMap;

use muster_model::{Duration, host::Phase, rack::Rack};
use serde_json::{Value, json};
use thiserror::Error;

use super::{
    Build, Disturbance, Kind, What, Workload,
    process::Manner,
    simulation::Simulation,
    site::{self, HostSetting, PoolSetting, Site, Wires},
    timeline::START,
};

/// What is wrong with a script, or with the world that it describes.
#[derive(Debug, Error)]
pub enum ScriptError {
    #[error("line {line}: {why}")]
    Line { line: usize, why: String },
    #[error("line {line}: expected {expected}, found {found}")]
    Unmet { line: usize, expected: String, found: String },
    #[error("{} invariants were broken, the first is {row}: {text}", many)]
    Broken { many: usize, row: &'static str, text: String },
    #[error(transparent)]
    Site(#[from] site::SiteError),
    #[error("the store of the simulation failed")]
    Store(#[from] muster_model::store::StoreError),
}

/// A line in words: the first ones, and `key=value` pairs.
struct Words<'a> {
    line: usize,
    plain: Vec<&'a str>,
    pairs: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    fn new(line: usize, text: &'a str) -> Self {
        let (mut plain, mut pairs) = (Vec::new(), BTreeMap::new());
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some((key, value)) if !key.is_empty() => drop(pairs.insert(key, value)),
                _ => plain.push(word),
            }
        }
        Self { line, plain, pairs }
    }

    fn wrong(&self, why: impl Into<String>) -> ScriptError {
        ScriptError::Line { line: self.line, why: why.into() }
    }

    fn word(&self, place: usize, what: &str) -> Result<&'a str, ScriptError> {
        self.plain.get(place).copied().ok_or_else(|| self.wrong(format!("{what} is missing")))
    }

    fn read<T: std::str::FromStr>(&self, text: &str, what: &str) -> Result<T, ScriptError> {
        text.parse().map_err(|_| self.wrong(format!("{text:?} is no {what}")))
    }

    fn pair<T: std::str::FromStr>(&self, key: &str, otherwise: T) -> Result<T, ScriptError> {
        self.pairs.get(key).map_or(Ok(otherwise), |text| self.read(text, key))
    }

    /// What follows a word: `for 5m`.
    fn after(&self, word: &str) -> Option<&'a str> {
        let place = self.plain.iter().position(|one| *one == word)?;
        self.plain.get(place + 1).copied()
    }

    fn only(&self, known: &[&str]) -> Result<(), ScriptError> {
        match self.pairs.keys().find(|key| !known.contains(key)) {
            Some(key) => Err(self.wrong(format!("{key} is not known here; known are {}", known.join(", ")))),
            None => Ok(()),
        }
    }
}

/// A script under way.
struct Story {
    site: Site,
    workloads: Vec<Workload>,
    simulation: Option<Simulation>,
    output: String,
    shown: usize,
}

/// Runs a script and returns what happened. The output ends where the script failed.
pub async fn run(text: &str, manner: Manner) -> (String, Result<(), ScriptError>) {
    let mut story = Story {
        site: Site::default(),
        workloads: Vec::new(),
        simulation: None,
        output: String::new(),
        shown: 0,
    };
    let result = story.tell(text, &manner).await;
    story.show();
    (story.output, result)
}

impl Story {
    async fn tell(&mut self, text: &str, manner: &Manner) -> Result<(), ScriptError> {
        for (place, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                if !line.is_empty() {
                    self.output.push_str(line);
                    self.output.push('\n');
                }
                continue;
            }
            self.show();
            self.output.push_str("> ");
            self.output.push_str(line);
            self.output.push('\n');
            self.command(&Words::new(place + 1, line), line, manner).await?;
        }
        let broken = self.simulation.as_ref().map(|one| one.world().violations()).unwrap_or_default();
        match broken.first() {
            Some(first) => {
                Err(ScriptError::Broken { many: broken.len(), row: first.row, text: first.text.clone() })
            }
            None => Ok(()),
        }
    }

    /// Adds what happened since it was last looked.
    fn show(&mut self) {
        let Some(simulation) = &self.simulation else { return };
        let lines = simulation.world().lines();
        for line in lines.iter().skip(self.shown) {
            self.output.push_str("  ");
            self.output.push_str(line);
            self.output.push('\n');
        }
        self.shown = lines.len();
    }

    async fn command(&mut self, words: &Words<'_>, line: &str, manner: &Manner) -> Result<(), ScriptError> {
        match words.word(0, "a command")? {
            "pool" => self.pool(words),
            "rack" => self.rack(words),
            "host" => self.host(words),
            "pod" | "workload" | "job" => self.workload(words),
            "scale" => {
                let (name, replicas) = (words.word(1, "a workload")?, words.word(2, "a number")?);
                let replicas = words.read(replicas, "number")?;
                self.going(manner).await?.world().set_replicas(name, replicas);
                Ok(())
            }
            "run" => {
                let length: Duration = words.read(words.word(1, "a duration")?, "duration")?;
                self.going(manner).await?.run_for(length).await?;
                Ok(())
            }
            "trouble" => self.trouble(words, manner).await,
            "expect" => {
                let wanted = line.strip_prefix("expect").unwrap_or(line).to_owned();
                self.going(manner).await?;
                for one in wanted.split(',') {
                    self.expect(words.line, one.trim()).await?;
                }
                Ok(())
            }
            other => Err(words.wrong(format!(
                "{other:?} is no command; known are pool, rack, host, pod, workload, job, scale, run, trouble, expect"
            ))),
        }
    }

    fn pool(&mut self, words: &Words<'_>) -> Result<(), ScriptError> {
        words.only(&["min", "max", "taint", "labels", "count", "trigger", "down", "delay"])?;
        let name = words.word(1, "a name")?;
        let mut pool = PoolSetting::metal(name, words.pair("min", 0)?, words.pair("max", 10)?);
        if let Some(count) = words.pairs.get("count") {
            let count: u32 = words.read(count, "number")?;
            pool.spec = json!({"platform": {"type": "baremetal"}, "nodeCount": count});
        }
        if let Some(key) = words.pairs.get("taint") {
            pool.spec["taints"] = json!([{"key": key, "effect": "NoSchedule"}]);
        }
        let labels: BTreeMap<&str, &str> = pairs_of(words.pairs.get("labels"));
        if !labels.is_empty() {
            pool.spec["labels"] = json!(labels);
        }
        let mut triggers: Vec<Value> = Vec::new();
        for (key, direction) in [("trigger", "up"), ("down", "down")] {
            if let Some(text) = words.pairs.get(key) {
                let mut parts = text.split(':');
                let (query, threshold) = (parts.next().unwrap_or_default(), parts.next().unwrap_or("0"));
                let threshold: f64 = words.read(threshold, "threshold")?;
                triggers.push(json!({"metricQuery": query, "threshold": threshold, "duration": "1m",
                    "scaleDirection": direction}));
            }
        }
        if !triggers.is_empty() {
            pool.spec["autoscaling"]["triggers"] = json!(triggers);
        }
        self.site.pools.push(pool);
        Ok(())
    }

    fn rack(&mut self, words: &Words<'_>) -> Result<(), ScriptError> {
        words.only(&["watts", "starts"])?;
        let mut rack = Rack::new(words.word(1, "a name")?);
        if let Some(watts) = words.pairs.get("watts") {
            rack.watt_cap = Some(words.read(watts, "number")?);
        }
        rack.start_limit = words.pair("starts", rack.start_limit)?;
        self.site.racks.push(rack);
        Ok(())
    }

    fn host(&mut self, words: &Words<'_>) -> Result<(), ScriptError> {
        words
            .only(&["pool", "labels", "power", "gpu", "cpu", "boot", "rack", "watts", "wires", "shutdown"])?;
        let (name, number) = (words.word(1, "a name")?, self.site.hosts.len() + 1);
        let mut build = Build::new(name, &format!("10.0.{}.{}", number / 250, number % 250 + 1));
        build.milli_cpu = words.pair::<i64>("cpu", 8)? * 1000;
        build.gpus = words.pair("gpu", 0)?;
        build.max_watts = words.pair("watts", build.max_watts)?;
        build.boot = words.pair("boot", build.boot)?;
        build.shutdown = words.pair("shutdown", build.shutdown)?;
        build.rack = words.pairs.get("rack").map(|rack| (*rack).to_owned());
        build.on = words.pairs.get("power") == Some(&"on");
        let pool = words.pairs.get("pool").copied();
        let first = self.site.pools.first().map(|pool| pool.name.as_str());
        let pool = pool.or(first).ok_or_else(|| words.wrong("a host needs a pool; write one before it"))?;
        let mut host = HostSetting::new(pool, build);
        host.labels = pairs_of(words.pairs.get("labels"))
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        host.wires = match words.pairs.get("wires").copied() {
            None | Some("redfish") => Wires::Redfish,
            Some("ipmi") => Wires::Ipmi,
            Some("both") => Wires::Both,
            Some("wol") => Wires::Wol,
            Some(other) => {
                return Err(words.wrong(format!("wires are redfish, ipmi, both or wol, not {other}")));
            }
        };
        self.site.hosts.push(host);
        Ok(())
    }

    fn workload(&mut self, words: &Words<'_>) -> Result<(), ScriptError> {
        words.only(&[
            "replicas",
            "cpu",
            "gpu",
            "grace",
            "ends",
            "pdb",
            "tolerates",
            "select",
            "seconds",
            "memory",
            "pinned",
        ])?;
        let milli_cpu = words.pair::<f64>("cpu", 1.0)? * 1000.0;
        #[allow(clippy::cast_possible_truncation, reason = "a request of a pod in a story")]
        let mut one =
            Workload::deployment(words.word(1, "a name")?, words.pair("replicas", 1)?, milli_cpu as i64);
        one.gpus = words.pair("gpu", 0)?;
        one.mebibytes = words.pair("memory", one.mebibytes)?;
        one.grace_seconds = words.pair("grace", one.grace_seconds)?;
        one.ends_after_seconds = words.pair("ends", one.ends_after_seconds)?;
        one.pinned = words.pair("pinned", false)?;
        if let Some(least) = words.pairs.get("pdb") {
            one.min_available = Some(words.read(least, "number")?);
        }
        one.tolerates = words.pairs.get("tolerates").map(|key| vec![(*key).to_owned()]).unwrap_or_default();
        one.selector = pairs_of(words.pairs.get("select"))
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        if words.plain[0] == "job" {
            one.kind = Kind::Job { seconds: words.pair("seconds", 60)? };
        }
        match &self.simulation {
            Some(simulation) => simulation.world().add_workload(one),
            None => self.workloads.push(one),
        }
        Ok(())
    }

    /// `trouble quirk g1 lies-off for 5m`, `trouble outage api-down for 1m`, `trouble button g1 off`, …
    async fn trouble(&mut self, words: &Words<'_>, manner: &Manner) -> Result<(), ScriptError> {
        let kind = words.word(1, "a kind of trouble")?;
        let named = |text: &str| Value::String(text.to_owned());
        let subject = || words.word(2, "a subject");
        let what = match kind {
            "quirk" => json!({"quirk": {"machine": subject()?, "quirk": words.word(3, "a quirk")?}}),
            "outage" => json!({"outage": subject()?}),
            "button" => json!({"button": {"machine": subject()?, "on": words.word(3, "on or off")? == "on"}}),
            "rack-dark" | "rack-cut" => json!({kind: {"rack": subject()?}}),
            "swap" => json!({"swap": {"one": subject()?, "other": words.word(3, "another machine")?}}),
            "signal" => {
                let value: f64 = words.read(words.word(3, "a value")?, "number")?;
                #[allow(clippy::cast_possible_truncation, reason = "a metric in a story")]
                let millis = (value * 1000.0) as i64;
                json!({"signal": {"query": subject()?, "millis": millis}})
            }
            "cordon" | "bind-to" => json!({kind: {"machine": subject()?}}),
            "maintenance" | "rotate" | "acknowledge" => json!({kind: {"host": subject()?}}),
            "clock-jump" => json!({"clock-jump": {"millis": words.read::<i64>(subject()?, "number")?}}),
            "clock-rate" => json!({"clock-rate": {"rate": words.read::<u64>(subject()?, "number")?}}),
            "bounds" => json!({"bounds": {"pool": subject()?, "min": words.pair::<u32>("min", 0)?,
                "max": words.pair::<u32>("max", 10)?}}),
            other => named(other),
        };
        let what: What =
            serde_json::from_value(what).map_err(|error| words.wrong(format!("no such trouble: {error}")))?;
        let lasts = words.after("for").map_or(Ok(Duration::ZERO), |text| words.read(text, "duration"))?;
        let simulation = self.going(manner).await?;
        let at = simulation.world().now();
        simulation.world().disturb(Disturbance { at, lasts, what });
        Ok(())
    }

    /// The simulation, which begins with the first command that needs it.
    async fn going(&mut self, manner: &Manner) -> Result<&mut Simulation, ScriptError> {
        if self.simulation.is_none() {
            let mut simulation = Simulation::new(START, manner.clone());
            simulation.world().keep_all_lines();
            simulation.plan_for(site::cluster_id());
            let first = simulation.start().await?;
            simulation.furnish(first, &self.site)?;
            for workload in self.workloads.drain(..) {
                simulation.world().add_workload(workload);
            }
            self.simulation = Some(simulation);
        }
        Ok(self.simulation.as_mut().expect("it was just made"))
    }

    async fn expect(&self, line: usize, one: &str) -> Result<(), ScriptError> {
        let wrong = |why: String| ScriptError::Line { line, why };
        let (subject, expected) = one
            .split_once('=')
            .ok_or_else(|| wrong(format!("{one:?} is no expectation; write `pending = 0`")))?;
        let (subject, expected) = (subject.trim(), expected.trim());
        let simulation = self.simulation.as_ref().ok_or_else(|| wrong("nothing has run yet".to_owned()))?;
        let world = simulation.world();
        let words: Vec<&str> = subject.split_whitespace().collect();
        let found = match words.as_slice() {
            ["pending"] => world.pending().to_string(),
            ["running"] => world.running().to_string(),
            ["host", name] => {
                let phase = simulation.phase(name).await?;
                let state = phase.map_or("unknown", |phase| phase.state().as_str());
                let full = phase.map_or("unknown", Phase::as_str);
                if expected == full { full.to_owned() } else { state.to_owned() }
            }
            ["machine", name] => (if world.is_on(name) { "on" } else { "off" }).to_owned(),
            ["cordoned", name] => world.is_cordoned(name).to_string(),
            ["power-ons"] => world.power_ons(None).to_string(),
            ["power-ons", name] => world.power_ons(Some(name)).to_string(),
            ["power-offs"] => world.power_offs(None).to_string(),
            ["power-offs", name] => world.power_offs(Some(name)).to_string(),
            ["evictions"] => world.evictions().to_string(),
            ["leader"] => simulation.leader().map_or("nobody".to_owned(), |number| number.to_string()),
            _ => return Err(wrong(format!("nothing is known about {subject:?}"))),
        };
        if found == expected {
            return Ok(());
        }
        Err(ScriptError::Unmet { line, expected: format!("{subject} = {expected}"), found })
    }
}

/// `a:b,c:d` as pairs.
fn pairs_of<'a>(text: Option<&&'a str>) -> BTreeMap<&'a str, &'a str> {
    text.map(|text| text.split(',').filter_map(|pair| pair.split_once(':')).collect()).unwrap_or_default()
}
