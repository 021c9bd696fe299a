// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests to the launcher of a job by its user, over a socket of the launcher's host.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::transport::sockets::Secret;
use crate::transport::sockets::admission::Admission;
use crate::transport::sockets::handshake::Connecting;
use crate::transport::sockets::listener::Listener;
use crate::transport::sockets::stream::{Stream, read_value, write_value};

/// The variable with the address for requests.
pub(crate) const REQUESTS: &str = "COLONY_JOB_REQUESTS";
/// The longest wait of a user for the launcher, and then for its answer.
const ANSWER: Duration = Duration::from_secs(5);

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

/// Takes requests, when the launcher looks at them: a process that connects and sends nothing keeps nobody waiting.
pub(crate) struct Requests {
    pub(crate) address: String,
    admission: Admission,
}

impl Requests {
    pub(crate) fn listen(secret: Secret) -> io::Result<Self> {
        let admission = Admission::new(Listener::unix()?, secret)?;
        Ok(Self { address: admission.address(), admission })
    }

    /// The next request. If the launcher has no descriptor for one, the request waits, and the job goes on.
    pub(crate) fn next(&mut self) -> Option<Waiting> {
        let admitted = self.admission.admit().ok().flatten();
        admitted.map(|(request, stream)| Waiting { request, stream })
    }
}

/// Sends a request to the launcher that listens at an address. Returns its answer.
pub(crate) fn send(address: &str, secret: &Secret, request: ToLauncher) -> io::Result<Answer> {
    let mut stream = Connecting::begin(address, secret)?.finish(secret, &request, ANSWER)?;
    stream.set_timeout(Some(ANSWER))?;
    read_value(&mut stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered_though_a_stranger_has_connected_before_it() {
        let secret = Secret::new().expect("random");
        let mut requests = Requests::listen(secret.clone()).expect("listens");
        let _stranger = Stream::connect(&requests.address).expect("anyone can connect");
        let address = requests.address.clone();
        let user = std::thread::spawn(move || send(&address, &secret, ToLauncher::Resize(2)));
        let waiting = loop {
            if let Some(waiting) = requests.next() {
                break waiting;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(waiting.request, ToLauncher::Resize(2));
        waiting.answer(&Ok((3, 5)));
        assert_eq!(user.join().expect("no panic").expect("an answer"), Ok((3, 5)));
    }
}
