//! The laboratory: one experiment a file, each returning plain numbers and a verdict in words.

pub mod eigenvalue_decay;
