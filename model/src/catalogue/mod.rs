//! Machine types of the clouds: how large they are and about what they cost.
//!
//! The tables beside this file were written from general knowledge of the vendors' public list prices in
//! their cheapest large US regions (us-central1, us-east-1, East US), in US dollars, as of about mid 2025.
//! Sizes are the vendors' nominal ones. Prices are approximate and spot prices more so: they vary by
//! region and hour. They serve to compare pools with each other, not to predict a bill. Whoever knows
//! better overrides them with a file of the same form ([`Catalogue::with_overrides`]).

use std::{collections::BTreeMap, sync::OnceLock};

use thiserror::Error;

use crate::{
    field::Choice,
    platform::{Accelerator, Facts, PlatformKind},
    pool::{Arch, Resources},
};

const SHIPPED: &str = include_str!("machine-types.csv");
const ACCELERATORS: &str = include_str!("accelerators.csv");

/// The resource under which NVIDIA's device plugin offers GPUs.
pub const GPU_RESOURCE: &str = "nvidia.com/gpu";

/// One machine type. Memory is in MiB, prices in millionths of a dollar per hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineType {
    pub name: String,
    pub cpus_milli: i64,
    pub memory_mib: i64,
    pub gpu: Option<Accelerator>,
    pub arch: Arch,
    pub price_micros: Option<i64>,
    pub spot_price_micros: Option<i64>,
}

impl MachineType {
    /// As Kubernetes would see it, with accelerators attached.
    pub fn capacity(&self, attached: &[Accelerator]) -> Resources {
        let mut capacity = Resources::new();
        capacity.insert("cpu".to_owned(), format!("{}m", self.cpus_milli).as_str().into());
        capacity.insert("memory".to_owned(), format!("{}Mi", self.memory_mib).as_str().into());
        let gpus: u64 = self.gpu.iter().chain(attached).map(|gpu| u64::from(gpu.count)).sum();
        if gpus > 0 {
            capacity.insert(GPU_RESOURCE.to_owned(), gpus.to_string().as_str().into());
        }
        capacity
    }
}

/// What is wrong with a catalogue file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line} of the catalogue: {problem}; found {found:?}")]
pub struct CatalogueError {
    pub line: usize,
    pub problem: String,
    pub found: String,
}

/// Machine types by platform and exact name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Catalogue {
    types: BTreeMap<(PlatformKind, String), MachineType>,
    /// Price of one accelerator: on demand and spot.
    accelerators: BTreeMap<String, (i64, i64)>,
}

/// The columns of a catalogue file; `#` starts a comment.
pub const COLUMNS: &str = "platform,name,vcpu,memory_gib,gpu,gpu_count,arch,price,spot_price";

impl Catalogue {
    /// What ships with Muster.
    pub fn shipped() -> &'static Self {
        static CATALOGUE: OnceLock<Catalogue> = OnceLock::new();
        CATALOGUE.get_or_init(|| {
            let mut catalogue = Catalogue::default();
            catalogue.add(SHIPPED).expect("the shipped catalogue is checked by a test");
            catalogue.accelerators = accelerators(ACCELERATORS);
            catalogue
        })
    }

    /// A copy in which the lines of `text` replace or add types.
    pub fn with_overrides(&self, text: &str) -> Result<Self, CatalogueError> {
        let mut catalogue = self.clone();
        catalogue.add(text)?;
        Ok(catalogue)
    }

    fn add(&mut self, text: &str) -> Result<(), CatalogueError> {
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') || line == COLUMNS {
                continue;
            }
            let (kind, machine) = parse_line(line).map_err(|problem| CatalogueError {
                line: index + 1,
                problem,
                found: line.chars().take(120).collect(),
            })?;
            self.types.insert((kind, machine.name.clone()), machine);
        }
        Ok(())
    }

    /// The type with exactly this name; Google's custom types are computed from their name.
    pub fn get(&self, kind: PlatformKind, name: &str) -> Option<MachineType> {
        let known = self.types.get(&(kind, name.to_owned())).cloned();
        known.or_else(|| (kind == PlatformKind::Gcp).then(|| gcp_custom(name)).flatten())
    }

    /// All types of a platform, by name.
    pub fn types(&self, kind: PlatformKind) -> impl Iterator<Item = &MachineType> {
        self.types.iter().filter(move |((of, _), _)| *of == kind).map(|(_, machine)| machine)
    }

    /// The price of a node: machine and attached accelerators. Unknown as soon as one part is.
    pub fn price_micros(&self, kind: PlatformKind, machine: &MachineType, facts: &Facts) -> Option<i64> {
        let machine_price = if facts.spot { machine.spot_price_micros } else { machine.price_micros };
        let mut price = machine_price?;
        for accelerator in &facts.accelerators {
            let (on_demand, spot) =
                self.accelerators.get(&accelerator.model).filter(|_| kind == PlatformKind::Gcp)?;
            price += i64::from(accelerator.count) * if facts.spot { spot } else { on_demand };
        }
        Some(price)
    }
}

