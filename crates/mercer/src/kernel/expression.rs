//! Kernel expressions as a person writes them: `0.5*rbf(lengthscale=2) + poly(degree=3)*linear`.
//!
//! ```text
//! sum     := product ('+' product)*
//! product := factor ('*' factor)*
//! factor  := number | name [ '(' [argument (',' argument)*] ')' ] | '(' sum ')'
//! argument := [ name '=' ] (number | word | text in quotes)
//! ```

use super::median::median_distance;
use super::{Base, Entry, Kernel, Kind, Parameter, Value, catalogue};
use crate::error::nearest;
use crate::{Error, Result};
use ndarray::ArrayView2;
use std::fmt;

/// A kernel expression whose names and values have been checked, but whose `median` lengthscales still wait for data.
///
/// ```
/// use mercer::kernel::Expression;
/// let e = Expression::parse("rbf(median)")?;
/// let x = ndarray::array![[0.0], [3.0]];
/// assert_eq!(e.resolve(x.view(), 0)?.to_string(), "rbf(lengthscale=3)");
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    text: String,
    root: Node,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Call { name: &'static str, values: Vec<Option<Value>> },
    Scale(f64, Box<Node>),
    Sum(Vec<Node>),
    Product(Vec<Node>),
}

impl Expression {
    /// Reads an expression; an unknown kernel or parameter is answered with the nearest name.
    pub fn parse(text: &str) -> Result<Expression> {
        let mut parser = Parser { text, rest: text };
        let root = parser.sum()?;
        parser.skip_space();
        if !parser.rest.is_empty() {
            return Err(parser.error("expected '+', '*' or the end"));
        }
        Ok(Expression { text: text.trim().to_owned(), root })
    }

    /// The kernel, with every `median` replaced by the median distance of (a sample of) the points `x` `[n, d]`, and
    /// pictures of the shape that `x` has.
    pub fn resolve(&self, x: ArrayView2<f64>, seed: u64) -> Result<Kernel> {
        build(&self.root, Some(x.ncols()), &|entry| median_distance(x, entry.statistic, seed))
    }

