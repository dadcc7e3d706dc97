//! Which hosts are woken, and which machines a pool prefers.

use muster_model::{Duration, Timestamp};
use serde_json::json;

use super::{add_node, host, new_zones, plan, pods, pool, template};
use crate::{
    Snapshot,
    explain::{Explainer, Scene},
    snapshot::{Health, Host, HostState, MemberState, PowerLimits, Preference},
};

/// Hosts of one shape with four cores, and pods that fill so many of them.
fn rack(hosts: Vec<Host>, machines: usize) -> Snapshot {
    let mut snapshot = Snapshot {
        pools: vec![pool("metal", 100, vec![template("r4", 4, &[], 0)])],
        hosts,
        ..Snapshot::default()
    };
    snapshot.now = Timestamp::from_millis(1_800_000_000_000);
    snapshot.cluster.pods = pods("x", machines, "4", &json!({}));
    snapshot
}

fn edited(name: &str, edit: impl FnOnce(&mut Host)) -> Host {
    let mut made = host(name, "metal", "r4");
    edit(&mut made);
    made
}

#[test]
fn the_better_of_two_hosts_is_woken() {
    #[track_caller]
    fn check(worse: impl FnOnce(&mut Host), better: impl FnOnce(&mut Host)) {
        let snapshot = rack(vec![edited("a", worse), edited("b", better)], 1);
        assert_eq!(new_zones(&plan(&snapshot)), ["host b"]);
    }
    let fan = || "fan 2 at 0 rpm".into();
    check(|a| a.health = Health::Critical(fan()), |_| ());
    check(|a| a.health = Health::Warning(fan()), |_| ());
    check(|a| a.recent_failures = 1, |_| ());
    check(|a| a.recent_failures = 3, |b| b.recent_failures = 2);
    check(|a| a.price = 1_100, |_| ());
    check(|a| a.wake_time = Duration::from_secs(300), |b| b.wake_time = Duration::from_secs(120));
    check(
        |a| a.wake_time = Duration::from_secs(9),
        |b| (b.state, b.wake_time) = (HostState::On, Duration::from_secs(9)),
    );
    let off = |millis| Some(Timestamp::from_millis(millis));
    check(|a| a.off_since = off(2_000), |b| b.off_since = off(1_000)); // longest off first
    check(|_| (), |b| b.off_since = off(1_000));
    check(|a| a.state = HostState::Maintenance, |_| ());
    check(|a| a.backoff_until = off(1_900_000_000_000), |_| ());
}

#[test]
fn a_host_in_critical_health_is_never_woken() {
    let mut snapshot = rack(vec![edited("a", |a| a.health = Health::Critical("inlet at 52 C".into()))], 1);
    assert_eq!(plan(&snapshot).plan.new_nodes.len(), 0);
    snapshot.pools[0].min = 1;
    assert_eq!(plan(&snapshot).plan.new_nodes.len(), 0);
}

#[test]
fn racks_and_zones_are_filled_evenly() {
    #[track_caller]
    fn check(running: &[&str], machines: usize, woken: &[&str]) {
        let place = |name: &str| edited(name, |host| host.rack = Some(name[..1].into()));
        let mut snapshot = rack(["a1", "a2", "a3", "b1", "b2", "b3"].map(place).into(), machines);
        for name in running {
            add_node(&mut snapshot, name, "metal", "z", 0);
            for host in snapshot.hosts.iter_mut().filter(|host| &*host.name == *name) {
                (host.state, host.node) = (HostState::Ready, Some((*name).into()));
            }
        }
        let expected: Vec<String> = woken.iter().map(|name| format!("host {name}")).collect();
        assert_eq!(new_zones(&plan(&snapshot)), expected);
    }
    check(&[], 2, &["a1", "b1"]);
    check(&[], 4, &["a1", "a2", "b1", "b2"]);
    check(&["a1", "a2"], 2, &["b1", "b2"]);
    check(&["a1"], 2, &["a2", "b1"]);
}

#[test]
fn bought_nodes_are_spread_over_zones_of_one_price() {
    let mut snapshot = Snapshot {
        pools: vec![pool("p", 9, vec![template("m", 4, &["a", "b", "c"], 1_000)])],
        ..Snapshot::default()
    };
    snapshot.cluster.pods = pods("x", 6, "4", &json!({}));
    assert_eq!(new_zones(&plan(&snapshot)), ["a", "a", "b", "b", "c", "c"]);
    snapshot.pools[0].templates[0].offerings[1].price = 900;
    assert_eq!(new_zones(&plan(&snapshot)), ["b"; 6]); // diversity is no reason to pay more
}

