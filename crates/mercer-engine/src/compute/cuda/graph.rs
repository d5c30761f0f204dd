//! Work that is done repeatedly; on a GPU it is recorded and then replayed with one launch.

use super::gpu::Gpu;
use crate::Result;
use crate::compute::Device;
use cudarc::driver::{CudaGraph, sys};

/// Work that was queued while it was recorded. It replays with the same memory: tensors that the recorded work reads or
/// writes must live as long as the graph; temporary memory of the recording belongs to the graph.
struct Graph {
    gpu: &'static Gpu,
    graph: CudaGraph,
    blocks: Vec<(usize, u64)>,
}

// SAFETY: a graph is used by one thread at a time, through `&mut self`.
unsafe impl Send for Graph {}

impl Graph {
    /// Records what `work` queues, without running it. `work` must have run once before, so that no kernel is compiled
    /// and no library started inside the recording, and it must not look at results.
    fn record(gpu: &'static Gpu, work: impl FnOnce() -> Result<()>) -> Result<Graph> {
        use sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as RELAXED;
        gpu.synchronize()?;
        gpu.keep_for_graph();
        gpu.note(gpu.stream.begin_capture(RELAXED));
        let worked = work();
        let graph = gpu.note(gpu.stream.end_capture(sys::CUgraphInstantiate_flags(0)));
        let mut blocks = gpu.kept_for_graph();
        if let Err(error) = worked.and_then(|()| gpu.check()) {
            gpu.return_blocks(&mut blocks);
            return Err(error);
        }
        let graph = graph.flatten().ok_or_else(|| crate::Error::Device("nothing was recorded".into()))?;
        Ok(Graph { gpu, graph, blocks })
    }

    /// Queues the recorded work once more.
    fn replay(&mut self) {
        self.gpu.note(self.graph.launch());
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.gpu.note(self.gpu.stream.synchronize());
        self.gpu.return_blocks(&mut self.blocks);
    }
}

/// Times that work runs before it is recorded: after two, the buffers that layers exchange have their final sizes.
const PLAIN: usize = 2;

/// Runs the same work repeatedly. On a GPU it is recorded once and then replayed with a single launch.
pub struct Replay {
    gpu: Option<&'static Gpu>,
    plain: usize,
    graph: Option<Graph>,
}

impl Replay {
    /// For work on `device`; `recordable` work queues the same kernels on the same memory each time and reads no results.
    pub fn new(device: Device, recordable: bool) -> Result<Replay> {
        let gpu = if recordable { device.gpu()? } else { None };
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
