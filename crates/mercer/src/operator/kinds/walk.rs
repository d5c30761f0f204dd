//! The random walk on an affinity, in its symmetric form.

use crate::linalg::matmul;
use crate::operator::Operator;
use crate::operator::kinds::derived::forward;
use crate::{Error, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis};

/// The symmetric form of the random walk on an affinity W, less its constant function:
/// `S = D^{−1/2} W' D^{−1/2} − √π√πᵀ` with `W' = Q^{−a} W Q^{−a}`, `Q = diag(W1)`, `D = diag(W'1)`, `π = D1/1ᵀD1`.
///
/// The walk `D⁻¹W'` has the same eigenvalues, with the functions `ψ = u/√π`. The second term removes the constant function
/// (eigenvalue 1), which carries no information. `a` = 1 removes the effect of the density of the points.
///
/// ```
/// use mercer::operator::{Centred, NeighbourGraph, Operator, RandomWalk};
/// let x = ndarray::Array2::from_shape_fn((20, 1), |(i, _)| i as f64);
/// let graph = NeighbourGraph::new(x.view(), 2);
/// let (walk, centred) = (RandomWalk::new(&graph, 0.0)?, Centred::new(&graph)?);
/// assert_eq!((graph.components(), walk.n(), centred.n()), (1, 20, 20));
/// # Ok::<(), mercer::Error>(())
/// ```
pub struct RandomWalk<'a> {
    inner: &'a dyn Operator,
    /// `Q^{−a}1` `[n]`
    pub(crate) weights: Array1<f64>,
    /// `Q^{−a}D^{−1/2}1` `[n]`
    scale: Array1<f64>,
    /// `√π` `[n]`
    pub(crate) root: Array1<f64>,
}

impl<'a> RandomWalk<'a> {
    /// The walk on `affinity`, whose entries must not be negative; takes two products with it. An isolated point is an
    /// error.
    pub fn new(affinity: &'a dyn Operator, a: f64) -> Result<RandomWalk<'a>> {
        let n = affinity.n();
        let sums = |v: Array1<f64>| affinity.apply(v.insert_axis(Axis(1)).view()).map(|s| s.remove_axis(Axis(1)));
        let q = sums(Array1::ones(n))?;
        if let Some(i) = q.iter().position(|d| !(*d > 0.0 && d.is_finite())) {
            return Err(Error::input(format!(
                "row {} (counted from 1) has the degree {}: affinities must be at least zero and join every point to another; \
                 use a kernel that is never negative, such as rbf",
                i + 1,
                q[i]
            )));
        }
        let weights = q.mapv(|q| q.powf(-a));
        let d = &weights * &sums(weights.clone())?;
        let scale = &weights / &d.mapv(f64::sqrt);
        let total = d.sum();
        Ok(RandomWalk { inner: affinity, weights, scale, root: d.mapv(|d| (d / total).sqrt()) })
    }
}

impl Operator for RandomWalk<'_> {
    forward! {
        n() -> usize;
        roundoff() -> f64;
    }

    fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        let (scale, root) = (self.scale.view().insert_axis(Axis(1)), self.root.view().insert_axis(Axis(1)));
        let walked = self.inner.apply((&v * &scale).view())? * scale;
        Ok(walked - matmul(root, matmul(root.t(), v).view()))
    }

    fn block(&self, rows: &[usize], columns: &[usize]) -> Result<Array2<f64>> {
        let mut block = self.inner.block(rows, columns)?;
        for ((a, b), w) in block.indexed_iter_mut() {
            let (i, j) = (rows[a], columns[b]);
            *w = self.scale[i] * *w * self.scale[j] - self.root[i] * self.root[j];
        }
        Ok(block)
    }

    fn diagonal(&self) -> Result<Array1<f64>> {
        Ok(self.inner.diagonal()? * &self.scale * &self.scale - &self.root * &self.root)
    }
}

/// `exp(−t(I − S))` by its Chebyshev series in S, whose spectrum lies in [−1, 1].
pub(crate) struct Heat<'a> {
    walk: &'a RandomWalk<'a>,
    /// `c_m` of `Σ c_m T_m(S)`
    series: Vec<f64>,
}

