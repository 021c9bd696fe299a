// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests to the launcher of a job by its user, over a socket of the launcher's host.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::transport::sockets::Secret;
use crate::transport::sockets::stream::{Listener, Stream, read_value, write_value};

/// The variable with the address for requests.
pub(crate) const REQUESTS: &str = "COLONY_JOB_REQUESTS";
/// The longest wait for one request, and for its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToLauncher {
    /// So many ranks more, or fewer if negative.
    Resize(i64),
}

/// The launcher's answer: the numbers of ranks before and after, or why the job cannot be resized.
pub(crate) type Answer = Result<(u32, u32), String>;

/// A request that waits for its answer.
pub(crate) struct Waiting {
    pub(crate) request: ToLauncher,
    stream: Stream,
}

impl Waiting {
    /// Answers. A user who has left meanwhile needs no answer.
    pub(crate) fn answer(mut self, answer: &Answer) {
        let _ = write_value(&mut self.stream, answer);
    }
}

/// Takes requests, on a thread of its own.
pub(crate) struct Requests {
    pub(crate) address: String,
    waiting: Receiver<Waiting>,
}

impl Requests {
    pub(crate) fn listen(secret: Secret) -> io::Result<Self> {
        let listener = Listener::unix()?;
        let address = listener.address();
        let (sender, waiting) = channel();
        let listen = move || take_requests(&listener, &secret, &sender);
        std::thread::Builder::new().name("requests".to_owned()).spawn(listen)?;
        Ok(Self { address, waiting })
    }

    /// The next request.
    pub(crate) fn next(&self) -> Option<Waiting> {
        self.waiting.try_recv().ok()
    }
}

fn take_requests(listener: &Listener, secret: &Secret, to: &Sender<Waiting>) {
    while let Ok(mut stream) = listener.accept() {
        let request = stream
            .set_timeout(Some(PATIENCE))
            .and_then(|()| secret.prove(&mut stream, 1))
            .and_then(|()| read_value(&mut stream));
        // a stranger gets no answer
        if let Ok(request) = request
            && to.send(Waiting { request, stream }).is_err()
        {
            return;
        }
    }
}

/// Sends a request to the launcher that listens at an address. Returns its answer.
pub(crate) fn send(address: &str, secret: &Secret, request: ToLauncher) -> io::Result<Answer> {
    let mut stream = Stream::connect(address)?;
    stream.set_timeout(Some(PATIENCE))?;
    secret.prove(&mut stream, 0)?;
    write_value(&mut stream, &request)?;
    read_value(&mut stream)
}
