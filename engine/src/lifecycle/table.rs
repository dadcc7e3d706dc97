//! The transition table: the one place that says which phase may follow which, and why.
//!
//! `step` may only make moves that a row admits; it is stopped by an assertion otherwise. The page
//! `docs/reference/host-lifecycle.md` is generated from here, and a test compares it.

use std::fmt::Write as _;

use muster_model::host::Phase;
use muster_model::host::Phase::{
    Backoff, Booting, ConfirmingOff, Cordoned, Degraded, Drained, Enrolling, Evicting, ForcingOff, Idle,
    Joining, Lost, PowerRequested, Powered, PreparingBoot, Quarantined, Reserved, Serving, Stopping,
};

/// What a step followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A row of [`ROWS`].
    Row(u8),
    /// A cell of [`DRIFT`].
    Drift(u8),
    /// Nothing to do now.
    Wait,
    /// Another process leads.
    Follower,
    /// `muster freeze`.
    Frozen,
    /// The stored record makes no sense; the host is looked at afresh.
    Repair,
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Row(number) => write!(f, "row {number}"),
            Self::Drift(number) => write!(f, "drift {number}"),
            Self::Wait => f.write_str("wait"),
            Self::Follower => f.write_str("follower"),
            Self::Frozen => f.write_str("frozen"),
            Self::Repair => f.write_str("repair"),
        }
    }
}

/// One row of the table.
#[derive(Debug)]
pub struct Row {
    pub number: u8,
    pub from: &'static [Phase],
    pub event: &'static str,
    pub action: &'static str,
    pub to: &'static [Phase],
    pub deadline: &'static str,
}

/// One cell of the drift matrix: the world is not as we left it.
#[derive(Debug)]
pub struct Cell {
    pub number: u8,
    pub desired: &'static str,
    pub power: &'static str,
    pub kubernetes: &'static str,
    pub verdict: &'static str,
    pub reaction: &'static str,
    pub from: &'static [Phase],
    pub to: &'static [Phase],
}

const ANY: &[Phase] = &Phase::ALL;
const UP: &[Phase] = &[Powered, Booting, Joining];

const fn row(
    number: u8,
    from: &'static [Phase],
    event: &'static str,
    action: &'static str,
    to: &'static [Phase],
    deadline: &'static str,
) -> Row {
    Row { number, from, event, action, to, deadline }
}

