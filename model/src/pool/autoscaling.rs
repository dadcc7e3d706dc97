//! `spec.autoscaling`: bounds, marks, delays, triggers, headroom and schedules.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    promql,
    schedule::Schedule,
    template::{Resources, read_resources},
};
use crate::{
    Duration, Timestamp,
    field::{FieldError, Findings, GoDuration, Object, choice},
};

/// Most nodes that one pool may have.
pub const MAX_NODES: u32 = 100_000;
/// Longest delay: a week. What should wait longer is a schedule.
pub const MAX_DELAY: Duration = Duration::from_hours(168);
/// Least distance between the low mark and the high ones; nearer marks make a pool swing.
pub const MARK_DISTANCE: u32 = 20;

pub const DEFAULT_TARGET_CPU: u32 = 70;
pub const DEFAULT_TARGET_MEMORY: u32 = 80;
pub const DEFAULT_SCALE_DOWN_UTILIZATION: u32 = 30;
pub const DEFAULT_SCALE_UP_DELAY: Duration = Duration::from_mins(3);
pub const DEFAULT_SCALE_DOWN_DELAY: Duration = Duration::from_mins(10);

const MAX_TRIGGERS: usize = 20;
const MAX_SCHEDULES: usize = 50;
/// Longest query of a trigger.
const MAX_QUERY: usize = 4096;
/// Characters of a query in a sentence.
const MOST_OF_A_TITLE: usize = 60;

/// As sent; the accessors give the effective values.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Autoscaling {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_nodes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none", rename = "targetCPUUtilization")]
    pub target_cpu_utilization: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_memory_utilization: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_down_utilization: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_up_delay: Option<GoDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_down_delay: Option<GoDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub triggers: Option<Vec<Trigger>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headroom: Option<Headroom>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedules: Option<Vec<Schedule>>,
}

choice! {
    pub enum ScaleDirection("a direction") {
        Up = "up",
        Down = "down",
    }
}

choice! {
    /// When a sample satisfies a trigger.
    pub enum Comparator("a comparator") {
        Above = "above",
        Below = "below",
    }
}

choice! {
    /// What a trigger without data does to scaling down.
    pub enum OnNoData("a reaction to missing data") {
        /// Nothing is scaled down while the data is missing.
        Hold = "hold",
        Ignore = "ignore",
    }
}

choice! {
    /// How the series of a query become one verdict.
    pub enum SeriesAggregate("a way to aggregate series") {
        /// The query must return one series.
        Single = "single",
        Any = "any",
        All = "all",
        Max = "max",
        Avg = "avg",
    }
}

/// A query of Prometheus that asks for more nodes or allows fewer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub metric_query: String,
    pub threshold: f64,
    /// How long the threshold must be passed.
    pub duration: GoDuration,
    pub scale_direction: ScaleDirection,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparator: Option<Comparator>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clear_threshold: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_no_data: Option<OnNoData>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<SeriesAggregate>,
}

impl Trigger {
    /// Its name, or the beginning of its query, in one line.
    pub fn title(&self) -> String {
        let name = self.name.as_deref().unwrap_or(&self.metric_query);
        let words: Vec<&str> = name.split(|c: char| c.is_whitespace() || c.is_control()).collect();
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        words.join(" ").chars().take(MOST_OF_A_TITLE).collect()
    }

    /// Up means above the threshold and down below it, unless the trigger says otherwise.
    pub fn comparator(&self) -> Comparator {
        self.comparator.unwrap_or(match self.scale_direction {
            ScaleDirection::Up => Comparator::Above,
            ScaleDirection::Down => Comparator::Below,
        })
    }

    pub fn on_no_data(&self) -> OnNoData {
        self.on_no_data.unwrap_or(OnNoData::Hold)
    }

    /// Nobody knows what several series of a query mean unless the trigger says it.
    pub fn aggregate(&self) -> SeriesAggregate {
        self.aggregate.unwrap_or(SeriesAggregate::Single)
    }
}

