//! What a step asks the caller to do, as data.

use muster_model::host::{Power, PowerCall};

/// One thing to do after the new state is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    pub kind: EffectKind,
    /// The operation that it belongs to.
    pub op: Option<OpRef>,
    /// What a fresh reading must say for a power call to be sent; otherwise it is dropped.
    pub expects: Option<Power>,
    pub repeat: Repeat,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpRef {
    pub id: String,
    pub epoch: u64,
    /// For power calls: their number in the operation, to report the outcome under.
    pub seq: Option<u32>,
}

/// Whether doing it twice is the same as doing it once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    Repeatable,
    /// Never again for the same operation and number, even if nobody knows whether it happened.
    AtMostOnce,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectKind {
    /// Claims the host for its pool. In the same transaction as the state.
    Reserve,
    /// Gives the claim back, so that the pool may take another host now. In the same transaction.
    ReleaseReservation,
    /// Deletes the host's records. In the same transaction; nothing else follows.
    Forget,
    /// Reads the machine as usual; or asks one driver of the list, whose answer stays beside the readings.
    Probe {
        driver: Option<usize>,
    },
    Power(PowerCall),
    /// With our owner mark and the operation's id. Leaves a foreign cordon as it is.
    Cordon,
    /// Only a cordon that carries our mark.
    Uncordon,
    /// Through the eviction API, honouring disruption budgets; refusals are tried again.
    Evict,
    ApplyLabels,
    RemoveStartupTaint,
    /// `muster.dev/off:NoSchedule` on the kept node.
    TaintOff,
    RemoveOffTaint,
    DeleteNode,
    /// Tells Kubernetes that the machine is proved off while pods remain on its node.
    OutOfServiceTaint,
    RemoveOutOfServiceTaint,
    /// Power reading, last boot progress and the tail of the event log, for the failure's record.
    CaptureEvidence,
}

/// When the caller carries an effect out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// In the transaction that stores the state.
    WithState,
    /// Once the state is stored.
    Afterwards,
}

impl EffectKind {
    pub const fn when(&self) -> When {
        match self {
            Self::Reserve | Self::ReleaseReservation | Self::Forget => When::WithState,
            Self::Probe { .. }
            | Self::Power(_)
            | Self::Cordon
            | Self::Uncordon
            | Self::Evict
            | Self::ApplyLabels
            | Self::RemoveStartupTaint
            | Self::TaintOff
            | Self::RemoveOffTaint
            | Self::DeleteNode
            | Self::OutOfServiceTaint
            | Self::RemoveOutOfServiceTaint
            | Self::CaptureEvidence => When::Afterwards,
        }
    }

    pub const fn repeat(&self) -> Repeat {
        match self {
            Self::Power(call) if !call.is_repeatable() => Repeat::AtMostOnce,
            Self::Power(_)
            | Self::Reserve
            | Self::ReleaseReservation
            | Self::Forget
            | Self::Probe { .. }
            | Self::Cordon
            | Self::Uncordon
            | Self::Evict
            | Self::ApplyLabels
            | Self::RemoveStartupTaint
            | Self::TaintOff
            | Self::RemoveOffTaint
            | Self::DeleteNode
            | Self::OutOfServiceTaint
            | Self::RemoveOutOfServiceTaint
            | Self::CaptureEvidence => Repeat::Repeatable,
        }
    }

    /// Whether it is done to the host's node.
    pub const fn changes_node(&self) -> bool {
        match self {
            Self::Cordon
            | Self::Uncordon
            | Self::Evict
            | Self::ApplyLabels
            | Self::RemoveStartupTaint
            | Self::TaintOff
            | Self::RemoveOffTaint
            | Self::DeleteNode
            | Self::OutOfServiceTaint
            | Self::RemoveOutOfServiceTaint => true,
            Self::Reserve
            | Self::ReleaseReservation
            | Self::Forget
            | Self::Probe { .. }
            | Self::Power(_)
            | Self::CaptureEvidence => false,
        }
    }

    /// Whether it can take power or pods away: what must never follow from missing knowledge.
    pub const fn is_destructive(&self) -> bool {
        match self {
            Self::Power(call) => call.is_off(),
            Self::Evict | Self::OutOfServiceTaint | Self::DeleteNode => true,
            Self::Reserve
            | Self::ReleaseReservation
            | Self::Forget
            | Self::Probe { .. }
            | Self::Cordon
            | Self::Uncordon
            | Self::ApplyLabels
            | Self::RemoveStartupTaint
            | Self::TaintOff
            | Self::RemoveOffTaint
            | Self::RemoveOutOfServiceTaint
            | Self::CaptureEvidence => false,
        }
    }
}
