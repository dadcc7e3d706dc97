//! Reading one machine: the first of its drivers that can and answers, and what to make of silence.

use std::{pin::pin, sync::Arc};

use futures::future::{Either, select};
use muster_engine::lifecycle::{BmcTrouble, BmcView, BootProgress, PowerSeen, TroubleClass};
use muster_model::{
    Clock, Duration, Known, Timestamp,
    host::{BlockCause, DriverFallback, HostIdentity, OtherReading},
    power::{self, Advice, Bmc, Fault, Health, PowerError, Reading, Warning},
};

use super::ways::{Drivers, Way, power_of};

/// How long a reading may take: slow firmware has been seen to take twenty seconds.
const READ_LIMIT: Duration = Duration::from_secs(30);
/// How long the next driver of the list is used before the first is tried again. Five polls: long enough to
/// spare a dead BMC, short enough that a restarted one is back before anyone notices.
const FALLBACK: Duration = Duration::from_mins(5);

/// What the last look at a machine found.
#[derive(Debug, Clone)]
pub(super) struct Looked {
    pub at: Timestamp,
    pub power: Known<PowerSeen>,
    pub bmc: Known<BmcView, BmcTrouble>,
    pub progress: Option<BootProgress>,
    pub health: Health,
    pub warnings: Vec<Warning>,
}

/// How a look is to be made.
#[derive(Debug)]
pub(super) struct Glass<'a> {
    pub drivers: &'a Drivers,
    pub clock: &'a Arc<dyn Clock>,
    pub ways: &'a [Way],
    pub fallback: Option<&'a DriverFallback>,
    pub identity: HostIdentity,
    pub access: u64,
    /// Looks in a row that failed before this one.
    pub failed: u32,
}

/// Waits for a call no longer than `limit`.
pub(super) async fn limited<T>(
    clock: &Arc<dyn Clock>,
    limit: Duration,
    bmc: &Bmc,
    call: impl Future<Output = Result<T, PowerError>>,
) -> Result<T, PowerError> {
    let call = pin!(call);
    let limit = if muster_model::planted::is("F23") { Duration::from_hours(1) } else { limit };
    let patience = pin!(clock.sleep(limit));
    match select(call, patience).await {
        Either::Left((answer, _)) => answer,
        Either::Right(((), _)) => Err(PowerError::new(bmc, Fault::Silent { limit })),
    }
}

/// Whether any driver of the host can tell on from off.
pub(super) fn can_read(drivers: &Drivers, ways: &[Way]) -> bool {
    ways.iter().any(|way| reads(drivers, way))
}

fn reads(drivers: &Drivers, way: &Way) -> bool {
    way.kind.abilities().read_power && drivers.get(way.kind).is_some()
}

/// What the caller stores beside the look: the driver in use when it is not the first.
pub(super) type Fallback = Option<DriverFallback>;

/// One look. `None` when no driver of the host can read power: there is nothing to look with.
pub(super) async fn look(glass: &Glass<'_>) -> Option<(Looked, Fallback)> {
    let able: Vec<usize> =
        (0..glass.ways.len()).filter(|place| reads(glass.drivers, &glass.ways[*place])).collect();
    let first = *able.first()?;
    let now = glass.clock.now();
    let resting = glass.fallback.filter(|one| now < one.until && able.contains(&one.index));
    let mut order = able.clone();
    if let Some(resting) = resting {
        order.retain(|place| *place != resting.index);
        order.insert(0, resting.index);
    }
    let (mut trouble, mut vague) = (None, None);
    for place in order {
        match ask(glass, &glass.ways[place]).await {
            Ok(reading) if reading.state.is_known() => {
                let before = trouble.as_ref().map(|(_, error)| error);
                let fallback = fallback(glass, place, first, before, resting, now);
                return Some((known(glass, place, reading), fallback));
            }
            Ok(reading) => {
                vague.get_or_insert((place, reading));
            }
            Err(error) => {
                // What blocks is told even if an earlier driver was only silent: the next look must not ask again.
                if matches!(class(&error), TroubleClass::Blocked(_)) {
                    trouble = Some((place, error));
                    break;
                }
                trouble.get_or_insert((place, error));
            }
        }
    }
    if let (Some((place, reading)), true) = (vague, trouble.is_none()) {
        return Some((known(glass, place, reading), resting.cloned()));
    }
    let attempts = glass.failed.saturating_add(1);
    let why = match trouble {
        Some((place, error)) => trouble_of(&error, place, attempts, glass.access),
        None => BmcTrouble {
            class: TroubleClass::Unreachable,
            message: "no answer".to_owned(),
            attempts,
            credential_version: glass.access,
            driver: None,
            key: None,
        },
    };
    Some((silent(glass, why), None))
}

