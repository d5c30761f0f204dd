//! Nested low-rank approximation (NeuralSVD): the best rank-1, rank-2, … approximations of K, all at once.

use super::OnDevice;
use super::objective::{Objective, Outcome, Step, form, mix};
use crate::Result;
use crate::compute::{self, Store, Tensor};
use ndarray::Array2;

/// How the k nested problems are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nesting {
    /// Function l follows the gradient of the rank-l problem alone: for networks that share nothing.
    Sequential,
    /// All follow the gradient of the mean of the k problems: for a shared trunk.
    Joint,
}

/// Minimises `‖K − Σ_l f_l f_lᵀ‖²`, up to a constant `−2 Σ_l ⟨f_l,Kf_l⟩ + Σ_lm Λ_lm²` with `Λ = ⟨f,fᵀ⟩`, for every rank
/// at once: `−2 Σ_l m_l ⟨f_l,Kf_l⟩ + Σ_lm M_lm Λ_lm Λ'_lm`.
///
/// Λ and Λ' come from two independent halves of the batch, so that their product has no bias. Functions are not
/// normalised; at the minimum `⟨f_l,f_l⟩ = μ_l`. Joint nesting weighs the ranks alike: `m_l = (k−l)/k` counted from
/// zero and `M_lm = m_max(l,m)`.
pub struct Nested {
    nesting: Nesting,
    buffers: Option<[Tensor; 3]>,
}

impl Nested {
    /// With this nesting.
    pub fn new(nesting: Nesting) -> Self {
        Nested { nesting, buffers: None }
    }

    /// `m` as a diagonal matrix, and `M` `[k, k]`; for sequential nesting the part of `M` that function l (row) sees.
    fn weights(&self, k: usize) -> (Array2<f64>, Array2<f64>) {
        let m = |l: usize| (k - l) as f64 / k as f64;
        match self.nesting {
            Nesting::Sequential => {
                (Array2::eye(k), Array2::from_shape_fn((k, k), |(l, o)| f64::from(u8::from(o <= l))))
            }
            Nesting::Joint => (
                Array2::from_shape_fn((k, k), |(l, o)| if l == o { m(l) } else { 0.0 }),
                Array2::from_shape_fn((k, k), |(l, o)| m(l.max(o))),
            ),
        }
    }
}

/// The two halves of the functions `[k, B, c]` by points, each zero where the other is not, and their sizes.
fn halves(psi: &Tensor, first: &mut Tensor, second: &mut Tensor) -> Result<[usize; 2]> {
    let (k, b, c) = (psi.shape()[0], psi.shape()[1], psi.shape()[2]);
    let in_first = |i: usize| (i / c) % b < b / 2;
    let mask: Vec<f32> = (0..b * c).map(|i| f32::from(u8::from(in_first(i)))).collect();
    *first = Tensor::from_host(psi.device(), psi.shape(), &mask.repeat(k))?;
    compute::multiply(first, psi);
    second.reshape(psi.shape())?;
    compute::copy(psi, second);
    compute::axpy(-1.0, first, second);
    Ok([b / 2 * c, (b - b / 2) * c])
}

impl Objective for Nested {
    fn name(&self) -> &'static str {
        "nested"
    }

    fn describe(&self) -> String {
        format!("nested ({:?})", self.nesting)
    }

    fn on_device(&mut self) -> Option<OnDevice<'_>> {
        Some(OnDevice::Nested(self.nesting))
    }

    fn step(&mut self, step: &mut Step<'_>) -> Result<Outcome> {
        let empty = || Tensor::zeros(step.psi.device(), &[0]);
        let [mut first, mut second, mut g] = match self.buffers.take() {
            Some(buffers) => buffers,
            None => [empty()?, empty()?, empty()?],
        };
        let points = step.points() as f64;
        let (m, big_m) = self.weights(step.psi.shape()[0]);
        let sizes = halves(step.psi, &mut first, &mut second)?.map(|size| size as f64);
        mix(&(&m * (-4.0 / points)), step.kpsi, Store::Replace, &mut g)?;
        let loss = if sizes[0] == 0.0 {
            // One point has no halves.
            mix(&(&big_m * step.covariance * (4.0 / points)), step.psi, Store::Add, &mut g)?;
            (&big_m * step.covariance * step.covariance).sum()
        } else {
            // Means over each half: the other half's values are zero.
            let lambda = form(&first, &first)? * (points / sizes[0]);
            let other = form(&second, &second)? * (points / sizes[1]);
            mix(&(&big_m * &other * (2.0 / sizes[0])), &first, Store::Add, &mut g)?;
            mix(&(&big_m * &lambda * (2.0 / sizes[1])), &second, Store::Add, &mut g)?;
            (&big_m * &lambda * &other).sum()
        };
        let loss = loss - 2.0 * (&m * step.r).sum();
        step.backward(&g)?;
        self.buffers = Some([first, second, g]);
        let quotient = |(r, c): (&f64, &f64)| if *c > 0.0 { r / c } else { 0.0 };
        let eigenvalues = step.unbiased.diag().iter().zip(step.covariance.diag()).map(quotient).collect();
        Ok(Outcome { loss, eigenvalues })
    }
}
