//! Neural eigenfunctions: networks trained into the top eigenfunctions of an operator, under one loop.
//!
//! | file | what |
//! |---|---|
//! | [`FunctionOperator`], [`Batches`] | what training needs of an operator |
//! | [`OnData`] | operators on data: kernels, stored matrices, sampled functions with one output or more |
//! | [`Schroedinger`], [`GraphLaplacian`] | operators on functions that are no matrices on data |
//! | [`ViewPairs`] | the kernel of pairs of views, of which only pairs can be drawn |
//! | [`Functions`] | networks as functions `ψ(x)` |
//! | [`Objective`] | from ψ and Kψ to a gradient; one file each: [`NeuralEf`], [`Spin`], [`Nested`], [`Omm`], [`Ritz`]; on pairs of views [`Eigenmap`], [`SpectralContrastive`], [`BarlowTwins`], [`VicReg`], [`SimClr`] |
//! | [`Kind`], [`PairObjective`] | which objective, and the functions that it wants |
//! | [`Stepper`] | training steps, the same on the CPU and on a GPU, where they are recorded |
//! | `sharded_batch.rs` | the points of a batch, sharded to the ranks of a distributed run |
//! | [`train`] | training: steps, validation, checkpoints, recovery |
//! | `untrained.rs` | whether training helped on held-out points, and which pairs it missed |
//! | [`rayleigh_ritz`] | the finish: the best pairs within the span of the functions |
//! | `features.rs` | the result as features of a [`crate::spectrum::Spectrum`] |
//! | [`Neural`] | all of it as a [`crate::spectrum::Method`] |
//!
//! To add an objective: one file with its [`Recipe`] and [`Objective`], and its name in the list of `kind.rs`. To train on another operator on
//! functions: implement [`FunctionOperator`], then [`train`] and [`rayleigh_ritz`]:
//!
//! Every self-adjoint K has `∇⟨ψ,Kψ⟩ = 2⟨∂ψ,Kψ⟩`, so an objective sees ψ and Kψ alone. By default it takes all its terms from one batch, so that
//! the overlaps of the batch cancel. All methods end in Rayleigh–Ritz in f64 over a large sample, unless the objective's own functions are
//! asked for. Validation measures what will be returned and keeps the best state, the untrained one included.
//!
//! A training step is one function on both devices. Nothing is read back within a step: a `Control` records the loss, the eigenvalues and the first
//! value that was not finite, after which no parameter changes. Row numbers and learning rates are drawn ahead by one generator, so that
//! batches are the same on every device. On a GPU the step is recorded into a CUDA graph and replayed (`compute::Replay`). Operators that do not
//! fit into device memory, and kernels of images, make the same steps unrecorded.
//!
//! [`ViewPairs`] knows its kernel through sampled positive pairs only. A batch holds the two views of each pair one after the other, and `Kψ` at a
//! view is ψ at its partner.
//!
//! ```
//! use mercer::spectrum::neural::{FunctionOperator, Gaussian, Kind, Ritz, Schroedinger, Settings, rayleigh_ritz, train};
//! use mercer::{Device, FitContext, rng::Rng};
//! // H = −Δ + x² on the line has the energies 1, 3, 5, …; training sees K = (8 − H)/8.
//! let (potential, guide) = (|x: &[f64]| x[0] * x[0], Gaussian { dimension: 1, width: 1.0 });
//! let operator = Schroedinger::new("oscillator", Box::new(potential), Box::new(guide), 8.0, 8.0)?;
//! let kind = Kind::from(Ritz);
//! let functions = kind.functions("dense(32, b=1) sincos dense(1)", 1, 2, Device::Cpu, &Rng::new(1))?;
//! let settings = Settings { steps: 50, ..Settings::default() };
//! let objective = kind.objective(&functions, 2)?;
//! let mut trained = train(&operator, functions, objective, 2, &settings, &FitContext::default())?;
//! let sample = operator.sample(Device::Cpu, &mut Rng::new(2), 2048)?;
//! let pairs = rayleigh_ritz(&operator, &mut trained.functions, &sample, 2)?;
//! assert!((8.0 * (1.0 - pairs.eigenvalues[0]) - 1.0).abs() < 0.05);
//! # Ok::<(), mercer::Error>(())
//! ```

mod augmentation;
mod barlow_twins;
mod eigenmap;
mod entries;
mod features;
mod finish;
mod function_operator;
mod functions;
mod graph_laplacian;
mod kind;
mod memory_advice;
mod method;
mod missed;
mod nested;
mod neuralef;
mod objective;
mod omm;
mod on_data;
mod probe;
mod ritz;
mod rows;
mod schroedinger;
mod settings;
mod sharded_batch;
mod simclr;
mod spectral_contrastive;
mod spin;
mod standardizer;
mod step;
mod training;
mod untrained;
mod vicreg;
mod view_pairs;

pub use crate::training::Stop;
pub use augmentation::Augmentation;
pub use barlow_twins::BarlowTwins;
pub use eigenmap::Eigenmap;
pub(crate) use entries::entries;
pub(crate) use features::NetworkFeatures;
pub(crate) use finish::{Ordered, ordered, within_noisy_span};
pub use finish::{Pairs, rayleigh_ritz};
pub use function_operator::{FunctionOperator, Sample};
pub use functions::Functions;
pub use graph_laplacian::GraphLaplacian;
pub use kind::{Kind, PairObjective};
pub use method::Neural;
use missed::Missed;
pub use nested::{Nested, Nesting};
pub use neuralef::NeuralEf;
pub use omm::Omm;
pub use on_data::OnData;
pub(crate) use probe::directions;
pub use probe::neighbour_accuracy;
pub use ritz::Ritz;
pub use schroedinger::{Exponentials, Gaussian, Guide, Schroedinger};
pub use settings::{Settings, Training};
pub use simclr::SimClr;
pub use spectral_contrastive::SpectralContrastive;
pub use spin::Spin;
pub(crate) use training::pairs_of;
pub use training::{Trained, train};
pub use untrained::TrainedPairs;
use untrained::certify_trained;
pub use vicreg::VicReg;
pub use view_pairs::ViewPairs;
pub(crate) use view_pairs::partners;
#[doc(hidden)] // Parts of the training loop.
pub use {
    function_operator::{Batches, Points, sample_rows},
    functions::{Envelope, Layout},
    kind::Recipe,
    objective::{Objective, Own, State, Step},
    standardizer::Standardizer,
    step::{Outcome, Stepper, Steps},
};