/// What a failed call through the driver at `place` means for the host, in words that say what to do.
pub(super) fn trouble_of(error: &PowerError, place: usize, attempts: u32, access: u64) -> BmcTrouble {
    let (message, key) = match &error.fault {
        Fault::Unapproved { found } => {
            (format!("{error}: muster approve host {} --pin {found}", error.host), Some(*found))
        }
        Fault::Untrusted { found, .. } => (error.to_string(), Some(*found)),
        _ => (error.to_string(), None),
    };
    let driver = Some(place);
    BmcTrouble { class: class(error), message, attempts, credential_version: access, driver, key }
}

/// What the driver at `place` says by itself, beside the readings; and what of it blocks its BMC for every call.
pub(super) async fn ask_beside(
    glass: &Glass<'_>,
    place: usize,
) -> Option<(OtherReading, Option<BmcTrouble>)> {
    let way = glass.ways.get(place)?;
    let answer = ask(glass, way).await;
    let said = answer.as_ref().ok().and_then(|reading| power_of(&reading.state));
    let trouble = answer.err().map(|error| trouble_of(&error, place, 1, glass.access));
    let blocks = trouble.filter(|one| matches!(one.class, TroubleClass::Blocked(_)));
    Some((OtherReading { driver: way.kind, said }, blocks))
}

async fn ask(glass: &Glass<'_>, way: &Way) -> Result<Reading, PowerError> {
    let invalid = |why: String| PowerError {
        host: String::new(),
        address: way.kind.to_string(),
        fault: Fault::Invalid { why },
    };
    let bmc = way.bmc.as_ref().map_err(|why| invalid(why.clone()))?;
    let driver =
        glass.drivers.get(way.kind).ok_or_else(|| invalid(format!("no driver {} runs here", way.kind)))?;
    limited(glass.clock, READ_LIMIT, bmc, driver.read(bmc)).await
}

/// Which driver to remember after `place` answered.
fn fallback(
    glass: &Glass<'_>,
    place: usize,
    first: usize,
    trouble: Option<&PowerError>,
    resting: Option<&DriverFallback>,
    now: Timestamp,
) -> Fallback {
    if place == first {
        return None;
    }
    if let Some(resting) = resting.filter(|resting| resting.index == place) {
        return Some(resting.clone());
    }
    let reason = trouble.map_or_else(|| "the first driver gave no usable answer".into(), ToString::to_string);
    let driver = glass.ways[place].kind;
    Some(DriverFallback { index: place, driver, reason, until: now.saturating_add(FALLBACK) })
}

fn known(glass: &Glass<'_>, place: usize, reading: Reading) -> Looked {
    let (at, driver) = (reading.at, glass.ways[place].kind);
    let power = match (power_of(&reading.state), &reading.state) {
        (Some(power), _) => Known::Value { value: PowerSeen { power, driver }, at },
        (None, power::PowerState::Unknown { why }) => Known::Unknown { why: why.clone(), since: at },
        (None, _) => Known::Unknown { why: "no usable answer".into(), since: at },
    };
    let progress = match &reading.progress {
        power::BootProgress::NotReported => None,
        power::BootProgress::Firmware(stage) => Some((stage.clone(), false)),
        power::BootProgress::OsStarting => Some(("os-starting".to_owned(), false)),
        power::BootProgress::OsRunning => Some(("os-running".to_owned(), true)),
    };
    Looked {
        at,
        power,
        bmc: Known::Value { value: BmcView { identity: glass.identity.clone() }, at },
        progress: progress.map(|(stage, os)| BootProgress { stage, os, at }),
        health: reading.health,
        warnings: reading.warnings,
    }
}

