//! Watts, temperatures and health, from whichever of the two generations of resources a BMC has.

use muster_model::{
    Known,
    power::{Fault, Sensors, Temperature, shown},
};
use serde_json::Value;

use super::{
    conversation::{Conversation, link, links},
    system::health,
};

/// Most temperatures that are kept; large servers have about sixty.
const MAX_TEMPERATURES: usize = 256;
/// A server draws at most some 20 kW; a higher figure is a broken sensor.
const MAX_WATTS: f64 = 100_000.0;

impl Conversation<'_> {
    pub(super) async fn sensors(&mut self, path: &str) -> Result<Sensors, Fault> {
        let (system, _) = self.get(path, "the system").await?;
        let mut sensors = Sensors {
            milliwatts: Known::Unknown {
                why: "the BMC has no power reading".into(),
                since: self.setup.clock.now(),
            },
            temperatures: Vec::new(),
            health: health(&system),
        };
        let mut total = None;
        for chassis in links(&system, "/Links/Chassis")?.into_iter().take(8) {
            let Some(chassis) = self.get_if_there(&chassis, "a chassis").await? else { continue };
            if let Some(watts) = self.watts(&chassis).await? {
                *total.get_or_insert(0) += watts;
            }
            self.temperatures(&chassis, &mut sensors.temperatures).await?;
        }
        if let Some(value) = total {
            sensors.milliwatts = Known::Value { value, at: self.setup.clock.now() };
        }
        sensors.temperatures.truncate(MAX_TEMPERATURES);
        Ok(sensors)
    }

    /// Thousandths of a watt, from the newer resource where there is one.
    async fn watts(&mut self, chassis: &Value) -> Result<Option<i64>, Fault> {
        if let Some(path) = link(chassis, "/EnvironmentMetrics")?
            && let Some(metrics) = self.get_if_there(&path, "environment metrics").await?
            && let Some(watts) = metrics.pointer("/PowerWatts/Reading").and_then(milli)
        {
            return Ok(Some(watts));
        }
        let Some(path) = link(chassis, "/Power")? else { return Ok(None) };
        let Some(power) = self.get_if_there(&path, "power readings").await? else { return Ok(None) };
        let controls = power.get("PowerControl").and_then(Value::as_array);
        let first =
            controls.into_iter().flatten().find_map(|control| milli(control.get("PowerConsumedWatts")?));
        Ok(first)
    }

    async fn temperatures(&mut self, chassis: &Value, found: &mut Vec<Temperature>) -> Result<(), Fault> {
        if let Some(path) = link(chassis, "/Thermal")?
            && let Some(thermal) = self.get_if_there(&path, "temperatures").await?
        {
            let all = thermal.get("Temperatures").and_then(Value::as_array);
            found.extend(all.into_iter().flatten().filter_map(|entry| {
                let present = entry.pointer("/Status/State").and_then(Value::as_str) != Some("Absent");
                present.then(|| temperature(entry, "ReadingCelsius")).flatten()
            }));
            return Ok(());
        }
        let Some(path) = link(chassis, "/ThermalSubsystem")? else { return Ok(()) };
        let Some(subsystem) = self.get_if_there(&path, "the thermal subsystem").await? else { return Ok(()) };
        let Some(path) = link(&subsystem, "/ThermalMetrics")? else { return Ok(()) };
        let Some(metrics) = self.get_if_there(&path, "temperatures").await? else { return Ok(()) };
        let all = metrics.get("TemperatureReadingsCelsius").and_then(Value::as_array);
        found.extend(all.into_iter().flatten().filter_map(|entry| temperature(entry, "Reading")));
        Ok(())
    }
}

fn temperature(entry: &Value, field: &str) -> Option<Temperature> {
    let name = entry.get("Name").or(entry.get("DeviceName")).and_then(Value::as_str).unwrap_or("unnamed");
    Some(Temperature {
        name: shown(name).to_string(),
        millicelsius: milli(entry.get(field)?)?,
        warning_at: entry.get("UpperThresholdNonCritical").and_then(milli),
        critical_at: entry.get("UpperThresholdCritical").and_then(milli),
    })
}

/// A number in thousandths. `None` for what is no sensible reading, so that it cannot pass for zero.
fn milli(value: &Value) -> Option<i64> {
    let number = value.as_f64().filter(|number| number.is_finite() && number.abs() < MAX_WATTS)?;
    #[expect(clippy::cast_possible_truncation, reason = "bounded to 1e8 in the line above")]
    let thousandths = (number * 1000.0).round() as i64;
    Some(thousandths)
}
