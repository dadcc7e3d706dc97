//! From a host's spec to the ways that its drivers take, and between the inventory's words for power and the
//! drivers' words.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use muster_model::{
    host::{
        self, BareMetalNodeSpec, BootProfile, DriverSpec, HostIdentity, MgmtAddress, PowerCall,
        PowerInterface, TlsVerify, unique::bmcs,
    },
    power::{
        self, Bmc, BootOverride, CipherSuite, Endpoint, Expected, Mac, Order, Pin, Power, PowerAction,
        PowerState, Privilege, RedfishAuth, Trust,
    },
};

/// The drivers of this process, by kind.
#[derive(Debug, Clone, Default)]
pub struct Drivers(BTreeMap<power::DriverKind, Arc<dyn Power>>);

impl Drivers {
    pub fn new(drivers: impl IntoIterator<Item = Arc<dyn Power>>) -> Self {
        Self(drivers.into_iter().map(|driver| (driver.driver(), driver)).collect())
    }

    pub fn get(&self, kind: host::DriverKind) -> Option<&Arc<dyn Power>> {
        self.0.get(&kind_of(kind))
    }

    /// Ends every session of every driver. Once, before the process stops.
    pub async fn close(&self) {
        for driver in self.0.values() {
            driver.close().await;
        }
    }
}

pub(super) const fn kind_of(kind: host::DriverKind) -> power::DriverKind {
    match kind {
        host::DriverKind::Redfish => power::DriverKind::Redfish,
        host::DriverKind::Ipmi => power::DriverKind::Ipmi,
        host::DriverKind::Wol => power::DriverKind::Wol,
        host::DriverKind::Agent => power::DriverKind::Agent,
        host::DriverKind::Webhook => power::DriverKind::Webhook,
        host::DriverKind::DryRun => power::DriverKind::DryRun,
    }
}

/// One entry of a host's driver list, ready to be called or with the reason why it cannot be.
#[derive(Debug, Clone)]
pub(super) struct Way {
    pub kind: host::DriverKind,
    pub bmc: Result<Bmc, String>,
}

/// The ways of a host, in the order of its driver list.
pub(super) fn ways(name: &str, spec: &BareMetalNodeSpec, known: Option<&HostIdentity>) -> Vec<Way> {
    let expect = Expected {
        serial: spec.serial.clone().or_else(|| known.and_then(|known| known.serial.clone())),
        uuid: known.and_then(|known| known.uuid.clone()),
    };
    let expect = if muster_model::planted::is("F15") { Expected::default() } else { expect };
    let way = |driver: &DriverSpec| {
        let bmc = endpoint(spec, driver).map(|endpoint| Bmc {
            host: name.to_owned(),
            endpoint,
            credential: spec.credential(Some(driver)),
            expect: expect.clone(),
        });
        Way { kind: driver.kind, bmc }
    };
    spec.effective_drivers().iter().map(way).collect()
}

