//! Work that is done again and again.

use super::cuda::{Gpu, Graph, gpu};
use super::tensor::Device;
use crate::Result;

/// Times that work runs before it is recorded: buffers trade places between layers, and have grown to all their roles after
/// two.
const PLAIN: usize = 2;

/// Runs the same work repeatedly. On a GPU it is recorded once and then replayed with a single launch.
pub struct Replay {
    gpu: Option<&'static Gpu>,
    plain: usize,
    graph: Option<Graph>,
}

impl Replay {
    /// For work on `device`; it is recorded only if `recordable`: it must then queue the same kernels on the same memory each
    /// time, and read no results.
    pub fn new(device: Device, recordable: bool) -> Result<Replay> {
        let gpu = match device {
            Device::Cuda(ordinal) if recordable => Some(gpu(ordinal)?),
            _ => None,
        };
        Ok(Replay { gpu, plain: 0, graph: None })
    }

    /// Whether the work is recorded.
    pub fn records(&self) -> bool {
        self.gpu.is_some()
    }

    /// Does the work once, or replays it.
    pub fn run(&mut self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let Some(gpu) = self.gpu.filter(|_| self.plain >= PLAIN) else {
            self.plain += 1;
            return work();
        };
        if self.graph.is_none() {
            self.graph = Some(Graph::record(gpu, work)?);
        }
        if let Some(graph) = &mut self.graph {
            graph.replay();
        }
        Ok(())
    }
}
