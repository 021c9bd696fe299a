// SPDX-License-Identifier: MIT OR Apache-2.0
//! The launcher's connections to the ranks.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use super::heartbeat::Heart;
use crate::transport::sockets::admission::Admission;
use crate::transport::sockets::entry::{Answer, DONE, Hello, LEAVE, Roster, TOLD};
use crate::transport::sockets::stream::{Stream, write_value};

/// A launcher that has not run for this long has no opinion on its ranks.
const PAUSE: Duration = Duration::from_millis(50);

/// The connection to one rank.
struct Connection {
    stream: Stream,
    heart: Heart,
    /// The rank's hello, until the launcher has answered it.
    hello: Option<Hello>,
    has_ended: bool,
    /// The rank has ended the program.
    is_done: bool,
    /// The rank fails, and has printed the reason.
    has_told: bool,
}

/// The connections by rank.
pub(crate) struct Connections {
    ranks: Vec<Option<Connection>>,
    /// How often each rank has been started again.
    starts: Vec<u32>,
    /// The timeout of heartbeats that the user has chosen.
    timeout: Option<Duration>,
    began: Instant,
    /// The last look at the connections.
    looked: Duration,
}

impl Connections {
    pub(crate) fn new(ranks: u32, timeout: Option<Duration>) -> Self {
        let (starts, ranks) = (vec![0; ranks as usize], (0..ranks).map(|_| None).collect());
        Self { ranks, starts, timeout, began: Instant::now(), looked: Duration::ZERO }
    }

    /// Takes the next hello. Returns `false` if none has arrived.
    pub(crate) fn accept(&mut self, admission: &mut Admission) -> io::Result<bool> {
        let Some((hello, mut stream)) = admission.admit::<Hello>()? else { return Ok(false) };
        let rank = hello.rank as usize;
        if self.starts.get(rank) != Some(&hello.start) {
            // it was cut off, or its host stopped it
            let _ = write_value(&mut stream, &Answer::Over("this rank has been replaced".to_owned()));
        } else if let Some(place) = self.ranks.get_mut(rank) {
            *place = Some(Connection::new(stream, Heart::new(self.began.elapsed(), self.timeout), hello));
        }
        Ok(true)
    }

    /// The hellos that have not been answered.
    fn hellos(&self) -> impl Iterator<Item = &Hello> {
        self.ranks.iter().flatten().filter_map(|connection| connection.hello.as_ref())
    }

    /// Returns `true` if a rank waits for the launcher's answer.
    pub(crate) fn has_hello(&self) -> bool {
        self.hellos().next().is_some()
    }

    /// Returns `true` if all ranks wait for the launcher's answer.
    pub(crate) fn are_complete(&self) -> bool {
        self.hellos().count() == self.ranks.len()
    }

    /// A rank is started again. Returns how often it has been.
    pub(crate) fn start_again(&mut self, rank: u32) -> u32 {
        let Some(starts) = self.starts.get_mut(rank as usize) else { return 0 };
        *starts += 1;
        *starts
    }

    /// Forgets a rank that has died. Returns `true` if it had come since it was started.
    pub(crate) fn forget(&mut self, rank: u32) -> bool {
        self.ranks.get_mut(rank as usize).is_some_and(|place| place.take().is_some())
    }

    /// Answers all ranks that wait with the roster. A rank that does not get it has died, which is found later.
    ///
    /// # Errors
    /// The ranks run different programs.
    pub(crate) fn answer(&mut self, generation: u32) -> Result<(), String> {
        let hellos: Vec<&Hello> = self.hellos().collect();
        let other = hellos.iter().find(|hello| hello.build != hellos[0].build);
        let refusal =
            other.map(|other| format!("ranks 0 and {} run different builds of the program", other.rank));
        let answer = match &refusal {
            Some(why) => Answer::Refused(why.clone()),
            None => Answer::Roster(Roster {
                generation,
                addresses: hellos.iter().map(|hello| hello.address.clone()).collect(),
                places: hellos.iter().map(|hello| hello.place.clone()).collect(),
            }),
        };
        self.answer_all(&answer);
        refusal.map_or(Ok(()), Err)
    }

    /// Asks rank 0 to leave with the next checkpoint on disk. A rank that does not get it has died, which is found later. A rank
    /// that waits for its answer would take the request for a part of that answer, so it is asked once it has the answer.
    pub(crate) fn ask_to_leave(&mut self) {
        if let Some(Some(first)) = self.ranks.first_mut()
            && first.hello.is_none()
        {
            let _ = first.stream.write(&[LEAVE]);
        }
    }

    /// Tells the ranks that wait that the job is not continued.
    pub(crate) fn refuse_all(&mut self, why: &str) {
        self.answer_all(&Answer::Over(why.to_owned()));
    }

