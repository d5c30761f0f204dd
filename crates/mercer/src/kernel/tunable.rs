//! Kernels as functions of their hyper-parameters.

use super::expression::ARD;
use super::median::median_lengthscale;
use super::{Expression, Kernel, Statistic, Value};
use crate::data::Rows;
use crate::{Error, Result};
use std::ops::Range;

/// A kernel as a function of its hyper-parameters θ `[p]`: the logarithms of the amplitude of each term of the sum, then of each
/// lengthscale that the expression leaves open: one where it is `auto`, one for each column where it is `ard`.
///
/// ```
/// use mercer::kernel::{Expression, Tunable};
/// let x = ndarray::array![[0.0, 0.0], [3.0, 4.0]];
/// let kernel = Tunable::new(&Expression::parse("2*rbf(ard) + linear")?, x.view(), 0)?;
/// assert_eq!(kernel.start(), [2.0f64.ln(), 0.0, 5.0f64.ln(), 5.0f64.ln()]); // the median distance is 5
/// let at = kernel.at(&[0.0, 3.0f64.ln(), 0.0, 7.0f64.ln()])?;
/// assert_eq!(at.value(&[0.0, 0.0], &[1.0, 0.0]), (-0.5f64).exp());
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tunable {
    expression: Expression,
    d: usize,
    /// One for each term of the sum.
    amplitudes: Vec<f64>,
    /// For each base kernel, from left to right, the lengthscale that is a word.
    lengthscales: Vec<Option<Lengthscale>>,
}

/// A lengthscale that the expression gives as a word.
#[derive(Clone, Debug)]
struct Lengthscale {
    /// The scale of the data ([`super::Median`]).
    median: f64,
    /// How many numbers are to be found: none for `median`.
    count: usize,
    /// Whether they are one for each column.
    each: bool,
}

/// What a base kernel has to do with θ.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OpenLengthscale {
    /// Its places in θ.
    pub at: Range<usize>,
    /// Whether there is one for each column.
    pub each: bool,
}

impl Tunable {
    /// The kernel of an expression on the points `x` `[n, d]`.
    pub fn new<'x>(expression: &Expression, x: impl Into<Rows<'x>>, seed: u64) -> Result<Tunable> {
        let (x, d) = {
            let x = x.into();
            (x, x.d())
        };
        let words = expression.lengthscales().ok_or_else(|| Error::input(format!("cannot read `{expression}`")))?;
        let mut lengthscales = vec![];
        for word in words {
            lengthscales.push(match word {
                None => None,
                Some((entry, word)) => {
                    let each = word == ARD;
                    let count = if each { d } else { usize::from(word != "median") };
                    Some(Lengthscale { median: median_lengthscale(x, &entry, seed)?, count, each })
                }
            });
        }
        let mut tunable = Tunable { expression: expression.clone(), d, amplitudes: vec![], lengthscales };
        let medians: Vec<Value> = tunable.words().map(|word| Value::Number(word.median)).collect();
        let kernel = expression.with_lengthscales(d, medians)?;
        tunable.amplitudes = terms(kernel).into_iter().map(|(amplitude, _)| amplitude).collect();
        Ok(tunable)
    }

    /// The lengthscales that are words.
    fn words(&self) -> impl Iterator<Item = &Lengthscale> {
        self.lengthscales.iter().flatten()
    }

    /// θ `[p]` to start from: the amplitudes as they are written, and median distances.
    pub fn start(&self) -> Vec<f64> {
        let amplitudes = self.amplitudes.iter().map(|c| c.ln());
        amplitudes.chain(self.words().flat_map(|word| vec![word.median.ln(); word.count])).collect()
    }

    /// How many terms the sum has, each with its amplitude.
    pub fn terms(&self) -> usize {
        self.amplitudes.len()
    }

    /// The kernel at θ `[p]`.
    pub fn at(&self, θ: &[f64]) -> Result<Kernel> {
        let (amplitudes, mut rest) = θ.split_at(self.amplitudes.len());
        let values = self.words().map(|word| {
            let (own, others) = rest.split_at(word.count);
            rest = others;
            match (word.count, word.each) {
                (0, _) => Value::Number(word.median),
                (_, true) => Value::Numbers(own.iter().map(|θ| θ.exp()).collect()),
                (_, false) => Value::Number(own[0].exp()),
            }
        });
        let values: Vec<Value> = values.collect();
        let terms = terms(self.expression.with_lengthscales(self.d, values)?);
        let scaled = |((_, kernel), θ): ((f64, Kernel), &f64)| Kernel::Scale(θ.exp(), Box::new(kernel));
        let mut terms: Vec<Kernel> = terms.into_iter().zip(amplitudes).map(scaled).collect();
        Ok(if terms.len() == 1 { terms.remove(0) } else { Kernel::Sum(terms) })
    }

    /// For each base kernel, from left to right, its lengthscales in θ.
    pub(crate) fn open(&self) -> Vec<Option<OpenLengthscale>> {
        let mut next = self.amplitudes.len();
        let open = |word: &Option<Lengthscale>| {
            let word = word.as_ref().filter(|word| word.count > 0)?;
            next += word.count;
            Some(OpenLengthscale { at: next - word.count..next, each: word.each })
        };
        self.lengthscales.iter().map(open).collect()
    }
}

/// The amplitude and the kernel of each term of a sum.
fn terms(kernel: Kernel) -> Vec<(f64, Kernel)> {
    let terms = if let Kernel::Sum(terms) = kernel { terms } else { vec![kernel] };
    let term = |term| if let Kernel::Scale(c, inner) = term { (c, *inner) } else { (1.0, term) };
    terms.into_iter().map(term).collect()
}

/// `∂s/∂log ℓ = −power·s` where every column of the points is divided by ℓ.
pub(crate) fn power(statistic: Statistic) -> f64 {
    match statistic {
        Statistic::L1 => 1.0,
        Statistic::Dot | Statistic::SquaredDistance | Statistic::Images => 2.0,
    }
}
