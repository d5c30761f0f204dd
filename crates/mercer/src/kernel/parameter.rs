//! Parameters of base kernels: names, defaults, what values they take.

use super::infinite::parse_shape;
use crate::compute::Activation;
use crate::syntax::Argument;
use crate::{Error, Result, fail_if};
use std::sync::Arc;

/// A parameter of a base kernel. `examples/own_kernel.rs` uses it.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name in expressions.
    pub name: &'static str,
    /// Its value when the expression does not give one: a number, or the place of a choice or activation. Texts and shapes have none.
    pub default: f64,
    /// What values it takes.
    pub kind: Kind,
    /// One line of help.
    pub help: &'static str,
}

/// What values a parameter takes. `examples/own_kernel.rs` uses it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A number above zero.
    Positive,
    /// A number above zero, or one for each column, `[1, 7]`, in the unit of the column however the columns are scaled
    /// ([`Expression::in_units_of`](super::Expression::in_units_of)).
    Period,
    /// A number above zero, or one for each column, `[1, 0.5]`; or the word `median`: the data's own scale ([`Median`](super::Median)),
    /// `auto`: what predicts a target best, or `ard`: for each column, what predicts a target best.
    Lengthscale,
    /// A number not below zero.
    NonNegative,
    /// A whole number between two bounds, both included.
    Integer(u32, u32),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// An activation of a network, such as `relu` or `leaky_relu(0.2)`.
    Activation,
    /// A text in quotes.
    Text,
    /// The shape of an image, `28x28x1`: height, width, channels.
    Shape,
}

/// A parameter's value as written. `examples/own_kernel.rs` uses it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// Numbers, one for each column: `[1, 0.5]`.
    Numbers(Vec<f64>),
    /// A word such as `median`, or a shape.
    Word(String),
    /// A text in quotes.
    Text(String),
}

impl Value {
    /// The value of an argument.
    pub(super) fn of(argument: &Argument) -> Value {
        let text = argument.value;
        let number = |text: &str| {
            let is_number = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+'));
            text.parse().ok().filter(|_| is_number)
        };
        let list = || text.strip_prefix('[')?.strip_suffix(']')?.split(',').map(|each| number(each.trim())).collect();
        match (number(text), list()) {
            _ if argument.quoted => Value::Text(text.into()),
            (Some(number), _) => Value::Number(number),
            (_, Some(numbers)) => Value::Numbers(numbers),
            _ => Value::Word(text.into()),
        }
    }
}

impl Parameter {
    /// A parameter called `name`, in the order of its fields.
    pub const fn new(name: &'static str, default: f64, kind: Kind, help: &'static str) -> Parameter {
        Parameter { name, default, kind, help }
    }

    /// The value, if this parameter of `kernel` may take it.
    pub(super) fn check(&self, kernel: &str, value: Value) -> Result<Value> {
        let accepted = match (&value, self.kind) {
            (Value::Word(word), Kind::Lengthscale) => ["median", "auto", "ard"].contains(&word.as_str()),
            (Value::Numbers(each), Kind::Lengthscale | Kind::Period) => each.iter().all(|v| v.is_finite() && *v > 0.0),
            (Value::Word(word), Kind::Choice(words)) => words.contains(&word.as_str()),
            (Value::Word(word) | Value::Text(word), Kind::Activation) => Activation::parse(word).is_ok(),
            (Value::Word(word), Kind::Shape) => parse_shape(word).is_some(),
            (Value::Text(_), Kind::Text) => true,
            (Value::Number(v), Kind::Positive | Kind::Lengthscale | Kind::Period) => v.is_finite() && *v > 0.0,
            (Value::Number(v), Kind::NonNegative) => v.is_finite() && *v >= 0.0,
            (Value::Number(v), Kind::Integer(lo, hi)) => {
                v.fract() == 0.0 && (f64::from(lo)..=f64::from(hi)).contains(v)
            }
            _ => false,
        };
        let refused = match (&value, self.kind) {
            _ if accepted => return Ok(value),
            (Value::Word(word), Kind::Choice(words)) => {
                Error::unknown(self.name, word, words.iter().copied()).to_string()
            }
            (Value::Word(word) | Value::Text(word), Kind::Activation) => {
                Activation::parse(word).map_or_else(|e| e.to_string(), |phi| phi.to_string())
            }
            (Value::Numbers(each), kind) => format!("{} must be {}, got {each:?}", self.name, kind.in_words()),
            (Value::Number(v), kind) => format!("{} must be {}, got {v}", self.name, kind.in_words()),
            (Value::Word(word) | Value::Text(word), kind) => {
                format!("{} must be {}, got '{word}'", self.name, kind.in_words())
            }
        };
        Err(Error::input(format!("kernel {kernel}: {refused}")))
    }

