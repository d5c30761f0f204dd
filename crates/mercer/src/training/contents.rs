//! Numbers, matrices and optimizers in a checkpoint.

use crate::bundle::Bundle;
use crate::net::Optimizer;
use crate::{Result, fail_if};
use ndarray::Array2;

/// Puts numbers into a checkpoint; double precision keeps them exactly.
pub(crate) fn put_numbers(bundle: &mut Bundle, name: &str, numbers: &[f32]) {
    bundle.put(name, Array2::from_shape_fn((1, numbers.len()), |(_, i)| f64::from(numbers[i])));
}

/// Takes them out again.
pub(crate) fn numbers(bundle: &Bundle, name: &str) -> Result<Vec<f32>> {
    let numbers: Vec<f32> = bundle.matrix(name)?.iter().map(|v| *v as f32).collect();
    fail_if!(numbers.iter().any(|v| !v.is_finite()), "the checkpoint's '{name}' has a number that is not finite");
    Ok(numbers)
}

/// Puts a matrix that may not have begun into a checkpoint.
pub(crate) fn put_optional_matrix(bundle: &mut Bundle, name: &str, value: Option<Array2<f64>>) {
    bundle.set(name, value.is_some());
    if let Some(value) = value {
        bundle.put(name, value);
    }
}

/// Takes it out again.
pub(crate) fn optional_matrix(bundle: &Bundle, name: &str) -> Result<Option<Array2<f64>>> {
    if bundle.value(name)? { bundle.matrix(name).map(Some) } else { Ok(None) }
}

/// Puts an optimizer into a checkpoint.
pub(crate) fn put_optimizer(bundle: &mut Bundle, optimizer: &Optimizer) -> Result<()> {
    bundle.set("optimizer", optimizer.state());
    for (name, moment) in MOMENTS.into_iter().zip(optimizer.moments()) {
        put_numbers(bundle, name, &moment.to_host()?);
    }
    Ok(())
}

/// Takes it out again.
pub(crate) fn load_optimizer(bundle: &Bundle, optimizer: &mut Optimizer) -> Result<()> {
    let [first, second] = MOMENTS.map(|name| numbers(bundle, name));
    optimizer.restore(bundle.value("optimizer")?, [first?, second?])
}

const MOMENTS: [&str; 2] = ["moment.first", "moment.second"];
