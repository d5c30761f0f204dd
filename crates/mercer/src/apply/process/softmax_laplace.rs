//! The Laplace approximation of latent functions that decide among classes.

use crate::apply::probabilities::softmax;
use crate::compute::Device;
use crate::linalg::{Cholesky, matmul, solve_lower};
use crate::{Error, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis, Zip};

/// Newton steps to the mode, at most.
const STEPS: usize = 100;
/// The mode is found by a step that raises `log p(y, f)` by less, for each row: the next would raise it by about the square of that.
const TOLERANCE: f64 = 1e-9;
/// What rounding may take from `log p(y, f)`, for each row.
const ROUNDING: f64 = 1e-12;

/// The posterior of C latent functions at n points, each `N(0, K)` beforehand, given classes with `p(c) = softmax(f)_c`: a
/// normal distribution at its mode with the curvature there (Rasmussen and Williams, section 3.5).
///
/// With `D_c = diag(π_c)`, `E_c = D_c^{1/2}(I + D_c^{1/2} K D_c^{1/2})⁻¹ D_c^{1/2}` and `S = Σ_c E_c`, the blocks of
/// `(K + W⁻¹)⁻¹` are `δ_cc' E_c − E_c S⁻¹ E_c'`; nothing larger than n×n is formed.
pub(crate) struct Mode {
    /// `K⁻¹f = y − π` `[n, C]`
    pub coefficients: Array2<f64>,
    /// π `[n, C]`
    probabilities: Array2<f64>,
    /// `E_c` `[n, n]`
    e: Vec<Array2<f64>>,
    /// The factor of S.
    sum: Cholesky<f64>,
}

/// `log p(y, f)` up to a constant, with what it is made of.
struct Joint {
    /// `[n, C]`
    coefficients: Array2<f64>,
    /// `f = K a` `[n, C]`
    f: Array2<f64>,
    /// `[n, C]`
    probabilities: Array2<f64>,
    /// `−½ Σ_c a_c·f_c + Σ_i (f_{i,y_i} − log Σ_c exp f_ic)`
    value: f64,
}

impl Joint {
    /// At the coefficients `a` `[n, C]`, for `k` `[n, n]` and classes `y` `[n, C]` of zeros and ones.
    fn at(k: ArrayView2<f64>, y: ArrayView2<f64>, a: Array2<f64>) -> Joint {
        let f = matmul(k, a.view());
        let mut probabilities = f.clone();
        let normalisers: f64 =
            probabilities.rows_mut().into_iter().map(|mut row| softmax(row.as_slice_mut().expect("in order"))).sum();
        let value = -0.5 * (&a * &f).sum() + (&y * &f).sum() - normalisers;
        Joint { coefficients: a, f, probabilities, value }
    }
}

/// `E_c` of one class, with `½ log|I + D_c^{1/2} K D_c^{1/2}|`.
fn curvature(k: ArrayView2<f64>, root: &Array1<f64>, device: Device) -> Result<(Array2<f64>, f64)> {
    let mut b = &k * &root.view().insert_axis(Axis(1)) * root;
    b.diag_mut().mapv_inplace(|b| b + 1.0);
    let factor = Cholesky::new(device, b.view())?;
    let half_determinant = half_log_determinant(&factor)?;
    let mut e = factor.inverse()?;
    e *= &root.view().insert_axis(Axis(1));
    e *= root;
    Ok((e, half_determinant))
}

/// `½ log|A|` of a factored matrix.
pub(crate) fn half_log_determinant(factor: &Cholesky<f64>) -> Result<f64> {
    let l = factor.lower()?;
    Ok((0..l.nrows()).map(|i| l[(i, i)].ln()).sum())
}

impl Mode {
    /// The mode for `k` `[n, n]` and classes `y` `[n, C]` of zeros and ones, from the coefficients `start` `[n, C]`, and there
    /// `log q(y) = log p(y, f) − ½ log|I + KW|`, the approximate marginal likelihood.
    pub fn find(k: ArrayView2<f64>, y: ArrayView2<f64>, start: Array2<f64>, device: Device) -> Result<(Mode, f64)> {
        let n = k.nrows() as f64;
        let mut at = Joint::at(k, y, start);
        for _ in 0..STEPS {
            let curved = Curved::new(k, &at, device)?;
            let newton = curved.newton(k, y, &at)?;
            let next = raised(k, y, &at, &newton);
            let gain = next.as_ref().map_or(0.0, |next| next.value - at.value);
            at = next.unwrap_or(at);
            if gain < TOLERANCE * n {
                let curved = Curved::new(k, &at, device)?;
                let likelihood = at.value - curved.half_determinant;
                return Ok((curved.mode(at), likelihood));
            }
        }
        Err(Error::Numerical(format!(
            "the mode of the classes' latent functions was not found in {STEPS} Newton steps; use a smaller amplitude of the kernel"
        )))
    }

