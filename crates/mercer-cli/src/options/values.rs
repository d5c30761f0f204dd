//! Readers of the values of options.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use mercer::compute::Math;
use mercer::operator::Precision;

/// Reads a precision.
pub fn precision() -> impl TypedValueParser<Value = Precision> {
    choice(&Precision::NAMED)
}

/// Precision of kernel values, and how a GPU rounds the factors of the networks' products in training.
#[derive(Clone, Copy)]
pub struct Precisions {
    pub kernel: Precision,
    pub networks: Math,
}

/// Reads a precision for kernels and networks.
pub fn precisions() -> impl TypedValueParser<Value = Precisions> {
    choice(&[
        ("bf16", Precisions { kernel: Precision::F64, networks: Math::Bf16 }),
        ("tf32", Precisions { kernel: Precision::Tf32, networks: Math::Tf32 }),
        ("f32", Precisions { kernel: Precision::F32, networks: Math::F32 }),
        ("f64", Precisions { kernel: Precision::F64, networks: Math::F32 }),
    ])
}

/// Reads one of a few words, each with its value.
pub fn choice<T: Copy + Send + Sync + 'static>(
    choices: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(choices.iter().map(|(word, _)| *word))
        .map(|word| choices.iter().find(|(known, _)| *known == word).expect("one of the possible values").1)
}

/// Reads a finite number above zero.
pub fn positive(word: &str) -> Result<f64, String> {
    number(word, |v| v > 0.0, "it must be a number above 0")
}

/// Reads a finite number from zero.
pub fn non_negative(word: &str) -> Result<f64, String> {
    number(word, |v| v >= 0.0, "it must be a number from 0")
}

/// Reads a finite number that keeps a rule.
pub fn number(word: &str, allowed: fn(f64) -> bool, rule: &str) -> Result<f64, String> {
    word.parse().ok().filter(|v: &f64| v.is_finite() && allowed(*v)).ok_or_else(|| rule.into())
}
