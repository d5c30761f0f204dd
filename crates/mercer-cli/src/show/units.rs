//! The units of lengthscales and periods: kernels see scaled columns, and users their own.

use crate::program::context::Context;
use mercer::data::{Scaling, Schema};
use mercer::kernel::{Expression, Kernel};
use mercer::spectrum::Origin;

/// The expression for the features of a schema: periods are in the units of its columns.
pub fn for_columns(kernel: &Expression, schema: Option<&Schema>) -> Expression {
    match schema.and_then(Schema::scaler) {
        Some(scaler) => kernel.in_units_of(&scaler.scale),
        None => kernel.clone(),
    }
}

/// As [`for_columns`] for each candidate; says in what unit lengthscales are, where one was written as a number.
pub fn for_columns_said(kernels: &[Expression], schema: Option<&Schema>, context: &Context) -> Vec<Expression> {
    if let Some(unit) = scaled_unit(schema).filter(|_| kernels.iter().any(Expression::has_number)) {
        context.note(format_args!("lengthscales are in {unit}; --scale none takes them in the columns' own units"));
    }
    kernels.iter().map(|kernel| for_columns(kernel, schema)).collect()
}

/// What a lengthscale of 1 is, where columns are scaled.
pub fn scaled_unit(schema: Option<&Schema>) -> Option<&'static str> {
    match schema?.scaling {
        Scaling::None => None,
        Scaling::Standard => Some("standard deviations of the columns"),
        Scaling::MinMax => Some("ranges of the columns"),
    }
}

/// The text of a fitted kernel as it would be written on the command line: with periods in the units of the columns.
pub fn as_written(kernel: &str, schema: Option<&Schema>) -> String {
    let own = schema.and_then(Schema::scaler).filter(|_| kernel.contains("periodic"));
    let own = own.and_then(|scaler| Kernel::parse(kernel).ok()?.in_own_units(&scaler.scale).ok());
    own.map_or_else(|| kernel.to_owned(), |kernel| kernel.to_string())
}

/// The origin of a fit with its kernel [`as_written`].
pub fn origin_as_written(origin: &Origin, schema: Option<&Schema>) -> Origin {
    Origin { kernel: as_written(&origin.kernel, schema), ..origin.clone() }
}
