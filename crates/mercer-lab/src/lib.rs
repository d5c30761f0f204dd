//! Experiments, one per file. Each returns numbers and a verdict in words.

pub mod bound_states;
pub mod classic_kernels;
pub mod cnn_gp;
pub mod eigenvalue_decay;
pub mod graph_laplacian;
pub mod hydrogen;
pub mod inference_cost;
pub mod mlp_gp;
pub mod network_ntk;
pub mod oscillator;
pub mod population;

use mercer::spectrum::neural::{Kind, Neural};

/// A neural method that makes all its steps: without early stopping, all methods have the same budget.
fn neural(kind: Kind, architecture: Option<&str>, steps: u64, batch: usize) -> Neural {
    let mut method = Neural::new(kind);
    method.architecture = architecture.map(String::from);
    (method.settings.steps, method.settings.batch, method.settings.patience) = (steps, batch, usize::MAX);
    method
}
