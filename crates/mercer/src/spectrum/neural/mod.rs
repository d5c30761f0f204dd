//! Neural eigenfunctions: networks trained into the top eigenfunctions of an operator, under one loop.
//!
//! | file | what |
//! |---|---|
//! | [`Action`] | what the loop needs of an operator |
//! | [`KernelAction`], [`OperatorAction`], [`MatrixValued`] | kernels, stored or sampled operators, kernels of matrices |
//! | [`Schroedinger`], [`GraphLaplacian`] | operators that are no kernels |
//! | [`Functions`] | networks as functions `ψ(x)` |
//! | [`Objective`] | from ψ and Kψ to a gradient; one file each: [`NeuralEf`], [`Spin`], [`Nested`], [`Ritz`] |
//! | [`Kind`] | which objective, and the functions that it wants |
//! | [`train`] | the loop: batches, validation, checkpoints, recovery |
//! | [`Resident`] | steps that stay on a CUDA device |
//! | [`rayleigh_ritz`] | the finish: the best pairs within the span of the functions |
//! | [`NetworkFeatures`] | the result as features of a [`crate::spectrum::Spectrum`] |
//! | [`Neural`] | all of it as a [`crate::spectrum::Method`] |
//!
//! To add an objective: one file that implements [`Objective`], and its line in [`Kind`]. To train on another operator:
//! implement [`Action`], then [`train`] and [`rayleigh_ritz`].

mod action;
mod checkpoint;
mod features;
mod finish;
mod functions;
mod graph_laplacian;
mod kind;
mod matrix_valued;
mod method;
mod nested;
mod neuralef;
mod objective;
mod record;
mod resident;
mod ritz;
mod room;
mod schroedinger;
mod settings;
mod spin;
mod step;
mod training;

pub use action::{Action, Batch, KernelAction, OperatorAction, Standard, action, sample_rows};
pub use features::NetworkFeatures;
pub use finish::{Pairs, rayleigh_ritz};
pub use functions::{Envelope, Functions, Layout};
pub use graph_laplacian::{GraphLaplacian, RandomWalk};
pub use kind::Kind;
pub use matrix_valued::MatrixValued;
pub use method::Neural;
pub use nested::{Nested, Nesting};
pub use neuralef::NeuralEf;
pub use objective::{Objective, Outcome, Step, form, mix};
pub use record::{Stop, Training};
pub use resident::{DeviceAction, OnDevice, Resident, Steps, Values};
pub use ritz::Ritz;
pub use schroedinger::{Exponentials, Gaussian, Guide, Schroedinger};
pub use settings::{Course, Settings};
pub use spin::Spin;
pub use step::Stepper;
pub use training::{Trained, Watch, train};