#[test]
fn watts_inrush_and_starts_are_limited() {
    #[track_caller]
    fn check(limits: PowerLimits, woken: usize) {
        let hosts = || {
            (1..=4)
                .map(|at| {
                    edited(&format!("h{at}"), |host| {
                        (host.inrush_milliwatts, host.rack) = (500_000, Some("r".into()));
                    })
                })
                .collect()
        };
        let mut all = rack(hosts(), 4);
        all.limits.power = limits.clone();
        assert_eq!(plan(&all).plan.new_nodes.len(), woken);
        let mut one = rack(hosts(), 4);
        one.limits.racks.insert("r".into(), limits);
        assert_eq!(plan(&one).plan.new_nodes.len(), woken);
    }
    check(PowerLimits::default(), 4);
    check(PowerLimits { milliwatts: Some(900_000), ..PowerLimits::default() }, 3);
    check(PowerLimits { inrush_milliwatts: Some(1_000_000), ..PowerLimits::default() }, 2);
    check(PowerLimits { waking: Some(1), ..PowerLimits::default() }, 1);
}

/// OPS-R14: where so much is not ready that nothing is removed, growth goes on, a tenth of the nodes at a time.
#[test]
fn ops_r14_growth_is_slower_in_times_of_trouble() {
    #[track_caller]
    fn check(unready: usize, upcoming: usize, slow: Option<&str>, woken: usize, expected: &str) {
        let place = |at: usize| edited(&format!("h{at}"), |host| host.rack = Some("r".into()));
        let mut snapshot = rack((0..28).map(place).collect(), 8);
        for at in 0..20 + upcoming {
            let name = format!("h{at}");
            add_node(&mut snapshot, &name, "metal", "z", 0);
            (snapshot.hosts[at].state, snapshot.hosts[at].node) =
                (HostState::Ready, Some(name.as_str().into()));
            let state = if at < unready {
                MemberState::Unready
            } else if at < 20 {
                MemberState::Ready
            } else {
                MemberState::Upcoming { expected: snapshot.now }
            };
            snapshot.members.get_mut(&*name).unwrap().state = state;
        }
        snapshot.limits.caution = slow.map(Into::into);
        let decision = plan(&snapshot);
        assert_eq!(decision.plan.new_nodes.len(), woken);
        let scene = Scene::new(&snapshot, &decision.plan);
        let why = |pod| Explainer::new(&scene).pod_headline(pod).expect("a pod").1;
        let said = decision.plan.unplaced.last().map_or(String::new(), why);
        assert_eq!(said.split_once(": ").map_or("", |(_, why)| why), expected);
    }
    let pool = "pool metal grows by 2 at a time while 6 of its 20 nodes are not ready";
    check(4, 0, None, 8, ""); // a fifth is no trouble
    check(6, 0, None, 2, pool);
    check(6, 1, None, 1, pool); // one is on its way
    check(6, 2, None, 0, pool);
    check(10, 0, None, 2, "the cluster grows by 2 at a time while 10 of its 20 nodes are not ready");
    let slow = "the API server took 10s for an answer";
    check(0, 0, Some(slow), 2, &format!("the cluster grows by 2 at a time while {slow}"));
}

#[test]
fn pools_choose_by_what_they_prefer() {
    #[track_caller]
    fn check(preference: Preference, chosen: &str) {
        let dear = edited("thrifty", |host| {
            (host.price, host.idle_milliwatts, host.max_milliwatts) = (2_000, 50_000, 90_000);
        });
        let cheap = edited("hungry", |host| (host.template, host.price) = ("r8".into(), 1_000));
        let mut snapshot = rack(vec![dear, cheap], 1);
        snapshot.pools[0].templates.push(template("r8", 8, &[], 0));
        snapshot.pools[0].preference = preference;
        assert_eq!(new_zones(&plan(&snapshot)), [format!("host {chosen}")], "{preference:?}");
    }
    check(Preference::Cost, "hungry");
    check(Preference::Energy, "thrifty");
    check(Preference::LeastWaste, "thrifty");
}

#[test]
fn a_pool_of_higher_priority_is_used_up_first() {
    let mut snapshot = Snapshot {
        pools: vec![
            pool("cheap", 9, vec![template("m", 4, &["a"], 500)]),
            pool("first", 1, vec![template("m", 4, &["a"], 4_000)]),
        ],
        ..Snapshot::default()
    };
    snapshot.cluster.pods = pods("x", 2, "4", &json!({}));
    (snapshot.pools[1].priority, snapshot.pools[1].preference) = (10, Preference::Priority);
    let decision = plan(&snapshot);
    let mut pools: Vec<&str> = decision.plan.new_nodes.iter().map(|new| &*new.pool).collect();
    pools.sort_unstable();
    assert_eq!(pools, ["cheap", "first"]);
}
