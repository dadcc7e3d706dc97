//! The host loop: brings every bare-metal host to where it is wanted, and proves what it did.
//!
//! One host at a time goes through a turn ([`turn`]): gather what is known, let
//! [`muster_engine::lifecycle::step`] decide, store the new state in one fenced transaction, perform the
//! effects, remember their outcome, say when to look again. [`HostLoop`] runs the turns of thousands of
//! hosts in a single future: it spawns nothing and waits only through [`muster_model::Clock`], so that
//! production puts it on a task and a simulation drives it on one thread, with the same trace for the same
//! seed.
//!
//! What holds:
//!
//! * Nothing is switched before the operation that says so is stored. A write is compared with what was
//!   read and with the leader's epoch; whoever lost either of them performs nothing.
//! * Right before each power call the leader's lease is checked and the machine is read; a machine that is
//!   not as expected is left alone.
//! * Each power call is in the audit log before it is sent. One that cannot be written there is not made.
//! * At most one turn is under way per BMC.
//! * A host that nothing happened to is not written.
//!
//! Absent on purpose: which host to take (the planner), how to talk to a BMC (drivers behind
//! [`muster_model::power::Power`]), what people want (specs, written by the API).

mod around;
mod book;
mod desk;
mod energy;
mod evidence;
mod facts;
pub mod failpoint;
mod figures;
mod gate;
mod leave;
mod log;
mod look;
mod nodes;
mod operations;
mod pace;
mod perform;
mod recount;
mod schedule;
mod store;
mod transcript;
mod transcript_file;
mod turn;
mod ways;
mod witness;

pub use around::{Around, Clusters, Dress, Home, Nothing, PoolSays};
pub use book::{Book, Record};
pub use desk::{AgentDesk, DeskError};
pub use energy::{add_energy, cost as energy_cost};
pub use facts::{Agents, Facts, NoAgents};
pub use figures::{Figures, HostFigure, PoolFigure, UNVERIFIED};
pub use gate::Refusal;
pub use operations::{CancelError, Withdrawal, cancel, operation_id};
pub use schedule::{HostLoop, Setup};
pub use transcript::{Line, Recorded, Transcripts};
pub use ways::Drivers;
pub use witness::{Audited, NoWitness, Witness};