    /// At coefficients `[n, C]` that are known to be the mode.
    pub fn at(k: ArrayView2<f64>, coefficients: Array2<f64>, device: Device) -> Result<Mode> {
        let at = Joint::at(k, Array2::zeros(coefficients.dim()).view(), coefficients);
        Ok(Curved::new(k, &at, device)?.mode(at))
    }

    /// `∂(−log q(y)/n)/∂K` `[n, n]`:
    /// `−(1/n)[½ Σ a_c a_cᵀ − ½ Σ (E_c − E_c S⁻¹ E_c) + Σ u_c a_cᵀ]`, made symmetric.
    pub fn derivative(&self, k: ArrayView2<f64>) -> Result<Array2<f64>> {
        let n = k.nrows() as f64;
        let u = self.pulled_back(k, &self.slope_at_mode(k, &self.inner(k)?))?;
        let a = &self.coefficients;
        let mixed = matmul(u.view(), a.t());
        let mut gradient = (matmul(a.view(), a.t()) + &mixed + mixed.t()) * (-0.5 / n);
        for e in &self.e {
            let mut half = e.clone();
            solve_lower(self.sum.lower()?, half.view_mut());
            gradient.scaled_add(0.5 / n, e);
            gradient.scaled_add(-0.5 / n, &matmul(half.t(), half.view()));
        }
        Ok(gradient)
    }

    /// `L⁻¹E_c κ` `[n, m]` for every class, with `S = LLᵀ`, for `cross` = κ(X,x) `[n, m]`.
    fn inner(&self, cross: ArrayView2<f64>) -> Result<Vec<Array2<f64>>> {
        let of_class = |e: &Array2<f64>| {
            let mut t = matmul(e.view(), cross);
            solve_lower(self.sum.lower()?, t.view_mut());
            Ok(t)
        };
        self.e.iter().map(of_class).collect()
    }

    /// The means `[m, C]` and, point by point, the covariances `[C, C]` of the latent functions at new points with
    /// `cross` = κ(X,x) `[n, m]` and `prior` = κ(x,x) `[m]`.
    pub fn posterior(&self, cross: ArrayView2<f64>, prior: &Array1<f64>) -> Result<(Array2<f64>, Vec<Array2<f64>>)> {
        let (classes, inner) = (self.e.len(), self.inner(cross)?);
        let own: Vec<Array1<f64>> = self.own(cross);
        let covariance = |i: usize| {
            Array2::from_shape_fn((classes, classes), |(c, d)| {
                let shared = inner[c].column(i).dot(&inner[d].column(i));
                if c == d { prior[i] - own[c][i] + shared } else { shared }
            })
        };
        let means = matmul(cross.t(), self.coefficients.view());
        Ok((means, (0..cross.ncols()).map(covariance).collect()))
    }

    /// `κᵀE_cκ` `[m]` for every class.
    fn own(&self, cross: ArrayView2<f64>) -> Vec<Array1<f64>> {
        self.e.iter().map(|e| (&matmul(e.view(), cross) * &cross).sum_axis(Axis(0))).collect()
    }

    /// `s_ic = ∂ log q/∂f_ic` `[n, C]` through the curvature alone, since `log p(y, f)` is stationary:
    /// `−½ tr(Σ_i ∂W_i/∂f_ic) = −½ π_ic (q_ic − Σ_a π_ia q_ia)` with `q_ia = Σ_i,aa − 2 (Σ_i π_i)_a` and Σ_i the posterior covariance at
    /// point i. `inner` is that of K itself.
    fn slope_at_mode(&self, k: ArrayView2<f64>, inner: &[Array2<f64>]) -> Array2<f64> {
        let (π, own) = (&self.probabilities, self.own(k));
        // Σ_c π_ic T_c[·, i]
        let mut mixed = Array2::zeros(k.dim());
        for (t, π_c) in inner.iter().zip(π.columns()) {
            mixed += &(t * &π_c);
        }
        let mut q = Array2::zeros(π.dim());
        for (c, t) in inner.iter().enumerate() {
            let (squares, shared) = ((t * t).sum_axis(Axis(0)), (t * &mixed).sum_axis(Axis(0)));
            Zip::indexed(q.column_mut(c)).for_each(|i, q| {
                let left = k[[i, i]] - own[c][i];
                *q = left + squares[i] - 2.0 * (π[[i, c]] * left + shared[i]);
            });
        }
        let means = (π * &q).sum_axis(Axis(1)).insert_axis(Axis(1));
        -0.5 * (π * &(q - means))
    }

