//! Spectral kernel learning: give it data and a kernel, and it returns the kernel's Mercer decomposition
//! `κ(x,x') = Σ_j μ_j ψ_j(x) ψ_j(x')` as functions that work on new points, measures how accurate each pair `(μ_j, ψ_j)` is,
//! and uses them for learning.
//!
//! Data flows one way, through five modules:
//!
//! | module | main type | content |
//! |---|---|---|
//! | [`data`] | [`data::Dataset`] | files, embedded, generated and named sets, splits, scaling |
//! | [`kernel`] | [`kernel::Kernel`] | formulas for similarity, and expressions of them |
//! | [`operator`] | [`operator::Operator`] | `v ↦ Kv`: matrix-free, dense, low rank; f32 and f64; a memory budget |
//! | [`spectrum`] | [`spectrum::Spectrum`] | eigenvalues and eigenfunctions by many methods, each with a certificate |
//! | [`apply`] | one estimator a file | kernel PCA, eigenmaps, ridge regression, smoothing |
//! | [`measures`] | [`measures::Errors`] | what predictions are worth |
//! | [`learn`] | [`options::Entry`] | the registry: methods by name, with their options |
//!
//! Beside them: [`net`] (layers and networks that differentiate themselves), [`classifier`] (networks trained on labelled rows),
//! [`laplace`] (the uncertainty of such networks), [`trajectory`] (that of the steps by which they were trained),
//! [`retrieval`] (search among codes and what they are worth), [`model`] (files), [`rng`]. The dense algebra and the tensors below them are the crate `mercer-engine`.
//!
//! ```
//! use mercer::{FitContext, data, kernel::Expression, spectrum::{Krylov, Problem, Spectrum}};
//!
//! let (fit, held_out) = data::open("digits", &Default::default())?.split(0.1, 0)?;
//! let (x, new) = (fit.x.to_f64(), held_out.x.to_f64());
//! let kernel = Expression::parse("rbf(lengthscale=median)")?.resolve(x.view(), 0)?;
//! let operator = FitContext::default().kernel_operator(&kernel, x.view())?;
//! let problem = Problem::new(&operator, 5);
//! let spectrum = Spectrum::fit(&Krylov::default(), &problem, Some(new.view().into()))?;
//! assert!(spectrum.certificate.worst_residual() < 1e-5);
//! let z = spectrum.transform(new.view())?; // ψ at new points
//! assert_eq!(z.dim(), (held_out.n(), 5));
//! # Ok::<(), mercer::Error>(())
//! ```

pub mod apply;
mod budget;
mod bundle;
pub mod classifier;
mod context;
pub mod data;
mod finite;
mod free_memory;
pub mod kernel;
pub mod laplace;
pub mod learn;
pub mod measures;
pub mod model;
pub mod operator;
pub mod options;
mod precision;
mod registry;
pub mod retrieval;
pub mod spectrum;
mod training;
pub mod trajectory;

pub use context::{FitContext, Interrupt, KeepsBest, Progress, Silent, Stage};
pub use mercer_engine::{Advice, Error, Result, compute::Device, group::Group, net, rng, simd::Num};
/// The engine, for the other crates of this workspace; its interface may change at any time.
#[doc(hidden)]
pub use mercer_engine::{advice, compute, error, fail_if, group, linalg, simd, special, syntax};
pub use registry::Registry;
#[doc(hidden)]
pub use training::Fingerprint;
