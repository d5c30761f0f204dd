//! Kernels as text: expressions that [`Kernel::parse`] reads back as the same kernel.

use super::{Base, Formula, Kernel, Statistic, parameter, with_formula};
use std::fmt;

/// `name(parameter=value, …)`
pub(super) fn of_formula<F: Formula>(formula: &F) -> String {
    let arguments = formula.arguments().join(", ");
    if arguments.is_empty() { F::NAME.into() } else { format!("{}({arguments})", F::NAME) }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self {
            Base::Custom(formula) => formula.0.text(),
            _ => with_formula!(self, formula => of_formula(formula)),
        })
    }
}

/// A number as it is read again, bit for bit; very large and very small ones with an exponent.
pub(super) fn written(value: f64) -> String {
    format!("{value:?}").trim_end_matches(".0").to_string()
}

/// Numbers, one for each column.
pub(super) fn list(each: &[f64]) -> String {
    format!("[{}]", each.iter().map(|v| written(*v)).collect::<Vec<_>>().join(", "))
}

/// `name=value`, or `lengthscale=[value, …]` where there is one for each column. The lengthscale of a formula that is usually written without is
/// left out where it is 1.
pub(super) fn argument<F: Formula>(formula: &F, name: &str, value: f64) -> Option<String> {
    let is_lengthscale = name == parameter::LENGTHSCALE.name;
    match formula.columns().filter(|_| is_lengthscale) {
        Some(each) => Some(format!("{name}={}", list(each))),
        None if is_lengthscale && value == 1.0 && matches!(F::STATISTIC, Statistic::Dot) => None,
        None => Some(format!("{name}={}", written(value))),
    }
}

/// Writes an expression that [`Kernel::parse`] reads back as the same kernel.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |f: &mut fmt::Formatter<'_>, ks: &[Kernel], by: &str, bracket: fn(&Kernel) -> bool| {
            for (i, k) in ks.iter().enumerate() {
                f.write_str(if i == 0 { "" } else { by })?;
                if bracket(k) { write!(f, "({k})")? } else { write!(f, "{k}")? }
            }
            Ok(())
        };
        match self {
            Kernel::Base(base) => base.fmt(f),
            Kernel::Scale(c, k) if matches!(**k, Kernel::Base(_)) => write!(f, "{}*{k}", written(*c)),
            Kernel::Scale(c, k) => write!(f, "{}*({k})", written(*c)),
            Kernel::Sum(ks) => joined(f, ks, " + ", |k| matches!(k, Kernel::Sum(_))),
            Kernel::Product(ks) => joined(f, ks, "*", |k| !matches!(k, Kernel::Base(_))),
        }
    }
}
