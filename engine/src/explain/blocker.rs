//! Reasons that keep a node, with the object and the field behind each.

use super::{Cause, Code, amount};
use crate::{
    down::{Blocker, PodBlock},
    snapshot::Snapshot,
};

/// The cause of one reason that keeps the node called `name`.
pub(super) fn cause(snapshot: &Snapshot, name: &str, reason: &Blocker) -> Cause {
    let node = |code: Code, field: &str| Cause::new(code, format!("nodes/{name}"), field);
    let of_pool = |code: Code, pool: &str, field: &str| Cause::new(code, format!("nodepools/{pool}"), field);
    let cause = match reason {
        Blocker::NotOurs => {
            let pools = snapshot.pools.len();
            let cause = node(Code::NotOurs, "metadata.labels.nodepool").found("no pool", "one of the pools");
            return cause
                .saying(format!("it belongs to none of the {pools} pools, so it is not ours to remove"));
        }
        Blocker::UnknownPool { pool } => {
            node(Code::PoolUnknown, "metadata.labels.nodepool").found(pool, "a pool that is known")
        }
        Blocker::Frozen { pool } => {
            of_pool(Code::Frozen, pool, "status.frozen").found("frozen", "not frozen")
        }
        Blocker::Held { why, .. } => node(Code::Held, "holds").found(why, "no hold"),
        Blocker::Unobserved { why, .. } => node(Code::Unobserved, "status").found(why, "a full view"),
        Blocker::NoPodsSeen { nodes } => {
            node(Code::Distrusted, "status").found(format!("0 pods on {nodes} nodes"), "at least one")
        }
        Blocker::Annotated { annotation } => node(Code::ScaleDownDisabled, "metadata.annotations")
            .found(format!("{annotation}: true"), "another word or none"),
        Blocker::Leaving => node(Code::Leaving, "status").found("leaving", "ready"),
        Blocker::Upcoming { expected } if *expected < snapshot.now => {
            let late = snapshot.now.since(*expected);
            let cause = node(Code::Overdue, "status").found(format!("expected {expected}"), "ready");
            return cause.saying(format!("it was expected {expected}, {late} ago, and still counts"));
        }
        Blocker::Upcoming { expected } => {
            node(Code::Upcoming, "status").found(format!("expected {expected}"), "ready")
        }
        Blocker::NotReady => node(Code::Unready, "status.conditions").found("not ready", "ready"),
        Blocker::TooManyUnready { unready, total, .. } => node(Code::Distrusted, "status.conditions")
            .found(format!("{unready} of {total} not ready"), "most of them ready"),
        other => return of_size_or_time(snapshot, name, other),
    };
    cause.until(reason.until()).saying(reason.to_string())
}