/// Room that is kept free for what comes next: whole nodes, or pods of a shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Headroom {
    Nodes {
        nodes: u32,
    },
    Pods {
        pods: u32,
        /// What each of them requests.
        resources: Resources,
    },
}

/// The bounds of a pool at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    pub min: u32,
    pub max: u32,
    /// Names of the schedules that set them, in the order of the spec.
    pub schedules: Vec<String>,
}

impl Bounds {
    pub fn clamp(&self, nodes: u32) -> u32 {
        nodes.clamp(self.min, self.max)
    }
}

/// Shares of requested resources in percent: above the high ones a pool grows, below the low one a node may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    pub cpu: u32,
    pub memory: u32,
    pub scale_down: u32,
}

impl Autoscaling {
    pub fn enabled(&self) -> bool {
        self.enabled.unwrap_or(false)
    }

    pub fn min_nodes(&self) -> u32 {
        self.min_nodes.unwrap_or(0)
    }

    /// An enabled block always has a maximum; without one nothing may grow.
    pub fn max_nodes(&self) -> u32 {
        self.max_nodes.unwrap_or_else(|| self.min_nodes())
    }

    pub fn target_cpu(&self) -> u32 {
        self.target_cpu_utilization.unwrap_or(DEFAULT_TARGET_CPU)
    }

    pub fn target_memory(&self) -> u32 {
        self.target_memory_utilization.unwrap_or(DEFAULT_TARGET_MEMORY)
    }

    /// The low mark: as set, else the default, lowered where a high mark would be too near.
    pub fn scale_down_utilization(&self) -> u32 {
        self.scale_down_utilization
            .unwrap_or_else(|| DEFAULT_SCALE_DOWN_UTILIZATION.min(self.highest_low_mark()))
    }

    fn highest_low_mark(&self) -> u32 {
        self.target_cpu().min(self.target_memory()).saturating_sub(MARK_DISTANCE)
    }

    /// The marks that hold: the pool's own, else `high` and `low`, else the defaults. A low mark that comes too near to a
    /// high one is lowered.
    pub fn marks(&self, high: Option<u32>, low: Option<u32>) -> Marks {
        let own = Self {
            target_cpu_utilization: self.target_cpu_utilization.or(high),
            target_memory_utilization: self.target_memory_utilization.or(high),
            ..Self::default()
        };
        let wanted = self.scale_down_utilization.or(low).unwrap_or(DEFAULT_SCALE_DOWN_UTILIZATION);
        Marks {
            cpu: own.target_cpu(),
            memory: own.target_memory(),
            scale_down: wanted.min(own.highest_low_mark()),
        }
    }

    pub fn scale_up_delay(&self) -> Duration {
        self.scale_up_delay.as_ref().map_or(DEFAULT_SCALE_UP_DELAY, GoDuration::get)
    }

    pub fn scale_down_delay(&self) -> Duration {
        self.scale_down_delay.as_ref().map_or(DEFAULT_SCALE_DOWN_DELAY, GoDuration::get)
    }

    pub fn triggers(&self) -> &[Trigger] {
        self.triggers.as_deref().unwrap_or_default()
    }

    pub fn schedules(&self) -> &[Schedule] {
        self.schedules.as_deref().unwrap_or_default()
    }

    /// The bounds at `now`: those of the block, replaced by every active schedule, later ones last.
    ///
    /// Where overlapping schedules put the minimum above the maximum, the maximum holds.
    pub fn bounds_at(&self, now: Timestamp) -> Bounds {
        let mut bounds = Bounds { min: self.min_nodes(), max: self.max_nodes(), schedules: Vec::new() };
        for (index, schedule) in self.schedules().iter().enumerate() {
            if schedule.is_active(now) {
                bounds.min = schedule.min_nodes.unwrap_or(bounds.min);
                bounds.max = schedule.max_nodes.unwrap_or(bounds.max);
                bounds.schedules.push(schedule.label(index));
            }
        }
        bounds.min = bounds.min.min(bounds.max);
        bounds
    }

