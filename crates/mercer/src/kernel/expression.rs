//! Kernel expressions as a person writes them: `0.5*rbf(lengthscale=2) + poly(degree=3)*linear`.
//!
//! ```text
//! sum     := product ('+' product)*
//! product := factor ('*' factor)*
//! factor  := number | call | '(' sum ')'
//! ```
//!
//! where a call is one of [`crate::syntax`]: `name(value, key=value)`.

use super::median::{median_lengthscale, median_rows};
use super::{Base, Entry, Kernel, Kind, Median, Parameter, Value};
use crate::Registry;
use crate::data::Rows;
use crate::syntax::{Call, Scanner};
use crate::{Error, Result, fail_if};
use std::fmt;
use std::sync::Arc;

/// A kernel expression whose names and values have been checked, but whose `median` and `auto` lengthscales and shapes of images
/// still wait for data.
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
    /// By what each column was multiplied.
    scale: Option<Arc<[f64]>>,
}

impl Expression {
    /// Reads an expression; an unknown kernel or parameter is answered with the nearest name.
    pub fn parse(text: &str) -> Result<Expression> {
        // Names and values are checked here; the base kernels are made when the data is there.
        read(text, Known::default(), &|_, _| some_base())?;
        Ok(Expression { text: text.trim().to_owned(), scale: None })
    }

    /// The expression for columns that were multiplied by `scale` `[d]`, 0 where a column is constant: a period is meant in the unit that its column
    /// had before.
    ///
    /// ```
    /// use mercer::kernel::Expression;
    /// let weeks = Expression::parse("periodic(period=7)")?.in_units_of(&[0.5]);
    /// assert_eq!(weeks.resolve(ndarray::array![[0.0], [1.0]].view(), 0)?.to_string(), "periodic(period=3.5, lengthscale=1)");
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn in_units_of(&self, scale: &[f64]) -> Expression {
        Expression { scale: Some(scale.into()), ..self.clone() }
    }

    /// Whether data decide on every lengthscale: all of them are `median`, `auto` or `ard`, and have the unit of the data.
    pub fn is_open(&self) -> bool {
        let all = self.lengthscales().unwrap_or_default();
        let is_open =
            |word: &Option<(Entry, String)>| word.as_ref().is_some_and(|(entry, _)| entry.median != Median::One);
        !all.is_empty() && all.iter().all(is_open)
    }

    /// Whether it has a lengthscale that is a number.
    pub fn has_number(&self) -> bool {
        let found = std::cell::Cell::new(false);
        let looked = read(&self.text, Known::default(), &|entry, values| {
            let number = |(value, p): (&Option<Value>, &Parameter)| {
                p.kind == Kind::Lengthscale && matches!(value, Some(Value::Number(_) | Value::Numbers(_)))
            };
            let of_data = entry.median != Median::One;
            found.set(found.get() || of_data && values.iter().zip(entry.parameters).any(number));
            some_base()
        });
        looked.is_ok() && found.get()
    }

