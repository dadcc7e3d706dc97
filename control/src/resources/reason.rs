//! Why an object is not in step with the store: the reasons of `Synced=False`, which people read and scripts compare.

macro_rules! reasons {
    ($($name:ident: $meaning:literal, $remedy:literal;)+) => {
        /// A reason of `Synced=False`. A name is never given another meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Reason {
            $(#[doc = $meaning] $name,)+
        }

        impl Reason {
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning,)+
                }
            }

            /// What a person can do about it.
            pub const fn remedy(self) -> &'static str {
                match self {
                    $(Self::$name => $remedy,)+
                }
            }
        }
    };
}

reasons! {
    Invalid: "The store does not take it; the message names the field.", "Correct the manifest.";
    Conflict: "The store was changed at the same moment, and wins.", "Look, and edit again.";
    NameTaken: "A pool, cluster or host of that name exists.", "Choose another, or edit the object that it has.";
    Taken: "Another host has the BMC address, the MAC or the serial number.",
        "Correct the one of them that is wrong; the message names both.";
    ClusterNotFound: "`spec.cluster` names no Cluster of this namespace.",
        "Create it; the pool follows by itself.";
    HasPools: "A cluster cannot go before its pools.", "Delete the pools; the cluster follows by itself.";
    Deleting: "It is being deleted, and takes no more edits.", "Wait until it is gone, then create it again.";
    Held: "A person holds the host, or an operation is under way on it.",
        "Release it, or wait; the edit can be made again.";
    SetAside: "The record in the store cannot be read.", "`muster doctor` names the key and what is wrong with it.";
    OtherStore: "Another store made this object.",
        "Point Muster at that store, or delete the object and create it again.";
}

/// The reasons as a section of the reference.
pub fn reference() -> String {
    let mut text = String::from(
        "## Why an object is not in step\n\n\
         A custom resource says `Synced=False` with one of these reasons when an edit of it was not taken. `muster_resources_unsynced`\n\
         counts such objects.\n\n\
         | Reason | Meaning | What to do |\n|---|---|---|\n",
    );
    for reason in Reason::ALL {
        for part in ["| `", reason.name(), "` | ", reason.meaning(), " | ", reason.remedy(), " |\n"] {
            text.push_str(part);
        }
    }
    text
}
