//! Ranks of an MPI job.

use super::abi::{Api, Handle, names};
use super::heartbeat::Heartbeat;
use super::{Launcher, Place, Ranks};
use crate::{Error, Result, fail_if};
use std::ffi::c_int;
use std::io::Write;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, sleep, yield_now};
use std::time::{Duration, Instant};

/// The MPI library, initialised in this process. There is one, for the whole run of the program.
///
/// Every call begins an operation, or asks whether it has ended, and holds the lock; waiting ranks leave the core to others.
pub struct Mpi {
    api: Api,
    lock: Mutex<()>,
    place: Place,
    /// The communicator of signs of life, and of the end.
    control: Handle,
    /// Until the end of the run.
    heartbeat: Mutex<Option<Heartbeat>>,
}

// SAFETY: the only pointer, the constant `ignore`, is never read through. Calls of the library are made one at a time, under the lock, which
// is what MPI_THREAD_SERIALIZED asks for.
unsafe impl Send for Mpi {}
// SAFETY: as above.
unsafe impl Sync for Mpi {}

/// The tag of exchanged messages.
const EXCHANGE: c_int = 1;

/// How often a waiting rank asks before it sleeps in between.
const IMPATIENT: usize = 2000;

/// Between two questions of a rank that waits for longer.
const PAUSE: Duration = Duration::from_micros(50);

/// How long a rank that failed waits for all others to fail as well.
const SAME_ERROR: Duration = Duration::from_secs(2);

/// How long a rank that is done waits to be ended by one that has failed.
const OTHERS: Duration = Duration::from_secs(5);

/// How long all ranks have to start: a rank that runs another program never does, and MPI waits for it without end.
const START: Duration = Duration::from_secs(300);

/// What a rank that has failed says of its end.
const FAILED: u8 = 1;

/// How long what was written takes to its reader.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// What `work` returns. Where that takes longer than `limit`, `late` is called beside it.
fn watched<T>(limit: Duration, late: impl FnOnce() + Send + 'static, work: impl FnOnce() -> T) -> T {
    let (working, ended) = mpsc::channel::<()>();
    thread::spawn(move || {
        if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            late();
        }
    });
    let result = work();
    drop(working);
    result
}

/// Ends the program, in which MPI has not started.
fn end_unstarted() {
    let seconds = START.as_secs();
    let message = format!(
        "error: MPI has not started for {seconds} s: one of the ranks runs another program, or its host does not answer; start all ranks by \
         one launcher with one command\n"
    );
    // In one piece, for others write to the same place.
    let _ = std::io::stderr().write_all(message.as_bytes());
    std::process::exit(1);
}

impl Mpi {
    /// Loads and initialises the MPI library; an error where none is installed, or where it does not know the launcher.
    pub fn start(launcher: Option<Launcher>) -> Result<&'static Mpi> {
        let api = Api::load(launcher).ok_or_else(|| {
            Error::input(format!(
                "the program was started as one of several ranks, and no MPI library is found ({}); install one, or add its folder to \
                 LD_LIBRARY_PATH",
                names()
            ))
        })?;
        let (mut rank, mut size, mut control, mut provided) = (0, 0, 0, 0);
        let arguments = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the arguments are optional, and the other pointer is to a live integer of the right size.
        let started = watched(START, end_unstarted, || unsafe {
            (api.functions.init)(arguments.0, arguments.1, api.serialized, &mut provided)
        });
        check("MPI_Init_thread", started)?;
        // SAFETY: the pointers are to live integers of the right size.
        unsafe {
            check("MPI_Comm_rank", (api.functions.rank)(api.world, &mut rank))?;
            check("MPI_Comm_size", (api.functions.size)(api.world, &mut size))?;
            check("MPI_Comm_dup", (api.functions.duplicate)(api.world, &mut control))?;
        }
        fail_if!(
            provided < api.serialized,
            "{} cannot be called from several threads in turn; use an MPI library that can (MPI_THREAD_SERIALIZED)",
            api.name
        );
        if let Some(started) = launcher.and_then(|launcher| launcher.size).filter(|started| *started != size as usize) {
            return Err(Error::input(format!(
                "the launcher started {started} ranks, and {} sees {size}: it belongs to another MPI; add the folder of the launcher's \
                 library to LD_LIBRARY_PATH",
                api.name
            )));
        }
        let (rank, size) = (rank as usize, size as usize);
        let mpi = Mpi { api, lock: Mutex::new(()), place: Place { rank, size }, control, heartbeat: Mutex::new(None) };
        let mpi: &'static Mpi = Box::leak(Box::new(mpi));
        if size > 1 {
            *mpi.heartbeat.lock().expect("no panic") = Some(Heartbeat::start(mpi));
        }
        Ok(mpi)
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Begins an operation.
    fn begin(&self, name: &str, call: impl FnOnce(&Api, *mut Handle) -> c_int) -> Result<Handle> {
        let _turn = self.turn();
        let mut request = 0;
        check(name, call(&self.api, &mut request))?;
        Ok(request)
    }

