// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI: frames as non-blocking messages into receives that are always posted.
//!
//! A frame that fits into a posted receive is one message. A longer one is announced by such a message, and follows in
//! one of its own, for which the receiver has memory by then. Frames that come behind it wait for it.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::time::Duration;

use colony_comm::Comm;
use colony_comm::mpi::{MPI_Comm, Mpi};
use mpi::ffi::{
    MPI_Cancel, MPI_Comm_set_errhandler, MPI_Get_count, MPI_Ibarrier, MPI_Iprobe, MPI_Irecv, MPI_Isend,
    MPI_Recv_init, MPI_Request, MPI_Request_free, MPI_SUCCESS, MPI_Start, MPI_Status, MPI_Test, MPI_Wait,
    RSMPI_ANY_SOURCE, RSMPI_ERRORS_RETURN, RSMPI_UINT8_T,
};

use super::{Transport, TransportError};

/// Bytes of a posted receive: what Open MPI's shared memory sends at once, less its headers.
const EAGER_BYTES: usize = 4000;
/// Posted receives.
const SLOTS: usize = 32;
const FRAMES: c_int = 1;
const LONG: c_int = 2;
/// The last byte of an eager message.
const FRAME: u8 = 0;
const ANNOUNCEMENT: u8 = 1;

/// A receive that is posted again and again.
struct Slot {
    request: MPI_Request,
    buffer: Vec<u8>,
}

/// Frames of one rank that wait for a long one.
#[derive(Default)]
struct Held {
    /// The long frame that is arriving.
    long: Option<(MPI_Request, Vec<u8>)>,
    /// Frames behind it: whole ones, or the length of a long one.
    behind: VecDeque<Result<Vec<u8>, usize>>,
}

/// A rank of an MPI job.
pub struct MpiTransport {
    // finalized last
    slots: Vec<Slot>,
    /// The slot that gets the next frame.
    head: usize,
    /// Slots before it that are not posted.
    idle: usize,
    sends: VecDeque<(MPI_Request, Vec<u8>)>,
    free: Vec<Vec<u8>>,
    held: Vec<Held>,
    holding: usize,
    comm: MPI_Comm,
    rank: u32,
    size: u32,
    finished: bool,
    mpi: Mpi,
}

impl std::fmt::Debug for MpiTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MpiTransport({} of {})", self.rank, self.size)
    }
}