    /// The kernel, with every `median` replaced by the scale ([`Median`](super::Median)) of (a sample of) the points `x` `[n, d]`, and
    /// images of the shape that `x` has.
    pub fn resolve<'x>(&self, x: impl Into<Rows<'x>>, seed: u64) -> Result<Kernel> {
        let x = x.into();
        self.build(x.d(), &|entry, word| match word {
            AUTO | ARD => Err(Error::input(format!(
                "kernel {}: lengthscale={word} is found by how well a target is predicted, and there is none here; use median or a number",
                entry.name
            ))),
            _ => median_lengthscale(x, entry, seed).map(Value::Number),
        })
    }

    /// The rows of n that [`Self::resolve`] looks at: given these alone, it returns the same kernel.
    pub fn rows(n: usize, seed: u64) -> Vec<usize> {
        median_rows(n, seed)
    }

    /// As [`Self::resolve`], with every `auto` replaced by `factor` times the median distance.
    pub fn resolve_scaled<'x>(&self, x: impl Into<Rows<'x>>, seed: u64, factor: f64) -> Result<Kernel> {
        let x = x.into();
        self.build(x.d(), &|entry, word| {
            let median = median_lengthscale(x, entry, seed)?;
            Ok(Value::Number(if word == AUTO { factor * median } else { median }))
        })
    }

    /// Whether a lengthscale in it is `auto` or `ard`.
    pub fn is_automatic(&self) -> bool {
        self.has(AUTO) || self.has(ARD)
    }

    /// Whether a lengthscale in it is one for each column, to be found.
    pub fn has_ard(&self) -> bool {
        self.has(ARD)
    }

    fn has(&self, word: &str) -> bool {
        self.lengthscales().is_some_and(|all| all.iter().flatten().any(|(_, found)| found == word))
    }

    /// For each base kernel, from left to right: its entry and the word that stands for its lengthscale, where one does.
    pub(super) fn lengthscales(&self) -> Option<Vec<Option<(Entry, String)>>> {
        let all = std::cell::RefCell::new(vec![]);
        let looked = read(&self.text, Known::default(), &|entry, values| {
            let word = values.iter().zip(entry.parameters).find_map(|(value, parameter)| match value {
                Some(Value::Word(word)) if parameter.kind == Kind::Lengthscale => Some((*entry, word.clone())),
                _ => None,
            });
            all.borrow_mut().push(word);
            some_base()
        });
        looked.is_ok().then(|| all.into_inner())
    }

    /// The kernel for points of d columns.
    fn build(&self, d: usize, lengthscale: &dyn Fn(&Entry, &str) -> Result<Value>) -> Result<Kernel> {
        build(&self.text, Known::default(), (Some(d), self.scale.as_deref()), lengthscale)
    }

    /// The kernel for points of d columns with these values for the lengthscales that are words, from left to right.
    pub(super) fn with_lengthscales(&self, d: usize, values: impl IntoIterator<Item = Value>) -> Result<Kernel> {
        let values = std::cell::RefCell::new(values.into_iter());
        self.build(d, &|_, _| Ok(values.borrow_mut().next().expect("a value for each word")))
    }
}

/// A base kernel in place of one that is not made yet.
fn some_base() -> Result<Base> {
    Base::from_arguments("linear", &[None], None)
}

/// The kernel of an expression in which nothing waits for data, for points of dimension `inputs` where it is known.
pub(super) fn constant(text: &str, known: Known<'_>, inputs: Option<usize>) -> Result<Kernel> {
    build(text, known, (inputs, None), &|entry, word| {
        Err(Error::input(format!("kernel {}: {word} needs data to look at; give a number here", entry.name)))
    })
}

/// The kernel of an expression, for points of dimension `inputs` where it is known, whose columns were multiplied by `scale` `[d]`.
fn build(
    text: &str,
    known: Known<'_>,
    (inputs, scale): (Option<usize>, Option<&[f64]>),
    lengthscale: &dyn Fn(&Entry, &str) -> Result<Value>,
) -> Result<Kernel> {
    read(text, known, &|entry, mut values| {
        for (value, parameter) in values.iter_mut().zip(entry.parameters) {
            if let (Kind::Lengthscale, Some(Value::Word(word))) = (parameter.kind, &*value) {
                *value = Some(lengthscale(entry, word)?);
            }
            if let (Kind::Period, Some(scale)) = (parameter.kind, scale) {
                *value = periods(parameter, value, scale, |period, scale| period * scale);
            }
        }
        match known.registry {
            Some(registry) => registry.base(entry.name, &values, inputs),
            None => Base::from_arguments(entry.name, &values, inputs),
        }
    })
}

