//! Codes whose coordinates come in the order of importance.

pub(crate) mod embedding_code;
pub(crate) mod fitted_code;
pub(crate) mod matryoshka;
pub(crate) mod pair_certificate;
pub(crate) mod view_eigenmap;
