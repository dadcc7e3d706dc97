//! Where faults are switched while emulated BMCs run: a small HTTP interface on loopback.

use std::{io, net::SocketAddr};

use axum::Router;
use tokio::task::JoinSet;

/// A running control interface; it stops when dropped.
#[derive(Debug)]
pub struct Control {
    pub address: SocketAddr,
    _task: JoinSet<()>,
}

impl Control {
    pub(crate) async fn serve(address: SocketAddr, router: Router) -> io::Result<Self> {
        if !address.ip().is_loopback() {
            let why = format!("{address} is not on loopback; an emulator listens nowhere else");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let listener = tokio::net::TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let mut task = JoinSet::new();
        task.spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "the control interface stopped");
            }
        });
        Ok(Self { address, _task: task })
    }
}
