//! The ways in which a BMC can be told to misbehave, all off by default.

use muster_model::Duration;
use serde::{Deserialize, Serialize};

/// Switches of one BMC. They can be changed at any time and act on the next request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Faults {
    // How it answers.
    /// Every answer comes this much later.
    pub delay: Duration,
    /// Requests are read and never answered.
    pub silent: bool,
    /// The next answers have this HTTP status, as many as `status_times` says (0: all).
    pub status: Option<u16>,
    pub status_times: u32,
    /// JSON ends in the middle.
    pub truncate: bool,
    /// Answers carry a body of two mebibytes.
    pub oversize: bool,
    /// Answers nest 200 levels deep.
    pub deep: bool,
    /// Everything redirects there.
    pub redirect: Option<String>,
    /// Links are absolute and lead there.
    pub absolute_links: Option<String>,
    /// 403 with a page of HTML.
    pub html_403: bool,

    // Who may ask.
    /// The account is refused.
    pub refuse_account: bool,
    /// The account must change its password first.
    pub password_change: bool,
    /// The account is taken for a session alone, not with each call.
    pub no_basic: bool,
    /// Sessions are made and the answer never comes.
    pub swallow_login: bool,
    /// Sessions that fit into the table (0: there is no session service).
    pub session_limit: Option<u32>,

    // What it says about power.
    /// The power state that is always reported, whatever is true.
    pub say_power: Option<String>,
    /// The power state is left out.
    pub omit_power: bool,
    /// Every reading says the opposite of the one before.
    pub flip_flop: bool,
    /// A serial number that is not the machine's.
    pub say_serial: Option<String>,
    /// A maker that is not this one, with its habits.
    pub say_manufacturer: Option<String>,
    /// Serial number and UUID are empty while the machine is off.
    pub blank_when_off: bool,

    // What it does about power.
    /// Resets are accepted and nothing happens.
    pub ignore_reset: bool,
    /// Resets happen this much later than they were accepted.
    pub late: Duration,
    /// Resets are carried out and the answer never comes.
    pub swallow_reset_answer: bool,
    /// Resets are carried out, and the connection breaks in place of an answer.
    pub drop_reset_answer: bool,
    /// Power is coming and never arrives.
    pub stuck_powering_on: bool,
    /// Power comes, and the boot stops in the firmware.
    pub hang_boot: bool,
    /// The operating system does not listen to the power button.
    pub ignore_acpi: bool,
    /// For this long after power went, On is answered with 409.
    pub conflict_after_off: Duration,
    /// A reset to where the machine already is is answered with 409.
    pub conflict_when_there: bool,
    /// Resets are answered with 202 and a task.
    pub task: bool,
    /// The task of a reset fails.
    pub task_fails: bool,
    /// The task of a reset never ends.
    pub task_hangs: bool,
    /// What watches a task answers with this HTTP status.
    pub task_status: Option<u16>,
    /// The reset types are told by an `ActionInfo` resource only.
    pub action_info: bool,
    /// The reset types that are offered, instead of all.
    pub reset_types: Option<Vec<String>>,

    // What it does about boot settings.
    /// PATCH needs If-Match.
    pub require_etag: bool,
    /// PATCH needs all three boot fields, and If-Match, and goes to the settings resource.
    pub ami_boot: bool,
    /// Boot settings are accepted and forgotten.
    pub ignore_boot: bool,
    /// The boot target is kept, and the address of its image is forgotten.
    pub ignore_http_uri: bool,
    /// The resource has no Boot object.
    pub no_boot: bool,
    /// The Boot object has no mode, and a PATCH of one is refused.
    pub no_boot_mode: bool,
    /// PATCH is answered with 400 and this message id.
    pub refuse_boot: Option<String>,
    /// What is written to the settings resource shows there alone until the next reset. With `ami_boot`.
    pub boot_at_reset: bool,
    /// The `ETag` is a weak one, and PATCH takes only the strong form of it.
    pub weak_etag: bool,

    // How it shows its event log.
    /// There is none, on the system or elsewhere.
    pub no_log: bool,
    /// Not the system has it but the manager.
    pub log_on_manager: bool,
    /// Entries are in no order at all.
    pub log_unsorted: bool,
    /// Entries have no time.
    pub log_without_time: bool,
    /// The list has links to the entries, not the entries.
    pub log_links: bool,
    /// Entries on one page of the list (0: all of them).
    pub log_page: u32,
}
