//! How much memory the pool of a GPU takes for a sequence of requests.

use super::memory::{rounded, take};
use std::collections::BTreeMap;

/// The memory that the pool of a GPU would allocate from the driver for requests in this order: it keeps blocks that are free, and uses one
/// again for a request of similar size only.
///
/// ```
/// use mercer_engine::compute::cuda::PoolPlan;
/// let mut plan = PoolPlan::default();
/// plan.hold(100 << 20);
/// plan.together(&[40 << 20, 8 << 20]);
/// // One of them is used again; the other is too small.
/// plan.together(&[38 << 20, 20 << 20]);
/// assert_eq!(plan.bytes(), (100 + 40 + 8 + 20) << 20);
/// ```
#[derive(Clone, Debug, Default)]
pub struct PoolPlan {
    free: BTreeMap<usize, Vec<u64>>,
    allocated: usize,
}

impl PoolPlan {
    /// A block that stays; returns its size.
    pub fn hold(&mut self, bytes: usize) -> usize {
        let size = rounded(bytes);
        let found = take(&mut self.free, size).map(|(_, size)| size);
        found.unwrap_or_else(|| {
            self.allocated += size;
            size
        })
    }

    /// Blocks that are needed together, and then free.
    pub fn together(&mut self, requests: &[usize]) {
        let sizes: Vec<usize> = requests.iter().map(|bytes| self.hold(*bytes)).collect();
        sizes.into_iter().for_each(|size| self.release(size));
    }

    /// A block of this size, as [`Self::hold`] returned it, is free again.
    pub fn release(&mut self, size: usize) {
        self.free.entry(size).or_default().push(0);
    }

    /// All that was allocated.
    pub fn bytes(&self) -> u64 {
        self.allocated as u64
    }
}
