//! What the resources look like.

use serde_json::{Value, json};

use super::{Faults, RedfishBmc, System, bmc::Boot};
use crate::Power;

pub(super) const RESET_TYPES: [&str; 8] = [
    "On",
    "ForceOff",
    "GracefulShutdown",
    "GracefulRestart",
    "ForceRestart",
    "PowerCycle",
    "ForceOn",
    "PushPowerButton",
];

pub(super) fn resource(path: &str, kind: &str, name: &str, mut rest: Value) -> Value {
    let fields = rest.as_object_mut().expect("every resource is written as an object");
    fields.insert("@odata.id".into(), json!(path));
    fields.insert("@odata.type".into(), json!(kind));
    fields.insert("Id".into(), json!(path.rsplit('/').next().unwrap_or_default()));
    fields.insert("Name".into(), json!(name));
    rest
}

pub(super) fn link(path: impl Into<String>) -> Value {
    json!({ "@odata.id": path.into() })
}

pub(super) fn collection(path: &str, kind: &str, name: &str, members: Vec<Value>) -> Value {
    let kind = format!("#{kind}Collection.{kind}Collection");
    resource(path, &kind, name, json!({ "Members@odata.count": members.len(), "Members": members }))
}

pub(super) fn root(bmc: &RedfishBmc, faults: &Faults) -> Value {
    let mut root = resource(
        "/redfish/v1",
        "#ServiceRoot.v1_15_0.ServiceRoot",
        "Root Service",
        json!({
            "Id": "RootService",
            "RedfishVersion": "1.15.0",
            "UUID": bmc.systems.first().map(|system| system.uuid.clone()),
            "Vendor": "Muster",
            "Product": "Emulated BMC",
            "Systems": link("/redfish/v1/Systems"),
            "Chassis": link("/redfish/v1/Chassis"),
            "Managers": link("/redfish/v1/Managers"),
            "Links": {},
        }),
    );
    root["Id"] = json!("RootService");
    if faults.session_limit != Some(0) {
        root["SessionService"] = link("/redfish/v1/SessionService");
        root["Links"] = json!({ "Sessions": link("/redfish/v1/SessionService/Sessions") });
    }
    root
}

pub(super) fn session_service() -> Value {
    let path = "/redfish/v1/SessionService";
    resource(
        path,
        "#SessionService.v1_1_8.SessionService",
        "Session Service",
        json!({ "ServiceEnabled": true, "SessionTimeout": 1800, "Sessions": link(format!("{path}/Sessions")) }),
    )
}

pub(super) fn sessions(ids: impl Iterator<Item = String>) -> Value {
    let path = "/redfish/v1/SessionService/Sessions";
    let members = ids.map(|id| link(format!("{path}/{id}"))).collect();
    collection(path, "Session", "Sessions", members)
}

pub(super) fn session(id: &str, user: &str) -> Value {
    let path = format!("/redfish/v1/SessionService/Sessions/{id}");
    resource(&path, "#Session.v1_5_0.Session", "User Session", json!({ "UserName": user }))
}

pub(super) fn list(bmc: &RedfishBmc, what: &str, kind: &str) -> Value {
    let path = format!("/redfish/v1/{what}");
    let members = bmc.systems.iter().map(|system| link(format!("{path}/{}", system.id))).collect();
    collection(&path, kind, what, members)
}

