//! What stands in the racks of the demo: three racks, forty servers of three shapes, five pools. All of it follows from
//! the seed.

use std::net::{Ipv4Addr, SocketAddr};

use muster_model::{
    Duration, Quantity,
    host::{BareMetalNodeSpec, GlobalConfig, PowerInterface, TlsVerify},
    rack::Rack,
};
use muster_sim::world::{
    Build,
    random::Random,
    site::{HostSetting, PoolSetting, Site},
};
use serde_json::{Value, json};

/// The project of everything in the demo.
pub(super) const PROJECT: &str = "lab";
/// The credential that every BMC takes.
pub(super) const CREDENTIAL: &str = "bmc";
/// What the trigger of pool `stream` asks Prometheus.
pub(super) const LAG_QUERY: &str = "sum(kafka_consumergroup_lag{group=\"orders\"})";

/// Servers of one pool, all of one shape.
struct Row {
    pool: &'static str,
    rack: &'static str,
    count: u32,
    /// The lowest rack unit of the first one.
    slot: u32,
    /// Rack units of each.
    height: u32,
    cores: i64,
    gibibytes: i64,
    gpus: u32,
    max_watts: u32,
    /// How many are on when the world begins.
    on: u32,
    /// Seconds from power to the kubelet, from and to.
    boot: (u64, u64),
}

const ROWS: [Row; 5] = [
    Row {
        pool: "web",
        rack: "rack-a",
        count: 14,
        slot: 1,
        height: 1,
        cores: 16,
        gibibytes: 64,
        gpus: 0,
        max_watts: 330,
        on: 4,
        boot: (110, 170),
    },
    Row {
        pool: "ci",
        rack: "rack-a",
        count: 5,
        slot: 18,
        height: 1,
        cores: 16,
        gibibytes: 64,
        gpus: 0,
        max_watts: 330,
        on: 1,
        boot: (110, 170),
    },
    Row {
        pool: "batch",
        rack: "rack-b",
        count: 10,
        slot: 1,
        height: 2,
        cores: 32,
        gibibytes: 128,
        gpus: 0,
        max_watts: 540,
        on: 0,
        boot: (150, 220),
    },
    Row {
        pool: "stream",
        rack: "rack-b",
        count: 5,
        slot: 22,
        height: 2,
        cores: 32,
        gibibytes: 128,
        gpus: 0,
        max_watts: 540,
        on: 1,
        boot: (150, 220),
    },
    Row {
        pool: "gpu",
        rack: "rack-c",
        count: 6,
        slot: 1,
        height: 4,
        cores: 64,
        gibibytes: 512,
        gpus: 4,
        max_watts: 2_400,
        on: 0,
        boot: (240, 330),
    },
];

/// Where BMCs answer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bmcs {
    /// In memory, under addresses of a management network.
    Memory,
    /// On loopback: one address each, counted up from this one, all on its port.
    Wire(SocketAddr),
}

/// The servers that something is wrong with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Odd {
    /// Has power and never gets further.
    pub(super) never_boots: String,
    /// Its BMC says off while the machine runs.
    pub(super) lies: String,
    /// Its BMC takes 20 seconds for every answer.
    pub(super) slow: String,
    /// Somebody presses its button.
    pub(super) pressed: String,
}

/// The fleet of a seed.
#[derive(Debug, Clone)]
pub(super) struct Yard {
    pub(super) site: Site,
    pub(super) odd: Odd,
}

impl Yard {
    pub(super) fn new(seed: u64, bmcs: Bmcs) -> Self {
        let random = Random::new(seed);
        let mut dice = random.fork("yard");
        let mut hosts = Vec::new();
        for row in &ROWS {
            for number in 1..=row.count {
                let index = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
                hosts.push(row.host(number, index, bmcs, &mut dice));
            }
        }
        let mut odd = random.fork("odd");
        let odd = Odd {
            // When orders pile up its pool wants every server that it has.
            never_boots: format!("stream-{:02}", odd.between(2, 5)),
            lies: "web-02".to_owned(),
            slow: format!("batch-{:02}", odd.between(2, 5)),
            pressed: "web-03".to_owned(),
        };
        let global = GlobalConfig {
            energy_price_micros: Some(280_000),
            currency: Some("€".to_owned()),
            max_power_operations_per_rack: 6,
            ..GlobalConfig::default()
        };
        let site = Site { pools: pools(), racks: racks(), hosts, global: Some(global) };
        Self { site, odd }
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = &str> {
        self.site.hosts.iter().map(|host| host.machine.name.as_str())
    }
}

impl Row {
    fn host(&self, number: u32, index: u32, bmcs: Bmcs, dice: &mut Random) -> HostSetting {
        let name = format!("{}-{number:02}", self.pool);
        let address = match bmcs {
            Bmcs::Memory => format!("10.20.0.{}", index + 11),
            Bmcs::Wire(first) => match first.ip() {
                std::net::IpAddr::V4(ip) => {
                    Ipv4Addr::from_bits(ip.to_bits().saturating_add(index)).to_string()
                }
                std::net::IpAddr::V6(ip) => ip.to_string(),
            },
        };
        let mut machine = Build::new(&name, &address);
        machine.rack = Some(self.rack.to_owned());
        // As the emulated BMCs on the wire call it.
        machine.serial = format!("EMU{index:06}1");
        machine.max_watts = self.max_watts;
        (machine.milli_cpu, machine.memory) = (self.cores * 1000, self.gibibytes << 30);
        machine.gpus = i64::from(self.gpus);
        machine.boot = Duration::from_secs(dice.between(self.boot.0, self.boot.1));
        machine.join = Duration::from_secs(dice.between(4, 12));
        machine.shutdown = Duration::from_secs(dice.between(20, 45));
        machine.latency = Duration::from_millis(dice.between(40, 400));
        machine.on = number <= self.on;
        let record = self.record(number, index, &address, bmcs);
        HostSetting { record: Some(record), ..HostSetting::new(self.pool, machine) }
    }

