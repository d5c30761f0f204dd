//! Which work ran on which device. Code that chooses a device says so when it runs, so that a program can tell afterwards what its
//! GPU did and what went through the host.

use super::Device;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

type Counts = BTreeMap<(&'static str, Option<usize>), u64>;

fn counts() -> MutexGuard<'static, Counts> {
    static COUNTS: Mutex<Counts> = Mutex::new(BTreeMap::new());
    COUNTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says that `times` pieces of `work` (a plural, such as "products with K") ran on `device`.
pub fn ran(work: &'static str, device: Device, times: usize) {
    let ordinal = match device {
        Device::Cpu => None,
        Device::Cuda(ordinal) => Some(ordinal),
    };
    *counts().entry((work, ordinal)).or_default() += times as u64;
}

/// All work of this process that was told: what it was, where it ran, and how often.
///
/// ```
/// use mercer_engine::compute::{Device, ledger};
/// ledger::ran("examples", Device::Cpu, 2);
/// ledger::ran("examples", Device::Cpu, 1);
/// assert!(ledger::work().contains(&("examples", Device::Cpu, 3)));
/// ```
pub fn work() -> Vec<(&'static str, Device, u64)> {
    let entry = |(&(work, ordinal), &times): (&(&'static str, Option<usize>), &u64)| {
        (work, ordinal.map_or(Device::Cpu, Device::Cuda), times)
    };
    counts().iter().map(entry).collect()
}