impl MpiTransport {
    /// Returns `true` if an MPI launcher has started this process.
    #[must_use]
    pub fn is_launched() -> bool {
        ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "PMI_RANK"]
            .iter()
            .any(|v| std::env::var_os(v).is_some())
    }

    /// Initializes MPI.
    ///
    /// # Errors
    /// [`TransportError`].
    pub fn initialize() -> Result<Self, TransportError> {
        let mpi = Mpi::initialize().map_err(|e| TransportError::Environment(e.to_string()))?;
        let world = mpi.world();
        let (rank, size, comm) = (world.rank(), world.size(), world.as_raw());
        let mut this = Self {
            slots: Vec::new(),
            head: 0,
            idle: SLOTS,
            sends: VecDeque::new(),
            free: Vec::new(),
            held: (0..size).map(|_| Held::default()).collect(),
            holding: 0,
            comm,
            rank,
            size,
            finished: false,
            mpi,
        };
        for _ in 0..SLOTS {
            let mut buffer = vec![0; EAGER_BYTES];
            let mut request = MaybeUninit::uninit();
            // SAFETY: as in `receive`; the buffer is kept beside the request and has its memory until both are dropped.
            let request = unsafe {
                MPI_Recv_init(
                    buffer.as_mut_ptr().cast::<c_void>(),
                    EAGER_BYTES as c_int,
                    RSMPI_UINT8_T,
                    any_source(),
                    FRAMES,
                    comm,
                    request.as_mut_ptr(),
                );
                request.assume_init()
            };
            this.slots.push(Slot { request, buffer });
        }
        this.post_receives();
        Ok(this)
    }

    /// Posts the receives whose frames have been delivered, in their order: posted receives match in the order in which
    /// they were posted.
    #[inline]
    fn post_receives(&mut self) {
        for behind in (1..=std::mem::take(&mut self.idle)).rev() {
            let slot = &mut self.slots[(self.head + SLOTS - behind) % SLOTS];
            // SAFETY: a request of `MPI_Recv_init` that is complete or new; its buffer is kept beside it.
            unsafe { MPI_Start(&raw mut slot.request) };
        }
    }

    /// Makes errors of MPI those of the methods, where it would end the process.
    pub(super) fn return_errors(&self) {
        // SAFETY: MPI is initialized as long as `self.mpi`, and both handles are its own.
        unsafe { MPI_Comm_set_errhandler(self.comm, RSMPI_ERRORS_RETURN) };
    }

    /// Leaves MPI without a word, since ranks have died: its finalization would wait for them. What MPI still writes or reads
    /// stays in memory: the posted receives, and messages under way.
    pub(super) fn abandon(self) {
        std::mem::forget(self);
    }

    /// Returns `true` if [`finish`](Transport::finish) has left the job.
    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Posts a receive into memory that stays where it is until the request is complete.
    fn receive(&self, buffer: *mut u8, bytes: usize, from: c_int, tag: c_int) -> MPI_Request {
        let mut request = MaybeUninit::uninit();
        // SAFETY: MPI is initialized as long as `self.mpi`; every caller keeps the buffer, which has `bytes` bytes, until
        // the request is complete or cancelled; MPI ends the process on an error.
        unsafe {
            MPI_Irecv(
                buffer.cast::<c_void>(),
                bytes as c_int,
                RSMPI_UINT8_T,
                from,
                tag,
                self.comm,
                request.as_mut_ptr(),
            );
            request.assume_init()
        }
    }

    fn isend(&mut self, to: u32, tag: c_int, bytes: Vec<u8>) -> Result<(), TransportError> {
        let mut request = MaybeUninit::uninit();
        // SAFETY: as in `receive`; the bytes are kept in `sends` until the request is complete, and a vector that moves
        // keeps its memory in place.
        let code = unsafe {
            MPI_Isend(
                bytes.as_ptr().cast::<c_void>(),
                bytes.len() as c_int,
                RSMPI_UINT8_T,
                to as c_int,
                tag,
                self.comm,
                request.as_mut_ptr(),
            )
        };
        if let Err(error) = check(code) {
            // MPI may have a part of the message
            std::mem::forget(bytes);
            return Err(error);
        }
        // SAFETY: MPI has made the request.
        let request = unsafe { request.assume_init() };
        self.sends.push_back((request, bytes));
        self.complete_sends()
    }

    fn complete_sends(&mut self) -> Result<(), TransportError> {
        while let Some((request, _)) = self.sends.front_mut() {
            if test(request)?.is_none() {
                break;
            }
            if let Some((_, mut bytes)) = self.sends.pop_front()
                && self.free.len() < SLOTS
            {
                bytes.clear();
                self.free.push(bytes);
            }
        }
        Ok(())
    }

    /// Takes an eager message.
    fn take(
        &mut self,
        from: usize,
        bytes: &[u8],
        deliver: &mut dyn FnMut(u32, &[u8]),
    ) -> Result<(), TransportError> {
        let wrong = || TransportError::Lost(format!("rank {from} sent what is no frame"));
        let (&kind, content) = bytes.split_last().ok_or_else(wrong)?;
        let waits = self.held[from].long.is_some();
        match kind {
            FRAME if !waits => deliver(from as u32, content),
            FRAME => self.held[from].behind.push_back(Ok(content.to_vec())),
            ANNOUNCEMENT => {
                let length = u64::from_le_bytes(content.try_into().map_err(|_| wrong())?);
                let length =
                    usize::try_from(length).ok().filter(|&l| l <= c_int::MAX as usize).ok_or_else(wrong)?;
                if waits {
                    self.held[from].behind.push_back(Err(length));
                } else {
                    self.expect(from, length);
                }
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }

    fn expect(&mut self, from: usize, length: usize) {
        let mut bytes = vec![0; length];
        let request = self.receive(bytes.as_mut_ptr(), length, from as c_int, LONG);
        self.held[from].long = Some((request, bytes));
        self.holding += 1;
    }

    /// Delivers long frames that have arrived, and those behind them.
    fn take_long(&mut self, deliver: &mut dyn FnMut(u32, &[u8])) -> Result<bool, TransportError> {
        let mut any = false;
        for from in 0..self.held.len() {
            let Some((request, _)) = &mut self.held[from].long else { continue };
            if test(request)?.is_none() {
                continue;
            }
            if let Some((_, bytes)) = self.held[from].long.take() {
                deliver(from as u32, &bytes);
            }
            self.holding -= 1;
            any = true;
            while self.held[from].long.is_none() {
                match self.held[from].behind.pop_front() {
                    Some(Ok(frame)) => deliver(from as u32, &frame),
                    Some(Err(length)) => self.expect(from, length),
                    None => break,
                }
            }
        }
        Ok(any)
    }

    /// Leaves the job in agreement with all other ranks, unless `stop` has an error meanwhile.
    pub(super) fn finish_unless(
        &mut self,
        stop: &mut dyn FnMut() -> Result<(), TransportError>,
    ) -> Result<(), TransportError> {
        while !self.sends.is_empty() {
            stop()?;
            self.poll(&mut |_, _| {})?;
        }
        // other ranks enter the barrier once their long frames have been received: this one goes on receiving meanwhile
        let mut barrier = MaybeUninit::uninit();
        // SAFETY: MPI is initialized, and writes the request.
        let mut barrier = unsafe {
            MPI_Ibarrier(self.comm, barrier.as_mut_ptr());
            barrier.assume_init()
        };
        while test(&mut barrier)?.is_none() {
            stop()?;
            self.poll(&mut |_, _| {})?;
        }
        // what is still under way was sent before the barrier: MPI has it here, and takes it
        let mut flag = 1;
        while self.poll(&mut |_, _| {})? || flag != 0 {
            stop()?;
            // SAFETY: as in `receive`; MPI writes the flag, and the status if there is a message.
            unsafe {
                let mut status = MaybeUninit::uninit();
                MPI_Iprobe(any_source(), FRAMES, self.comm, &raw mut flag, status.as_mut_ptr());
            }
        }
        self.post_receives();
        for slot in &mut self.slots {
            let mut status = MaybeUninit::uninit();
            // SAFETY: a posted receive that nobody will match; the buffer lives until the wait has returned.
            unsafe {
                MPI_Cancel(&raw mut slot.request);
                MPI_Wait(&raw mut slot.request, status.as_mut_ptr());
                MPI_Request_free(&raw mut slot.request);
            }
        }
        self.finished = true;
        Ok(())
    }
}

/// Any sender.
fn any_source() -> c_int {
    // SAFETY: a constant of the MPI library.
    unsafe { RSMPI_ANY_SOURCE }
}

/// The status of a request, if it is complete.
#[inline]
fn test(request: &mut MPI_Request) -> Result<Option<MPI_Status>, TransportError> {
    let (mut flag, mut status) = (0, MaybeUninit::uninit());
    // SAFETY: the request is one of MPI's, and its buffer is kept beside it; MPI writes the status if the flag is set.
    unsafe {
        check(MPI_Test(request, &raw mut flag, status.as_mut_ptr()))?;
        Ok(if flag == 0 { None } else { Some(status.assume_init()) })
    }
}

/// An error that MPI returns, if it does not end the process instead: it does not reach a rank.
#[inline]
fn check(code: c_int) -> Result<(), TransportError> {
    if code == MPI_SUCCESS as c_int {
        Ok(())
    } else {
        Err(TransportError::Died(format!("MPI fails with error {code}")))
    }
}

impl Transport for MpiTransport {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn name(&self) -> &'static str {
        "MPI"
    }

    fn send(&mut self, to: u32, frame: &mut Vec<u8>) -> Result<(), TransportError> {
        let next = self.free.pop().unwrap_or_default();
        let mut bytes = std::mem::replace(frame, next);
        if bytes.len() < EAGER_BYTES {
            bytes.push(FRAME);
            return self.isend(to, FRAMES, bytes);
        }
        if bytes.len() > c_int::MAX as usize {
            return Err(TransportError::Failed {
                doing: "sending a frame".to_owned(),
                reason: format!("it has {} bytes; MPI takes {} at once", bytes.len(), c_int::MAX),
            });
        }
        let mut announcement = (bytes.len() as u64).to_le_bytes().to_vec();
        announcement.push(ANNOUNCEMENT);
        self.isend(to, FRAMES, announcement)?;
        self.isend(to, LONG, bytes)
    }

    fn poll(&mut self, deliver: &mut dyn FnMut(u32, &[u8])) -> Result<bool, TransportError> {
        if !self.sends.is_empty() {
            self.complete_sends()?;
        }
        self.post_receives();
        let mut any = false;
        let head = self.head;
        // one frame: its answer need not wait for a look at the next
        if let Some(status) = test(&mut self.slots[head].request)? {
            let mut bytes: c_int = 0;
            // SAFETY: MPI has filled the status.
            unsafe { MPI_Get_count(&raw const status, RSMPI_UINT8_T, &raw mut bytes) };
            self.head = (head + 1) % SLOTS;
            self.idle += 1;
            let length = (bytes.max(0) as usize).min(EAGER_BYTES);
            let buffer = std::mem::take(&mut self.slots[head].buffer);
            let taken = self.take(status.MPI_SOURCE as usize, &buffer[..length], deliver);
            self.slots[head].buffer = buffer;
            taken?;
            any = true;
        }
        if self.holding > 0 {
            any |= self.take_long(deliver)?;
        }
        Ok(any)
    }

    fn wait(&mut self, limit: Duration) -> Result<(), TransportError> {
        std::thread::sleep(limit.min(Duration::from_micros(50)));
        Ok(())
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        self.finish_unless(&mut || Ok(()))
    }

    fn abort(&mut self, _code: i32) {
        // returns never: MPI ends all processes
        self.mpi.world().abort();
    }
}

impl Drop for MpiTransport {
    fn drop(&mut self) {
        // another rank has failed: MPI would wait for it in its finalization
        if !self.finished {
            self.mpi.world().abort();
        }
    }
}