fn endpoint(spec: &BareMetalNodeSpec, driver: &DriverSpec) -> Result<Endpoint, String> {
    let setting = |name: &str| driver.settings.get(name).map(String::as_str);
    let address = || -> Result<String, String> {
        let own = driver.address.as_deref().and_then(|text| text.parse().ok());
        let address: Option<MgmtAddress> = own.or_else(|| spec.mgmt_address.clone());
        let address = address.map(|address| match setting("port") {
            Some(port) if address.port().is_none() => format!("{}:{port}", address.authority()),
            _ => address.authority(),
        });
        address.ok_or_else(|| format!("driver {} needs an address; set mgmtAddress", driver.kind))
    };
    // Whether it may be plain is for the rules of addresses to say.
    let url = |address: String| format!("{}://{address}", setting("scheme").unwrap_or("https"));
    match driver.kind {
        host::DriverKind::Redfish => {
            let url = url(address()?);
            let auth = match setting("auth") {
                Some("basic") => RedfishAuth::Basic,
                Some("auto") | None => RedfishAuth::Auto,
                Some(other) => return Err(format!("auth {other:?} is not known; set auto or basic")),
            };
            Ok(Endpoint::Redfish { url, system: spec.system_id.clone(), trust: trust(spec, driver)?, auth })
        }
        host::DriverKind::Ipmi => {
            let suite = match setting("cipherSuite") {
                None => CipherSuite::default(),
                Some(text) => text
                    .parse::<u8>()
                    .map_err(|_| format!("cipherSuite {text:?} is no number; set 17 or 3"))
                    .and_then(CipherSuite::try_from)?,
            };
            let privilege = match setting("privilege") {
                Some("operator") => Privilege::Operator,
                Some("administrator") | None => Privilege::Administrator,
                Some(other) => {
                    return Err(format!("privilege {other:?} is not known; set administrator or operator"));
                }
            };
            Ok(Endpoint::Ipmi { address: address()?, suite, privilege })
        }
        host::DriverKind::Wol => {
            let mac = spec.mac_address.ok_or("driver wol needs macAddress")?;
            let broadcast = setting("broadcast").ok_or("driver wol needs the setting broadcast")?.to_owned();
            let port = match setting("port") {
                Some(text) => text.parse().map_err(|_| format!("port {text:?} is none; set 1 to 65535"))?,
                None => 9,
            };
            let secure_on = setting("secureOn")
                .map(|text| text.parse::<Mac>().map_err(|error| format!("secureOn: {error}")))
                .transpose()?;
            let interface = setting("interface").map(str::to_owned);
            Ok(Endpoint::Wol { mac: Mac(mac.bytes()), broadcast, port, secure_on, interface })
        }
        host::DriverKind::Agent => Ok(Endpoint::Agent),
        host::DriverKind::Webhook => {
            Ok(Endpoint::Webhook { url: url(address()?), trust: trust(spec, driver)? })
        }
        // It reads as the host's own interface does, and changes nothing.
        host::DriverKind::DryRun => match spec.power_interface {
            PowerInterface::Redfish => endpoint(spec, &reading(driver, host::DriverKind::Redfish)),
            PowerInterface::Ipmi => endpoint(spec, &reading(driver, host::DriverKind::Ipmi)),
            PowerInterface::Wol => Ok(Endpoint::DryRun),
        },
    }
}

/// The same entry of the list for another driver.
fn reading(driver: &DriverSpec, kind: host::DriverKind) -> DriverSpec {
    DriverSpec { kind, ..driver.clone() }
}

fn trust(spec: &BareMetalNodeSpec, driver: &DriverSpec) -> Result<Trust, String> {
    match spec.tls_verify {
        TlsVerify::Pin => {
            let pin = spec.pin_of(driver);
            let pin = pin.map(|text| text.parse::<Pin>().map_err(|error| error.to_string())).transpose()?;
            Ok(Trust::Pin { pin })
        }
        TlsVerify::Ca => {
            let pem = driver.settings.get("caBundle").cloned();
            let pem = pem.ok_or("tlsVerify ca needs the driver setting caBundle")?;
            Ok(Trust::Ca { pem, server_name: driver.settings.get("serverName").cloned() })
        }
        TlsVerify::Webpki => Ok(Trust::Webpki),
        TlsVerify::Insecure => Ok(Trust::Insecure),
    }
}

/// Which BMC a host shares with others behind it: calls to one go one at a time.
pub(super) fn bmc_key(spec: &BareMetalNodeSpec, name: &str) -> String {
    bmcs(spec).into_iter().next().unwrap_or_else(|| format!("host {name}"))
}

/// Changes whenever the way to a BMC does: its account's version, its address, its trust. A BMC that refused
/// one is tried again with the next.
pub(super) fn access_version(spec: &BareMetalNodeSpec, version_of: impl Fn(&str) -> u64) -> u64 {
    let mut text =
        format!("{:?} {:?} {:?} {:?}", spec.mgmt_address, spec.tls_verify, spec.system_id, spec.pin);
    for driver in spec.effective_drivers() {
        let version = spec.credential(Some(&driver)).map(|name| (version_of(&name), name));
        let _ = write!(text, " {} {:?} {:?} {version:?}", driver.kind, driver.address, driver.settings);
    }
    fnv(text.bytes())
}

