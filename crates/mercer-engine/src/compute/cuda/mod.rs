//! CUDA beneath the primitives: one stream, one pool of memory, kernels compiled at run time.
//!
//! Nothing of CUDA is needed to build: the driver, cuBLAS, cuSOLVER and NVRTC are loaded when a `cuda` device is first
//! asked for. Work is queued on one stream in program order and never waited for inside a primitive; an error of queued
//! work is kept by the [`Gpu`] and returned by the next transfer to the host.
//!
//! | file | what |
//! |---|---|
//! | `gpu` | a device that is open: its stream, its limits, its versions |
//! | `memory` | the pool; [`Buffer`] |
//! | `module` | source → machine code by NVRTC, once per process |
//! | `launch` | kernels and their arguments |
//! | `blas` | matrix products by cuBLAS |
//! | `dnn` | convolutions by cuDNN, where it is installed |
//! | `solver` | eigendecompositions and Cholesky factors by cuSOLVER |
//! | `panel` | the arms of tall f64 matrices, [`crate::linalg::Panel`] |
//! | `graph` | a recorded step, replayed with one launch |
//! | `points` | the arms of primitives on functions at points, sparse products among them |
//! | `small`, `control` | the arms of [`crate::compute::small`] and [`crate::compute::Control`] |
//! | `primitives`, `images`, `convolution` | the arms of the primitives of [`crate::compute`] |

mod blas;
pub(super) mod control;
pub(super) mod convolution;
mod dnn;
mod gpu;
mod graph;
pub(super) mod images;
mod launch;
mod memory;
mod module;
pub mod panel;
pub mod points;
pub(super) mod primitives;
pub(super) mod small;
pub mod solver;

pub use gpu::{Description, Gpu, describe_all, gpu};
pub use graph::Graph;
pub use launch::Arg;
pub use memory::Buffer;
pub use module::Source;
pub use primitives::gather_rows_at;
pub use solver::Number;

/// Every kernel source there is, `(name, text)`, so that a machine without a GPU can check that they compile.
pub fn sources() -> Vec<(String, String)> {
    let own = [
        ("primitives", primitives::source()),
        ("images", images::source()),
        ("panel", panel::source()),
        ("points", points::source()),
        ("small", small::source()),
    ];
    own.map(|(name, text)| (name.into(), text)).into()
}
