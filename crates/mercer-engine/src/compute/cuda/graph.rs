//! A recorded sequence of work, replayed with one launch.

use super::gpu::Gpu;
use crate::Result;
use cudarc::driver::{CudaGraph, sys};

/// Work that was queued while it was recorded. It replays with the same memory: tensors that the recorded work reads or
/// writes must live as long as the graph; temporary memory of the recording belongs to the graph.
pub struct Graph {
    gpu: &'static Gpu,
    graph: CudaGraph,
    blocks: Vec<(usize, u64)>,
}

// SAFETY: a graph is used by one thread at a time, through `&mut self`.
unsafe impl Send for Graph {}

impl Graph {
    /// Records what `work` queues, without running it. `work` must have run once before, so that no kernel is compiled
    /// and no library started inside the recording, and it must not look at results.
    pub fn record(gpu: &'static Gpu, work: impl FnOnce() -> Result<()>) -> Result<Graph> {
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
    pub fn replay(&mut self) {
        self.gpu.note(self.graph.launch());
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.gpu.note(self.gpu.stream.synchronize());
        self.gpu.return_blocks(&mut self.blocks);
    }
}