    /// Whether an operation has ended.
    fn ended(&self, request: &mut Handle) -> Result<bool> {
        let _turn = self.turn();
        let mut ended = 0;
        // SAFETY: the request is one that was begun, and both pointers are to live integers.
        check("MPI_Test", unsafe { (self.api.functions.test)(request, &mut ended, self.api.ignore) })?;
        Ok(ended != 0)
    }

    fn wait(&self, mut request: Handle) -> Result<()> {
        for asked in 0.. {
            if self.ended(&mut request)? {
                break;
            }
            if asked < IMPATIENT { yield_now() } else { sleep(PAUSE) }
        }
        Ok(())
    }

    /// Begins to send `message` to a rank.
    ///
    /// # Safety
    /// The message lives until the request has ended.
    unsafe fn send(&self, message: &[u8], to: usize, tag: c_int, communicator: Handle) -> Result<Handle> {
        self.begin("MPI_Isend", |api, request| {
            let (at, count) = (message.as_ptr().cast(), message.len() as c_int);
            // SAFETY: `at` has so many bytes, which live until the request has ended.
            unsafe { (api.functions.send)(at, count, api.byte, to as c_int, tag, communicator, request) }
        })
    }

    /// Begins to receive `message` from a rank.
    ///
    /// # Safety
    /// The message lives, and is not used, until the request has ended.
    unsafe fn receive(&self, message: &mut [u8], from: usize, tag: c_int, communicator: Handle) -> Result<Handle> {
        self.begin("MPI_Irecv", |api, request| {
            let (at, count) = (message.as_mut_ptr().cast(), message.len() as c_int);
            // SAFETY: `at` has room for so many bytes, until the request has ended.
            unsafe { (api.functions.receive)(at, count, api.byte, from as c_int, tag, communicator, request) }
        })
    }

    /// The communicator of signs of life.
    pub(super) fn signs(&'static self) -> Signs {
        Signs(self)
    }

    /// Whether this is rank 0, which prints and writes for all.
    pub fn is_first(&self) -> bool {
        self.place.rank == 0
    }

    /// Ends the run on every rank: waits for all of them. One that has failed instead ends all.
    pub fn finish(&self) {
        if self.ends(false, None).is_none_or(|all| all.contains(&FAILED)) {
            sleep(OTHERS);
            self.abort(1);
        }
        if let Some(heartbeat) = self.heartbeat.lock().expect("no panic").take() {
            heartbeat.stop();
        }
        let _turn = self.turn();
        // SAFETY: nothing is under way any more, and no call follows.
        unsafe { (self.api.functions.finalize)() };
    }

    /// Whether all ranks have failed, as this one has: rank 0 may then tell the error for all, before [`Self::finish`].
    pub fn all_failed(&self) -> bool {
        self.ends(true, Some(SAME_ERROR)).is_some_and(|all| all.iter().all(|end| *end == FAILED))
    }

    /// Ends all ranks at once, with this exit code.
    pub fn abort(&self, code: u8) -> ! {
        // The launcher passes on what this rank has said, and then ends it.
        sleep(LAST_WORDS);
        // Another thread may hold the lock for good.
        // SAFETY: the call ends the process.
        unsafe { (self.api.functions.abort)(self.api.world, code.into()) };
        std::process::exit(code.into())
    }

    /// How each rank has ended, [`FAILED`] or not; none where some have not after `most`.
    fn ends(&self, failed: bool, most: Option<Duration>) -> Option<&'static [u8]> {
        let start = Instant::now();
        // Where some ranks do not answer, these are in use until the process ends.
        let own: &'static [u8] = Box::leak(Box::new([if failed { FAILED } else { 0 }]));
        let all: &'static mut [u8] = Box::leak(vec![0; self.place.size].into_boxed_slice());
        let begun = self.begin("MPI_Iallgather", |api, request| {
            let (own, all, byte) = (own.as_ptr().cast(), all.as_mut_ptr().cast(), api.byte);
            // SAFETY: the buffers have a byte, and a byte for each rank, and live for ever.
            unsafe { (api.functions.all_gather)(own, 1, byte, all, 1, byte, self.control, request) }
        });
        let mut request = begun.ok()?;
        loop {
            match self.ended(&mut request) {
                Ok(true) => return Some(all),
                Ok(false) if most.is_none_or(|most| start.elapsed() < most) => sleep(PAUSE),
                _ => return None,
            }
        }
    }
}

