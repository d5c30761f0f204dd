//! Arguments that several commands share, and what they read.

pub mod checkpoint_options;
pub mod examples;
pub mod function_files;
pub mod input;
pub mod network;
pub mod offered;
pub mod precomputed;
pub mod training;
pub mod validation_rows;
pub mod values;