fn parse_line(line: &str) -> Result<(PlatformKind, MachineType), String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [platform, name, vcpu, memory, gpu, gpu_count, arch, price, spot] = fields[..] else {
        return Err(format!("has {} columns instead of 9: {COLUMNS}", fields.len()));
    };
    let kind = PlatformKind::from_word(platform).ok_or("has an unknown platform")?;
    if name.is_empty() || name.len() > 63 {
        return Err("has no name of 1 to 63 characters".to_owned());
    }
    let cpus_milli = decimal(vcpu, 3).filter(|n| *n > 0).ok_or("has no number of vcpus")?;
    let memory_thousandths = decimal(memory, 3).filter(|n| *n > 0).ok_or("has no memory in GiB")?;
    let gpu = match (gpu, gpu_count) {
        ("", "" | "0") => None,
        (model, count) => {
            let count =
                count.parse().ok().filter(|count| (1..=64).contains(count)).ok_or("has no GPU count")?;
            Some(Accelerator { model: model.to_owned(), count })
        }
    };
    let arch = Arch::from_word(arch).ok_or("has an unknown architecture")?;
    let money = |text: &str| match text {
        "" => Ok(None),
        text => decimal(text, 6).map(Some).ok_or("has a price that is no number with up to 6 decimals"),
    };
    let machine = MachineType {
        name: name.to_owned(),
        cpus_milli,
        memory_mib: memory_thousandths * 1024 / 1000,
        gpu,
        arch,
        price_micros: money(price)?,
        spot_price_micros: money(spot)?,
    };
    Ok((kind, machine))
}

/// Decimal text as an integer with `places` places after the point.
fn decimal(text: &str, places: usize) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || whole.len() > 9 || fraction.len() > places || !digits(whole) || !digits(fraction) {
        return None;
    }
    format!("{whole}{fraction:0<places$}").parse().ok()
}

fn accelerators(text: &str) -> BTreeMap<String, (i64, i64)> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let [model, price, spot] = line.split(',').collect::<Vec<_>>()[..] else { return None };
            Some((model.to_owned(), (decimal(price, 6)?, decimal(spot, 6)?)))
        })
        .collect()
}

