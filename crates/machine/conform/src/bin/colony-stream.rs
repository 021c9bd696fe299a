// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends bytes to a server through a client socket, or receives them, transfer by transfer. The same program on the compute
//! node kernel and on Linux; the server is that of `colony study io-sockets`, which takes the time.
//!
//! ```text
//! colony-stream send|receive ADDRESS JOB TRANSFER COUNT      TRANSFER: bytes, 512 or more; COUNT: transfers
//! ```
//!
//! The head of a connection is JOB, the direction (0: send) and the number of bytes, each of 64 bits, little-endian. The server
//! answers with one byte when every program of the job has connected. A transfer begins with its number, which its receiver
//! checks. The receiver of the last transfer answers with one byte.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

/// Least bytes of a transfer.
const LEAST: usize = 512;
/// A server that moves no byte for so long has failed.
const STALL: Duration = Duration::from_secs(30);

struct Task {
    receives: bool,
    address: SocketAddr,
    job: u64,
    transfer: usize,
    count: u64,
}

impl Task {
    fn of(arguments: &[String]) -> Option<Self> {
        let [direction, address, job, transfer, count] = arguments else { return None };
        let receives = match direction.as_str() {
            "send" => false,
            "receive" => true,
            _ => return None,
        };
        let transfer = transfer.parse().ok().filter(|&bytes| bytes >= LEAST)?;
        let (address, job) = (address.parse().ok()?, job.parse().ok()?);
        Some(Self { receives, address, job, transfer, count: count.parse().ok()? })
    }

    fn run(&self) -> Result<(), String> {
        let named = |what: &str| {
            let what = format!("{what} {}", self.address);
            move |e: io::Error| match e.kind() {
                io::ErrorKind::UnexpectedEof => format!("{what}: the server closed the connection"),
                io::ErrorKind::WouldBlock => format!("{what}: no byte for {} s", STALL.as_secs()),
                _ => format!("{what}: {e}"),
            }
        };
        let stream = TcpStream::connect(self.address).map_err(named("connecting to"))?;
        let limits = [stream.set_read_timeout(Some(STALL)), stream.set_write_timeout(Some(STALL))];
        limits.into_iter().collect::<io::Result<()>>().map_err(named("limiting the time of"))?;
        self.begin(&stream).map_err(named("waiting for the other programs at"))?;
        match self.receives {
            true => self.receive(&stream).map_err(named("receiving from")),
            false => self.send(&stream).map_err(named("sending to")),
        }
    }

    fn begin(&self, mut stream: &TcpStream) -> io::Result<()> {
        let bytes = self.count.saturating_mul(self.transfer as u64);
        let head: Vec<u8> =
            [self.job, self.receives.into(), bytes].into_iter().flat_map(u64::to_le_bytes).collect();
        stream.write_all(&head)?;
        stream.read_exact(&mut [0])
    }

    fn send(&self, mut stream: &TcpStream) -> io::Result<()> {
        let mut bytes = vec![0x5a; self.transfer];
        for number in 0..self.count {
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            stream.write_all(&bytes)?;
        }
        stream.read_exact(&mut [0])
    }

    fn receive(&self, mut stream: &TcpStream) -> io::Result<()> {
        let mut bytes = vec![0; self.transfer];
        for number in 0..self.count {
            stream.read_exact(&mut bytes)?;
            if bytes[..8] != number.to_le_bytes() {
                return Err(io::Error::other(format!("transfer {number} has other data")));
            }
        }
        stream.write_all(&[1])
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(task) = Task::of(&arguments) else {
        eprintln!("usage: colony-stream send|receive ADDRESS JOB TRANSFER COUNT");
        return ExitCode::from(2);
    };
    match task.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("colony-stream: {e}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn task(line: &str) -> Option<Task> {
        Task::of(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn transfers_are_numbered_and_a_server_that_ends_is_named() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = server.local_addr().expect("an address");
        let send = task(&format!("send {at} 7 512 3")).expect("a task");
        let receive = task(&format!("receive {at} 7 512 1")).expect("a task");
        std::thread::scope(|scope| {
            let serve = scope.spawn(|| {
                let (mut stream, _) = server.accept().expect("connected");
                let mut head = [0; 24];
                stream.read_exact(&mut head).expect("a head");
                assert_eq!((head[0], head[8], &head[16..18]), (7, 0, &1536_u16.to_le_bytes()[..]));
                stream.write_all(&[1]).expect("go");
                let mut all = vec![0; 1536];
                stream.read_exact(&mut all).expect("transfers");
                assert_eq!([all[0], all[512], all[1024], all[1535]], [0, 1, 2, 0x5a]);
                stream.write_all(&[1]).expect("all are there");
                let (mut other, _) = server.accept().expect("connected");
                other.read_exact(&mut head).expect("a head");
            });
            send.run().expect("sent");
            let error = receive.run().expect_err("the server ends");
            assert!(error.contains("the server closed the connection"), "{error}");
            serve.join().expect("served");
        });
        drop(server);
        let refused = send.run().expect_err("there is no server");
        assert!(refused.contains(&format!("connecting to {at}: Connection refused")), "{refused}");
        assert!(task("send 127.0.0.1:1 7 8 1").is_none() && task("send nobody 7 512 1").is_none());
    }
}
