//! One server in the inventory: what people say about it, what is wanted, what is done, what is known.
//!
//! The records are JSON under the keys of [`keys`], each with one writer. Reading a spec finds every
//! fault at once; nothing here talks to a machine.

mod address;
mod agent;
mod boot;
mod capacity;
mod condition;
pub mod csv;
mod deletion;
mod draw;
mod driver;
mod global;
mod health;
pub mod keys;
mod limits;
mod node_of;
mod op;
mod overlay;
mod phase;
mod policy;
mod pool;
mod power;
mod read;
mod records;
mod remedy;
mod spec;
mod status;
pub mod sync;
pub mod unique;

pub use address::{AddressError, MacAddress, MgmtAddress};
pub use agent::AgentGoodbye;
pub use boot::{BootMode, BootProfile, BootReport, BootTarget};
pub use capacity::ResourceCapacity;
pub use condition::{ConditionStatus, ConditionType, HostCondition, find_condition, is_true, set_condition};
pub use csv::NamedHost;
pub use deletion::{Deletion, DeletionMode};
pub use draw::Draw;
pub use driver::{Abilities, DriverKind, DriverSpec, OnReset, PowerInterface, TlsVerify, driver_settings};
pub use global::{FreezeMode, GlobalConfig, GlobalStats, PoolEnergy};
pub use health::health;
pub use limits::{LimitOverrides, Limits, MAX_DEADLINE, is_deadline};
pub use node_of::{Ambiguous, MAC_KEY, PROVIDER_SCHEME, node_of};
pub use op::{
    Cause, HostOp, Intent, LastAction, ManualPower, OpKind, PendingEffect, PowerCall, Switch, TestStage,
};
pub use overlay::{Acknowledgement, Admin, Hold, Registered, by_hand};
pub use phase::{Phase, State};
pub use policy::{
    HostPolicy, NodeAtOff, OnNodeDeleted, OnUnexpectedOff, OnUnexpectedOn, Permission, PolicyOverrides,
};
pub use pool::{
    BareMetalPoolStatus, FINISHED_STAYS, PoolHost, PoolHostConfig, PoolMembers, ScalingAction, ScalingNode,
    ScalingState, pool_status,
};
pub use power::{Power, PowerReading, PublicPower};
pub use records::{EventRing, HostEvent, HostMetrics, MAX_EVENTS, WattsBy};
pub use remedy::Remedy;
pub use spec::{BareMetalNodeSpec, MatchBy, NodeMatch};
pub use status::{
    BareMetalNodeStatus, BlockCause, BmcBlocked, BmcProgress, BootProof, BootProofBy, DriverFallback,
    Failure, HostIdentity, OtherReading, PowerAction, PowerDisagreement, Presence, PresenceReading,
    Quarantine,
};