/// `custom-4-8192`, `n2-custom-8-32768-ext`: processors and MiB are in the name, the price is not.
fn gcp_custom(name: &str) -> Option<MachineType> {
    let sizes = match name.strip_prefix("custom-") {
        Some(sizes) => sizes,
        None => name.split_once("-custom-").filter(|(family, _)| !family.contains('-'))?.1,
    };
    let (cpus, memory) = sizes.strip_suffix("-ext").unwrap_or(sizes).split_once('-')?;
    let whole = |text: &str, most: i64| {
        let plain = !text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<i64>().ok().filter(|n| plain && (1..=most).contains(n))
    };
    Some(MachineType {
        name: name.to_owned(),
        cpus_milli: whole(cpus, 512)? * 1000,
        memory_mib: whole(memory, 16 << 20)?,
        gpu: None,
        arch: Arch::Amd64,
        price_micros: None,
        spot_price_micros: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_catalogue_is_sound() {
        let mut catalogue = Catalogue::default();
        catalogue.add(SHIPPED).unwrap();
        let lines = SHIPPED.lines().filter(|line| !line.starts_with('#') && *line != COLUMNS).count();
        assert_eq!(catalogue.types.len(), lines, "a type is listed twice");
        for kind in [PlatformKind::Gcp, PlatformKind::Aws, PlatformKind::Azure] {
            let types: Vec<_> = catalogue.types(kind).collect();
            assert!(types.len() >= 40, "{kind} has {}", types.len());
            assert!(types.iter().any(|machine| machine.gpu.is_some()), "{kind} has no GPU");
            let default = crate::platform::platform(kind).default_machine_type().unwrap();
            assert!(catalogue.get(kind, default).is_some(), "{default} is assumed for {kind}");
            for machine in types {
                let (price, spot) = (machine.price_micros.unwrap(), machine.spot_price_micros.unwrap());
                assert!(0 < spot && spot < price, "{}", machine.name);
                // A vCPU-hour with its memory, without GPU, costs between a third of a cent and 20 cents.
                let per_cpu = price * 1000 / machine.cpus_milli;
                assert!(
                    machine.gpu.is_some() || (2_000..200_000).contains(&per_cpu),
                    "{} {per_cpu}",
                    machine.name
                );
                let gib_per_cpu = machine.memory_mib * 1000 / machine.cpus_milli / 256;
                assert!((1..=80).contains(&gib_per_cpu), "{} {gib_per_cpu}", machine.name);
            }
        }
        let listed = ACCELERATORS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
        assert_eq!(accelerators(ACCELERATORS).len(), listed);
    }

    #[test]
    fn lookups_are_exact() {
        let catalogue = Catalogue::shipped();
        let size = |kind, name: &str| catalogue.get(kind, name).map(|m| (m.cpus_milli, m.memory_mib));
        assert_eq!(size(PlatformKind::Gcp, "n1-standard-4"), Some((4000, 15_360)));
        assert_eq!(size(PlatformKind::Aws, "m5.xlarge"), Some((4000, 16_384)));
        assert_eq!(size(PlatformKind::Azure, "Standard_D4s_v3"), Some((4000, 16_384)));
        assert_eq!(size(PlatformKind::Aws, "n1-standard-4"), None);
        assert_eq!(size(PlatformKind::Azure, "standard_d4s_v3"), None);
        assert_eq!(size(PlatformKind::Gcp, "n2-custom-6-20480"), Some((6000, 20_480)));
        assert_eq!(size(PlatformKind::Gcp, "custom-2-4096-ext"), Some((2000, 4096)));
        for wrong in [
            "custom-",
            "n2-custom-6",
            "n2-custom-x-1",
            "a-b-custom-1-1",
            "custom-0-1",
            "custom-1-99999999999",
        ] {
            assert_eq!(size(PlatformKind::Gcp, wrong), None, "{wrong}");
        }
        let gpu = catalogue.get(PlatformKind::Aws, "p3.8xlarge").unwrap();
        assert_eq!(gpu.capacity(&[])[GPU_RESOURCE].text(), "4");
    }

    #[test]
    fn a_users_file_wins() {
        let text = "# ours\naws,m5.large,2,8,,,amd64,0.05,\naws,x9.huge,512,4096,nvidia-b300,8,arm64,,\n";
        let catalogue = Catalogue::shipped().with_overrides(text).unwrap();
        let ours = catalogue.get(PlatformKind::Aws, "m5.large").unwrap();
        assert_eq!((ours.price_micros, ours.spot_price_micros), (Some(50_000), None));
        assert_eq!(catalogue.get(PlatformKind::Aws, "x9.huge").unwrap().arch, Arch::Arm64);
        assert!(catalogue.get(PlatformKind::Aws, "m5.xlarge").is_some());
        for (line, expected) in [
            ("aws,x", "has 2 columns instead of 9"),
            ("ibm,x,1,1,,,amd64,,", "unknown platform"),
            ("aws,x,0,1,,,amd64,,", "no number of vcpus"),
            ("aws,x,1,-1,,,amd64,,", "no memory"),
            ("aws,x,1,1,gpu,,amd64,,", "no GPU count"),
            ("aws,x,1,1,,,x86,,", "unknown architecture"),
            ("aws,x,1,1,,,amd64,free,", "has a price"),
        ] {
            let error = Catalogue::default().with_overrides(&format!("\n{line}")).unwrap_err();
            assert!(error.to_string().starts_with("line 2 of the catalogue: "), "{error}");
            assert!(error.problem.contains(expected), "{error}");
        }
    }
}
