//! Embeddings of any model, put in order: the same finish as that of trained functions, over linear functions of the embedding.

use crate::apply::code::fitted_code::{CodeFinish, CodeMap, with_noise};
use crate::apply::traits::finite;
use crate::apply::{FittedCode, PairCertificate, check_points};
use crate::linalg::matmul;
use crate::operator::NeighbourGraph;
use crate::rng::Rng;
use crate::spectrum::Origin;
use crate::spectrum::neural::{partners, within_noisy_span};
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, s, stack};
use rayon::prelude::*;
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
    /// Two rows each of which is among so many nearest others of the other, by distance: pairs, where none are known. The operator is the random walk along them.
    Neighbours(usize),
    /// The linear kernel of the centred rows over its trace: principal components, each with its share of the variance.
    Linear,
}

impl Together {
    /// Refuses what does not fit embeddings `x` `[n, p]`, or a code of k coordinates of them.
    pub(crate) fn check(&self, x: ArrayView2<f64>, k: usize) -> Result<()> {
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
#[derive(Default)]
struct Values {
    /// `[m, p]`; of pairs, one after the other.
    phi: Array2<f64>,
    /// Classes of the rows, where they make the operator.
    classes: Vec<usize>,
    /// The rows that each is joined to, where these edges make it.
    joined: Vec<Vec<usize>>,
}

impl Values {
    /// How often a row is one of a pair, over the mean of that: its weight in means.
    fn weight(&self, i: usize) -> f64 {
        let edges = self.joined.iter().map(Vec::len).sum::<usize>();
        self.joined.get(i).map_or(1.0, |of| (of.len() * self.joined.len()) as f64 / edges as f64)
    }

    /// `[1, p]`
    fn mean(&self) -> Array2<f64> {
        let weights: Array1<f64> = (0..self.phi.nrows()).map(|i| self.weight(i)).collect();
        (weights.dot(&self.phi) / weights.len() as f64).insert_axis(Axis(0))
    }

    /// Takes `mean` off, and counts rows by their weights: `φ_i ↦ √w_i (φ_i − b)`.
    fn centre(&mut self, mean: &Array2<f64>) {
        self.phi -= mean;
        if !self.joined.is_empty() {
            let roots: Array1<f64> = (0..self.phi.nrows()).map(|i| self.weight(i).sqrt()).collect();
            self.phi *= &roots.insert_axis(Axis(1));
        }
    }
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
        let [fit, test] = [fit, test].map(|some| &some[..some.len().min(MOST)]);
        let [mut fit, mut test] = match self.together {
            Together::Neighbours(count) => neighbours(rows.view(), [fit, test], count, context)?,
            _ => [fit, test].map(|some| self.values(rows.view(), some)),
        };
        let mean = fit.mean();
        [&mut fit, &mut test].into_iter().for_each(|values| values.centre(&mean));
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
            Together::Neighbours(count) => format!("pairs of embeddings among the {count} nearest of each other"),
            Together::Linear => "linear (principal components)".into(),
        }
    }

    /// What the operator sees of these rows.
    fn values(&self, x: ArrayView2<f64>, rows: &[usize]) -> Values {
        match &self.together {
            Together::Pairs(other) => {
                let pairs = rows.iter().map(|i| [x.row(*i), other.row(*i)]).collect();
                Values { phi: self.finish.functions(one_after_the_other(pairs)), ..Values::default() }
            }
            Together::Classes(classes) => Values {
                phi: x.select(Axis(0), rows),
                classes: rows.iter().map(|i| classes[*i]).collect(),
                ..Values::default()
            },
            Together::Neighbours(_) | Together::Linear => Values { phi: x.select(Axis(0), rows), ..Values::default() },
        }
    }