impl<'a> Heat<'a> {
    pub fn new(walk: &'a RandomWalk<'a>, t: f64) -> Heat<'a> {
        // Coefficient m is about exp(−m²/2t), and falls faster still where t is small.
        let count = 20 + (8.6 * t.sqrt()).ceil() as usize;
        let mut series = chebyshev_coefficients(|s| (-t * (1.0 - s)).exp(), 2 * count, count);
        let last = series.iter().rposition(|c| c.abs() > 1e-16).unwrap_or(0);
        series.truncate(last + 1);
        Heat { walk, series }
    }
}

/// The first `count` Chebyshev coefficients of a smooth function on [−1, 1], from its values at N `nodes`:
/// `c_m = (2/N) Σ_k f(cos θ_k) cos(m θ_k)`, `θ_k = π(k + ½)/N`, and half of it for m = 0.
pub(crate) fn chebyshev_coefficients(f: impl Fn(f64) -> f64, nodes: usize, count: usize) -> Vec<f64> {
    let angle = |k: usize| std::f64::consts::PI * (k as f64 + 0.5) / nodes as f64;
    let values: Vec<f64> = (0..nodes).map(|k| f(angle(k).cos())).collect();
    let coefficient = |m: usize| {
        let sum: f64 = values.iter().enumerate().map(|(k, v)| v * (m as f64 * angle(k)).cos()).sum();
        sum * if m == 0 { 1.0 } else { 2.0 } / nodes as f64
    };
    (0..count).map(coefficient).collect()
}

impl Operator for Heat<'_> {
    fn n(&self) -> usize {
        self.walk.n()
    }

    /// `T_{m+1} = 2 S T_m − T_{m−1}`
    fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        let mut y = &v * self.series[0];
        let (mut before, mut now) = (v.to_owned(), self.walk.apply(v)?);
        for (m, &c) in self.series.iter().enumerate().skip(1) {
            y.scaled_add(c, &now);
            if m + 1 < self.series.len() {
                let next = self.walk.apply(now.view())? * 2.0 - before;
                (before, now) = (now, next);
            }
        }
        Ok(y)
    }

    fn block(&self, rows: &[usize], columns: &[usize]) -> Result<Array2<f64>> {
        let mut units = Array2::zeros((self.n(), columns.len()));
        columns.iter().enumerate().for_each(|(b, &j)| units[[j, b]] = 1.0);
        Ok(self.apply(units.view())?.select(Axis(0), rows))
    }

    fn diagonal(&self) -> Result<Array1<f64>> {
        (0..self.n()).map(|i| Ok(self.block(&[i], &[i])?[[0, 0]])).collect()
    }

    fn roundoff(&self) -> f64 {
        self.walk.roundoff() * self.series.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::Device;
    use crate::kernel::Kernel;
    use crate::operator::{KernelOperator, Precision};
    use crate::rng::Rng;

    #[test]
    fn the_series_sums_to_its_function() {
        let pair = crate::operator::DenseOperator::new(ndarray::array![[0.0, 1.0], [1.0, 0.0]]);
        let walk = RandomWalk::new(&pair, 0.0).unwrap();
        for t in [16384.0, 256.0, 16.0, 1.0] {
            let series = Heat::new(&walk, t).series;
            for i in 0..=40 {
                let s = i as f64 / 20.0 - 1.0;
                let sum: f64 = series.iter().enumerate().map(|(m, c)| c * (m as f64 * s.acos()).cos()).sum();
                // The nodes are known to 1e-16, and t multiplies that.
                assert!((sum - (-t * (1.0 - s)).exp()).abs() < f64::max(1e-13, 1e-16 * t), "t = {t}, s = {s}");
            }
        }
    }

    #[test]
    fn the_constant_function_is_taken_out() {
        let mut rng = Rng::new(4);
        let x = rng.normals((40, 2));
        let kernel = Kernel::parse("rbf(1)").unwrap();
        let k = KernelOperator::new(&kernel, x.view(), Precision::F64, Device::Cpu).unwrap();
        for a in [0.0, 0.5, 1.0] {
            let walk = RandomWalk::new(&k, a).unwrap();
            let image = walk.apply(walk.root.view().insert_axis(Axis(1))).unwrap();
            assert!(image.iter().all(|v| v.abs() < 1e-14));
            let all: Vec<usize> = (0..40).collect();
            let block = walk.block(&all, &all).unwrap();
            let v = rng.normals((40, 2));
            assert!((walk.apply(v.view()).unwrap() - block.dot(&v)).iter().all(|d| d.abs() < 1e-13));
            assert!((walk.diagonal().unwrap() - block.diag()).iter().all(|d| d.abs() < 1e-15));
        }
    }
}
