//! Parameters of base kernels: names, defaults, what values they take.

use crate::{Error, Result};

/// A parameter of a base kernel.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name in expressions.
    pub name: &'static str,
    /// Its value when the expression does not give one.
    pub default: f64,
    /// What values it takes.
    pub kind: Kind,
    /// One line of help.
    pub help: &'static str,
}

/// What values a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A number above zero.
    Positive,
    /// A number above zero, or the word `median`: the median distance of the data's points.
    Lengthscale,
    /// A number not below zero.
    NonNegative,
    /// A whole number between two bounds, both included.
    Integer(u32, u32),
}

/// A parameter's value as written.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A word such as `median`.
    Word(String),
}

impl Parameter {
    /// The value, if this parameter of `kernel` may take it.
    pub(super) fn check(&self, kernel: &str, value: Value) -> Result<Value> {
        let accepted = match (&value, self.kind) {
            (Value::Word(word), Kind::Lengthscale) => word == "median",
            (Value::Word(_), _) => false,
            (Value::Number(v), Kind::Positive | Kind::Lengthscale) => v.is_finite() && *v > 0.0,
            (Value::Number(v), Kind::NonNegative) => v.is_finite() && *v >= 0.0,
            (Value::Number(v), Kind::Integer(lo, hi)) => {
                v.fract() == 0.0 && (f64::from(lo)..=f64::from(hi)).contains(v)
            }
        };
        if accepted {
            return Ok(value);
        }
        let written = match &value {
            Value::Number(v) => v.to_string(),
            Value::Word(word) => format!("'{word}'"),
        };
        Err(Error::input(format!("kernel {kernel}: {} must be {}, got {written}", self.name, self.kind.in_words())))
    }
}

impl Kind {
    /// What the parameter takes, for error messages and help.
    pub fn in_words(self) -> String {
        match self {
            Kind::Positive => "a number above 0".into(),
            Kind::Lengthscale => "a number above 0 or the word median".into(),
            Kind::NonNegative => "a number of at least 0".into(),
            Kind::Integer(lo, hi) => format!("a whole number from {lo} to {hi}"),
        }
    }
}

/// The lengthscale that most kernels have.
pub(super) const LENGTHSCALE: Parameter = Parameter {
    name: "lengthscale",
    default: 1.0,
    kind: Kind::Lengthscale,
    help: "distance over which the kernel falls; median takes the median distance of the data",
};
