//! What pages are made of beside the nouns: news, history, transcripts, settings, and whoever answers "what if?".

use std::sync::Arc;

use muster_control::{history::History, hosts::Transcripts, news::News};
use muster_engine::Snapshot;
use muster_model::{ClusterId, Timestamp};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Semaphore;

/// Questions that are thought about at once: each takes a processor for as long as a plan does.
const THINKING: usize = 2;

/// The parts behind the page.
#[derive(Debug)]
pub struct Desk {
    pub news: Arc<News>,
    pub history: History,
    pub transcripts: Arc<Transcripts>,
    /// Since when calls to BMCs are known.
    pub since: Timestamp,
    pub settings: Vec<Setting>,
    pub oracle: Arc<dyn Oracle>,
    pub(crate) thinking: Arc<Semaphore>,
}

impl Desk {
    pub fn new(
        news: Arc<News>,
        history: History,
        transcripts: Arc<Transcripts>,
        since: Timestamp,
        settings: Vec<Setting>,
        oracle: Arc<dyn Oracle>,
    ) -> Self {
        let thinking = Arc::new(Semaphore::new(THINKING));
        Self { news, history, transcripts, since, settings, oracle, thinking }
    }
}

/// One setting in force. Secrets are not in its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    pub name: String,
    pub value: String,
    /// Where it comes from: a default, the file, the environment, a flag.
    pub origin: String,
    pub help: String,
}

/// What would happen. Everything that is set is asked at once; nothing set asks what would be done now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Question {
    pub add: Option<AddPods>,
    /// Nodes, hosts or racks to take away in good order, and to let fail.
    pub remove: Vec<String>,
    pub fail: Vec<String>,
    /// `POOL.max=N`, `POOL.min=N`, `POOL.count=N`, `POOL.frozen=true`.
    pub set: Vec<String>,
    /// Could it run on fewer machines?
    pub consolidate: bool,
    /// A machine that may be bought.
    pub buy: Option<String>,
    /// What prices are in, as the inventory's settings say.
    pub currency: Option<String>,
}

/// Pods that do not exist yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddPods {
    pub count: u32,
    pub cpu: Option<String>,
    pub memory: Option<String>,
    pub gpu: Option<u32>,
    pub tolerate: Vec<String>,
    pub selector: Vec<String>,
}

/// Answers on a copy of the moment that it is given. Nothing it does can reach anything else.
pub trait Oracle: std::fmt::Debug + Send + Sync {
    /// The answer, or what is wrong with the question. It may take as long as a plan: call it where that disturbs
    /// nobody.
    fn ask(&self, cluster: ClusterId, snapshot: Snapshot, question: &Question) -> Result<Value, String>;
}