pub(super) fn system(system: &System, faults: &Faults, power: Option<&str>) -> Value {
    let path = format!("/redfish/v1/Systems/{}", system.id);
    let seen = system.machine.look();
    let mut action = json!({ "target": format!("{path}/Actions/ComputerSystem.Reset") });
    if faults.action_info {
        action["@Redfish.ActionInfo"] = json!(format!("{path}/ResetActionInfo"));
    } else {
        action["ResetType@Redfish.AllowableValues"] = json!(offered(faults));
    }
    let progress = match (seen.power, seen.running) {
        (Power::On, true) => "OSRunning",
        (Power::On, false) => "SystemHardwareInitializationComplete",
        (Power::PoweringOn, _) => "PrimaryProcessorInitializationStarted",
        _ => "None",
    };
    let blank = faults.blank_when_off && seen.power == Power::Off;
    let mut out = resource(
        &path,
        "#ComputerSystem.v1_20_0.ComputerSystem",
        &format!("System {}", system.id),
        json!({
            "SystemType": "Physical",
            "Manufacturer": faults.say_manufacturer.as_deref().unwrap_or("Muster"),
            "Model": "Emulated 2U",
            "SerialNumber": if blank { "" } else { faults.say_serial.as_ref().unwrap_or(&system.serial) },
            "UUID": if blank { "" } else { &system.uuid },
            "BiosVersion": "1.0",
            "Status": { "State": "Enabled", "Health": "OK", "HealthRollup": "OK" },
            "BootProgress": { "LastState": progress },
            "ProcessorSummary": { "Count": 2, "CoreCount": 64, "LogicalProcessorCount": 128, "Model": "Emulated CPU" },
            "MemorySummary": { "TotalSystemMemoryGiB": 512 },
            "EthernetInterfaces": link(format!("{path}/EthernetInterfaces")),
            "Processors": link(format!("{path}/Processors")),
            "Links": {
                "Chassis": [link(format!("/redfish/v1/Chassis/{}", system.id))],
                "ManagedBy": [link("/redfish/v1/Managers/1")],
            },
            "Actions": { "#ComputerSystem.Reset": action },
        }),
    );
    if let Some(power) = power {
        out["PowerState"] = json!(power);
    }
    if !faults.no_boot {
        let now = system.boot.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        out["Boot"] = boot(&now, faults);
    }
    if !faults.no_log && !faults.log_on_manager {
        out["LogServices"] = link(format!("{path}/LogServices"));
    }
    if faults.ami_boot {
        out["@Redfish.Settings"] = json!({ "SettingsObject": link(format!("{path}/SD")) });
    }
    out
}

fn boot(boot: &Boot, faults: &Faults) -> Value {
    let mut out = json!({
        "BootSourceOverrideTarget": boot.target,
        "BootSourceOverrideEnabled": boot.enabled,
        "HttpBootUri": boot.http_uri,
        "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Hdd", "Cd", "BiosSetup", "UefiHttp"],
    });
    if !faults.no_boot_mode {
        out["BootSourceOverrideMode"] = json!(boot.mode);
    }
    out
}

pub(super) fn settings(system: &System, faults: &Faults) -> Value {
    let path = format!("/redfish/v1/Systems/{}/SD", system.id);
    let pending = boot(&system.pending_or_now(), faults);
    resource(&path, "#ComputerSystem.v1_20_0.ComputerSystem", "Settings", json!({ "Boot": pending }))
}

/// The reset types that the BMC admits to.
pub(super) fn offered(faults: &Faults) -> Vec<String> {
    faults.reset_types.clone().unwrap_or_else(|| RESET_TYPES.iter().map(ToString::to_string).collect())
}

pub(super) fn action_info(system: &System, faults: &Faults) -> Value {
    let path = format!("/redfish/v1/Systems/{}/ResetActionInfo", system.id);
    let parameter = json!({ "Name": "ResetType", "Required": true, "DataType": "String", "AllowableValues": offered(faults) });
    resource(&path, "#ActionInfo.v1_4_0.ActionInfo", "Reset", json!({ "Parameters": [parameter] }))
}

pub(super) fn parts(system: &System, what: &str, part: Option<&str>) -> Option<Value> {
    let path = format!("/redfish/v1/Systems/{}/{what}", system.id);
    match (what, part) {
        ("EthernetInterfaces", None) => {
            Some(collection(&path, "EthernetInterface", what, vec![link(format!("{path}/1"))]))
        }
        ("EthernetInterfaces", Some("1")) => Some(resource(
            &format!("{path}/1"),
            "#EthernetInterface.v1_9_0.EthernetInterface",
            "Port 1",
            json!({ "MACAddress": system.mac, "PermanentMACAddress": system.mac }),
        )),
        ("Processors", None) => {
            let members = ["CPU1", "GPU1"].map(|part| link(format!("{path}/{part}"))).to_vec();
            Some(collection(&path, "Processor", what, members))
        }
        ("Processors", Some(part @ ("CPU1" | "GPU1"))) => Some(resource(
            &format!("{path}/{part}"),
            "#Processor.v1_18_0.Processor",
            part,
            json!({ "ProcessorType": &part[..3], "Model": format!("Emulated {}", &part[..3]) }),
        )),
        _ => None,
    }
}

