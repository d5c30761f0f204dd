//! CUDA implementations of the primitives: one stream, one memory pool, kernels compiled at run time.
//!
//! Building needs no CUDA: the driver, cuBLAS, cuSOLVER and NVRTC are loaded when a `cuda` device is first opened. Work is
//! queued on one stream in program order, and primitives do not wait for it. The [`Gpu`] keeps the first error of queued
//! work; the next transfer to the host returns it.
//!
//! | file | content |
//! |---|---|
//! | `gpu` | an open device: stream, limits, versions |
//! | `memory` | the memory pool and [`Buffer`] |
//! | `pool_plan` | what the pool will allocate, before it does |
//! | `module` | compiles CUDA source with NVRTC, once per process |
//! | `code_cache` | compiled kernels on disk, for the next process |
//! | `launch` | kernels and their arguments |
//! | `blas` | matrix products by cuBLAS |
//! | `dnn` | convolutions by cuDNN, if it is installed |
//! | `dnn_graph` | the same in bf16, by cuDNN's graph interface |
//! | `solver` | eigendecompositions and Cholesky factors by cuSOLVER |
//! | `triangle` | solves with a large triangle for few columns |
//! | `staging` | copies from the host that overlap with what fills and what uses them |
//! | `panel` | the operations of [`crate::linalg::Panel`] |
//! | `nccl` | sums over the GPUs of several ranks |
//! | `graph` | [`Replay`]: a step that is recorded and replayed with one launch |
//! | `points` | primitives on functions at points, sparse products among them |
//! | `small`, `control` | [`crate::compute::small`] and [`crate::compute::Control`] |
//! | `primitives`, `hidden`, `adapt`, `images`, `halves`, `views`, `convolution` | the primitives of [`crate::compute`] |
//!
//! A kernel or a library call trusts the addresses and extents that it is given. [`Gpu::launch`] is therefore unsafe. The
//! functions of this module that take a kernel's name, addresses or a `blas::Matrix` are private to the crate and rely on
//! their callers, the primitives, which own the tensors and have compared their shapes; each unsafe block says so.
//!
//! Training passes are lean: a hidden dense layer keeps `z = xW` alone, from which [`crate::compute::Hidden`] finds φ(z) and φ'(z) again. Products are in
//! TF32 where the settings allow it; their activations use fast arithmetic (`prelude.cu`). `ledger.rs` records which device did which
//! work, and the program prints it. CI compiles every source for sm_75, 80 and 90 without a GPU, and emulates the kernels of
//! training steps on the host.

pub(super) mod adapt;
mod blas;
mod code_cache;
pub(super) mod control;
pub(super) mod convolution;
mod dnn;
mod dnn_graph;
mod gpu;
mod graph;
pub(super) mod halves;
pub(super) mod hidden;
pub(super) mod images;
mod launch;
mod memory;
mod module;
mod nccl;
#[doc(hidden)]
pub mod panel;
pub mod points;
mod pool_plan;
pub(super) mod primitives;
pub(super) mod small;
pub(crate) mod solver;
mod staging;
pub(crate) mod triangle;
pub(super) mod views;

pub use gpu::{Description, Gpu, describe_all, gpu, visible};
pub use graph::Replay;
pub use launch::Arg;
pub(super) use launch::{Argument, args};
pub use memory::{Buffer, Plain};
pub use module::Source;
pub use nccl::{Message, Nccl};
pub use pool_plan::PoolPlan;
pub use solver::Number;
pub use staging::Staging;
#[doc(hidden)]
pub use triangle::BLOCK_ROWS as TRIANGLE_BLOCK;

/// All kernel sources as `(name, text)`, so that a machine without a GPU can check that they compile.
pub fn sources() -> Vec<(String, String)> {
    let sources = [
        ("primitives", primitives::source()),
        ("halves", halves::source()),
        ("images", images::source()),
        ("channels-1", images::channels_source(1)),
        ("channels-4", images::channels_source(4)),
        ("panel", panel::source()),
        ("points", points::source()),
        ("small", small::source()),
        ("triangle", triangle::source()),
        ("views", views::source()),
    ];
    sources.map(|(name, text)| (name.into(), text)).into_iter().chain(hidden::sources()).collect()
}
