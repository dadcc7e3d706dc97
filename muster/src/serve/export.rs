//! The portable export of the store that is being served, as a stream.

use std::{
    io::{self, BufWriter, Write},
    sync::Arc,
};

use bytes::Bytes;
use muster_model::{Clock, store::Store};
use muster_server::export::Exporter;
use muster_store::portable::{self, PortableError};
use tokio::{runtime::Handle, sync::mpsc::Sender};

/// Bytes of one piece.
const PIECE: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Portable {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
}

impl Portable {
    pub(super) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }
}

impl Exporter for Portable {
    fn begin(&self, to: Sender<Result<Bytes, io::Error>>) {
        let (store, now) = (Arc::clone(&self.store), self.clock.now());
        let handle = Handle::current();
        // On a thread of its own: a slow reader holds the writer up, and nothing else. The runtime's own way to wait
        // would forbid the writer to wait for its reader.
        tokio::task::spawn_blocking(move || {
            let _runtime = handle.enter();
            let out = BufWriter::with_capacity(PIECE, Pieces(to.clone()));
            match futures::executor::block_on(portable::export(&*store, out, now)) {
                Ok(done) => {
                    tracing::info!(keys = done.count, revision = %done.revision, "exported the store");
                }
                // The reader went away.
                Err(PortableError::Io(error)) => tracing::info!(%error, "an export was not read to its end"),
                Err(error) => {
                    tracing::error!(code = error.code(), %error, "an export failed");
                    let _ =
                        to.blocking_send(Err(io::Error::other("the export failed; see the server's log")));
                }
            }
        });
    }
}

/// Turns writes into pieces of the answer.
struct Pieces(Sender<Result<Bytes, io::Error>>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the reader went away");
        self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes))).map_err(gone)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