    /// The kernel, when nothing in it waits for data.
    pub(super) fn constant(&self) -> Result<Kernel> {
        build(&self.root, None, &|entry| {
            Err(Error::input(format!("kernel {}: median needs data to look at; give a number here", entry.name)))
        })
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The kernel of a node, for points of dimension `inputs` where it is known.
fn build(node: &Node, inputs: Option<usize>, median: &dyn Fn(&Entry) -> Result<f64>) -> Result<Kernel> {
    let all = |nodes: &[Node]| nodes.iter().map(|n| build(n, inputs, median)).collect::<Result<Vec<_>>>();
    Ok(match node {
        Node::Scale(c, inner) => Kernel::Scale(*c, Box::new(build(inner, inputs, median)?)),
        Node::Sum(nodes) => Kernel::Sum(all(nodes)?),
        Node::Product(nodes) => Kernel::Product(all(nodes)?),
        Node::Call { name, values } => {
            let entry = catalogue().into_iter().find(|e| e.name == *name).expect("the parser checked the name");
            let seen = |(value, parameter): (&Option<Value>, &Parameter)| match (value, parameter.kind) {
                (Some(Value::Word(_)), Kind::Lengthscale) => median(&entry).map(|v| Some(Value::Number(v))),
                _ => Ok(value.clone()),
            };
            let values = values.iter().zip(entry.parameters).map(seen).collect::<Result<Vec<_>>>()?;
            Kernel::Base(Base::from_arguments(name, &values, inputs)?)
        }
    })
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn sum(&mut self) -> Result<Node> {
        let mut terms = vec![self.product()?];
        while self.take('+') {
            terms.push(self.product()?);
        }
        let flat = terms.into_iter().flat_map(|t| if let Node::Sum(inner) = t { inner } else { vec![t] });
        Ok(one_or(Node::Sum, flat.collect()))
    }

    fn product(&mut self) -> Result<Node> {
        let (mut scale, mut factors) = (1.0, vec![]);
        loop {
            match self.factor()? {
                Factor::Number(c) => scale *= c,
                Factor::Kernel(Node::Scale(c, inner)) => {
                    scale *= c;
                    factors.push(*inner);
                }
                Factor::Kernel(Node::Product(inner)) => factors.extend(inner),
                Factor::Kernel(node) => factors.push(node),
            }
            if !self.take('*') {
                break;
            }
        }
        if factors.is_empty() {
            return Err(self.error("a number alone is not a kernel: write for example 2*rbf(1)"));
        }
        if !(scale.is_finite() && scale > 0.0) {
            return Err(self.error(&format!("a kernel can only be scaled by a number above 0, got {scale}")));
        }
        let product = one_or(Node::Product, factors);
        Ok(if scale == 1.0 { product } else { Node::Scale(scale, Box::new(product)) })
    }

    fn factor(&mut self) -> Result<Factor> {
        self.skip_space();
        if self.take('(') {
            let inner = self.sum()?;
            return if self.take(')') { Ok(Factor::Kernel(inner)) } else { Err(self.error("expected ')'")) };
        }
        if self.rest.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-') {
            return self.number().map(Factor::Number);
        }
        let name = self.word().ok_or_else(|| self.error("expected a kernel, such as rbf(lengthscale=2)"))?;
        let entries = catalogue();
        let entry = entries.iter().find(|e| e.name == name).ok_or_else(|| {
            unknown("kernel", name, entries.iter().map(|e| e.name), "`mercer kernels` lists them all")
        })?;
        let values = if self.take('(') { self.arguments(entry)? } else { vec![None; entry.parameters.len()] };
        Ok(Factor::Kernel(Node::Call { name: entry.name, values }))
    }

    fn arguments(&mut self, entry: &Entry) -> Result<Vec<Option<Value>>> {
        let mut values: Vec<Option<Value>> = vec![None; entry.parameters.len()];
        let mut position = 0;
        while !self.take(')') {
            if position > 0 && !self.take(',') {
                return Err(self.error("expected ',' or ')'"));
            }
            let (index, value) = self.argument(entry, position)?;
            let parameter = &entry.parameters[index];
            if values[index].is_some() {
                return Err(self.error(&format!("{} is given twice", parameter.name)));
            }
            values[index] = Some(parameter.check(entry.name, value)?);
            position += 1;
        }
        Ok(values)
    }

    /// One argument: which parameter it is for, and its value as written.
    fn argument(&mut self, entry: &Entry, position: usize) -> Result<(usize, Value)> {
        self.skip_space();
        if let Some(text) = self.quoted()? {
            let index = entry.parameters.iter().position(|p| p.kind == Kind::Text);
            let index = index.ok_or_else(|| self.error(&format!("{} takes no text in quotes", entry.name)))?;
            return Ok((index, Value::Text(text.into())));
        }
        let Some(word) = self.word() else {
            return Ok((self.by_position(entry, position)?, Value::Number(self.number()?)));
        };
        if !self.take('=') {
            return Ok((self.by_position(entry, position)?, Value::Word(word.into())));
        }
        let index = entry.parameters.iter().position(|p| p.name == word).ok_or_else(|| {
            let known: Vec<&str> = entry.parameters.iter().map(|p| p.name).collect();
            let takes = if known.is_empty() { "takes none".into() } else { format!("takes {}", known.join(", ")) };
            unknown("parameter", word, known, &format!("{} {takes}", entry.name))
        })?;
        Ok((index, self.value(entry.parameters[index].kind)?))
    }

    fn value(&mut self, kind: Kind) -> Result<Value> {
        self.skip_space();
        if let Some(text) = self.quoted()? {
            return Ok(Value::Text(text.into()));
        }
        if kind == Kind::Shape {
            let end = self.rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(self.rest.len());
            let (shape, rest) = self.rest.split_at(end);
            self.rest = rest;
            return Ok(Value::Word(shape.into()));
        }
        match self.word() {
            Some(word) => Ok(Value::Word(word.into())),
            None => self.number().map(Value::Number),
        }
    }

    /// A text in single or double quotes, if one begins here.
    fn quoted(&mut self) -> Result<Option<&'a str>> {
        let Some(quote) = self.rest.chars().next().filter(|c| matches!(c, '"' | '\'')) else { return Ok(None) };
        let inside = &self.rest[1..];
        let end = inside.find(quote).ok_or_else(|| self.error("the text that begins here has no closing quote"))?;
        self.rest = &inside[end + 1..];
        Ok(Some(&inside[..end]))
    }

    fn by_position(&self, entry: &Entry, position: usize) -> Result<usize> {
        if position < entry.parameters.len() {
            return Ok(position);
        }
        Err(self.error(&format!("{} takes at most {} parameters", entry.name, entry.parameters.len())))
    }

