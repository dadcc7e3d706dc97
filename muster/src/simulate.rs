//! `muster simulate`: files and terminal around [`muster_sim::simulate`]. Reads, asks, prints; changes nothing.

use std::{
    fs,
    io::{IsTerminal, Read, Write},
    path::PathBuf,
    time::Instant,
};

use clap::ValueEnum;
use muster_model::Timestamp;
use muster_sim::{
    scenario,
    simulate::{self, Add, Colour, Question, Shape, Source},
};
use serde_json::json;

use crate::cli::{Connection, what_if::Ask};

/// Ok, failure and usage, as everywhere in the command line.
const OK: u8 = 0;
const FAILURE: u8 = 1;
const USAGE: u8 = 2;

/// Ask what would happen, on files, a dump or a running server, without touching anything
///
/// Reads what `kubectl get nodes,pods,daemonsets,replicasets,pdb,… -A -o yaml` prints, pool and host manifests, or a
/// scenario file; with --live a server answers on a copy of this moment. Without a question it says what would be done
/// now.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files with objects, YAML or JSON; - for standard input
    #[arg(value_name = "FILE", required_unless_present_any = ["scenario", "live"])]
    files: Vec<PathBuf>,
    /// A scenario file (muster-scenario/1) instead of objects
    #[arg(long, value_name = "FILE", conflicts_with = "files")]
    scenario: Option<PathBuf>,
    /// Ask the server about this moment, instead of files
    #[arg(long, conflicts_with_all = ["files", "scenario", "pools", "resources", "add_from", "explain", "now", "svg"])]
    live: bool,
    /// The server's cluster that is asked about, where it has several
    #[arg(long, value_name = "NAME", requires = "live")]
    cluster: Option<String>,
    /// A pool without a manifest: NAME:cpu=8,memory=32Gi[,gpu=1][,min=0][,max=10][,price=0.2][,zone=a][,label.K=V][,taint=K:NoSchedule]
    #[arg(long = "pool", value_name = "NAME:…")]
    pools: Vec<String>,
    /// Add this many pods of one shape
    #[arg(long, value_name = "N", conflicts_with = "add_from")]
    add: Option<u32>,
    /// What each added pod requests
    #[arg(long, value_name = "AMOUNT", requires = "add")]
    cpu: Option<String>,
    #[arg(long, value_name = "AMOUNT", requires = "add")]
    memory: Option<String>,
    #[arg(long, value_name = "N", requires = "add")]
    gpu: Option<u32>,
    /// Another resource of each added pod
    #[arg(long = "resource", value_name = "NAME=AMOUNT", requires = "add")]
    resources: Vec<String>,
    /// A taint that the added pods tolerate
    #[arg(long, value_name = "KEY[=VALUE][:EFFECT]", requires = "add")]
    tolerate: Vec<String>,
    /// A node label that the added pods ask for
    #[arg(long, value_name = "KEY=VALUE", requires = "add")]
    selector: Vec<String>,
    /// Add the pods of a workload's manifest
    #[arg(long, value_name = "FILE")]
    add_from: Option<PathBuf>,
    /// How many of them, instead of the number in the manifest
    #[arg(long, value_name = "N", requires = "add_from")]
    replicas: Option<u32>,
    /// Take a node, host or rack away in good order
    #[arg(long, value_name = "NAME")]
    remove: Vec<String>,
    /// Let a node, host or rack fail
    #[arg(long, value_name = "NAME")]
    fail: Vec<String>,
    /// Change a pool: POOL.max=N, POOL.min=N, POOL.count=N, POOL.price=P, POOL.frozen=true
    #[arg(long, value_name = "POOL.FIELD=VALUE")]
    set: Vec<String>,
    /// Could it run on fewer machines?
    #[arg(long)]
    consolidate: bool,
    /// How many machines of this kind must be bought? The name of a template, or cpu=16,memory=64Gi
    #[arg(long, value_name = "MACHINE")]
    buy: Option<String>,
    /// Explain a pod, node, pool or host: pod/NAMESPACE/NAME, node/NAME, pool/NAME, host/NAME
    #[arg(long, value_name = "NAME")]
    explain: Vec<String>,
    /// The moment for which schedules and delays are worked out; by default the latest that the objects mention
    #[arg(long, value_name = "TIME")]
    now: Option<Timestamp>,
    /// Write the packing before and after as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

impl Args {
    /// Whether a server is asked, and not files.
    pub(crate) const fn is_live(&self) -> bool {
        self.live
    }

    /// The question as the API takes it.
    pub(crate) fn ask(&self) -> Ask {
        let mut question = serde_json::Map::new();
        let lists = [("remove", &self.remove), ("fail", &self.fail), ("set", &self.set)];
        for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            question.insert(name.to_owned(), json!(list));
        }
        if let Some(count) = self.add {
            let mut add = json!({ "count": count, "tolerate": self.tolerate, "selector": self.selector });
            let texts = [("cpu", &self.cpu), ("memory", &self.memory)];
            for (name, text) in texts.into_iter().filter_map(|(name, text)| Some((name, text.as_ref()?))) {
                add[name] = json!(text);
            }
            if let Some(gpu) = self.gpu {
                add["gpu"] = json!(gpu);
            }
            question.insert("add".to_owned(), add);
        }
        if self.consolidate {
            question.insert("consolidate".to_owned(), json!(true));
        }
        if let Some(machine) = &self.buy {
            question.insert("buy".to_owned(), json!(machine));
        }
        Ask {
            question: question.into(),
            cluster: self.cluster.clone(),
            json: self.output == Output::Json,
            connection: self.connection.clone(),
        }
    }

    /// Whether nothing is asked beside the plan itself.
    fn asks_nothing(&self) -> bool {
        self.explain.is_empty()
            && self.pools.is_empty()
            && self.add.is_none()
            && self.add_from.is_none()
            && self.remove.is_empty()
            && self.fail.is_empty()
            && self.set.is_empty()
            && !self.consolidate
            && self.buy.is_none()
            && self.svg.is_none()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// Why there is no answer, with the exit code.
struct Failed(u8, String);

/// Answers on `out`, complains on `err`, and returns the exit code.
pub(crate) fn run(args: &Args, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    match answer(args) {
        // Whoever closed the pipe has read enough.
        Ok(text) => match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => OK,
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => OK,
            Err(_) => FAILURE,
        },
        Err(Failed(code, text)) => {
            let _ = writeln!(err, "error: {text}");
            code
        }
    }
}

