//! What every power driver promises, checked on each pair of driver and machine.

use muster_model::power::{
    Accepted, Bmc, BootOverride, BootTarget, Expected, Leave, Order, Power, PowerAction, PowerState,
};

use super::read_until;

/// Peculiarities of the far end that the suite has to allow for.
#[derive(Clone, Copy)]
pub struct Peer<'a> {
    /// It keeps `once` when told so.
    pub keeps_once: bool,
    /// How the far end itself shows that a cycle took place; `None` where it has no working one.
    pub cycled: Option<&'a (dyn Fn() -> bool + Sync)>,
    /// Whether an operating system is up that hears a graceful request; `None` where there is none to wait for.
    pub listening: Option<&'a (dyn Fn() -> bool + Sync)>,
}

/// Runs the suite on a machine that is off. Leaves it off.
pub async fn suite(power: &dyn Power, bmc: &Bmc, peer: Peer<'_>) {
    let abilities = power.abilities();
    assert_eq!(power.driver(), bmc.driver());
    let reading = power.read(bmc).await.expect("a machine can be read at any time");
    assert_eq!(reading.state, PowerState::Off, "the suite starts with a machine that is off");
    assert_eq!(reading.driver, power.driver());

    off_is_left_alone(power, bmc).await;
    on_and_off(power, bmc, PowerAction::ForceOff, peer).await;
    if abilities.can(PowerAction::GracefulOff) {
        on_and_off(power, bmc, PowerAction::GracefulOff, peer).await;
    }
    if let Some(cycled) = peer.cycled {
        cycle(power, bmc, cycled).await;
    }
    if abilities.boot {
        boot(power, bmc, peer).await;
    }
    if abilities.identify {
        wrong_machine(power, bmc).await;
    }
    assert_eq!(power.read(bmc).await.unwrap().state, PowerState::Off);
}

async fn off_is_left_alone(power: &dyn Power, bmc: &Bmc) {
    for action in [PowerAction::GracefulOff, PowerAction::ForceOff] {
        if power.abilities().can(action) {
            let accepted = power.request(bmc, Order::first(action), &Leave::unlimited()).await.unwrap();
            assert_eq!(accepted, Accepted::AlreadyThere, "{action} on a machine that is off");
        }
    }
}

async fn on_and_off(power: &dyn Power, bmc: &Bmc, off: PowerAction, peer: Peer<'_>) {
    let accepted = power.request(bmc, Order::first(PowerAction::On), &Leave::unlimited()).await.unwrap();
    assert!(matches!(accepted, Accepted::Sent { .. }), "{accepted:?}");
    read_until(power, bmc, &PowerState::On).await;
    let again = power.request(bmc, Order::first(PowerAction::On), &Leave::unlimited()).await.unwrap();
    assert_eq!(again, Accepted::AlreadyThere, "on twice");
    if off == PowerAction::GracefulOff
        && let Some(listening) = peer.listening
    {
        super::eventually("a running system", listening).await;
    }
    let accepted = power.request(bmc, Order::first(off), &Leave::unlimited()).await.unwrap();
    assert!(matches!(accepted, Accepted::Sent { .. }), "{accepted:?}");
    read_until(power, bmc, &PowerState::Off).await;
}

async fn cycle(power: &dyn Power, bmc: &Bmc, cycled: &(dyn Fn() -> bool + Sync)) {
    let _ = power.request(bmc, Order::first(PowerAction::On), &Leave::unlimited()).await.unwrap();
    read_until(power, bmc, &PowerState::On).await;
    let accepted = power.request(bmc, Order::first(PowerAction::Cycle), &Leave::unlimited()).await.unwrap();
    assert!(matches!(accepted, Accepted::Sent { .. }), "{accepted:?}");
    super::eventually("power going and coming back", cycled).await;
    read_until(power, bmc, &PowerState::On).await;
    let _ = power.request(bmc, Order::first(PowerAction::ForceOff), &Leave::unlimited()).await.unwrap();
    read_until(power, bmc, &PowerState::Off).await;
}

async fn boot(power: &dyn Power, bmc: &Bmc, peer: Peer<'_>) {
    let wanted = BootOverride { target: BootTarget::Pxe, mode: None, once: true, url: None };
    let kept =
        power.set_boot(bmc, wanted, &Leave::unlimited()).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(kept.target, BootTarget::Pxe);
    if peer.keeps_once {
        assert!(kept.once, "{kept:?}");
    }
}

async fn wrong_machine(power: &dyn Power, bmc: &Bmc) {
    let mut other = bmc.clone();
    other.expect = Expected { serial: None, uuid: Some("ffffffff-ffff-4fff-8fff-ffffffffffff".to_owned()) };
    let error =
        power.request(&other, Order::first(PowerAction::ForceOff), &Leave::unlimited()).await.unwrap_err();
    // Who cannot say which machine it is does not say that it is another one; nothing is switched all the same.
    let says = power.identify(bmc).await.is_ok_and(|found| found.uuid.is_some());
    let expected: &[&str] =
        if says { &["POWER_WRONG_HOST"] } else { &["POWER_UNIDENTIFIED", "POWER_UNSUPPORTED"] };
    assert!(expected.contains(&error.code()), "{error}");
}

/// On, confirmed; off, confirmed; a hundred times without one miss.
pub async fn hundred(power: &dyn Power, bmc: &Bmc) {
    for round in 0..100 {
        for (action, state) in [(PowerAction::On, PowerState::On), (PowerAction::ForceOff, PowerState::Off)] {
            let accepted = power.request(bmc, Order::first(action), &Leave::unlimited()).await;
            let accepted = accepted.unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert!(matches!(accepted, Accepted::Sent { .. }), "round {round}: {accepted:?}");
            read_until(power, bmc, &state).await;
        }
    }
}