/// Sizes, marks and delays of the pool, then what the pods say.
fn of_size_or_time(snapshot: &Snapshot, name: &str, reason: &Blocker) -> Cause {
    let node = |code: Code, field: &str| Cause::new(code, format!("nodes/{name}"), field);
    let of_pool = |code: Code, pool: &str, field: &str| Cause::new(code, format!("nodepools/{pool}"), field);
    let own = snapshot.members.get(name).map_or("", |member| &*member.pool);
    let now = snapshot.now;
    let cause = match reason {
        Blocker::Minimum { pool, nodes, min } => {
            of_pool(Code::PoolMinimum, pool, "spec.autoscaling.minNodes")
                .found(format!("{nodes} ready nodes"), format!("more than {min}"))
        }
        Blocker::FixedSize { pool, nodes, size } => of_pool(Code::PoolFixed, pool, "spec.nodeCount")
            .found(format!("{nodes} ready nodes"), format!("more than {size}")),
        Blocker::LastThere { pool, places, required, .. } => of_pool(Code::LastThere, pool, "spread")
            .found(format!("{places} places"), format!("more than {required}")),
        Blocker::Growing { pool, nodes } => of_pool(Code::PoolGrowing, pool, "status.desiredNodes")
            .found(format!("{nodes} more in this plan"), "no growth"),
        Blocker::Needed { pods } => {
            node(Code::Needed, "spec").found(format!("{pods} pods planned onto it"), "0")
        }
        Blocker::Trigger { pool, .. } => of_pool(Code::TriggerSays, pool, "spec.autoscaling.triggers")
            .found("no wish for less", "a wish for less"),
        Blocker::Cooldown { pool, since, required, .. } => {
            let cause = of_pool(Code::Resting, pool, "spec.autoscaling.scaleDownDelay");
            cause.found(now.since(*since).to_string(), required.to_string())
        }
        Blocker::Young { since, required, .. } => node(Code::TooYoung, "metadata.creationTimestamp")
            .found(now.since(*since).to_string(), required.to_string()),
        Blocker::OnTime { host, since, required, .. } => {
            let cause = Cause::new(Code::OnTime, format!("baremetalnodes/{host}"), "status.servingSince");
            cause.found(now.since(*since).to_string(), required.to_string())
        }
        Blocker::NotUnneededLongEnough { since, required, .. } => {
            let waited = since.map_or_else(|| "0s".to_owned(), |since| now.since(since).to_string());
            let cause = of_pool(Code::TooSoon, own, "spec.autoscaling.scaleDownDelay");
            cause.found(waited, required.to_string())
        }
        Blocker::Busy { resource, used, allocatable, percent, mark } => {
            let (used, all) = (amount::say(resource, *used), amount::say(resource, *allocatable));
            let cause = of_pool(Code::AboveMark, own, "spec.autoscaling.scaleDownUtilization");
            return cause
                .found(format!("{percent} % {resource}"), format!("below {mark} %"))
                .margin(format!("{} %", i64::from(*percent) - i64::from(*mark) + 1))
                .saying(format!(
                    "{resource} is {percent} % requested ({used} of {all}), nodes go below {mark} %"
                ));
        }
        Blocker::Headroom { pool, resource, left, required } => {
            let (left, kept) = (amount::say(resource, *left), amount::say(resource, *required));
            let cause = of_pool(Code::Headroom, pool, "spec.autoscaling.headroom").found(&left, &kept);
            return cause.saying(format!("pool {pool} keeps {kept} free; {left} would be left"));
        }
        Blocker::HighMark { pool, resource, used, allocatable, mark } => {
            let (used, all) = (amount::say(resource, *used), amount::say(resource, *allocatable));
            let field = if &**resource == "cpu" { "targetCPUUtilization" } else { "targetMemoryUtilization" };
            let cause = of_pool(Code::HighMark, pool, &format!("spec.autoscaling.{field}"));
            return cause
                .found(format!("{used} of {all}"), format!("at most {mark} %"))
                .saying(format!("without it {used} of {all} of pool {pool} are requested, above {mark} %"));
        }
        other => return of_pods(name, other),
    };
    cause.until(reason.until()).saying(reason.to_string())
}

fn of_pods(name: &str, reason: &Blocker) -> Cause {
    let cause = match reason {
        Blocker::Pod { pod, why: why @ PodBlock::SeveralBudgets { budgets } } => {
            Cause::new(Code::SeveralBudgets, format!("pods/{pod}"), "metadata.labels")
                .found(format!("{} budgets", budgets.len()), "at most 1")
                .saying(format!("pod {pod} {why}"))
        }
        Blocker::Pod { pod, why } => Cause::new(Code::PodUnmovable, format!("pods/{pod}"), field(why))
            .found(why.to_string(), "movable")
            .saying(format!("pod {pod} {why}")),
        Blocker::Budget { budget, allowed, needed, .. } => {
            let object = format!("poddisruptionbudgets/{budget}");
            Cause::new(Code::BudgetExhausted, object, "status.disruptionsAllowed")
                .found(format!("{allowed} allowed"), needed.to_string())
                .margin((i64::from(*needed) - allowed).to_string())
                .saying(reason.to_string())
        }
        Blocker::NoPlace { pod, .. } | Blocker::Unexamined { pod } => {
            Cause::new(Code::NoPlace, format!("pods/{pod}"), "spec")
                .found("0 nodes", "a node that takes it")
                .saying(reason.to_string())
        }
        other => Cause::new(Code::Held, format!("nodes/{name}"), "status").saying(other.to_string()),
    };
    cause.until(reason.until())
}

/// The field of a pod that keeps it where it is.
const fn field(why: &PodBlock) -> &'static str {
    match why {
        PodBlock::NotSafeToEvict | PodBlock::WaitsForCompletion | PodBlock::DoNotDisrupt => {
            "metadata.annotations"
        }
        PodBlock::Unreplicated | PodBlock::ControllerMissing { .. } | PodBlock::FewReplicas { .. } => {
            "metadata.ownerReferences"
        }
        PodBlock::LocalStorage { .. } => "spec.volumes",
        PodBlock::System => "metadata.namespace",
        PodBlock::SeveralBudgets { .. } => "metadata.labels",
    }
}