    /// `u = (I + WK)⁻¹s = s − (K + W⁻¹)⁻¹Ks` `[n, C]`, so that `s·df = Σ_c u_cᵀ dK a_c`.
    fn pulled_back(&self, k: ArrayView2<f64>, s: &Array2<f64>) -> Result<Array2<f64>> {
        let ks = matmul(k, s.view());
        let mut each = Array2::zeros(s.dim());
        for (c, e) in self.e.iter().enumerate() {
            each.column_mut(c).assign(&e.dot(&ks.column(c)));
        }
        let shared = self.sum.solve(each.sum_axis(Axis(1)).insert_axis(Axis(1)).view())?;
        for (c, e) in self.e.iter().enumerate() {
            let mut each = each.column_mut(c);
            each -= &e.dot(&shared.column(0));
        }
        Ok(s - &each)
    }
}

/// The curvature at some latent functions.
struct Curved {
    e: Vec<Array2<f64>>,
    sum: Cholesky<f64>,
    /// `½ log|I + KW|`
    half_determinant: f64,
}

impl Curved {
    fn new(k: ArrayView2<f64>, at: &Joint, device: Device) -> Result<Curved> {
        let roots = at.probabilities.mapv(f64::sqrt);
        let (mut e, mut half_determinant) = (vec![], 0.0);
        for root in roots.columns() {
            let (of_class, half) = curvature(k, &root.to_owned(), device)?;
            e.push(of_class);
            half_determinant += half;
        }
        let mut total = e[0].clone();
        e[1..].iter().for_each(|e| total += e);
        let sum = Cholesky::new(device, total.view())?;
        half_determinant += half_log_determinant(&sum)?;
        Ok(Curved { e, sum, half_determinant })
    }

    /// The coefficients `[n, C]` that a whole Newton step leads to: with `b = Wf + y − π` and `c_c = E_c K b_c`,
    /// `a_c = b_c − c_c + E_c S⁻¹ Σ_d c_d`.
    fn newton(&self, k: ArrayView2<f64>, y: ArrayView2<f64>, at: &Joint) -> Result<Array2<f64>> {
        let π = &at.probabilities;
        let mean = (π * &at.f).sum_axis(Axis(1)).insert_axis(Axis(1));
        let b = π * &(&at.f - &mean) + y - π;
        let kb = matmul(k, b.view());
        let mut c = Array2::zeros(b.dim());
        for (j, e) in self.e.iter().enumerate() {
            c.column_mut(j).assign(&e.dot(&kb.column(j)));
        }
        let shared = self.sum.solve(c.sum_axis(Axis(1)).insert_axis(Axis(1)).view())?;
        let mut a = b - c;
        for (j, e) in self.e.iter().enumerate() {
            let mut a = a.column_mut(j);
            a += &e.dot(&shared.column(0));
        }
        Ok(a)
    }

    fn mode(self, at: Joint) -> Mode {
        let Joint { coefficients, probabilities, .. } = at;
        Mode { coefficients, probabilities, e: self.e, sum: self.sum }
    }
}