    fn answer_all(&mut self, answer: &Answer) {
        for connection in self.ranks.iter_mut().flatten() {
            if connection.hello.take().is_some() {
                let _ = write_value(&mut connection.stream, answer);
                let _ = connection.stream.set_nonblocking(true);
            }
        }
    }

    /// Ends the generation: every rank that runs greets the launcher again.
    pub(crate) fn end_generation(&mut self) {
        for connection in self.ranks.iter().flatten().filter(|connection| connection.hello.is_none()) {
            connection.stream.end_writing();
        }
    }

    /// Reads heartbeats. Returns `true` if a rank has ended its connection.
    pub(crate) fn listen(&mut self) -> bool {
        let now = self.began.elapsed();
        let pause = now.saturating_sub(std::mem::replace(&mut self.looked, now));
        let mut has_ended = false;
        for connection in self.ranks.iter_mut().flatten() {
            if pause > PAUSE {
                connection.heart.excuse(pause);
            }
            connection.read(now);
            has_ended |= connection.has_ended && connection.hello.is_none();
        }
        has_ended
    }

    /// The ranks that have been silent for longer than their timeouts, with the silence. One that has ended its connection
    /// joins again, or ends: that has no timeout here.
    pub(crate) fn silent(&self) -> Vec<(u32, Duration)> {
        let beating = (0..).zip(&self.ranks).filter_map(|(rank, c)| Some((rank, c.as_ref()?)));
        let beating = beating.filter(|(_, connection)| !connection.has_ended);
        beating
            .filter_map(|(rank, connection)| Some((rank, connection.heart.silence(self.looked)?)))
            .collect()
    }

    /// The time of the last look at the connections.
    pub(crate) fn looked(&self) -> Duration {
        self.looked
    }

    /// The timeout of heartbeats that the user has chosen.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Returns `true` if a rank has ended the program, as all others have then.
    pub(crate) fn are_done(&self) -> bool {
        self.ranks.iter().flatten().any(|connection| connection.is_done)
    }

    /// Returns `true` if a rank has printed why it fails.
    pub(crate) fn have_told(&self) -> bool {
        self.ranks.iter().flatten().any(|connection| connection.has_told)
    }

    /// Returns `true` if a rank was a part of the job, and has not ended the program as all others do.
    pub(crate) fn is_unfinished(&self, rank: u32) -> bool {
        let connection = self.ranks.get(rank as usize).and_then(Option::as_ref);
        connection.is_some_and(|connection| connection.hello.is_none() && !connection.is_done)
    }

    /// The ranks from which the launcher waits for a hello.
    pub(crate) fn missing(&self) -> Vec<u32> {
        let is_missing =
            |c: &Option<Connection>| c.as_ref().is_none_or(|connection| connection.hello.is_none());
        (0..).zip(&self.ranks).filter(|(_, c)| is_missing(c)).map(|(rank, _)| rank).collect()
    }

    /// Returns `true` if a rank has ended its connection.
    pub(crate) fn has_left(&self, rank: u32) -> bool {
        self.ranks.get(rank as usize).and_then(Option::as_ref).is_none_or(|connection| connection.has_ended)
    }
}

impl Connection {
    fn new(stream: Stream, heart: Heart, hello: Hello) -> Self {
        Self { stream, heart, hello: Some(hello), has_ended: false, is_done: false, has_told: false }
    }

    /// Reads all heartbeats that have arrived.
    fn read(&mut self, now: Duration) {
        let mut bytes = [0; 64];
        let mut any = false;
        while !self.has_ended {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.has_ended = true,
                Ok(read) => {
                    any = true;
                    self.is_done |= bytes[..read].contains(&DONE);
                    self.has_told |= bytes[..read].contains(&TOLD);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.has_ended = true,
            }
        }
        if any {
            self.heart.beat(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::place::Place;
    use crate::transport::sockets::stream::read_value;

    #[test]
    fn a_rank_that_waits_for_its_answer_gets_the_request_to_leave_after_the_answer() {
        let (launcher, rank) = UnixStream::pair().expect("a pair");
        let hello = Hello {
            rank: 0,
            start: 0,
            address: "unix:rank".to_owned(),
            build: "build".to_owned(),
            place: Place::here(),
        };
        let mut connections = Connections::new(1, None);
        let heart = Heart::new(Duration::ZERO, None);
        connections.ranks[0] = Some(Connection::new(Stream::Unix(launcher), heart, hello));
        connections.ask_to_leave();
        connections.answer(0).expect("one build");
        connections.ask_to_leave();
        let mut rank = Stream::Unix(rank);
        let answer: Answer = read_value(&mut rank).expect("the answer comes first");
        assert!(matches!(answer, Answer::Roster(roster) if roster.addresses == ["unix:rank"]));
        let mut byte = [0];
        rank.read_exact(&mut byte).expect("the request");
        assert_eq!(byte, [LEAVE]);
    }
}
