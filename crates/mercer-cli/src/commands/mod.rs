//! The subcommands: their arguments, and what they do with them.

pub mod datasets;
pub mod demo;
pub mod devices;
pub mod eigenmap;
pub mod embed;
mod embeddings;
pub mod evaluate;
pub mod fit;
pub mod gp;
pub mod gram;
pub mod inspect;
pub mod kernels;
pub mod laplace;
mod laplace_functions;
mod laplace_shown;
pub mod ntk;
pub mod predict;
pub mod predict_blocks;
pub mod regress;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod sample;
pub mod shell;
pub mod train;
pub mod trajectory;
pub mod transform;
