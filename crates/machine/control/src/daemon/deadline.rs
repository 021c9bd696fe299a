// SPDX-License-Identifier: MIT OR Apache-2.0
//! A deadline for each write to a client: a client that reads nothing is disconnected. Otherwise its connection would hold memory
//! and one of the daemon's descriptors for as long as the client likes.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Timeout for the other end of a connection to take at least one byte.
pub(super) const WRITE: Duration = Duration::from_secs(60);

/// A stream whose writes have a deadline each.
pub(super) struct Deadline<S> {
    stream: S,
    limit: Duration,
    /// Runs while a write waits.
    wait: Option<Pin<Box<Sleep>>>,
}

impl<S: Unpin> Deadline<S> {
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, wait: None }
    }

    /// The result of a write, or an error if it has waited for too long.
    fn in_time<T>(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(done) = write(Pin::new(&mut self.stream), context) {
            self.wait = None;
            return Poll::Ready(done);
        }
        let limit = self.limit;
        let wait = self.wait.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(wait.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Deadline<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Deadline<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.in_time(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.in_time(context, |stream, context| stream.poll_write_vectored(context, parts))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.in_time(context, |stream, context| stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.in_time(context, |stream, context| stream.poll_shutdown(context))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn a_write_fails_if_nothing_is_taken_and_goes_on_if_something_is() {
        let (near, mut far) = duplex(16);
        let mut stream = Deadline::new(near, Duration::from_millis(20));
        stream.write_all(&[1; 16]).await.expect("it has room");
        let refused = stream.write_all(&[2]).await.expect_err("nobody reads");
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        // a reader that is slow, but reads
        let mut stream = Deadline::new(stream.stream, Duration::from_secs(3600));
        let read = async {
            let mut byte = [0];
            for _ in 0..100 {
                far.read_exact(&mut byte).await.expect("there is more");
                tokio::task::yield_now().await;
            }
        };
        let (written, ()) = tokio::join!(stream.write_all(&[3; 84]), read);
        written.expect("all of it");
    }
}
