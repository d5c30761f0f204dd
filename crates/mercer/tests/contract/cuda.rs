//! The first GPU, for tests that skip themselves where there is none.

use mercer::compute::Device;
use std::sync::{Mutex, MutexGuard};

/// The device, for one test at a time: they share its stream and its memory.
pub fn cuda() -> Option<(Device, MutexGuard<'static, ()>)> {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    Device::Cuda(0).open().ok().map(|device| (device, guard))
}

/// The device, held; without one, says so and ends the test.
macro_rules! device {
    () => {
        match crate::cuda::cuda() {
            Some(held) => held,
            None => {
                eprintln!("skipped: no CUDA device");
                return;
            }
        }
    };
}