pub const ROWS: [Row; 30] = [
    row(
        1,
        &[],
        "the host's record is written",
        "probe the BMC: reach, account, identity, allowed resets, power",
        &[Enrolling],
        "enrolDeadline 5m, then row 25",
    ),
    row(
        2,
        &[Enrolling],
        "the probe succeeds and off is proved",
        "store what the machine is and can do",
        &[Idle],
        "none",
    ),
    row(
        3,
        &[Enrolling],
        "the probe succeeds and the machine is on",
        "use it if its node has joined and is Ready; else leave it alone as unexpectedly on",
        &[Serving, Enrolling],
        "none",
    ),
    row(
        4,
        &[Idle, Reserved],
        "its pool or a person wants it on, and wear limits allow it; or the wish lapses while reserved",
        "write the operation and claim the host; or give the claim back",
        &[Reserved, Idle],
        "reserveDeadline 1m, then back to off/idle",
    ),
    row(
        5,
        &[Reserved],
        "the operation is owned by the live leader",
        "set the boot device if a profile asks for it, by the first driver that can, and read it back",
        &[PreparingBoot],
        "prepareDeadline 3m, then row 21",
    ),
    row(
        6,
        &[Reserved, PreparingBoot],
        "a reading says that it is on already",
        "send nothing, record it as adopted; its half hour of being left alone goes on",
        &[Powered],
        "bootDeadline 15m, then row 20",
    ),
    row(
        7,
        &[PreparingBoot],
        "the boot device is set or not needed, and a fresh reading says off",
        "ask for power on, or send a burst of magic packets; the outcome may stay unknown",
        &[PowerRequested],
        "powerConfirmDeadline 2m (bootDeadline for magic packets), then row 8",
    ),
    row(
        8,
        &[PowerRequested],
        "the deadline passed or the request was refused, a fresh reading says off, and fewer than 3 attempts were made",
        "ask by the next reset type, then by the next driver",
        &[PowerRequested],
        "powerConfirmDeadline 2m; attempts used up: row 21",
    ),
    row(
        9,
        &[PowerRequested],
        "a reading says on or turning-on (magic packets: the machine answers, its agent says hello, or its lease is renewed)",
        "stamp bootTime",
        &[Powered],
        "bootDeadline 15m, then row 20",
    ),
    row(
        10,
        &[Powered],
        "boot progress, a call of the PXE server, or the agent's hello",
        "record the progress, extend nothing",
        &[Booting],
        "the same bootDeadline",
    ),
    row(
        11,
        &[Powered, Booting],
        "its node shows this boot, but is not Ready",
        "keep the startup taint",
        &[Joining],
        "joinDeadline 5m, then row 20",
    ),
    row(
        12,
        &[PreparingBoot, Powered, Booting, Joining],
        "the wish is withdrawn before the node is Ready",
        "finish if fewer than 2 minutes are left, else switch off again; one that was on already when it was wanted is left alone for 30m",
        &[Drained, Idle],
        "graceDeadline 5m, then row 24",
    ),
    row(
        13,
        UP,
        "the node is Ready with proof of this boot and shows the resources that the host should have",
        "label it, remove our cordon and the startup taint, start the minimum uptime",
        &[Serving],
        "none",
    ),
    row(
        14,
        &[Serving, Degraded],
        "the BMC cannot be reached or refuses us while the node is fine; or it answers again",
        "raise a condition; never pick it for scale-down meanwhile",
        &[Degraded, Serving],
        "none",
    ),
    row(
        15,
        &[Serving, Degraded, Lost],
        "the node is not Ready for more than 2 minutes; or it is Ready again",
        "raise a condition; one power cycle if the pool allows it, no pod is left, nothing guards its node, less than a quarter of its pool is lost, and wear limits and limits across hosts allow a start",
        &[Lost, Serving],
        "lostDeadline 15m, then row 24",
    ),
    row(
        16,
        &[Serving, Degraded],
        "it is picked for scale-down, its minimum uptime is over, its rack keeps a node, its power can be read",
        "write the operation and cordon the node with our mark",
        &[Cordoned],
        "cordonDeadline 1m, then row 19",
    ),
    row(
        17,
        &[Cordoned],
        "the API server shows the cordon",
        "evict by the eviction API, try refusals again; skip mirror and DaemonSet pods",
        &[Evicting],
        "drainDeadline 15m, then row 19",
    ),
    row(
        18,
        &[Evicting],
        "all pods are gone, not merely accepted for eviction",
        "ask once more whether any pod would have no place: if so, row 19",
        &[Drained],
        "the same drainDeadline",
    ),
    row(
        19,
        &[Cordoned, Evicting, Drained, Stopping],
        "the deadline passed, a pod may not be evicted, the demand came back, or a last look in front of the power-off found a pod",
        "remove our cordon, record why, spend the intent: after a pause a later plan may ask again, this one does not; a node that is not Ready makes it degraded",
        &[Serving, Degraded],
        "none",
    ),
    row(
        20,
        UP,
        "the boot or join deadline passed",
        "capture evidence, count the failure, give the claim back, then switch off: gracefully if an operating system was seen, else by force; one that a person wants on or holds stays as it is, one whose node is guarded fails and stays on (row 21), one that was on already when it was wanted is left alone for 30m",
        &[Stopping],
        "graceDeadline 5m, then row 23; off: row 21",
    ),
    row(
        21,
        &[PreparingBoot, PowerRequested, Powered, Booting, Joining, Stopping, ForcingOff],
        "the attempt to switch it on failed",
        "count the failure once, give the claim back so that the pool takes another host now",
        &[Backoff, Quarantined],
        "retry after 1m, doubled each time, up to 8h; quarantine at 3 in 24h",
    ),
    row(
        22,
        &[Drained],
        "nothing but DaemonSet pods is left",
        "store the boot id, ask the machine to shut down by the first driver that does not refuse, expect its lease to stop",
        &[Stopping],
        "graceDeadline 5m, then row 23",
    ),
    row(
        23,
        &[Stopping, ForcingOff],
        "the deadline passed, or there is no operating system to ask",
        "force off once, and again after a minute, also one that hangs on its way off; a host that cannot be forced, or that a hold or a guard keeps on: row 24",
        &[ForcingOff],
        "forceOffDeadline 2m, then row 24",
    ),
    row(
        24,
        &[Drained, Stopping, ForcingOff, ConfirmingOff, Lost],
        "it cannot be brought to a known state",
        "raise a condition, count it as unavailable; the out-of-service taint only if off is proved and pods remain",
        &[Backoff, Quarantined],
        "retry after 1m, doubled each time, up to 8h",
    ),
    row(
        25,
        &[
            Enrolling,
            Idle,
            Reserved,
            PreparingBoot,
            PowerRequested,
            Powered,
            Booting,
            Joining,
            Lost,
            Stopping,
            ForcingOff,
            ConfirmingOff,
            Backoff,
        ],
        "the BMC refuses the account, shows a key that nobody approved or another certificate, wants a new password or is another machine; or enrolment took too long",
        "stop calling that BMC, wait for a new version of the credential, an approved key or a person",
        &[Quarantined],
        "none; a serving host goes on as degraded (row 14)",
    ),
    row(
        26,
        &[Drained, Stopping, ForcingOff, ConfirmingOff],
        "off is proved",
        "taint, delete or leave the node, as the pool says; count the time off",
        &[ConfirmingOff, Idle],
        "confirmOffDeadline 2m, then row 24",
    ),
    row(
        27,
        &[Backoff],
        "the retry time came",
        "probe: off goes to idle, a joined node to serving, on without a node is switched off, gracefully if it booted since its power was last asked for; left on while its node is guarded, a person wants it on or holds it, or a quarter of its pool is lost; one that was proved off and is on is left alone as in drift 6; unknown waits longer",
        &[Idle, Serving, Stopping, Backoff],
        "retry after twice as long, up to 8h",
    ),
    row(
        28,
        &[Quarantined],
        "a person clears it, a new credential or an approved key is there, or the probation passed an on-off self-test",
        "reset the counters; a machine that is not proved off is looked at by row 27, or enrolled if it never was",
        &[Enrolling, Idle, Backoff, Quarantined],
        "probationDelay 24h to the next self-test",
    ),
    row(
        29,
        ANY,
        "spec.admin is maintenance or disabled; or its pool is in advise mode while an operation is under way that no person asked for",
        "start nothing, abandon waits, keep observing, give the claim back",
        ANY,
        "all deadlines stand still",
    ),
    row(
        30,
        ANY,
        "the host's record is deleted",
        "a serving host is drained first (row 16) unless forced; power is left as it is unless asked otherwise",
        ANY,
        "drainDeadline 15m",
    ),
];