    /// The number that is given, or the default. `examples/own_kernel.rs` uses it.
    pub fn number(&self, given: &Option<Value>) -> f64 {
        if let Some(Value::Number(number)) = given { *number } else { self.default }
    }

    /// The default as it would be written in an expression, where there is one.
    pub fn default_value(&self) -> Option<Value> {
        match self.kind {
            Kind::Choice(words) => Some(Value::Word(words[self.default as usize].into())),
            Kind::Activation => Some(Value::Word(Activation::NAMES[self.default as usize].into())),
            Kind::Text | Kind::Shape => None,
            _ => Some(Value::Number(self.default)),
        }
    }
}

impl Kind {
    /// What the parameter takes, for error messages and help.
    pub fn in_words(self) -> String {
        match self {
            Kind::Positive => "a number above 0".into(),
            Kind::Lengthscale => "a number above 0, one for each column such as [1, 0.5], median, auto or ard".into(),
            Kind::Period => "a number above 0, or one for each column such as [1, 7]".into(),
            Kind::NonNegative => "a number of at least 0".into(),
            Kind::Integer(lo, hi) => format!("a whole number from {lo} to {hi}"),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Activation => {
                let with_kernel = |name: &&str| Activation::parse(name).map_or(true, |phi| phi != Activation::Silu);
                let names: Vec<&str> = Activation::NAMES.into_iter().filter(with_kernel).collect();
                format!("one of {}", names.join(", "))
            }
            Kind::Text => "a text in quotes".into(),
            Kind::Shape => "height, width and channels such as 28x28x1".into(),
        }
    }
}

/// The lengthscale that most kernels have.
pub(super) const LENGTHSCALE: Parameter = Parameter::new(
    "lengthscale",
    1.0,
    Kind::Lengthscale,
    "distance over which the kernel falls; [1, 2]: that of each column; median, auto, ard: from the data",
);

/// The lengthscale of kernels that are usually written without: every column is divided by it.
pub(super) const SCALE_OF_INPUTS: Parameter = Parameter::new(
    "lengthscale",
    1.0,
    Kind::Lengthscale,
    "the inputs are divided by it; [1, 2]: each column by its own; median, auto, ard: from the data",
);

/// The numbers of a parameter of `kernel`, where its argument has one for each column of points of dimension `inputs`.
pub(super) fn one_for_each(
    kernel: &str,
    parameter: &Parameter,
    argument: &Option<Value>,
    inputs: Option<usize>,
) -> Result<Option<Arc<[f64]>>> {
    let Some(Value::Numbers(each)) = argument else { return Ok(None) };
    let (count, d) = (each.len(), inputs.unwrap_or(each.len()));
    fail_if!(count != d, "kernel {kernel}: there are {count} {}s, and the points have {d} columns", parameter.name);
    Ok(Some(each.as_slice().into()))
}

/// As [`one_for_each`], of the lengthscale among the arguments of these parameters.
pub(super) fn lengthscale_of_each(
    kernel: &str,
    parameters: &[Parameter],
    arguments: &[Option<Value>],
    inputs: Option<usize>,
) -> Result<Option<Arc<[f64]>>> {
    let lengthscale = parameters.iter().zip(arguments).find(|(parameter, _)| parameter.kind == Kind::Lengthscale);
    lengthscale.map_or(Ok(None), |(parameter, argument)| one_for_each(kernel, parameter, argument, inputs))
}
