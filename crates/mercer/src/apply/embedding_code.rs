//! Embeddings of any model, put in order: the same finish as that of trained functions, over linear functions of the embedding.

use super::code::{CodeFinish, CodeMap, with_noise};
use super::traits::finite;
use super::{FittedCode, PairCertificate, check_points};
use crate::linalg::matmul;
use crate::operator::nearest_neighbours;
use crate::rng::Rng;
use crate::spectrum::Origin;
use crate::spectrum::neural::{partners, within_noisy_span};
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis};
use std::time::Instant;

/// Which embeddings belong together, and so the operator whose eigenfunctions among the linear functions of the embedding are the code.
/// Example: [`EmbeddingCode`].
#[derive(Clone, Debug, PartialEq)]
pub enum Together {
    /// Row i and row i of this table `[n, p]`: two views of the same thing. The operator is that of [`ViewPairs`](crate::spectrum::neural::ViewPairs).
    Pairs(Array2<f64>),
    /// Any two rows of the same class `[n]`. `(Kf)(x)` is the mean of f over the class of x less that over all rows; the code is that of linear
    /// discriminant analysis, and has one coordinate less than there are classes.
    Classes(Vec<usize>),
    /// A row and each of so many nearest others, by distance: pairs, where none are known.
    Neighbours(usize),
    /// The linear kernel of the centred rows over its trace: principal components, each with its share of the variance.
    Linear,
}

impl Together {
    /// Refuses what does not fit embeddings `x` `[n, p]`, or a code of k coordinates of them.
    pub(super) fn check(&self, x: ArrayView2<f64>, k: usize) -> Result<()> {
        check_points(x)?;
        let (n, p) = x.dim();
        fail_if!(k == 0 || k > p, "k must lie between 1 and {p}, the columns of the embedding; got {k}");
        fail_if!(n < 4, "a code needs at least four embeddings, got {n}");
        match self {
            Together::Pairs(other) => {
                let (m, q) = other.dim();
                fail_if!((m, q) != (n, p), "there are {n} embeddings of {p} columns and {m} partners of {q}");
                check_points(other.view())
            }
            Together::Classes(classes) => {
                fail_if!(classes.len() != n, "there are {n} embeddings and {} classes of them", classes.len());
                Ok(())
            }
            Together::Neighbours(count) => {
                fail_if!(
                    *count == 0 || 2 * count >= n,
                    "the number of neighbours must lie between 1 and half of {n}, got {count}"
                );
                Ok(())
            }
            Together::Linear => Ok(()),
        }
    }
}

/// Orders the linear functions of embeddings by the eigenvalues of an operator that says what belongs together (Rayleigh–Ritz).
///
/// ```
/// use mercer::apply::{EmbeddingCode, Together, Transform};
/// // Three columns: noise of deviation 3, and one number that two views share in two scales.
/// let mut rng = mercer::rng::Rng::new(1);
/// let shared: Vec<f64> = (0..300).map(|_| rng.normal()).collect();
/// let mut view = || ndarray::Array2::from_shape_fn((300, 3), |(i, c)| [3.0 * rng.normal(), shared[i], 0.1 * shared[i] + rng.normal()][c]);
/// let (first, second) = (view(), view());
/// let code = EmbeddingCode::new(2, Together::Pairs(second)).fit(first.view(), &Default::default())?;
/// let pca = EmbeddingCode::new(2, Together::Linear).fit(first.view(), &Default::default())?;
/// let correlation = |code: &ndarray::Array2<f64>| {
///     let c = code.column(0);
///     let dot: f64 = c.iter().zip(&shared).map(|(a, b)| a * b).sum();
///     (dot / (c.dot(&c) * shared.iter().map(|v| v * v).sum::<f64>()).sqrt()).abs()
/// };
/// assert!(correlation(&code.transform(first.view())?) > 0.97 && correlation(&pca.transform(first.view())?) < 0.3);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingCode {
    /// Number of coordinates.
    pub k: usize,
    /// What belongs together.
    pub together: Together,
    /// How the linear functions become a code.
    pub finish: CodeFinish,
}

/// Rows, or pairs, over which functions are ordered, at most.
const MOST: usize = 20_000;
/// Share of the rows, or pairs, that is held out for the certificate.
const HELD_OUT: f64 = 0.1;
/// Eigenvalues below this are noise.
const ZERO: f64 = 1e-10;

/// Rows on which the operator acts, and how.
struct Values {
    /// `[m, p]`; of pairs, one after the other.
    phi: Array2<f64>,
    /// Classes of the rows, where they make the operator.
    classes: Vec<usize>,
}

impl EmbeddingCode {
    /// With the usual finish: [`CodeFinish::UNITS`] where pairs are neighbours, which angles make, else [`CodeFinish::PLAIN`].
    pub fn new(k: usize, together: Together) -> EmbeddingCode {
        let finish = match together {
            Together::Neighbours(_) => CodeFinish::UNITS,
            _ => CodeFinish::PLAIN,
        };
        EmbeddingCode { k, together, finish }
    }