    fn number(&mut self) -> Result<f64> {
        let end = self
            .rest
            .char_indices()
            .find(|&(i, c)| {
                let after_exponent = i > 0 && matches!(self.rest.as_bytes()[i - 1], b'e' | b'E');
                let sign = matches!(c, '-' | '+') && (i == 0 || after_exponent);
                !(c.is_ascii_digit() || c == '.' || sign || (i > 0 && matches!(c, 'e' | 'E')))
            })
            .map_or(self.rest.len(), |(i, _)| i);
        let number = self.rest[..end].parse().map_err(|_| self.error("expected a number"))?;
        self.rest = &self.rest[end..];
        Ok(number)
    }

    fn word(&mut self) -> Option<&'a str> {
        self.skip_space();
        let end = self.rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        if !word.starts_with(|c: char| c.is_alphabetic()) {
            return None;
        }
        self.rest = rest;
        Some(word)
    }

    fn take(&mut self, token: char) -> bool {
        self.skip_space();
        self.rest.strip_prefix(token).map(|rest| self.rest = rest).is_some()
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn error(&self, what: &str) -> Error {
        let at = self.text.chars().count() - self.rest.chars().count();
        let here = if self.rest.is_empty() { "the end".into() } else { format!("character {}", at + 1) };
        Error::input(format!("kernel expression '{}', at {here}: {what}", self.text))
    }
}

enum Factor {
    Number(f64),
    Kernel(Node),
}

fn one_or(many: fn(Vec<Node>) -> Node, mut nodes: Vec<Node>) -> Node {
    if nodes.len() == 1 { nodes.remove(0) } else { many(nodes) }
}

fn unknown<'a>(what: &str, word: &str, known: impl IntoIterator<Item = &'a str>, hint: &str) -> Error {
    let suggestion = nearest(word, known).map_or(String::new(), |near| format!("; did you mean '{near}'?"));
    Error::input(format!("unknown {what} '{word}'{suggestion} ({hint})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Kernel::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn precedence_scaling_and_flattening() {
        let shown = |text: &str| Kernel::parse(text).unwrap().to_string();
        assert_eq!(shown("0.5*rbf(1) + poly(degree=3)"), "0.5*rbf(lengthscale=1) + poly(degree=3, scale=1, offset=1)");
        assert_eq!(shown("2*(linear + cosine)*3"), "6*(linear + cosine)");
        assert_eq!(shown("linear*(cosine*linear)"), "linear*cosine*linear");
        assert_eq!(shown("linear + (cosine + linear)"), "linear + cosine + linear");
        assert_eq!(shown(" matern52 ( 2e-1 ) "), "matern52(lengthscale=0.2)");
        assert_eq!(shown("rbf"), "rbf(lengthscale=1)");
    }

    #[test]
    fn shown_kernels_read_back() {
        for text in ["1.5*rbf(0.3)*(linear + 2*cosine)", "poly(2, 0.5, 0) + 1e-3*periodic(2)", "arccos(0)*arccos(2)"] {
            let kernel = Kernel::parse(text).unwrap();
            assert_eq!(Kernel::parse(&kernel.to_string()).unwrap(), kernel);
        }
    }

    #[test]
    fn slips_are_named() {
        assert!(error("rfb(1)").contains("did you mean 'rbf'"));
        assert!(error("rbf(lenghtscale=1)").contains("did you mean 'lengthscale'"));
        assert!(error("rbf(0)").contains("lengthscale must be a number above 0"));
        assert!(error("rbf(-1)").contains("got -1"));
        assert!(error("poly(degree=2.5)").contains("whole number"));
        assert!(error("-1*rbf").contains("above 0"));
        assert!(error("2").contains("alone is not a kernel"));
        assert!(error("rbf(1").contains("expected ',' or ')'"));
        assert!(error("rbf(1) linear").contains("at character 8"));
        assert!(error("rbf(1, 2)").contains("at most 1"));
        assert!(error("rbf(1, lengthscale=2)").contains("twice"));
        assert!(error("").contains("expected a kernel"));
        assert!(error("rbf(median)").contains("needs data"));
        assert!(error("linear(a=1)").contains("takes none"));
        assert!(error("rbf(nan)").contains("'nan'"));
        assert!(error("rbf(1e999)").contains("above 0"));
    }
}
