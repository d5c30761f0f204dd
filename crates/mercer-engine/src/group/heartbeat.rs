//! Signs of life between ranks: a rank whose process or host hangs ends the run.

use super::mpi::{Mpi, Sign, Signs};
use crate::Result;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Between two signs.
const INTERVAL: Duration = Duration::from_secs(1);

/// Silence after which a rank counts as lost.
const LOST: Duration = Duration::from_secs(20);

/// Between two looks at what has come.
const LOOK: Duration = Duration::from_millis(100);

/// Where a look comes later than this after the one before, this process was stopped itself.
const STOPPED: Duration = Duration::from_secs(5);

const ALIVE: &[u8; 1] = b"a";
const LAST: &[u8; 1] = b"z";

/// A thread that sends a sign to the next rank every second, and expects one from the rank before.
pub(super) struct Heartbeat {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Heartbeat {
    pub fn start(mpi: &'static Mpi) -> Heartbeat {
        let ends = Arc::new(AtomicBool::new(false));
        let seen = ends.clone();
        let thread = thread::spawn(move || {
            let signs = mpi.signs();
            let before = (signs.rank() + signs.size() - 1) % signs.size();
            if let Err(error) = watch(signs, before, &seen) {
                // In one piece, for others write to the same place.
                let _ = std::io::stderr().write_all(format!("error: {error}\n").as_bytes());
                mpi.abort(1);
            }
        });
        Heartbeat { ends, thread }
    }

    /// Sends the last sign, and waits for that of the rank before. All ranks have done their work.
    pub fn stop(self) {
        self.ends.store(true, Ordering::SeqCst);
        // It does not panic; the run is over in any case.
        let _ = self.thread.join();
    }
}

/// Returns after the last sign of the rank `before`, or an error where it is silent.
fn watch(signs: Signs, before: usize, ends: &AtomicBool) -> Result<()> {
    let next = (signs.rank() + 1) % signs.size();
    let mut receiving = signs.receive(before)?;
    let mut sending: Option<Sign> = None;
    let (mut sent_last, mut got_last) = (false, false);
    let [mut heard, mut sent, mut looked] = [Instant::now(); 3];
    loop {
        if looked.elapsed() > STOPPED {
            heard = Instant::now();
        }
        looked = Instant::now();
        if !got_last && signs.ended(&mut receiving)? {
            heard = Instant::now();
            got_last = receiving.content() == LAST[0];
            if !got_last {
                receiving = signs.receive(before)?;
            }
        }
        if let Some(sign) = &mut sending
            && signs.ended(sign)?
        {
            sending = None;
        }
        if sending.is_none() && !sent_last && (sent.elapsed() >= INTERVAL || ends.load(Ordering::SeqCst)) {
            sent_last = ends.load(Ordering::SeqCst);
            sending = Some(signs.send(if sent_last { LAST } else { ALIVE }, next)?);
            sent = Instant::now();
        }
        if sent_last && got_last && sending.is_none() {
            return Ok(());
        }
        crate::fail_if!(!got_last && heard.elapsed() > LOST; crate::Error::Device(format!(
            "rank {before} of {} has not answered rank {} for {} s: its process or its host hangs, or the network is cut; the run ends",
            signs.size(), signs.rank(), LOST.as_secs()
        )));
        thread::sleep(if ends.load(Ordering::SeqCst) { Duration::from_millis(1) } else { LOOK });
    }
}