/// The periods of columns after a `change` by what each was multiplied by, `scale` `[d]`; one where all are equal. A constant column keeps its own.
fn periods(
    parameter: &Parameter,
    given: &Option<Value>,
    scale: &[f64],
    change: impl Fn(f64, f64) -> f64,
) -> Option<Value> {
    let changed = |period: f64, scale: f64| if scale == 0.0 { period } else { change(period, scale) };
    let each: Vec<f64> = match given {
        // Another number of periods than columns is refused where the kernel is made.
        Some(Value::Numbers(each)) if each.len() != scale.len() => return given.clone(),
        Some(Value::Numbers(each)) => each.iter().zip(scale).map(|(period, scale)| changed(*period, *scale)).collect(),
        one => scale.iter().map(|scale| changed(parameter.number(one), *scale)).collect(),
    };
    let alike = each.windows(2).all(|two| two[0] == two[1]);
    Some(if alike && !each.is_empty() { Value::Number(each[0]) } else { Value::Numbers(each) })
}

/// Another value of a parameter of a base kernel, from the one that is given.
type Change<'a> = dyn Fn(&Entry, &Parameter, Option<Value>) -> Option<Value> + 'a;

/// The kernel with other values of its parameters. A kernel from outside the crate is refused.
fn changed(kernel: &Kernel, change: &Change) -> Result<Kernel> {
    read(&kernel.to_string(), Known::default(), &|entry, values| {
        let values = values.into_iter().zip(entry.parameters).map(|(value, parameter)| change(entry, parameter, value));
        Base::from_arguments(entry.name, &values.collect::<Vec<_>>(), None)
    })
}

impl Kernel {
    /// The kernel as it is written for columns that were then multiplied by `scale` `[d]`: with periods in the columns' own units, to 13 digits. The
    /// inverse of [`Expression::in_units_of`]; a kernel from outside the crate is refused.
    ///
    /// ```
    /// use mercer::kernel::Kernel;
    /// let kernel = Kernel::parse("periodic(period=[3.5, 0.7])*rbf(2)")?;
    /// assert_eq!(kernel.in_own_units(&[0.5, 0.1])?.to_string(), "periodic(period=7, lengthscale=1)*rbf(lengthscale=2)");
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn in_own_units(&self, scale: &[f64]) -> Result<Kernel> {
        // The product with the scale and the division by it may differ in the last digits.
        let short = |v: f64| format!("{v:.13e}").parse().unwrap_or(v);
        changed(self, &|_, parameter, value| match parameter.kind {
            Kind::Period => periods(parameter, &value, scale, |period, scale| short(period / scale)),
            _ => value,
        })
    }

    /// `κ(x/h, x'/h)`: every lengthscale times h. A kernel that has other parameters in the unit of the points, or comes from outside the crate, is
    /// refused.
    ///
    /// ```
    /// use mercer::kernel::Kernel;
    /// let kernel = Kernel::parse("rbf([1, 2]) + linear")?;
    /// assert_eq!(kernel.stretched(2.0)?.to_string(), "rbf(lengthscale=[2, 4]) + linear(lengthscale=2)");
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn stretched(&self, h: f64) -> Result<Kernel> {
        let other = self.bases().into_iter().any(|base| matches!(base, Base::Periodic(_) | Base::Custom(_)));
        fail_if!(other, "the kernel {self} has no lengthscale for the width of all its parts");
        changed(self, &|_, parameter, value| match (parameter.kind, value) {
            (Kind::Lengthscale, Some(Value::Numbers(each))) => {
                Some(Value::Numbers(each.iter().map(|lengthscale| lengthscale * h).collect()))
            }
            (Kind::Lengthscale, one) => Some(Value::Number(parameter.number(&one) * h)),
            (_, value) => value,
        })
    }