fn answer(args: &Args) -> Result<String, Failed> {
    if let Some(path) = &args.scenario
        && args.output == Output::Json
        && args.asks_nothing()
    {
        return scenario_report(path);
    }
    let loaded = if let Some(path) = &args.scenario {
        simulate::Loaded::from_snapshot(scenario_snapshot(&read(path)?)?.1)
    } else {
        let sources: Result<Vec<Source>, Failed> = args.files.iter().map(read).collect();
        simulate::load(&sources?, args.now)
    };
    let question = question(args)?;
    let usage = |error: simulate::QuestionError| Failed(USAGE, error.to_string());
    let simulation = simulate::simulate(loaded, &question, &args.explain).map_err(usage)?;
    if let Some(path) = &args.svg {
        let picture = simulate::draw(&simulation.question, &simulation.nodes_before, &simulation.nodes_after);
        fs::write(path, picture)
            .map_err(|error| Failed(FAILURE, format!("{} cannot be written: {error}", path.display())))?;
    }
    match args.output {
        Output::Json => serde_json::to_string_pretty(&simulation)
            .map(|text| text + "\n")
            .map_err(|error| Failed(FAILURE, format!("the answer cannot be written as JSON: {error}"))),
        Output::Text => {
            let colour = if std::io::stdout().is_terminal() { Colour::Yes } else { Colour::No };
            Ok(simulation.text(colour))
        }
    }
}

fn question(args: &Args) -> Result<Question, Failed> {
    let add = match (&args.add, &args.add_from) {
        (Some(count), _) => Some(Add::Shape(Shape {
            count: *count,
            cpu: args.cpu.clone(),
            memory: args.memory.clone(),
            gpu: args.gpu,
            resources: args.resources.clone(),
            tolerate: args.tolerate.clone(),
            selector: args.selector.clone(),
        })),
        (None, Some(path)) => Some(Add::From { source: read(path)?, replicas: args.replicas }),
        (None, None) => None,
    };
    Ok(Question {
        pools: args.pools.clone(),
        add,
        remove: args.remove.clone(),
        fail: args.fail.clone(),
        set: args.set.clone(),
        consolidate: args.consolidate,
        buy: args.buy.clone(),
        currency: None,
    })
}

fn read(path: &PathBuf) -> Result<Source, Failed> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        let read = std::io::stdin().lock().read_to_string(&mut text);
        return read
            .map(|_| Source { name: "stdin".to_owned(), text })
            .map_err(|error| Failed(FAILURE, format!("standard input cannot be read: {error}")));
    }
    let name = path.display().to_string();
    match fs::read_to_string(path) {
        Ok(text) => Ok(Source { name, text }),
        Err(error) => Err(Failed(
            FAILURE,
            format!("{name} cannot be read: {error}; check the path, - reads standard input"),
        )),
    }
}

fn scenario_snapshot(source: &Source) -> Result<(String, muster_engine::Snapshot), Failed> {
    let failed = |error: scenario::ScenarioError| {
        let cause = std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
        Failed(FAILURE, format!("{}: {error}{cause}", source.name))
    };
    let read = scenario::read(source.text.as_bytes()).map_err(failed)?;
    let snapshot = read.snapshot().map_err(failed)?;
    Ok((read.name, snapshot))
}

/// Every field of the scenario format's report.
#[allow(clippy::disallowed_methods, reason = "the report states how long the solve took: this is the rim")]
fn scenario_report(path: &PathBuf) -> Result<String, Failed> {
    let source = read(path)?;
    let (wall, processor) = (Instant::now(), processor_millis());
    // Reading and expanding are part of the time.
    let (name, snapshot) = scenario_snapshot(&source)?;
    let decision = muster_engine::plan::scale_up(&snapshot);
    let measured = scenario::Measured {
        solve_ms: wall.elapsed().as_secs_f64() * 1000.0,
        solve_user_ms: processor_millis() - processor,
        max_rss_kb: max_rss_kb(),
    };
    let report = scenario::report(&name, &snapshot, &decision, measured);
    serde_json::to_string_pretty(&report)
        .map(|text| text + "\n")
        .map_err(|error| Failed(FAILURE, format!("the report cannot be written as JSON: {error}")))
}

/// Processor time of this process; 0 where the system does not say.
fn processor_millis() -> f64 {
    const TICK_MILLIS: f64 = 10.0; // USER_HZ is 100 on every Linux
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    let user = after.split_whitespace().nth(11).and_then(|ticks| ticks.parse::<f64>().ok());
    user.unwrap_or(0.0) * TICK_MILLIS
}

/// The most memory this process had; 0 where the system does not say.
fn max_rss_kb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}