    /// Fits the embeddings `x` `[n, p]`.
    pub fn fit(&self, x: ArrayView2<f64>, context: &FitContext) -> Result<FittedCode> {
        let start = Instant::now();
        let (n, p) = x.dim();
        self.together.check(x, self.k)?;
        self.finish.check()?;
        let rows = 2 * n.min(MOST);
        context.budget.require(
            format!("{rows} embeddings of {p} columns"),
            (4 * 8 * rows as u64).saturating_mul(p as u64),
            "give fewer embeddings",
        )?;
        let rows = self.finish.functions(x.to_owned());
        let mut order: Vec<usize> = (0..n).collect();
        Rng::new(context.seed).fork(6).shuffle(&mut order);
        let (test, fit) = order.split_at(((HELD_OUT * n as f64) as usize).max(2));
        let [mut fit, mut test] = [fit, test].map(|some| self.values(rows.view(), &some[..some.len().min(MOST)]));
        let mean = fit.phi.mean_axis(Axis(0)).expect("there are rows").insert_axis(Axis(0));
        [&mut fit, &mut test].into_iter().for_each(|values| values.phi -= &mean);
        let (found, gamma) =
            within_noisy_span(fit.phi.view(), self.k, self.finish.ridge, |q, _| Ok(self.image(&fit, q)))?;
        let largest = found.eigenvalues.first().copied().unwrap_or(0.0);
        let kept: Vec<usize> =
            (0..found.eigenvalues.len()).filter(|j| found.eigenvalues[*j] > ZERO * largest.max(ZERO)).collect();
        fail_if!(kept.is_empty(), "no linear function of the embedding tells what belongs together from the rest");
        let eigenvalues: Vec<f64> = kept.iter().map(|j| found.eigenvalues[*j]).collect();
        let a = found.coefficients.select(Axis(1), &kept);
        let psi = matmul(with_noise(test.phi.clone(), gamma, Rng::new(context.seed).fork(7)).view(), a.view());
        let group = if test.classes.is_empty() && self.together != Together::Linear { 2 } else { 1 };
        let certificate =
            PairCertificate::new(psi.view(), self.image(&test, psi.view()).view(), &eigenvalues, group, true)?;
        let map = CodeMap {
            network: None,
            by_direction: self.finish.by_direction,
            shift: mean,
            coefficients: self.finish.weighted(a, &eigenvalues),
        };
        let less = self.k - eigenvalues.len();
        let note =
            (less > 0).then(|| format!("the operator has {} positive eigenvalues, not {}", eigenvalues.len(), self.k));
        let origin = Origin::new("ordered embeddings", self.describe(), (n, p), context, start);
        finite(FittedCode { origin, eigenvalues, certificate, training: None, notes: note.into_iter().collect(), map })
    }

    /// The operator in words.
    pub fn describe(&self) -> String {
        match &self.together {
            Together::Pairs(_) => "given pairs of embeddings".into(),
            Together::Classes(_) => "pairs of embeddings of the same class".into(),
            Together::Neighbours(count) => format!("pairs of an embedding and its {count} nearest"),
            Together::Linear => "linear (principal components)".into(),
        }
    }

    /// What the operator sees of these rows.
    fn values(&self, x: ArrayView2<f64>, rows: &[usize]) -> Values {
        let chosen = x.select(Axis(0), rows);
        let paired = |partner: &dyn Fn(usize) -> Array1<f64>| {
            let mut phi = Array2::zeros((2 * rows.len(), x.ncols()));
            for (i, mut row) in phi.rows_mut().into_iter().enumerate() {
                if i % 2 == 0 { row.assign(&chosen.row(i / 2)) } else { row.assign(&partner(i / 2)) }
            }
            phi
        };
        match &self.together {
            Together::Pairs(other) => {
                let phi = self.finish.functions(paired(&|i| other.row(rows[i]).to_owned()));
                Values { phi, classes: vec![] }
            }
            Together::Classes(classes) => Values { phi: chosen, classes: rows.iter().map(|i| classes[*i]).collect() },
            Together::Neighbours(count) => {
                // Among all rows, the row itself first; one of the others for each row, in turn.
                let near = nearest_neighbours(x, chosen.view(), count + 1);
                let other = |i: usize| {
                    let others: Vec<usize> =
                        near[i].iter().map(|(j, _)| *j).filter(|j| *j != rows[i]).take(*count).collect();
                    x.row(others[i % others.len()]).to_owned()
                };
                Values { phi: paired(&other), classes: vec![] }
            }
            Together::Linear => Values { phi: chosen, classes: vec![] },
        }
    }

    /// `Kq` `[m, r]` at the rows of `values`, for `q` `[m, r]` there.
    fn image(&self, values: &Values, q: ArrayView2<f64>) -> Array2<f64> {
        let m = q.nrows() as f64;
        match &self.together {
            Together::Pairs(_) | Together::Neighbours(_) => partners(q),
            Together::Linear => {
                let trace = values.phi.iter().map(|v| v * v).sum::<f64>() / m;
                let inner = matmul(values.phi.t(), q) / m;
                matmul(values.phi.view(), inner.view()) / if trace > 0.0 { trace } else { 1.0 }
            }
            Together::Classes(_) => {
                let count = values.classes.iter().max().map_or(0, |most| most + 1);
                let (mut sums, mut sizes) = (Array2::<f64>::zeros((count, q.ncols())), vec![0.0; count]);
                for (row, class) in q.rows().into_iter().zip(&values.classes) {
                    sums.row_mut(*class).scaled_add(1.0, &row);
                    sizes[*class] += 1.0;
                }
                let mean = q.mean_axis(Axis(0)).expect("there are rows");
                let mut image = Array2::zeros(q.dim());
                for (mut row, class) in image.rows_mut().into_iter().zip(&values.classes) {
                    row.assign(&(&sums.row(*class) / sizes[*class] - &mean));
                }
                image
            }
        }
    }
}