    /// The smallest minimum and the largest maximum that any schedule allows at any time.
    pub fn widest_bounds(&self) -> (u32, u32) {
        let minima = self.schedules().iter().filter_map(|schedule| schedule.min_nodes);
        let maxima = self.schedules().iter().filter_map(|schedule| schedule.max_nodes);
        (minima.fold(self.min_nodes(), u32::min), maxima.fold(self.max_nodes(), u32::max))
    }

    /// When [`Self::bounds_at`] may next give another answer.
    pub fn next_bounds_change(&self, now: Timestamp) -> Option<Timestamp> {
        self.schedules().iter().filter_map(|schedule| schedule.next_change(now)).min()
    }

    pub(super) fn read(value: &Value, path: &str, findings: &mut Findings) -> Option<Self> {
        let mut object = Object::read(value, path, findings)?;
        let o = &mut object;
        let block = Self {
            enabled: o.boolean("enabled", findings),
            min_nodes: o.count("minNodes", 0..=MAX_NODES, findings),
            max_nodes: o.count("maxNodes", 1..=MAX_NODES, findings),
            target_cpu_utilization: o.count("targetCPUUtilization", 1..=100, findings),
            target_memory_utilization: o.count("targetMemoryUtilization", 1..=100, findings),
            scale_down_utilization: o.count("scaleDownUtilization", 0..=100, findings),
            scale_up_delay: o.duration("scaleUpDelay", MAX_DELAY, findings),
            scale_down_delay: o.duration("scaleDownDelay", MAX_DELAY, findings),
            triggers: read_triggers(o, findings),
            headroom: read_headroom(o, findings),
            schedules: read_schedules(o, findings),
        };
        if block.enabled() && o.get("maxNodes").is_none() {
            findings.push(
                FieldError::new(o.at("maxNodes"), "is required when autoscaling is enabled")
                    .allowed(format!("1 to {MAX_NODES}")),
            );
        }
        block.check(o, findings);
        object.finish(findings);
        Some(block)
    }

    fn check(&self, o: &Object<'_>, findings: &mut Findings) {
        if let (Some(min), Some(max)) = (self.min_nodes, self.max_nodes)
            && min > max
        {
            findings.push(
                FieldError::new(o.at("maxNodes"), format!("must not be below minNodes, which is {min}"))
                    .found(&max.into())
                    .allowed(format!("{min} to {MAX_NODES}")),
            );
        }
        let highest = self.highest_low_mark();
        if let Some(low) = self.scale_down_utilization
            && (low > highest || self.target_cpu().min(self.target_memory()) < MARK_DISTANCE)
        {
            findings.push(
                FieldError::new(
                    o.at("scaleDownUtilization"),
                    format!(
                        "must be at least {MARK_DISTANCE} below the high marks, cpu {} and memory {}",
                        self.target_cpu(),
                        self.target_memory()
                    ),
                )
                .found(&low.into())
                .allowed(format!("0 to {highest}")),
            );
        }
        for (index, schedule) in self.schedules().iter().enumerate() {
            let min = schedule.min_nodes.or(self.min_nodes).unwrap_or(0);
            if let Some(max) = schedule.max_nodes.or(self.max_nodes)
                && min > max
            {
                let path = format!("{}[{index}].minNodes", o.at("schedules"));
                findings.push(
                    FieldError::new(path, format!("must not be above the maximum that holds with it, {max}"))
                        .found(&min.into())
                        .hint("give the schedule a maxNodes too"),
                );
            }
        }
    }
}

fn read_triggers(o: &mut Object<'_>, findings: &mut Findings) -> Option<Vec<Trigger>> {
    let items = o.list("triggers", MAX_TRIGGERS, findings)?;
    Some(items.into_iter().filter_map(|(path, item)| read_trigger(item, path, findings)).collect())
}

