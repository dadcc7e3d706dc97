//! The port through which the service hands out everything that the store holds. What an export looks like is
//! the store's business; here it is bytes in pieces.

use bytes::Bytes;
use tokio::sync::mpsc::Sender;

/// Pieces of an export that wait for a slow reader at most; each is a few KiB.
pub const QUEUE: usize = 16;

/// Writes an export. When the receiver is gone, it stops.
pub trait Exporter: std::fmt::Debug + Send + Sync {
    /// Begins an export of this moment. The pieces come through `to`, a failure as its last one.
    fn begin(&self, to: Sender<Result<Bytes, std::io::Error>>);
}