/// FNV-1a: the same everywhere and for ever.
pub(super) fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What a driver read, in the inventory's words; `None` is an answer that says nothing.
pub(super) const fn power_of(state: &PowerState) -> Option<host::Power> {
    match state {
        PowerState::On => Some(host::Power::On),
        PowerState::Off => Some(host::Power::Off),
        PowerState::PoweringOn => Some(host::Power::TurningOn),
        PowerState::PoweringOff => Some(host::Power::TurningOff),
        PowerState::Unknown { .. } => None,
    }
}

/// What to order from a driver for a call of the lifecycle; `None` for what is not a power order.
pub(super) const fn order_of(call: PowerCall) -> Option<Order> {
    match call {
        PowerCall::PowerOn { reset, .. } => Some(Order { action: PowerAction::On, on: reset }),
        PowerCall::WolBurst { .. } => Some(Order::first(PowerAction::On)),
        PowerCall::GracefulOff { .. } => Some(Order::first(PowerAction::GracefulOff)),
        PowerCall::ForceOff { .. } => Some(Order::first(PowerAction::ForceOff)),
        PowerCall::PowerCycle { .. } => Some(Order::first(PowerAction::Cycle)),
        PowerCall::SetBoot { .. } | PowerCall::ResetBmc { .. } => None,
    }
}