fn read_trigger(item: &Value, path: String, findings: &mut Findings) -> Option<Trigger> {
    let mut object = Object::read(item, path, findings)?;
    let o = &mut object;
    let name = o.text("name", 63, findings).map(str::to_owned);
    let metric_query = o.text("metricQuery", MAX_QUERY, findings).map(str::to_owned);
    let threshold = o.number("threshold", findings);
    let duration = o.duration("duration", MAX_DELAY, findings);
    let scale_direction = o.choice("scaleDirection", findings);
    let comparator: Option<Comparator> = o.choice("comparator", findings);
    let clear_threshold = o.number("clearThreshold", findings);
    let on_no_data = o.choice("onNoData", findings);
    let aggregate = o.choice("aggregate", findings);
    for required in ["metricQuery", "threshold", "duration", "scaleDirection"] {
        if o.get(required).is_none() {
            findings.push(FieldError::new(o.at(required), "is required"));
        }
    }
    if let Some(query) = &metric_query
        && let Some(operator) = promql::top_comparison(query)
    {
        findings.push(
            FieldError::new(
                o.at("metricQuery"),
                "must not end in a comparison: false would look like no data",
            )
            .found(&query.as_str().into())
            .hint(format!("put the limit into threshold, or write `{operator} bool`")),
        );
    }
    let path = o.at("clearThreshold");
    object.finish(findings);
    let trigger = Trigger {
        name,
        metric_query: metric_query?,
        threshold: threshold?,
        duration: duration?,
        scale_direction: scale_direction?,
        comparator,
        clear_threshold,
        on_no_data,
        aggregate,
    };
    if let Some(clear) = trigger.clear_threshold {
        let wrong = match trigger.comparator() {
            Comparator::Above => clear > trigger.threshold,
            Comparator::Below => clear < trigger.threshold,
        };
        if wrong {
            findings.push(
                FieldError::new(path, "must lie on the quiet side of the threshold")
                    .found(&clear.into())
                    .hint(format!("the trigger fires {} {}", trigger.comparator(), trigger.threshold)),
            );
        }
    }
    Some(trigger)
}

fn read_headroom(o: &mut Object<'_>, findings: &mut Findings) -> Option<Headroom> {
    let mut object = o.object("headroom", findings)?;
    let nodes = object.count("nodes", 0..=MAX_NODES, findings);
    let pods = object.count("pods", 0..=MAX_NODES, findings);
    let resources = read_resources(&mut object, "resources", findings);
    let sent = |object: &mut Object<'_>, name| object.get(name).is_some();
    let (has_nodes, has_pods) = (sent(&mut object, "nodes"), sent(&mut object, "pods"));
    let problem = match (has_nodes, has_pods, resources.as_ref().is_none_or(Resources::is_empty)) {
        (true, true, _) => Some("must be given as nodes or as pods, not both"),
        (false, false, _) => Some("must say how many nodes or pods"),
        (true, _, false) => Some("resources belong to pods, not to nodes"),
        (_, true, true) => Some("needs resources: what each of the pods requests"),
        _ => None,
    };
    let path = object.path().to_owned();
    object.finish(findings);
    if let Some(problem) = problem {
        findings.push(FieldError::new(path, problem).hint(
            "{\"nodes\": 1} or {\"pods\": 3, \"resources\": {\"cpu\": \"500m\", \"memory\": \"1Gi\"}}",
        ));
        return None;
    }
    match (nodes, pods, resources) {
        (Some(nodes), _, _) => Some(Headroom::Nodes { nodes }),
        (_, Some(pods), Some(resources)) => Some(Headroom::Pods { pods, resources }),
        _ => None,
    }
}

fn read_schedules(o: &mut Object<'_>, findings: &mut Findings) -> Option<Vec<Schedule>> {
    let items = o.list("schedules", MAX_SCHEDULES, findings)?;
    Some(items.into_iter().filter_map(|(path, item)| Schedule::read(item, path, findings)).collect())
}