    fn record(&self, number: u32, index: u32, address: &str, bmcs: Bmcs) -> BareMetalNodeSpec {
        let mut spec = BareMetalNodeSpec::new(self.pool, PowerInterface::Redfish);
        let port = match bmcs {
            Bmcs::Memory => String::new(),
            Bmcs::Wire(first) => format!(":{}", first.port()),
        };
        spec.mgmt_address = format!("{address}{port}").parse().ok();
        let [.., high, low] = index.saturating_add(0x1a01).to_be_bytes();
        spec.mac_address = format!("02:4d:75:73:{high:02x}:{low:02x}").parse().ok();
        spec.bmc_credentials = Some(CREDENTIAL.to_owned());
        spec.tls_verify = match bmcs {
            Bmcs::Memory => TlsVerify::Webpki,
            Bmcs::Wire(_) => TlsVerify::Insecure,
        };
        spec.project = Some(PROJECT.to_owned());
        spec.rack = Some(self.rack.to_owned());
        spec.slot = Some(self.slot + (number - 1) * self.height);
        spec.height = Some(self.height);
        (spec.idle_watts, spec.max_watts) = (Some(self.max_watts / 3), Some(self.max_watts));
        spec.resources.cpu = Quantity::from_milli(self.cores * 1000);
        spec.resources.memory = Quantity::from_bytes(self.gibibytes << 30);
        spec.resources.gpu = self.gpus;
        spec
    }
}

fn racks() -> Vec<Rack> {
    let rack = |name: &str, watt_cap: u32| Rack {
        watt_cap: Some(watt_cap),
        units: 32,
        start_limit: 6,
        ..Rack::new(name)
    };
    vec![rack("rack-a", 7_000), rack("rack-b", 8_800), rack("rack-c", 12_000)]
}

fn pool(name: &str, min: u32, max: u32, more: Value) -> PoolSetting {
    let mut spec = json!({
        "platform": { "type": "baremetal" },
        "autoscaling": { "enabled": true, "minNodes": min, "maxNodes": max, "scaleUpDelay": "30s", "scaleDownDelay": "10m" },
    });
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        for (key, value) in more {
            match (spec.get_mut(&key).and_then(Value::as_object_mut), value) {
                (Some(there), Value::Object(fields)) => there.extend(fields),
                (_, value) => drop(spec.insert(key, value)),
            }
        }
    }
    PoolSetting { name: name.to_owned(), spec }
}

fn pools() -> Vec<PoolSetting> {
    let lag = |name: &str, threshold: u32, held: &str, direction: &str| json!({ "name": name, "metricQuery": LAG_QUERY, "threshold": threshold, "duration": held, "scaleDirection": direction });
    vec![
        pool("web", 2, 14, json!({})),
        // More wait here at noon than its maximum lets in.
        pool("ci", 1, 2, json!({})),
        pool("batch", 0, 8, json!({})),
        pool(
            "stream",
            1,
            5,
            json!({ "autoscaling": { "triggers": [lag("orders-pile-up", 5_000, "2m", "up"), lag("orders-flow", 1_000, "5m", "down")] } }),
        ),
        // At zero until somebody trains something.
        pool("gpu", 0, 4, json!({ "taints": [{ "key": "nvidia.com/gpu", "effect": "NoSchedule" }] })),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_can_be_used_and_has_a_place_of_its_own() {
        let first = SocketAddr::from(([127, 10, 0, 1], 8000));
        for bmcs in [Bmcs::Memory, Bmcs::Wire(first)] {
            let yard = Yard::new(7, bmcs);
            assert_eq!(yard.site.hosts.len(), 40);
            let mut places = std::collections::BTreeSet::new();
            for host in &yard.site.hosts {
                let spec = host.spec();
                let value = serde_json::to_value(&spec).unwrap();
                let read = BareMetalNodeSpec::read(&value, "spec");
                assert!(read.is_ok(), "{}: {:?}", host.machine.name, read.err());
                let (slot, height) = (spec.slot.unwrap(), spec.height.unwrap());
                let units =
                    yard.site.racks.iter().find(|rack| Some(&rack.name) == spec.rack.as_ref()).unwrap().units;
                for unit in slot..slot + height {
                    assert!(
                        unit <= units && places.insert((spec.rack.clone(), unit)),
                        "{} at {unit}",
                        host.machine.name
                    );
                }
            }
            for odd in [&yard.odd.never_boots, &yard.odd.lies, &yard.odd.slow, &yard.odd.pressed] {
                assert!(yard.hosts().any(|host| host == odd), "{odd}");
            }
        }
    }

    #[test]
    fn a_seed_has_one_fleet() {
        let of = |seed: u64| {
            let yard = Yard::new(seed, Bmcs::Memory);
            (yard.site.hosts, yard.odd)
        };
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
    }
}