pub(super) fn chassis(system: &System, part: Option<&str>) -> Option<Value> {
    let path = format!("/redfish/v1/Chassis/{}", system.id);
    let on = system.machine.power() == Power::On;
    let reading = |value: f64| if on { json!(value) } else { Value::Null };
    match part {
        None => Some(resource(
            &path,
            "#Chassis.v1_22_0.Chassis",
            "Chassis",
            json!({
                "ChassisType": "RackMount",
                "Power": link(format!("{path}/Power")),
                "Thermal": link(format!("{path}/Thermal")),
                "EnvironmentMetrics": link(format!("{path}/EnvironmentMetrics")),
                "Links": { "ComputerSystems": [link(format!("/redfish/v1/Systems/{}", system.id))] },
            }),
        )),
        Some("Power") => Some(resource(
            &format!("{path}/Power"),
            "#Power.v1_7_0.Power",
            "Power",
            json!({ "PowerControl": [{ "MemberId": "0", "PowerConsumedWatts": reading(212.5) }] }),
        )),
        Some("EnvironmentMetrics") => Some(resource(
            &format!("{path}/EnvironmentMetrics"),
            "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics",
            "Environment",
            json!({ "PowerWatts": { "Reading": reading(212.5) } }),
        )),
        Some("Thermal") => Some(resource(
            &format!("{path}/Thermal"),
            "#Thermal.v1_7_0.Thermal",
            "Thermal",
            json!({ "Temperatures": [
                { "Name": "Inlet", "ReadingCelsius": 23, "UpperThresholdNonCritical": 38,
                  "UpperThresholdCritical": 42, "Status": { "State": "Enabled", "Health": "OK" } },
                { "Name": "CPU1", "ReadingCelsius": reading(51.0), "UpperThresholdCritical": 95,
                  "Status": { "State": "Enabled", "Health": "OK" } },
                { "Name": "CPU3", "ReadingCelsius": 0, "Status": { "State": "Absent" } },
            ] }),
        )),
        Some(_) => None,
    }
}

pub(super) fn manager(faults: &Faults) -> Value {
    let path = "/redfish/v1/Managers/1";
    let mut fields = json!({ "ManagerType": "BMC", "FirmwareVersion": "1.0-emulated", "Actions": { "#Manager.Reset": {
        "target": format!("{path}/Actions/Manager.Reset"),
        "ResetType@Redfish.AllowableValues": ["GracefulRestart", "ForceRestart"],
    } } });
    if !faults.no_log && faults.log_on_manager {
        fields["LogServices"] = link(format!("{path}/LogServices"));
    }
    resource(path, "#Manager.v1_18_0.Manager", "BMC", fields)
}

pub(super) fn managers() -> Value {
    collection("/redfish/v1/Managers", "Manager", "Managers", vec![link("/redfish/v1/Managers/1")])
}

pub(super) fn task(id: &str, state: &str, status: &str) -> Value {
    let path = format!("/redfish/v1/TaskService/Tasks/{id}");
    let messages =
        if status == "OK" { json!([]) } else { json!([{ "Message": "The power sequencer gave up." }]) };
    let fields = json!({ "TaskState": state, "TaskStatus": status, "Messages": messages });
    resource(&path, "#Task.v1_7_0.Task", "Reset", fields)
}

pub(super) fn error(id: &str, message: &str) -> Value {
    let id = format!("Base.1.18.{id}");
    json!({ "error": { "code": id, "message": message,
        "@Message.ExtendedInfo": [{ "MessageId": id, "Message": message, "Severity": "Critical" }] } })
}
