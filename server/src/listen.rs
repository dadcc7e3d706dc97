//! Accepting connections: TLS, header and handshake timeouts, a cap on connections, graceful shutdown.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body, http::Request};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::{
    opening::Opening,
    peer::{Peer, PeerCertificate},
};

/// The TLS handshake must be done within this time.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests under way get this long to finish after a stop was asked for; watches are told to end.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Headers of one request together: more than any browser or proxy sends.
const HEADER_BYTES: usize = 64 * 1024;
/// Connections held at once. Each costs about 20 KiB idle, so this bounds them to 200 MiB.
const MAX_CONNECTIONS: usize = 10_000;
/// When accepting fails (for example: no file descriptors left), wait this long before trying again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves `router` on `listener` until `stop` is cancelled, then drains. A request's head must arrive within
/// `header_timeout`.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    router: Router,
    header_timeout: Duration,
    stop: CancellationToken,
) -> io::Result<()> {
    let acceptor = tls.map(TlsAcceptor::from);
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let builder = Arc::new(builder(header_timeout));
    loop {
        let slot = Arc::clone(&slots).acquire_owned().await.map_err(io::Error::other)?;
        let (stream, address) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    let _ = timeout(ACCEPT_PAUSE, stop.cancelled()).await;
                    continue;
                }
            },
        };
        let _ = stream.set_nodelay(true);
        let (acceptor, router, builder) = (acceptor.clone(), router.clone(), Arc::clone(&builder));
        let watcher = graceful.watcher();
        tokio::spawn(async move {
            let _slot = slot;
            let Some(acceptor) = acceptor else {
                let peer = Peer { address, certificate: None };
                let stream = Opening::new(stream, header_timeout);
                return drive(&builder, stream, peer, router, watcher).await;
            };
            if let Some((stream, peer)) = handshake(&acceptor, stream, address).await {
                let stream = Opening::new(stream, header_timeout);
                drive(&builder, stream, peer, router, watcher).await;
            }
        });
    }
    drop(listener);
    if timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests were still under way when the drain time ended");
    }
    Ok(())
}

fn builder(header_timeout: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(HEADER_BYTES)
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(HEADER_BYTES).unwrap_or(u32::MAX))
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20))
        .max_concurrent_streams(250);
    builder
}

async fn handshake(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
    address: SocketAddr,
) -> Option<(tokio_rustls::server::TlsStream<TcpStream>, Peer)> {
    match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let certificate = stream
                .get_ref()
                .1
                .peer_certificates()
                .and_then(<[_]>::first)
                .and_then(PeerCertificate::read)
                .map(Arc::new);
            Some((stream, Peer { address, certificate }))
        }
        Ok(Err(error)) => {
            tracing::debug!(%address, %error, "a TLS handshake failed");
            None
        }
        Err(_) => {
            tracing::debug!(%address, "a TLS handshake took too long");
            None
        }
    }
}

async fn drive<S>(
    builder: &auto::Builder<TokioExecutor>,
    stream: S,
    peer: Peer,
    router: Router,
    watcher: hyper_util::server::graceful::Watcher,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer.clone());
        let router = router.clone();
        async move { Ok::<_, Infallible>(router.oneshot(request).await.unwrap_or_else(|never| match never {})) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a connection ended early");
    }
}