/// A boot profile as a driver takes it.
pub(super) fn boot_of(profile: &BootProfile) -> BootOverride {
    let target = match profile.target {
        host::BootTarget::Pxe => power::BootTarget::Pxe,
        host::BootTarget::UefiHttp => power::BootTarget::UefiHttp,
        host::BootTarget::Disk => power::BootTarget::Disk,
        host::BootTarget::BiosSetup => power::BootTarget::Setup,
        host::BootTarget::None => power::BootTarget::Default,
    };
    let mode = match profile.mode {
        host::BootMode::Keep => None,
        host::BootMode::Uefi => Some(power::BootMode::Uefi),
        host::BootMode::Legacy => Some(power::BootMode::Legacy),
    };
    BootOverride { target, mode, once: profile.once, url: profile.url.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> BareMetalNodeSpec {
        let mut spec = BareMetalNodeSpec::new("gpu", PowerInterface::Redfish);
        spec.mgmt_address = Some("10.0.0.5".parse().unwrap());
        spec.bmc_credentials = Some("rack-a".into());
        spec
    }

    #[test]
    fn ways_follow_the_spec() {
        #[track_caller]
        fn check(change: impl FnOnce(&mut BareMetalNodeSpec), expected: &str) {
            let mut one = spec();
            change(&mut one);
            let ways = ways("h1", &one, None);
            let text = match &ways[0].bmc {
                Ok(bmc) => format!("{} {}", bmc.driver(), bmc.address()),
                Err(why) => why.clone(),
            };
            assert_eq!(text, expected);
        }
        check(|_| {}, "redfish https://10.0.0.5");
        check(|spec| spec.power_interface = PowerInterface::Ipmi, "ipmi 10.0.0.5");
        let v6 = |spec: &mut BareMetalNodeSpec| spec.mgmt_address = Some("2001:db8::1".parse().unwrap());
        check(v6, "redfish https://[2001:db8::1]");
        check(
            |spec| {
                v6(spec);
                let mut ipmi = DriverSpec::new(host::DriverKind::Ipmi);
                ipmi.settings.insert("port".into(), "6230".into());
                spec.drivers = vec![ipmi];
            },
            "ipmi [2001:db8::1]:6230",
        );
        check(
            |spec| {
                let mut plain = DriverSpec::new(host::DriverKind::Redfish);
                plain.settings.insert("scheme".into(), "http".into());
                spec.drivers = vec![plain];
            },
            "redfish http://10.0.0.5",
        );
        check(|spec| spec.mgmt_address = None, "driver redfish needs an address; set mgmtAddress");
        check(|spec| spec.power_interface = PowerInterface::Wol, "driver wol needs macAddress");
        check(
            |spec| spec.drivers = vec![DriverSpec::new(host::DriverKind::DryRun)],
            "redfish https://10.0.0.5",
        );
        check(
            |spec| {
                let mut ipmi = DriverSpec::new(host::DriverKind::Ipmi);
                ipmi.settings.insert("port".into(), "6230".into());
                spec.drivers = vec![ipmi];
            },
            "ipmi 10.0.0.5:6230",
        );
        let with = |kind, name: &'static str, value: &'static str| {
            move |spec: &mut BareMetalNodeSpec| {
                let mut driver = DriverSpec::new(kind);
                driver.settings.insert(name.into(), value.into());
                driver.settings.insert("broadcast".into(), "10.0.0.255".into());
                spec.mac_address = Some("02:00:00:00:00:01".parse().unwrap());
                spec.drivers = vec![driver];
            }
        };
        let (ipmi, redfish, wol) = (host::DriverKind::Ipmi, host::DriverKind::Redfish, host::DriverKind::Wol);
        let none = "cipher suite 0 needs no password and is never used; set 17 or 3";
        check(with(ipmi, "cipherSuite", "0"), none);
        // A slip of the pen is no other choice.
        let privilege = "privilege \"Operator\" is not known; set administrator or operator";
        check(with(ipmi, "privilege", "Operator"), privilege);
        check(with(redfish, "auth", "Basic"), "auth \"Basic\" is not known; set auto or basic");
        check(with(wol, "port", "99999"), "port \"99999\" is none; set 1 to 65535");
    }

    #[test]
    fn one_bmc_has_one_key() {
        let mut other = spec();
        other.mgmt_address = Some("10.0.0.5:443".parse().unwrap());
        other.system_id = Some("2".into());
        assert_eq!(bmc_key(&spec(), "a"), bmc_key(&other, "b"));
        let driver =
            |kind, address: &str| DriverSpec { address: Some(address.into()), ..DriverSpec::new(kind) };
        other.mgmt_address = None;
        other.drivers = vec![driver(host::DriverKind::Ipmi, "10.0.0.5:623")];
        assert_eq!(bmc_key(&spec(), "a"), bmc_key(&other, "b"));
        other.drivers = vec![driver(host::DriverKind::Ipmi, "10.0.0.6")];
        assert_ne!(bmc_key(&spec(), "a"), bmc_key(&other, "b"));
    }

    #[test]
    fn a_boot_profile_keeps_where_its_image_is() {
        let text =
            serde_json::json!({"name": "net", "target": "uefi-http", "url": "http://boot.example/x.efi"});
        let profile = BootProfile::read(&text, "spec").unwrap().value;
        assert_eq!(boot_of(&profile).url.as_deref(), Some("http://boot.example/x.efi"));
    }

    #[test]
    fn a_new_version_address_or_trust_is_new_access() {
        let before = access_version(&spec(), |_| 1);
        assert_eq!(access_version(&spec(), |_| 1), before);
        assert_ne!(access_version(&spec(), |_| 2), before);
        let mut moved = spec();
        moved.mgmt_address = Some("10.0.0.6".parse().unwrap());
        assert_ne!(access_version(&moved, |_| 1), before);
        let mut trusting = spec();
        trusting.tls_verify = TlsVerify::Insecure;
        assert_ne!(access_version(&trusting, |_| 1), before);
        let mut approved = spec();
        assert!(approved.approve(0, Pin([7; 32])));
        assert_ne!(access_version(&approved, |_| 1), before);
        let ways = ways("h1", &approved, None);
        let Ok(Bmc { endpoint: Endpoint::Redfish { trust, .. }, .. }) = &ways[0].bmc else {
            panic!("{ways:?}")
        };
        assert_eq!(*trust, Trust::Pin { pin: Some(Pin([7; 32])) });
    }
}
