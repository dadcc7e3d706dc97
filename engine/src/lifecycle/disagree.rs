//! Drift 2: a BMC that says off while the kubelet on its machine is alive.

use muster_model::host::{ConditionType, DriverKind, OtherReading, Phase, Power, PowerDisagreement};

use super::{EffectKind, turn::Turn};

impl Turn<'_> {
    /// Begins with two readings of off beside a fresh lease. It ends when the driver that said off reads up, or when the
    /// lease stops: what another driver says is told, and ends nothing.
    pub(super) fn observe_disagreement(&mut self) {
        let mut stored = self.status.power_disagreement;
        if stored.as_ref().is_some_and(|one| self.is_settled(one.driver)) {
            stored = None;
        } else if stored.is_none() && self.disagrees_now() {
            let driver = self.seen.power.value().map(|seen| seen.driver);
            stored = driver.map(|driver| PowerDisagreement { driver, other: None });
        }
        if let (Some(one), Some(second)) = (&mut stored, self.seen.second)
            && one.other.is_none()
        {
            one.other = Some(second);
        }
        let text = stored.map(message);
        self.status.power_disagreement = stored;
        let (reason, holds) = if text.is_some() { ("LeaseIsFresh", true) } else { ("Agrees", false) };
        self.condition(
            ConditionType::PowerReadingDisagrees,
            Some(holds),
            reason,
            text.as_deref().unwrap_or_default(),
        );
    }

    fn disagrees_now(&self) -> bool {
        matches!(self.from, Phase::Serving | Phase::Degraded) && self.is_off_twice() && self.is_lease_fresh()
    }

    fn is_settled(&self, said_off: DriverKind) -> bool {
        let reads = self.seen.power.value().is_some_and(|seen| seen.driver == said_off);
        let listed = self.settings().drivers.iter().any(|driver| driver.kind == said_off);
        self.is_lease_silent() == Some(true) || !listed || (reads && self.power().is_some_and(Power::is_up))
    }

    /// Asks one other driver, once for each disagreement.
    pub(super) fn ask_other_driver(&mut self) {
        let Some(one) = self.status.power_disagreement.as_ref().filter(|one| one.other.is_none()) else {
            return;
        };
        let readers = || self.settings().drivers.iter().enumerate().filter(|(_, it)| it.abilities.read_power);
        let other = readers().find(|(_, it)| it.kind != one.driver).or_else(|| readers().nth(1));
        if let Some((place, _)) = other.filter(|_| !self.is_blocked()) {
            self.ask(EffectKind::Probe { driver: Some(place) });
        }
    }
}

fn message(one: PowerDisagreement) -> String {
    let other = match one.other {
        None => String::new(),
        Some(OtherReading { driver, said: Some(power) }) => format!("; {driver} says {power}"),
        Some(OtherReading { driver, said: None }) => format!("; {driver} gives no answer"),
    };
    format!("{} says off while the kubelet keeps renewing its lease{other}", one.driver)
}
