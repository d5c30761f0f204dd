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