/// A point between `at` and the coefficients `newton` `[n, C]` with a larger `log p(y, f)`: the whole step, or the first half of it, quarter, …
/// that is one, up to rounding. None where there is no such point.
fn raised(k: ArrayView2<f64>, y: ArrayView2<f64>, at: &Joint, newton: &Array2<f64>) -> Option<Joint> {
    (0..20).find_map(|halvings| {
        let t = 0.5f64.powi(halvings);
        let next = Joint::at(k, y, &at.coefficients * (1.0 - t) + newton * t);
        (next.value > at.value - ROUNDING * k.nrows() as f64).then_some(next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// A positive definite matrix and classes at random.
    fn problem(n: usize, classes: usize) -> (Array2<f64>, Array2<f64>) {
        let mut rng = Rng::new(4);
        let f = rng.normals((n, n));
        let labels: Vec<usize> = (0..n).map(|_| rng.below(classes)).collect();
        (f.dot(&f.t()) * 0.3, Array2::from_shape_fn((n, classes), |(i, c)| f64::from(u8::from(labels[i] == c))))
    }

    fn mode(k: &Array2<f64>, y: &Array2<f64>) -> (Mode, f64) {
        Mode::find(k.view(), y.view(), Array2::zeros(y.dim()), Device::Cpu).unwrap()
    }

    /// `[nC, nC]`, class by class, from the definitions.
    fn dense(k: &Array2<f64>, π: &Array2<f64>) -> (Array2<f64>, Array2<f64>) {
        let (n, classes) = π.dim();
        let at = |i: usize| (i % n, i / n);
        let all = Array2::from_shape_fn((n * classes, n * classes), |(i, j)| {
            let ((i, c), (j, d)) = (at(i), at(j));
            if c == d { k[[i, j]] } else { 0.0 }
        });
        let w = Array2::from_shape_fn((n * classes, n * classes), |(i, j)| {
            let ((i, c), (j, d)) = (at(i), at(j));
            if i != j { 0.0 } else { f64::from(u8::from(c == d)) * π[[i, c]] - π[[i, c]] * π[[i, d]] }
        });
        (all, w)
    }

    #[test]
    fn the_mode_is_stationary_and_its_likelihood_that_of_the_dense_curvature() {
        let (k, y) = problem(7, 3);
        let (mode, likelihood) = mode(&k, &y);
        // ∇ log p(y|f) = K⁻¹f
        let gap = &y - &mode.probabilities - &mode.coefficients;
        assert!(gap.iter().all(|g| g.abs() < 1e-7), "{gap}");
        let (all, w) = dense(&k, &mode.probabilities);
        // |I + KW| by the eigenvalues of the symmetric I + K^{1/2} W K^{1/2}
        let (λ, u) = crate::linalg::eigh(Device::Cpu, all.view()).unwrap();
        let root = (&u * &λ.iter().map(|λ| λ.max(0.0).sqrt()).collect::<Array1<f64>>()).dot(&u.t());
        let (λ, _) = crate::linalg::eigh(Device::Cpu, (root.dot(&w).dot(&root)).view()).unwrap();
        let half: f64 = λ.iter().map(|λ| 0.5 * (1.0 + λ).ln()).sum();
        let joint = Joint::at(k.view(), y.view(), mode.coefficients.clone()).value;
        assert!((likelihood - (joint - half)).abs() < 1e-9, "{likelihood} {}", joint - half);
    }

    #[test]
    fn the_derivative_by_the_matrix_is_that_of_differences() {
        let (k, y) = problem(6, 3);
        let gradient = mode(&k, &y).0.derivative(k.view()).unwrap();
        let value = |k: &Array2<f64>| -mode(k, &y).1 / 6.0;
        for (i, j) in [(0, 0), (1, 4), (5, 2), (3, 3)] {
            let h = 1e-4;
            let moved = |h: f64| {
                let mut k = k.clone();
                k[[i, j]] += h;
                if i != j {
                    k[[j, i]] += h;
                }
                value(&k)
            };
            let difference = (moved(h) - moved(-h)) / (2.0 * h);
            let ours = if i == j { gradient[[i, i]] } else { gradient[[i, j]] + gradient[[j, i]] };
            assert!((difference - ours).abs() < 1e-6, "{i} {j}: {difference} {ours}");
        }
    }

    #[test]
    fn the_posterior_at_new_points_is_the_dense_one() {
        let (all, y) = problem(9, 3);
        // The last point is new.
        let (n, classes) = (8, 3);
        let k = all.slice(ndarray::s![..n, ..n]).to_owned();
        let y = y.slice(ndarray::s![..n, ..]).to_owned();
        let (mode, _) = mode(&k, &y);
        let cross = all.slice(ndarray::s![..n, n..]).to_owned();
        let (means, covariances) = mode.posterior(cross.view(), &Array1::from_elem(1, all[[n, n]])).unwrap();
        let (big, w) = dense(&k, &mode.probabilities);
        // (K + W⁻¹)⁻¹ = W(I + KW)⁻¹, by a general solver on (I + KW)ᵀ.
        let m = Array2::<f64>::eye(n * classes) + big.dot(&w);
        let normal = Cholesky::new(Device::Cpu, m.dot(&m.t()).view()).unwrap();
        let inverse = w.dot(&m.t()).dot(&normal.inverse().unwrap());
        for c in 0..classes {
            assert!((means[[0, c]] - cross.column(0).dot(&mode.coefficients.column(c))).abs() < 1e-12);
            for d in 0..classes {
                let block = inverse.slice(ndarray::s![c * n..(c + 1) * n, d * n..(d + 1) * n]);
                let known = cross.column(0).dot(&block.dot(&cross.column(0)));
                let expected = if c == d { all[[n, n]] - known } else { -known };
                let ours = covariances[0][[c, d]];
                assert!((ours - expected).abs() < 1e-8, "{c} {d}: {ours} {expected}");
            }
        }
    }
}
