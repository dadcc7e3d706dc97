//! A connection that has to begin in time.
//!
//! Whether a client speaks HTTP/1 or HTTP/2 is read from its first bytes, before any limit on a request's head holds. Until
//! they have come the limit is here: whoever connects and says nothing does not keep its place.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

/// Length of HTTP/2's preface. Every request of HTTP/1.1 is longer, with its `Host`.
const ENOUGH: usize = 24;

/// Reads fail when the first bytes are not there in time; afterwards it is the stream itself.
#[derive(Debug)]
pub(crate) struct Opening<S> {
    stream: S,
    read: usize,
    limit: Option<Pin<Box<Sleep>>>,
}

impl<S> Opening<S> {
    #[allow(
        clippy::disallowed_methods,
        reason = "a socket's limit is kept by the runtime, as its other ones are"
    )]
    pub(crate) fn new(stream: S, within: Duration) -> Self {
        Self { stream, read: 0, limit: Some(Box::pin(tokio::time::sleep(within))) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Opening<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        let Some(limit) = &mut self.limit else { return result };
        match result {
            Poll::Ready(result) => {
                self.read += buffer.filled().len() - before;
                if self.read >= ENOUGH {
                    self.limit = None;
                }
                Poll::Ready(result)
            }
            Poll::Pending if limit.as_mut().poll(context).is_ready() => {
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Opening<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