pub const DRIFT: [Cell; 9] = [
    Cell {
        number: 1,
        desired: "on",
        power: "off, twice",
        kubernetes: "lease stopped",
        verdict: "switched off by hand, or a fault",
        reaction: "`onUnexpectedOff`: `hold` replaces it and leaves it off for 1h or until acknowledged; `restart` switches it on; `adopt` takes it as off. A wish by hand, or a freeze with everything on, of before is overruled until it is acknowledged or something newer is said",
        from: &[Powered, Booting, Joining, Serving, Degraded, Lost, Cordoned, Evicting],
        to: &[Idle, Reserved],
    },
    Cell {
        number: 2,
        desired: "on",
        power: "off, however often",
        kubernetes: "lease fresh",
        verdict: "the BMC is wrong",
        reaction: "stay ready and keep the host, condition PowerReadingDisagrees until that driver reads up again or the lease stops; one other driver is asked once, and its answer is told",
        from: &[Serving, Degraded],
        to: &[Serving, Degraded],
    },
    Cell {
        number: 3,
        desired: "on",
        power: "on",
        kubernetes: "not Ready",
        verdict: "hung system or network",
        reaction: "row 15",
        from: &[Serving, Degraded],
        to: &[Lost],
    },
    Cell {
        number: 4,
        desired: "on",
        power: "unknown",
        kubernetes: "Ready",
        verdict: "BMC down",
        reaction: "row 14",
        from: &[Serving],
        to: &[Degraded],
    },
    Cell {
        number: 5,
        desired: "on",
        power: "unknown",
        kubernetes: "not Ready",
        verdict: "host or rack lost",
        reaction: "lost: replaced, never claimed to be fenced",
        from: &[Serving, Degraded],
        to: &[Lost],
    },
    Cell {
        number: 6,
        desired: "off",
        power: "on, twice",
        kubernetes: "no node of this boot",
        verdict: "switched on by hand, or power came back",
        reaction: "condition UnexpectedOn; left alone for 30m, then `onUnexpectedOn`: `enforce-off` or `adopt`; a person who asks for off then gets that at once",
        from: &[Enrolling, Idle],
        to: &[Enrolling, Idle, Stopping],
    },
    Cell {
        number: 7,
        desired: "off",
        power: "on",
        kubernetes: "joined and Ready",
        verdict: "switched on by hand, and booted",
        reaction: "used if its pool is below its maximum, else kept cordoned; never switched off at once",
        from: &[Idle],
        to: &[Serving, Degraded],
    },
    Cell {
        number: 8,
        desired: "any",
        power: "turning-on or turning-off for more than 5m",
        kubernetes: "any",
        verdict: "the BMC is stuck",
        reaction: "counts as unknown; the BMC is restarted only where that is allowed",
        from: ANY,
        to: ANY,
    },
    Cell {
        number: 9,
        desired: "on",
        power: "on",
        kubernetes: "Node object deleted",
        verdict: "somebody deleted the node; a kubelet registers again only when it starts",
        reaction: "condition NodeLost with reason NodeDeleted; `onNodeDeleted`: `wait` as in row 15, or `stand-down` once 0 pods are bound to it",
        from: &[Serving, Degraded, Lost],
        to: &[Stopping],
    },
];