fn silent(glass: &Glass<'_>, why: BmcTrouble) -> Looked {
    let now = glass.clock.now();
    Looked {
        at: now,
        power: Known::Unknown { why: why.message.clone(), since: now },
        bmc: Known::Unknown { why, since: now },
        progress: None,
        health: Health::NotReported,
        warnings: Vec::new(),
    }
}

/// What a failed call says about the BMC.
pub(super) fn class(error: &PowerError) -> TroubleClass {
    match &error.fault {
        _ if muster_model::planted::is("F14") => TroubleClass::Unreachable,
        Fault::Denied { .. } | Fault::NoCredential { .. } => {
            TroubleClass::Blocked(BlockCause::CredentialsRefused)
        }
        Fault::PasswordChangeRequired { .. } => TroubleClass::Blocked(BlockCause::PasswordChangeRequired),
        Fault::Unapproved { .. } => TroubleClass::Blocked(BlockCause::KeyNotApproved),
        Fault::Untrusted { .. } => TroubleClass::Blocked(BlockCause::CertificateMismatch),
        Fault::WrongHost { .. } => TroubleClass::Blocked(BlockCause::IdentityChanged),
        Fault::NotAsked { .. }
        | Fault::Withheld { .. }
        | Fault::Silent { .. }
        | Fault::Unreachable { .. }
        | Fault::AddressRefused { .. }
        | Fault::Unsupported { .. }
        | Fault::Malformed { .. }
        | Fault::Busy { .. }
        | Fault::Refused { .. }
        | Fault::BootIgnored { .. }
        | Fault::AmbiguousSystem { .. }
        | Fault::Unidentified { .. }
        | Fault::OutcomeUnknown { .. }
        | Fault::Invalid { .. } => TroubleClass::Unreachable,
    }
}

/// What became of a request that failed.
pub(super) fn outcome(error: &PowerError) -> muster_engine::lifecycle::Outcome {
    use muster_engine::lifecycle::Outcome;
    match error.advice() {
        // Sent or not: reading settles it, and the deadline brings the next attempt.
        Advice::ReadFirst => Outcome::Unknown,
        Advice::Later => Outcome::Unsent,
        Advice::OtherDriver | Advice::Person => {
            Outcome::Refused { reason: reason(&error.fault), message: error.to_string() }
        }
    }
}

const fn reason(fault: &Fault) -> &'static str {
    match fault {
        Fault::BootIgnored { .. } => "BootOverrideIgnored",
        Fault::Unsupported { .. } => "NotSupported",
        Fault::Denied { .. } | Fault::NoCredential { .. } => "CredentialsRefused",
        Fault::PasswordChangeRequired { .. } => "PasswordChangeRequired",
        Fault::Unapproved { .. } => "KeyNotApproved",
        Fault::Untrusted { .. } => "CertificateMismatch",
        Fault::WrongHost { .. } => "IdentityChanged",
        Fault::AddressRefused { .. } => "AddressRefused",
        Fault::AmbiguousSystem { .. } | Fault::Invalid { .. } => "NotUsable",
        Fault::Refused { .. }
        | Fault::NotAsked { .. }
        | Fault::Withheld { .. }
        | Fault::Silent { .. }
        | Fault::Unreachable { .. }
        | Fault::Malformed { .. }
        | Fault::Busy { .. }
        | Fault::Unidentified { .. }
        | Fault::OutcomeUnknown { .. } => "Refused",
    }
}
