//! Neural eigenfunctions: networks trained into the top eigenfunctions of an operator, under one loop.
//!
//! | file | what |
//! |---|---|
//! | [`FunctionOperator`], [`Batches`] | what training needs of an operator |
//! | [`OnData`] | operators on data: kernels, stored matrices, sampled functions with one output or more |
//! | [`Schroedinger`], [`GraphLaplacian`] | operators on functions that are no matrices on data |
//! | [`Functions`] | networks as functions `ψ(x)` |
//! | [`Objective`] | from ψ and Kψ to a gradient; one file each: [`NeuralEf`], [`Spin`], [`Nested`], [`Omm`], [`Ritz`] |
//! | [`Kind`] | which objective, and the functions that it wants |
//! | [`Stepper`] | training steps, the same on the CPU and on a GPU, where they are recorded |
//! | [`train`] | training: steps, validation, checkpoints, recovery |
//! | [`rayleigh_ritz`] | the finish: the best pairs within the span of the functions |
//! | [`NetworkFeatures`] | the result as features of a [`crate::spectrum::Spectrum`] |
//! | [`Neural`] | all of it as a [`crate::spectrum::Method`] |
//!
//! To add an objective: one file with its [`Recipe`] and [`Objective`], and its name in the list of `kind.rs`. To train on another operator on
//! functions: implement [`FunctionOperator`], then [`train`] and [`rayleigh_ritz`].

mod features;
mod finish;
mod function_operator;
mod functions;
mod graph_laplacian;
mod kind;
mod memory_advice;
mod method;
mod nested;
mod neuralef;
mod objective;
mod omm;
mod on_data;
mod ritz;
mod rows;
mod schroedinger;
mod settings;
mod spin;
mod standardizer;
mod step;
mod training;

pub use crate::training::Stop;
pub use features::NetworkFeatures;
pub use finish::{Pairs, rayleigh_ritz};
pub use function_operator::{Batches, FunctionOperator, Points, Sample, sample_rows};
pub use functions::{Envelope, Functions, Layout};
pub use graph_laplacian::GraphLaplacian;
pub use kind::{Kind, Recipe};
pub use method::Neural;
pub use nested::{Nested, Nesting};
pub use neuralef::NeuralEf;
pub use objective::{Objective, State, Step};
pub use omm::Omm;
pub use on_data::OnData;
pub use ritz::Ritz;
pub use schroedinger::{Exponentials, Gaussian, Guide, Schroedinger};
pub use settings::{Settings, Training};
pub use spin::Spin;
pub use standardizer::Standardizer;
pub use step::{Outcome, Stepper, Steps};
pub use training::{Trained, train};