/// Whether the table has a place for this move.
pub fn admits(rule: Rule, from: Phase, to: Phase) -> bool {
    match rule {
        Rule::Row(number) => ROWS
            .get(usize::from(number).wrapping_sub(1))
            .is_some_and(|row| (number == 1 || row.from.contains(&from)) && row.to.contains(&to)),
        Rule::Drift(number) => DRIFT
            .get(usize::from(number).wrapping_sub(1))
            .is_some_and(|cell| cell.from.contains(&from) && cell.to.contains(&to)),
        Rule::Wait | Rule::Follower | Rule::Frozen => from == to,
        Rule::Repair => to == Backoff,
    }
}

/// The reference page.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Host lifecycle\n\n\
         Generated from the transition table in the engine; `UPDATE_DOCS=1 cargo test -p muster-engine \
         reference` writes it anew.\n\n\
         A host has one of five public states in `status.state`; `status.phase` says more. Maintenance is \
         laid over them (`spec.admin`) and is no state.\n\n\
         | state | phases |\n|---|---|\n",
    );
    for state in muster_model::host::State::ALL {
        let phases: Vec<_> =
            Phase::ALL.iter().filter(|phase| phase.state() == state).map(|phase| phase.as_str()).collect();
        let _ = writeln!(page, "| {state} | {} |", phases.join(", "));
    }
    page.push_str(EVIDENCE);
    page.push_str(
        "\n## Transitions\n\n| # | from | when | what is done | to | deadline |\n|---|---|---|---|---|---|\n",
    );
    for row in &ROWS {
        let from = if row.from.is_empty() { "(new)".to_owned() } else { list(row.from) };
        let _ = writeln!(
            page,
            "| {} | {from} | {} | {} | {} | {} |",
            row.number,
            row.event,
            row.action,
            list(row.to),
            row.deadline
        );
    }
    page.push_str("\n## When the world is not as we left it\n\n| # | wanted | power reads | Kubernetes | verdict | reaction |\n|---|---|---|---|---|---|\n");
    for cell in &DRIFT {
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} |",
            cell.number, cell.desired, cell.power, cell.kubernetes, cell.verdict, cell.reaction
        );
    }
    page
}

const EVIDENCE: &str = "\n## What counts as evidence\n\n\
- E1: a power reading is on, off, turning-on, turning-off or unknown, with its time and driver. Unknown never \
causes an action, and a reading older than three polls is unknown.\n\
- E2: off counts after two consecutive readings at least 20 s apart.\n\
- E3: a node has joined when it shows this boot: a boot id other than the one stored at shutdown, or a lease \
renewed after the power request.\n\
- E4: off is proved by E2 together with no lease renewal for more than 40 s, or no node. Where power cannot be \
read, the machine must be silent on the network twice, its lease silent, and its agent must have taken the \
power-off token or the last proof of off still stand. That proof falls with the first sign of life and with every \
request to go on.\n\
- E5: a kubelet that keeps renewing its lease outweighs a BMC that says off.\n";

fn list(phases: &[Phase]) -> String {
    if phases.len() == Phase::ALL.len() {
        return "any".to_owned();
    }
    phases.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
