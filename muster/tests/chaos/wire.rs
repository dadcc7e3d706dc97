//! A wire between two ends that can be cut: nothing passes then, and nobody is told.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

pub(crate) struct Wire {
    /// Where its near end is.
    pub(crate) address: SocketAddr,
    cut: watch::Sender<bool>,
}

impl Wire {
    /// A wire to `far` that ends with the test's runtime.
    pub(crate) async fn to(far: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cut = watch::Sender::new(false);
        let (far, told) = (far.to_owned(), cut.subscribe());
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (far, told) = (far.clone(), told.clone());
                tokio::spawn(async move {
                    let mut waits = told.clone();
                    if waits.wait_for(|cut| !cut).await.is_err() {
                        return;
                    }
                    let Ok(far) = TcpStream::connect(far).await else { return };
                    let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
                    tokio::join!(pass(from_near, to_far, told.clone()), pass(from_far, to_near, told));
                });
            }
        });
        Self { address, cut }
    }

    /// Cuts it, or mends it. What was on its way arrives when it is mended, as with TCP.
    pub(crate) fn cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }
}

/// Passes bytes on while the wire is whole.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut told: watch::Receiver<bool>) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if told.wait_for(|cut| !cut).await.is_err() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
