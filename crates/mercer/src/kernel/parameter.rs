//! Parameters of base kernels: names, defaults, what values they take.

use super::infinite::parse_shape;
use crate::syntax::Argument;
use crate::{Error, Result};

/// A parameter of a base kernel.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name in expressions.
    pub name: &'static str,
    /// Its value when the expression does not give one: a number, or the place of a choice. Texts and shapes have none.
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
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A text in quotes.
    Text,
    /// The shape of an image, `28x28x1`: height, width, channels.
    Shape,
}

/// A parameter's value as written.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A word such as `median`, or a shape.
    Word(String),
    /// A text in quotes.
    Text(String),
}

impl Value {
    /// The value of an argument.
    pub(super) fn of(argument: &Argument) -> Value {
        let text = argument.value;
        let is_number = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+'));
        match text.parse() {
            _ if argument.quoted => Value::Text(text.into()),
            Ok(number) if is_number => Value::Number(number),
            _ => Value::Word(text.into()),
        }
    }
}

impl Parameter {
    /// The value, if this parameter of `kernel` may take it.
    pub(super) fn check(&self, kernel: &str, value: Value) -> Result<Value> {
        let accepted = match (&value, self.kind) {
            (Value::Word(word), Kind::Lengthscale) => word == "median",
            (Value::Word(word), Kind::Choice(words)) => words.contains(&word.as_str()),
            (Value::Word(word), Kind::Shape) => parse_shape(word).is_some(),
            (Value::Text(_), Kind::Text) => true,
            (Value::Word(_) | Value::Text(_), _) => false,
            (Value::Number(v), Kind::Positive | Kind::Lengthscale) => v.is_finite() && *v > 0.0,
            (Value::Number(v), Kind::NonNegative) => v.is_finite() && *v >= 0.0,
            (Value::Number(v), Kind::Integer(lo, hi)) => {
                v.fract() == 0.0 && (f64::from(lo)..=f64::from(hi)).contains(v)
            }
            (Value::Number(_), Kind::Choice(_) | Kind::Text | Kind::Shape) => false,
        };
        if accepted {
            return Ok(value);
        }
        let written = match &value {
            Value::Number(v) => v.to_string(),
            Value::Word(word) | Value::Text(word) => format!("'{word}'"),
        };
        if let (Value::Word(word), Kind::Choice(words)) = (&value, self.kind) {
            let unknown = Error::unknown(self.name, word, words.iter().copied());
            return Err(Error::input(format!("kernel {kernel}: {unknown}")));
        }
        Err(Error::input(format!("kernel {kernel}: {} must be {}, got {written}", self.name, self.kind.in_words())))
    }
}

impl Parameter {
    /// The default as it would be written in an expression, where there is one.
    pub fn default_value(&self) -> Option<Value> {
        match self.kind {
            Kind::Choice(words) => Some(Value::Word(words[self.default as usize].into())),
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
            Kind::Lengthscale => "a number above 0 or the word median".into(),
            Kind::NonNegative => "a number of at least 0".into(),
            Kind::Integer(lo, hi) => format!("a whole number from {lo} to {hi}"),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Text => "a text in quotes".into(),
            Kind::Shape => "height, width and channels such as 28x28x1".into(),
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
