// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of clients.

use colony_fship::calls::number as n;

use crate::report::{NO_FD, NOWHERE, Report, close, mut_of, of, text};

pub(crate) fn try_all(r: &mut Report) {
    let mut pair = [0u32; 2];
    r.case(n::socketpair, "stream", &[libc::AF_UNIX as u64, libc::SOCK_STREAM as u64, 0, mut_of(&mut pair)]);
    r.line(n::socketpair, "numbers", &format!("{pair:?}"));
    let [a, b] = pair.map(u64::from);
    let mut bytes = [0u8; 32];
    let nothing = (libc::MSG_DONTWAIT) as u64;
    r.case(n::sendto, "some", &[a, of(b"hello"), 5, 0, 0, 0]);
    r.case(n::recvfrom, "some", &[b, mut_of(&mut bytes), 32, nothing, 0, 0]);
    r.line(n::recvfrom, "bytes", &text(&bytes));
    r.case(n::recvfrom, "nothing there", &[b, mut_of(&mut bytes), 32, nothing, 0, 0]);
    r.case(n::sendto, "not open", &[NO_FD, of(b"hello"), 5, 0, 0, 0]);
    r.case(n::sendto, "nowhere", &[a, NOWHERE, 5, 0, 0, 0]);
    messages(r, a, b);
    options(r, a);
    let mut address = [0u8; 32];
    let mut length = 32u32;
    for (number, what) in [(n::getsockname, "pair"), (n::getpeername, "pair")] {
        r.case(number, what, &[a, mut_of(&mut address), mut_of(&mut length)]);
        r.line(number, "length", &length.to_string());
        length = 32;
    }
    r.case(n::shutdown, "both", &[a, 2]);
    r.case(n::shutdown, "how", &[a, 9]);
    r.case(n::recvfrom, "end", &[b, mut_of(&mut bytes), 32, nothing, 0, 0]);
    r.case(n::sendto, "closed", &[a, of(b"x"), 1, libc::MSG_NOSIGNAL as u64, 0, 0]);
    close(a);
    close(b);
    clients(r);
}

fn messages(r: &mut Report, a: u64, b: u64) {
    let parts: [u64; 4] = [of(b"two "), 4, of(b"parts"), 5];
    let message: [u64; 7] = [0, 0, of(&parts), 2, 0, 0, 0];
    r.case(n::sendmsg, "two parts", &[a, of(&message), 0]);
    let mut bytes = [0u8; 32];
    let parts: [u64; 2] = [mut_of(&mut bytes), 32];
    let mut message: [u64; 7] = [0, 0, of(&parts), 1, 0, 0, 0];
    r.case(n::recvmsg, "one part", &[b, mut_of(&mut message), 0]);
    r.line(n::recvmsg, "bytes", &text(&bytes));
    r.case(n::sendmsg, "nowhere", &[a, NOWHERE, 0]);
    r.case(n::recvmsg, "not open", &[NO_FD, mut_of(&mut message), 0]);
}

fn options(r: &mut Report, fd: u64) {
    let (mut value, mut length) = (0u32, 4u32);
    let level = libc::SOL_SOCKET as u64;
    r.case(
        n::getsockopt,
        "SO_TYPE",
        &[fd, level, libc::SO_TYPE as u64, mut_of(&mut value), mut_of(&mut length)],
    );
    r.line(n::getsockopt, "SO_TYPE", &format!("{value} {length}"));
    value = 1;
    r.case(n::setsockopt, "SO_KEEPALIVE", &[fd, level, libc::SO_KEEPALIVE as u64, of(&value), 4]);
    r.case(n::setsockopt, "length", &[fd, level, libc::SO_KEEPALIVE as u64, of(&value), 1]);
    r.case(n::setsockopt, "not open", &[NO_FD, level, libc::SO_KEEPALIVE as u64, of(&value), 4]);
}

fn clients(r: &mut Report) {
    let (inet, datagram, stream) = (libc::AF_INET as u64, libc::SOCK_DGRAM as u64, libc::SOCK_STREAM as u64);
    r.case(n::socket, "family", &[9999, stream, 0]);
    let fd = r.case(n::socket, "datagrams", &[inet, datagram, 0]) as u64;
    // family, port, 127.0.0.1
    let port = |p: u16| -> [u8; 16] {
        let [h, l] = p.to_be_bytes();
        [2, 0, h, l, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    };
    r.case(n::bind, "any port", &[fd, of(&port(0)), 16]);
    r.case(n::bind, "short", &[fd, of(&port(0)), 3]);
    let (mut own, mut length) = ([0u8; 16], 16u32);
    r.case(n::getsockname, "own", &[fd, mut_of(&mut own), mut_of(&mut length)]);
    r.line(n::getsockname, "own", &format!("{:?} {length}", &own[4..8]));
    r.case(n::sendto, "itself", &[fd, of(b"datagram"), 8, 0, of(&own), 16]);
    let (mut bytes, mut from, mut length) = ([0u8; 32], [0u8; 16], 16u32);
    r.case(n::recvfrom, "from", &[fd, mut_of(&mut bytes), 32, 0, mut_of(&mut from), mut_of(&mut length)]);
    r.line(n::recvfrom, "from", &format!("{} {} {length}", text(&bytes), from == own));
    r.case(n::connect, "itself", &[fd, of(&own), 16]);
    r.case(n::getpeername, "itself", &[fd, mut_of(&mut from), mut_of(&mut length)]);
    r.case(n::getpeername, "not a socket", &[0, mut_of(&mut from), mut_of(&mut length)]);
    close(fd);
    let fd = r.case(n::socket, "stream", &[inet, stream, 0]) as u64;
    // nobody listens at port 1
    r.case(n::connect, "nobody", &[fd, of(&port(1)), 16]);
    r.case(n::connect, "nowhere", &[fd, NOWHERE, 16]);
    r.case(n::getpeername, "not connected", &[fd, mut_of(&mut from), mut_of(&mut length)]);
    close(fd);
}