    /// Each base kernel that has lengthscales in the unit of the points, and those of d columns.
    ///
    /// ```
    /// use mercer::kernel::Kernel;
    /// let found = Kernel::parse("2*rbf([1, 2]) + periodic(7, 0.5)*laplacian(3)")?.lengthscales(2);
    /// assert_eq!(found, [("rbf", vec![1.0, 2.0]), ("laplacian", vec![3.0, 3.0])]);
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn lengthscales(&self, d: usize) -> Vec<(&'static str, Vec<f64>)> {
        let found = std::cell::RefCell::new(vec![]);
        let looked = read(&self.to_string(), Known::default(), &|entry, values| {
            for (value, parameter) in values.iter().zip(entry.parameters) {
                let each = match value {
                    Some(Value::Numbers(each)) => each.clone(),
                    Some(Value::Number(one)) => vec![*one; d],
                    _ => continue,
                };
                if parameter.kind == Kind::Lengthscale && entry.median != Median::One {
                    found.borrow_mut().push((entry.name, each));
                }
            }
            some_base()
        });
        if looked.is_ok() { found.into_inner() } else { vec![] }
    }
}

/// The names that an expression may use.
#[derive(Clone, Copy, Default)]
pub(super) struct Known<'a> {
    /// Kernels beside those of the crate.
    pub registry: Option<&'a Registry>,
    /// Whether a model holds the expression: whoever wrote it knew its names.
    pub of_model: bool,
}

