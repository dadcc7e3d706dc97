//! The commands that matter for power, and what their answers mean.

use muster_model::{
    Known, Timestamp,
    power::{
        Accepted, BootMode, BootOverride, BootTarget, DriverKind, Expected, Fault, Health, Identity, Leave,
        Order, PowerAction, PowerState, Sensors, given_uuid, same_uuid,
    },
};

use super::{
    completion,
    session::{Repeat, Session, Trouble},
    wire::Command,
};

const CHASSIS: u8 = 0x00;
const APPLICATION: u8 = 0x06;
const DCMI: u8 = 0x2c;

/// Boot parameter 5. Some BMCs keep the device and never show the flags as valid.
struct BootFlags {
    valid: bool,
    persistent: bool,
    uefi: bool,
    device: u8,
}

/// What a BMC says when it is asked for the machine's UUID.
enum Guid {
    Said(String),
    NotSaid,
    /// It does not know the question.
    Unknown,
}

pub(super) fn command(function: u8, number: u8, data: &[u8]) -> Command {
    Command { function, number, data: data.to_vec() }
}

/// A session with the name of its credential, for messages.
pub(super) struct Chassis<'a> {
    pub session: Session<'a>,
    pub credential: &'a str,
}

impl Chassis<'_> {
    pub(super) async fn ask(&mut self, asked: &str, question: &Command) -> Result<Vec<u8>, Fault> {
        let answer = self.session.command(question, Repeat::Yes).await;
        answer.map_err(|trouble| self.told(asked, trouble))
    }

    fn told(&self, asked: &str, trouble: Trouble) -> Fault {
        match trouble {
            Trouble::Fault(fault) => fault,
            Trouble::Code(code) => completion(asked, code, self.credential),
        }
    }

    pub(super) async fn power(&mut self) -> Result<(PowerState, Health), Fault> {
        let answer = self.ask("the chassis status", &command(CHASSIS, 0x01, &[])).await?;
        let Some(&state) = answer.first() else {
            return Err(Fault::malformed("the chassis status", "it is empty"));
        };
        // Bits 1, 3, 4: overload, fault, control fault. Bit 2, the interlock, is an open case.
        let health = if state & 0b0001_1010 != 0 { Health::Critical } else { Health::Ok };
        Ok((if state & 1 == 1 { PowerState::On } else { PowerState::Off }, health))
    }

    /// Reads, checks the machine, and sends the control if it is not there yet.
    pub(super) async fn control(
        &mut self,
        order: Order,
        expect: &Expected,
        leave: &Leave,
    ) -> Result<Accepted, Fault> {
        if order.action.interrupts() {
            self.prove(expect).await?;
        }
        let (state, _) = self.power().await?;
        if order.action.is_met_by(&state) {
            return Ok(Accepted::AlreadyThere);
        }
        let (control, how) = match order.action {
            PowerAction::ForceOff => (0x00, "power down"),
            PowerAction::On => (0x01, "power up"),
            PowerAction::Cycle => (0x02, "power cycle"),
            PowerAction::Reset => (0x03, "hard reset"),
            PowerAction::GracefulOff => (0x05, "soft shutdown"),
        };
        let repeat = if order.action.is_repeatable() { Repeat::Yes } else { Repeat::Never };
        let question = command(CHASSIS, 0x02, &[control]);
        match self.session.change(&question, repeat, leave).await {
            Ok(_) => Ok(Accepted::Sent { how: how.to_owned() }),
            Err(Trouble::Code(code)) => Err(completion(how, code, self.credential)),
            Err(Trouble::Fault(fault @ Fault::Withheld { .. })) => Err(fault),
            Err(Trouble::Fault(fault)) => {
                Err(Fault::OutcomeUnknown { action: how.to_owned(), why: fault.to_string() })
            }
        }
    }

    /// Cold reset of the controller. It need not live to answer.
    pub(super) async fn restart_bmc(&mut self, expect: &Expected, leave: &Leave) -> Result<Accepted, Fault> {
        self.prove(expect).await?;
        match self.session.change(&command(APPLICATION, 0x02, &[]), Repeat::Never, leave).await {
            Err(Trouble::Fault(fault @ Fault::Withheld { .. })) => Err(fault),
            Err(Trouble::Code(code)) => Err(completion("cold reset", code, self.credential)),
            Ok(_) | Err(Trouble::Fault(_)) => Ok(Accepted::Sent { how: "cold reset".to_owned() }),
        }
    }

    /// Sets the boot device and reads it back.
    pub(super) async fn set_boot(
        &mut self,
        boot: BootOverride,
        expect: &Expected,
        leave: &Leave,
    ) -> Result<BootOverride, Fault> {
        self.prove(expect).await?;
        let device = match boot.target {
            BootTarget::Default => 0x00,
            BootTarget::Pxe => 0x01,
            BootTarget::Disk => 0x02,
            BootTarget::Cd => 0x05,
            BootTarget::Setup => 0x06,
            BootTarget::UefiHttp => {
                return Err(Fault::unsupported("boot by HTTP", DriverKind::Ipmi));
            }
        };
        // Without this the flags expire after 60 s, which is less than some machines need to power on. BMCs
        // that do not know the parameter refuse it, and nothing is lost.
        let keep = command(CHASSIS, 0x08, &[0x03, 0x08]);
        if let Err(Trouble::Fault(fault)) = self.session.change(&keep, Repeat::Yes, leave).await {
            return Err(fault);
        }
        // From here on something was changed, whatever comes of the rest.
        let half_done = |fault| match fault {
            Fault::Withheld { why } => Fault::OutcomeUnknown { action: "the boot device".to_owned(), why },
            fault => fault,
        };
        let before = self.boot_flags().await?;
        let uefi = boot.mode.map_or(before.valid && before.uefi, |mode| mode == BootMode::Uefi);
        // Valid, for every boot, UEFI.
        let flags = 0x80 | u8::from(!boot.once) << 6 | u8::from(uefi) << 5;
        if before.device == device && !before.valid {
            // A leftover that looks like what is wanted would pass for success: something else must come to stand there
            // first. That the flags are valid is no such sign, as some BMCs never say so.
            let other = u8::from(device == 0);
            self.write_boot(0x80, other, leave).await.map_err(half_done)?;
            let found = self.boot_flags().await?.device;
            if found != other {
                let (wanted, found) = (format!("device {other:#x}"), format!("device {found:#x}"));
                return Err(Fault::BootIgnored { wanted, found });
            }
        }
        self.write_boot(flags, device, leave).await.map_err(half_done)?;
        let kept = self.boot_flags().await?;
        if kept.device != device || (boot.mode.is_some() && kept.uefi != uefi) {
            let told = |device: u8, uefi: bool| {
                format!("device {device:#x}, {}", if uefi { "UEFI" } else { "legacy" })
            };
            let (wanted, found) = (told(device, uefi), told(kept.device, kept.uefi));
            return Err(Fault::BootIgnored { wanted, found });
        }
        let mode = kept.uefi.then_some(BootMode::Uefi);
        Ok(BootOverride { target: boot.target, mode, once: !kept.persistent, url: None })
    }

    async fn write_boot(&mut self, flags: u8, device: u8, leave: &Leave) -> Result<(), Fault> {
        let set = command(CHASSIS, 0x08, &[0x05, flags, device << 2, 0, 0, 0]);
        let answer = self.session.change(&set, Repeat::Yes, leave).await;
        answer.map(drop).map_err(|trouble| self.told("the boot device", trouble))
    }

    async fn boot_flags(&mut self) -> Result<BootFlags, Fault> {
        let answer = self.ask("the boot device", &command(CHASSIS, 0x09, &[0x05, 0, 0])).await?;
        let [_, _, flags, choice, ..] = answer[..] else {
            return Err(Fault::malformed("the boot device", "the answer is cut short"));
        };
        Ok(BootFlags {
            valid: flags & 0x80 != 0,
            persistent: flags & 0x40 != 0,
            uefi: flags & 0x20 != 0,
            device: (choice >> 2) & 0x0f,
        })
    }

    /// Watts by DCMI, where the BMC knows it. Reading the whole sensor repository takes minutes and is not
    /// done here.
    pub(super) async fn sensors(&mut self, now: Timestamp) -> Result<Sensors, Fault> {
        let (_, health) = self.power().await?;
        let question = command(DCMI, 0x02, &[0xdc, 0x01, 0x00, 0x00]);
        let milliwatts = match self.session.command(&question, Repeat::Yes).await {
            Ok(answer) => match answer.as_slice() {
                // Group 0xdc, current watts, then minimum, maximum, average, time, period, state (bit 6: active).
                [0xdc, low, high, rest @ ..] if rest.get(14).is_some_and(|state| state & 0x40 != 0) => {
                    Known::Value { value: i64::from(u16::from_le_bytes([*low, *high])) * 1000, at: now }
                }
                _ => Known::Unknown { why: "the BMC's power measurement is not active".into(), since: now },
            },
            Err(Trouble::Code(_)) => {
                Known::Unknown { why: "the BMC has no DCMI power reading".into(), since: now }
            }
            Err(Trouble::Fault(fault)) => return Err(fault),
        };
        Ok(Sensors { milliwatts, temperatures: Vec::new(), health })
    }

    pub(super) async fn identify(&mut self) -> Result<Identity, Fault> {
        let device = self.ask("the device id", &command(APPLICATION, 0x01, &[])).await?;
        let firmware = match device.get(2..4) {
            Some(&[major, minor]) => Some(format!("{}.{minor:02x}", major & 0x7f)),
            _ => None,
        };
        let vendor = match device.get(6..9) {
            Some(&[low, middle, high]) => {
                let number = u32::from_le_bytes([low, middle, high & 0x0f, 0]);
                Some(format!("IANA enterprise {number}"))
            }
            _ => None,
        };
        let uuid = match self.guid().await? {
            Guid::Said(uuid) => Some(uuid),
            Guid::NotSaid | Guid::Unknown => None,
        };
        Ok(Identity { vendor, bmc_firmware: firmware, uuid, ..Identity::default() })
    }

    async fn guid(&mut self) -> Result<Guid, Fault> {
        match self.session.command(&command(APPLICATION, 0x37, &[]), Repeat::Yes).await {
            Ok(answer) => Ok(answer.get(..16).map_or(Guid::NotSaid, |bytes| {
                let hex = hex::encode(bytes);
                let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
                let uuid = parts.join("-");
                if given_uuid(&uuid).is_some() { Guid::Said(uuid) } else { Guid::NotSaid }
            })),
            Err(Trouble::Code(code)) => match completion("its UUID", code, self.credential) {
                busy @ Fault::Busy { .. } => Err(busy),
                Fault::Unsupported { .. } => Ok(Guid::Unknown),
                _ => Ok(Guid::NotSaid),
            },
            Err(Trouble::Fault(fault)) => Err(fault),
        }
    }

    /// An error unless the machine is the expected one. IPMI knows a UUID; a serial number alone cannot be
    /// checked here and does not stop the call. Only another UUID is another machine: one that is not said now is asked
    /// for again, and a BMC that knows none leaves the call to the host's next driver.
    async fn prove(&mut self, expect: &Expected) -> Result<(), Fault> {
        let Some(expected) = expect.uuid.as_deref().and_then(given_uuid) else { return Ok(()) };
        let (what, expected) = ("UUID", expected.to_owned());
        match self.guid().await? {
            Guid::Said(found) if same_uuid(&found, &expected) => Ok(()),
            Guid::Said(found) => Err(Fault::WrongHost { what, expected, found }),
            Guid::NotSaid => Err(Fault::Unidentified { what, expected }),
            Guid::Unknown => Err(Fault::unsupported("a check of its UUID", DriverKind::Ipmi)),
        }
    }
}