impl Ranks for &'static Mpi {
    fn place(&self) -> Place {
        self.place
    }

    fn all_gather(&self, own: &[u8], all: &mut [u8]) -> Result<()> {
        self.place.check_gather(own, all);
        let count = own.len() as c_int;
        self.wait(self.begin("MPI_Iallgather", |api, request| {
            let (own, all, byte) = (own.as_ptr().cast(), all.as_mut_ptr().cast(), api.byte);
            // SAFETY: the buffers have so many bytes, a rank each, and live until the request has ended.
            unsafe { (api.functions.all_gather)(own, count, byte, all, count, byte, api.world, request) }
        })?)
    }

    fn all_to_all(&self, sent: &[u8], received: &mut [u8]) -> Result<()> {
        let count = self.place.part(sent, received) as c_int;
        self.wait(self.begin("MPI_Ialltoall", |api, request| {
            let (sent, received, byte) = (sent.as_ptr().cast(), received.as_mut_ptr().cast(), api.byte);
            // SAFETY: as above.
            unsafe { (api.functions.all_to_all)(sent, count, byte, received, count, byte, api.world, request) }
        })?)
    }

    fn exchange(&self, to: usize, sent: &[u8], from: usize, received: &mut [u8]) -> Result<()> {
        // SAFETY: both messages live until the requests have ended, below.
        let (receiving, sending) = unsafe {
            let receiving = self.receive(received, from, EXCHANGE, self.api.world)?;
            (receiving, self.send(sent, to, EXCHANGE, self.api.world)?)
        };
        self.wait(receiving)?;
        self.wait(sending)
    }
}

/// Messages of one byte that say that a rank is alive.
#[derive(Clone, Copy)]
pub(super) struct Signs(pub &'static Mpi);

impl Signs {
    pub fn rank(self) -> usize {
        self.0.place.rank
    }

    pub fn size(self) -> usize {
        self.0.place.size
    }

    /// Begins to send a sign to a rank.
    pub fn send(self, sign: &'static [u8; 1], to: usize) -> Result<Sign> {
        // SAFETY: a constant lives for ever.
        let request = unsafe { self.0.send(sign, to, 0, self.0.control) }?;
        Ok(Sign { request, content: None })
    }

    /// Begins to receive a sign from a rank.
    pub fn receive(self, from: usize) -> Result<Sign> {
        let mut content = Box::new([0u8; 1]);
        // SAFETY: what is in the box stays where it is, and the box goes with the request.
        let request = unsafe { self.0.receive(&mut content[..], from, 0, self.0.control) }?;
        Ok(Sign { request, content: Some(content) })
    }

    /// Whether a sign has gone or come.
    pub fn ended(self, sign: &mut Sign) -> Result<bool> {
        self.0.ended(&mut sign.request)
    }
}

/// A sign on its way.
pub(super) struct Sign {
    request: Handle,
    content: Option<Box<[u8; 1]>>,
}

impl Sign {
    /// What was received, once it has come.
    pub fn content(&self) -> u8 {
        self.content.as_ref().map_or(0, |content| content[0])
    }
}

fn check(name: &str, code: c_int) -> Result<()> {
    fail_if!(code != 0; Error::Device(format!("{name} failed with the code {code}; look for the message of the MPI library above")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Whether `late` was called while work took `work` and had `limit`.
    fn was_late(limit: Duration, work: Duration) -> bool {
        let called = Arc::new(AtomicBool::new(false));
        let late = called.clone();
        assert_eq!(watched(limit, move || late.store(true, Ordering::SeqCst), || (sleep(work), 7).1), 7);
        called.load(Ordering::SeqCst)
    }

    #[test]
    fn work_that_takes_too_long_is_noticed() {
        assert!(was_late(Duration::from_millis(20), Duration::from_secs(2)));
        assert!(!was_late(Duration::from_secs(3600), Duration::from_millis(20)));
    }
}
