//! Servers of the inventory that Muster powers on and off.

use serde_json::{Map, Value};

use super::{Facts, Place, Platform, Selector, selector, string_at};
use crate::{
    field::{FieldError, Findings, Object},
    host::PoolHostConfig,
    names,
};

#[derive(Debug)]
pub(super) struct Baremetal;

impl Platform for Baremetal {
    fn check_pool(&self, block: &mut Object<'_>, _: &Place<'_>, findings: &mut Findings) {
        if let Some(pool) = block.string("pool", findings)
            && let Err(error) = names::check_dns_label(pool)
        {
            findings.push(
                FieldError::new(block.at("pool"), error.problem).found_text(pool).allowed(names::DNS_LABEL),
            );
        }
        selector::check(block, "selector", findings);
        PoolHostConfig::read_from(block, findings);
    }

    fn check_cluster(&self, _: &mut Object<'_>, _: &mut Findings) {}

    fn facts(&self, block: &Map<String, Value>) -> Facts {
        Facts {
            inventory: string_at(block, "pool"),
            selector: Selector::at(block, "selector"),
            template: string_at(block, "bootProfile"),
            ..Facts::default()
        }
    }
}
