//! Listening: connections, TLS, and counting what is under way.

use std::{io, sync::Arc};

use axum::{body::Body, extract::Request, response::Response};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use super::{RedfishBmc, handler};

/// Serves one BMC until the task is dropped; its connections end with it.
pub(super) async fn run(listener: TcpListener, bmc: Arc<RedfishBmc>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                bmc.inner().counters.connections += 1;
                connections.spawn(connection(stream, Arc::clone(&bmc)));
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn connection(stream: tokio::net::TcpStream, bmc: Arc<RedfishBmc>) {
    match bmc.tls() {
        Some(config) => {
            if let Ok(stream) = TlsAcceptor::from(config).accept(stream).await {
                speak(stream, bmc).await;
            }
        }
        None => speak(stream, bmc).await,
    }
}

async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, bmc: Arc<RedfishBmc>) {
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let bmc = Arc::clone(&bmc);
        async move {
            let answer = count(bmc, request.map(Body::new)).await;
            match answer.extensions().get::<handler::HangUp>() {
                None => Ok(answer),
                Some(_) => Err(io::Error::from(io::ErrorKind::ConnectionAborted)),
            }
        }
    });
    // A client that goes away is no event.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// One more call under way, until dropped: also when the client hangs up.
struct InFlight(Arc<RedfishBmc>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.inner().counters.in_flight -= 1;
    }
}

async fn count(bmc: Arc<RedfishBmc>, request: Request) -> Response {
    {
        let counters = &mut bmc.inner().counters;
        counters.calls += 1;
        counters.in_flight += 1;
        counters.in_flight_peak = counters.in_flight_peak.max(counters.in_flight);
    }
    let under_way = InFlight(Arc::clone(&bmc));
    let answer = handler::answer(&bmc, request).await;
    drop(under_way);
    answer
}
