//! Contiguous `f32` [`Tensor`]s on a [`Device`], and the primitives that networks and their training need.
//!
//! Data enters by [`Tensor::from_host`] and leaves by [`Tensor::to_host`]; between them it stays on the device.
//! Allocation and transfers can fail and return a [`crate::Result`]. Primitives do not return errors: they panic, and
//! print both shapes, when the shapes of their arguments disagree.
//!
//! On the CPU every primitive splits its work by *shape alone* and sums in a fixed order, so that results are bit for
//! bit the same for any number of threads.
//!
//! ```
//! use mercer_engine::compute::{Device, Store, Tensor, gemm};
//!
//! // Two 2×2 products with one shared left operand.
//! let a = Tensor::from_host(Device::Cpu, &[2, 2], &[0.0, 1.0, 1.0, 0.0])?;
//! let b = Tensor::from_host(Device::Cpu, &[2, 2, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])?;
//! let mut c = Tensor::zeros(Device::Cpu, &[2, 2, 2])?;
//! gemm(1.0, a.stack(), b.stack(), Store::Replace, c.stack_mut());
//! assert_eq!(c.to_host()?, [3.0, 4.0, 1.0, 2.0, 7.0, 8.0, 5.0, 6.0]);
//! # Ok::<(), mercer_engine::Error>(())
//! ```

mod activation;
mod adapt;
mod augment;
mod batch_norm;
mod control;
mod conv;
pub mod cuda;
mod elementwise;
mod formula;
mod gemm;
pub mod halves;
mod hidden;
mod jet;
pub mod ledger;
mod norm;
mod parallel;
mod part;
mod pool;
mod radial;
mod reduce;
pub mod small;
mod softmax;
mod sparse;
mod stack;
mod tensor;
mod update;
mod view;

pub use activation::{activation, activation_vjp, bias_slope};
pub use adapt::{Adapted, adapt};
pub use augment::{Move, View, ViewLayout, shift_mirror, views};
pub use batch_norm::{
    EPSILON, Normalized, batch_norm, batch_norm_jvp, batch_norm_vjp, batch_statistics, running_average,
};
pub use control::{Control, NonFinite, Report};
pub use conv::{Convolution, channel_sums, conv2d, conv2d_vjp_input, conv2d_vjp_weights, patches};
pub use cuda::Replay;
pub use elementwise::{
    add_product_each, axpy, collect, copy, fill, fill_normal, fill_rademacher, gather, gather_block, gather_rows,
    multiply, multiply_each, place_points, scale, scale_points, spread, swap_pairs, take_points, transpose,
};
pub use formula::{Activation, PARAMETERS, SIGMOID_LIKE};
pub use gemm::{Store, dense, gemm};
pub use hidden::{HeadGradient, Hidden};
pub use jet::{elliptic, jet, points_jet};
pub use norm::{centre, l2_norm, l2_norm_tangent, scale_columns};
pub use part::Part;
pub use pool::{Pool, average_pool, average_pool_vjp, max_pool, max_pool_jvp, max_pool_vjp};
pub(crate) use radial::Radius;
pub use radial::{radial, radial_jet};
pub use reduce::{all_finite, sum_squares};
pub use small::Small;
pub use softmax::softmax_cross_entropy;
pub use sparse::SparseRows;
pub use stack::{Stack, StackMut};
pub(crate) use tensor::Storage;
pub use tensor::{Device, DeviceArray, Indices, Math, Tensor};
pub use update::{Clip, Rule, update};