    /// `Kq` `[m, r]` at the rows of `values`, for `q` `[m, r]` there.
    fn image(&self, values: &Values, q: ArrayView2<f64>) -> Array2<f64> {
        let m = q.nrows() as f64;
        match &self.together {
            Together::Neighbours(_) if !values.joined.is_empty() => along(&values.joined, q),
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

/// The rows to fit, joined by edges between neighbours, and the pairs along the edges of those that are held out.
fn neighbours(
    x: ArrayView2<f64>,
    [fit, test]: [&[usize]; 2],
    count: usize,
    context: &FitContext,
) -> Result<[Values; 2]> {
    let all = x.select(Axis(0), &[fit, test].concat());
    // An edge has the weight 1 where each is among the nearest of the other.
    let graph = NeighbourGraph::reported(all.view(), count, context.progress);
    let mutual = |i: usize| graph.of(i).iter().filter(|(_, weight)| *weight == 1.0).map(|(j, _)| *j);
    let joined: Vec<Vec<usize>> = (0..fit.len()).map(|i| mutual(i).filter(|j| *j < fit.len()).collect()).collect();
    let mut held_out: Vec<[usize; 2]> = (fit.len()..all.nrows()).flat_map(|i| mutual(i).map(move |j| [i, j])).collect();
    held_out.truncate(MOST);
    fail_if!(
        joined.iter().all(Vec::is_empty) || held_out.is_empty(),
        "too few of the {} embeddings are among the {count} nearest of each other; ask for more neighbours",
        all.nrows()
    );
    let pairs = held_out.into_iter().map(|pair| pair.map(|i| all.row(i))).collect();
    Ok([
        Values { phi: all.slice(s![..fit.len(), ..]).to_owned(), joined, ..Values::default() },
        Values { phi: one_after_the_other(pairs), ..Values::default() },
    ])
}

/// Pairs of rows `[p]` as `[2 pairs, p]`.
fn one_after_the_other(pairs: Vec<[ArrayView1<f64>; 2]>) -> Array2<f64> {
    stack(Axis(0), &pairs.concat()).expect("as many columns")
}

/// `D^{-1/2} W D^{-1/2} q` `[m, r]` with the edges W of `joined` and their numbers D at each row: `W` and the means of pairs, for values that are weighted by `√D`.
fn along(joined: &[Vec<usize>], q: ArrayView2<f64>) -> Array2<f64> {
    let root = |i: usize| (joined[i].len() as f64).sqrt();
    let mut image = Array2::zeros(q.dim());
    let rows: Vec<_> = image.rows_mut().into_iter().zip(joined).enumerate().collect();
    rows.into_par_iter().for_each(|(i, (mut row, of))| {
        of.iter().for_each(|&j| row.scaled_add(1.0 / (root(i) * root(j)), &q.row(j)));
    });
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Edges and both moments of the pairs are those of the dense matrix of mutual neighbours.
    #[test]
    fn pairs_are_mutual_neighbours_and_count_alike() {
        let (n, count) = (60, 6);
        let mut rng = Rng::new(3);
        let x = Array2::from_shape_fn((n, 3), |(i, _)| rng.normal() + if i % 4 == 0 { 3.0 } else { 0.0 });
        let (fit, test): (Vec<usize>, Vec<usize>) = ((0..50).collect(), (50..n).collect());
        let distance = |i: usize, j: usize| (&x.row(i) - &x.row(j)).mapv(|v| v * v).sum();
        let is_near = |i: usize, j: usize| {
            i != j && (0..n).filter(|o| *o != i && distance(i, *o) < distance(i, j)).count() < count
        };
        let mutual = |i: usize, j: usize| is_near(i, j) && is_near(j, i);
        let [mut values, pairs] = neighbours(x.view(), [&fit, &test], count, &FitContext::default()).unwrap();
        let joined = |i: usize| (0..50).filter(|j| mutual(i, *j)).collect::<Vec<_>>();
        assert_eq!(values.joined, (0..50).map(joined).collect::<Vec<_>>());
        let w = Array2::from_shape_fn((50, 50), |(i, j)| f64::from(u8::from(mutual(i, j))));
        let degrees = w.sum_axis(Axis(1));
        let fitted = x.slice(s![..50, ..]);
        let mean = degrees.dot(&fitted) / w.sum();
        assert!((&values.mean().row(0) - &mean).iter().all(|d| d.abs() < 1e-13));
        values.centre(&mean.clone().insert_axis(Axis(0)));
        let centred = &fitted - &mean;
        let scaled = &centred * &degrees.insert_axis(Axis(1));
        let moments = |image: &Array2<f64>| values.phi.t().dot(image) / 50.0;
        let want = [centred.t().dot(&scaled) / w.sum(), centred.t().dot(&w).dot(&centred) / w.sum()];
        for (found, want) in [moments(&values.phi), moments(&along(&values.joined, values.phi.view()))].iter().zip(want)
        {
            assert!((found - &want).iter().all(|d| d.abs() < 1e-12), "{found} {want}");
        }
        // Pairs of rows that are held out, as often as they have edges.
        let edges: usize = test.iter().map(|i| (0..n).filter(|j| mutual(*i, *j)).count()).sum();
        assert_eq!(pairs.phi.nrows(), 2 * edges);
        let row = |r: usize| (0..n).find(|i| x.row(*i) == pairs.phi.row(r)).unwrap();
        assert!((0..edges).all(|e| row(2 * e) >= 50 && mutual(row(2 * e), row(2 * e + 1))));
    }
}