impl Known<'_> {
    /// The entry of the kernel called `name`.
    fn entry(self, name: &str) -> Result<Entry> {
        let entries = self.registry.map_or_else(super::catalogue, Registry::entries);
        let found = entries.iter().find(|entry| entry.name == name).copied();
        found.ok_or_else(|| match self.of_model {
            false => Error::unknown("kernel", name, entries.iter().map(|e| e.name)),
            true => Error::input(format!(
                "the model holds the kernel `{name}`, which is none of this crate's; register its formula by \
                 `Registry::kernel`, and load the model with that registry (`load_with`)"
            )),
        })
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The word for a lengthscale that a search finds.
pub(super) const AUTO: &str = "auto";

/// The word for lengthscales that a search finds, one for each column.
pub(super) const ARD: &str = "ard";

/// Makes a base kernel from checked values, one for each parameter of its entry where the expression gives it.
type MakeBase<'a> = &'a dyn Fn(&Entry, Vec<Option<Value>>) -> Result<Base>;

fn read(text: &str, known: Known<'_>, base: MakeBase) -> Result<Kernel> {
    let mut scanner = Scanner::new("kernel expression", text);
    let kernel = sum(&mut scanner, known, base)?;
    fail_if!(scanner.peek().is_some(); scanner.error("expected '+', '*' or the end"));
    Ok(kernel)
}

fn sum(scanner: &mut Scanner, known: Known<'_>, base: MakeBase) -> Result<Kernel> {
    let mut terms = vec![product(scanner, known, base)?];
    while scanner.take('+') {
        terms.push(product(scanner, known, base)?);
    }
    let flat = terms.into_iter().flat_map(|t| if let Kernel::Sum(inner) = t { inner } else { vec![t] });
    Ok(one_or(Kernel::Sum, flat.collect()))
}

fn product(scanner: &mut Scanner, known: Known<'_>, base: MakeBase) -> Result<Kernel> {
    let (mut scale, mut factors) = (1.0, vec![]);
    loop {
        if scanner.peek().is_some_and(|c| c.is_ascii_digit() || c == '.' || c == '-') {
            scale *= scanner.number().ok_or_else(|| scanner.error("expected a number"))?;
        } else {
            match factor(scanner, known, base)? {
                Kernel::Scale(c, inner) => {
                    scale *= c;
                    factors.push(*inner);
                }
                Kernel::Product(inner) => factors.extend(inner),
                kernel => factors.push(kernel),
            }
        }
        if !scanner.take('*') {
            break;
        }
    }
    fail_if!(factors.is_empty(); scanner.error("a number alone is not a kernel: write for example 2*rbf(1)"));
    if !(scale.is_finite() && scale > 0.0) {
        return Err(scanner.error(&format!("a kernel can only be scaled by a number above 0, got {scale}")));
    }
    let product = one_or(Kernel::Product, factors);
    Ok(if scale == 1.0 { product } else { Kernel::Scale(scale, Box::new(product)) })
}

fn factor(scanner: &mut Scanner, known: Known<'_>, base: MakeBase) -> Result<Kernel> {
    if scanner.take('(') {
        let inner = scanner.nested(|scanner| sum(scanner, known, base))?;
        return if scanner.take(')') { Ok(inner) } else { Err(scanner.error("expected ')'")) };
    }
    let name = scanner.word().ok_or_else(|| scanner.error("expected a kernel, such as rbf(lengthscale=2)"))?;
    let entry = known.entry(name)?;
    let values = values(&entry, &Call { name, arguments: scanner.arguments(name)? })?;
    base(&entry, values).map(Kernel::Base)
}

/// The value of each parameter of `entry`, where `call` gives one.
fn values(entry: &Entry, call: &Call) -> Result<Vec<Option<Value>>> {
    let parameters = entry.parameters;
    call.check(parameters.len(), &parameters.iter().map(|p| p.name).collect::<Vec<_>>())?;
    let mut values: Vec<Option<Value>> = vec![None; parameters.len()];
    for (position, argument) in call.arguments.iter().enumerate() {
        let index = match argument.key {
            Some(key) => parameters.iter().position(|p| p.name == key).expect("checked above"),
            None if argument.quoted => parameters
                .iter()
                .position(|p| p.kind == Kind::Text)
                .ok_or_else(|| Error::input(format!("kernel {} takes no text in quotes", entry.name)))?,
            None => position,
        };
        let Some(parameter) = parameters.get(index) else {
            return Err(Error::input(format!("{} takes at most {} parameters", entry.name, parameters.len())));
        };
        fail_if!(values[index].is_some(), "{}: {} is given twice", entry.name, parameter.name);
        values[index] = Some(parameter.check(entry.name, Value::of(argument))?);
    }
    Ok(values)
}

fn one_or(many: fn(Vec<Kernel>) -> Kernel, mut kernels: Vec<Kernel>) -> Kernel {
    if kernels.len() == 1 { kernels.remove(0) } else { many(kernels) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let error = |text: &str| Kernel::parse(text).unwrap_err().to_string();
        assert!(error("rfb(1)").contains("did you mean 'rbf'"));
        assert!(error("rbf(lenghtscale=1)").contains("did you mean 'lengthscale'"));
        assert!(error("rbf(0)").contains("lengthscale must be a number above 0"));
        assert!(error("rbf(-1)").contains("got -1"));
        assert!(error("poly(degree=2.5)").contains("whole number"));
        assert!(error("-1*rbf").contains("above 0"));
        assert!(error("2").contains("alone is not a kernel"));
        assert!(error("rbf(1").contains("no closing bracket"));
        assert!(error("rbf(1) linear").contains("at character 8"));
        assert!(error("rbf(1, 2)").contains("at most 1"));
        assert!(error("rbf(1, lengthscale=2)").contains("twice"));
        assert!(error("").contains("expected a kernel"));
        assert!(error("rbf(median)").contains("needs data"));
        assert!(error("linear(a=1)").contains("lengthscale"));
        assert!(error("rbf(nan)").contains("'nan'"));
        assert!(error("rbf(1e999)").contains("above 0"));
    }

    #[test]
    fn brackets_are_nested_up_to_a_bound() {
        let nested = |depth: usize| format!("{}rbf(1){}", "(".repeat(depth), ")".repeat(depth));
        assert_eq!(Kernel::parse(&nested(32)).unwrap(), Kernel::parse("rbf(1)").unwrap());
        for depth in [33, 8000, 1_000_000] {
            let message = Kernel::parse(&nested(depth)).unwrap_err().to_string();
            assert!(message.contains("brackets are nested deeper than 32"), "{message}");
            assert!(message.len() < 300);
        }
        // The same brackets within the text of a network.
        let network = format!("ntk(\"{}dense relu{} dense\")", "res(".repeat(4000), ")".repeat(4000));
        assert!(Kernel::parse(&network).unwrap_err().to_string().contains("nested deeper than 32"));
    }
}
