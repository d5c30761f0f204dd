//! Posteriors over few functions: only algebra of small matrices.

use super::Structure;
use super::likelihood::Curvature;
use super::passes::{Hidden, Passes};
use crate::bundle::Bundle;
use crate::linalg::{eigh, matmul};
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis, s};

/// Functions `Ψ(x)` `[C, K]` of a row, such that `J(x)J(x')ᵀ ≈ Ψ(x)Ψ(x')ᵀ`.
pub(super) enum Basis {
    /// `f(x)ᵀ ⊗ I_C` of the input f of the last layer, with a one for its bias.
    LastLayer,
    /// `f(x)ᵀ ⊗ I_C` of the eigenfunctions `f = m(x) A`, A `[q, k]`, of the NTK, with the means m of hidden units.
    Eigenfunctions(Array2<f64>),
    /// `J(x)V` of directions V `[k, P]` in the space of parameters.
    Directions(Array2<f32>),
}

/// A Gaussian over the weights of few functions: `H = Σ_i Ψ(x_i)ᵀ Λ_i Ψ(x_i) = Q diag(λ) Qᵀ`.
pub(super) struct Functions {
    pub basis: Basis,
    /// λ `[K]`, descending and not negative.
    pub eigenvalues: Array1<f64>,
    /// Q `[K, K]`; row `c·k + j` is the weight of function j in output c. None where it is part of the directions.
    pub rotation: Array2<f64>,
    /// `‖θ‖²` of the parameters whose prior it is.
    pub square: f64,
}

/// Whether the functions are of differences of logits: softmax sees no number that is added to all of them.
fn differences_only(basis: &Basis, passes: &Passes) -> bool {
    matches!(basis, Basis::Eigenfunctions(_)) && passes.classes()
}

/// `Q_c − (1/C) Σ_c' Q_c'` in the rows of each output, so that the covariance becomes `PΣP` with `P = I − 11ᵀ/C`.
fn centred_over_outputs(rotation: &Array2<f64>, c: usize) -> Array2<f64> {
    let order = rotation.nrows();
    let parts = rotation
        .as_standard_layout()
        .into_owned()
        .into_shape_with_order((c, order / c, order))
        .expect("rows by output");
    let mean = parts.mean_axis(Axis(0)).expect("there are outputs");
    (parts - mean).into_shape_with_order((order, order)).expect("the same numbers")
}

/// The features `f(x)` `[n, k]` of a basis, and the outputs `[n, C]`; those of [`differences_only`] with mean zero.
fn features(basis: &Basis, passes: &Passes, x: ArrayView2<f64>) -> Result<(Array2<f64>, Array2<f64>)> {
    Ok(match basis {
        Basis::LastLayer => {
            let (z, f) = passes.forward(x, Hidden::Last)?;
            (f, z)
        }
        Basis::Eigenfunctions(a) => {
            let (mut z, means) = passes.forward(x, Hidden::Means)?;
            if passes.classes() {
                z = &z - &z.mean_axis(Axis(1)).expect("there are outputs").insert_axis(Axis(1));
            }
            fail_if!(
                means.ncols() != a.nrows(),
                "its parts do not fit together: the eigenfunctions are of another network"
            );
            (matmul(means.view(), a.view()), z)
        }
        Basis::Directions(v) => passes.along(x, v.view())?,
    })
}

impl Functions {
    /// Bytes of the fit for K functions in all.
    pub fn bytes(order: usize) -> u64 {
        4u64.saturating_mul(8).saturating_mul((order as u64).saturating_mul(order as u64))
    }

    /// The posterior over the functions of `basis` at rows `x` `[n, d]`, and the outputs there `[n, C]`.
    pub fn fit(
        basis: Basis,
        square: f64,
        passes: &Passes,
        x: ArrayView2<f64>,
        context: &FitContext,
    ) -> Result<(Self, Array2<f64>)> {
        let (f, z) = features(&basis, passes, x)?;
        let c = passes.outputs();
        let dense = matches!(basis, Basis::Directions(_));
        let order = if dense { f.ncols() } else { f.ncols() * c };
        context.budget.require(
            format!("the Gauss–Newton matrix of {order} functions"),
            Functions::bytes(order),
            "use last-layer-kfac, which keeps its factors only, or fewer functions",
        )?;
        let h = if dense { dense_gram(&f, z.view(), passes.classes()) } else { product_gram(&f, &z, passes.classes()) };
        let (eigenvalues, rotation) = eigh(context.device, h.view())?;
        let eigenvalues = Array1::from_iter(eigenvalues.into_iter().map(|λ| λ.max(0.0)));
        let rotation = if differences_only(&basis, passes) { centred_over_outputs(&rotation, c) } else { rotation };
        Ok((Functions { basis, eigenvalues, rotation, square }, z))
    }

    /// `Z_c = Ψ_c(x) Q` `[n, K]` for every output c.
    fn rotated(&self, f: &Array2<f64>, c: usize) -> Vec<Array2<f64>> {
        let k = f.ncols();
        match self.basis {
            Basis::Directions(_) => {
                let all = matmul(f.view(), self.rotation.view());
                (0..c).map(|output| all.slice(s![output..;c, ..]).to_owned()).collect()
            }
            _ => (0..c).map(|o| matmul(f.view(), self.rotation.slice(s![o * k..(o + 1) * k, ..]))).collect(),
        }
    }

    /// `Σ_cc = fᵀ M_c f` `[n, C, 1]` with `M_c = Q_c diag(1/(λ + s)) Q_cᵀ` `[k, k]`, for the features `f` `[n, k]` of a basis of products.
    fn variances(&self, f: &Array2<f64>, c: usize, shift: f64) -> Array3<f64> {
        let (k, weights) = (f.ncols(), self.eigenvalues.mapv(|λ| 1.0 / (λ + shift)));
        let mut out = Array3::zeros((f.nrows(), c, 1));
        for output in 0..c {
            let q = self.rotation.slice(s![output * k..(output + 1) * k, ..]);
            let m = matmul((&q * &weights).view(), q.t());
            out.slice_mut(s![.., output, 0]).assign(&(matmul(f.view(), m.view()) * f).sum_axis(Axis(1)));
        }
        out
    }

    /// Reads what [`Structure::pack`] wrote of functions of this basis.
    pub fn unpack(bundle: &Bundle, basis: Basis) -> Result<Functions> {
        let (rotation, eigenvalues) = (bundle.matrix("rotation")?, bundle.matrix("eigenvalues")?);
        let order = rotation.nrows();
        fail_if!(
            eigenvalues.dim() != (1, order) || rotation.ncols() != order || eigenvalues.iter().any(|λ| *λ < 0.0),
            "its parts do not fit together: the eigenvalues and the rotation of the functions"
        );
        Ok(Functions {
            basis,
            eigenvalues: eigenvalues.remove_axis(Axis(0)),
            rotation,
            square: bundle.value("square")?,
        })
    }
}

impl Structure for Functions {
    fn eigenvalues(&self) -> Vec<f64> {
        self.eigenvalues.to_vec()
    }

    fn square(&self) -> f64 {
        self.square
    }

    fn covariance(
        &self,
        passes: &Passes,
        x: ArrayView2<f64>,
        shifts: &[f64],
        full: bool,
    ) -> Result<(Array2<f64>, Vec<Array3<f64>>)> {
        let (f, z) = features(&self.basis, passes, x)?;
        let (c, products) = (passes.outputs(), !matches!(self.basis, Basis::Directions(_)));
        fail_if!(
            products && f.ncols() * c != self.rotation.nrows(),
            "its parts do not fit together: the functions are of another network"
        );
        // Operations: Σ_c f M_c f for every shift, or Z_c once and its squares for every shift.
        let (n, k, order, count) = (f.nrows(), f.ncols(), self.rotation.nrows(), shifts.len());
        if products && !full && k * k * (n + order) * count < n * order * (k + count) {
            return Ok((z, shifts.iter().map(|shift| self.variances(&f, c, *shift)).collect()));
        }
        Ok((z, covariances(&self.rotated(&f, c), &self.eigenvalues, shifts, full)))
    }

    fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<()> {
        bundle.put("eigenvalues", self.eigenvalues.view().insert_axis(Axis(0)));
        bundle.put("rotation", self.rotation.view());
        bundle.set("square", self.square);
        match &self.basis {
            Basis::LastLayer => {}
            Basis::Eigenfunctions(a) => bundle.put("functions", a.view()),
            Basis::Directions(v) => bundle.put("directions", v.mapv(f64::from)),
        }
        Ok(())
    }
}

/// `Σ_cc' = Σ_k Z_ck Z_c'k/(λ_k + s)` `[n, C, C]`, or, unless `full`, the diagonals `[n, C, 1]`, for every shift s, from `Z_c` `[n, K]` for
/// every output c and λ `[K]`.
pub(super) fn covariances(
    rotated: &[Array2<f64>],
    eigenvalues: &Array1<f64>,
    shifts: &[f64],
    full: bool,
) -> Vec<Array3<f64>> {
    if !full {
        return diagonals(rotated, eigenvalues, shifts);
    }
    let (n, c) = (rotated[0].nrows(), rotated.len());
    let covariance = |shift: &f64| {
        let weights = eigenvalues.mapv(|λ| 1.0 / (λ + shift));
        let mut out = Array3::zeros((n, c, c));
        for (a, za) in rotated.iter().enumerate() {
            let weighted = za * &weights;
            for (b, zb) in rotated[..=a].iter().enumerate() {
                let sums = (&weighted * zb).sum_axis(Axis(1));
                out.slice_mut(s![.., a, b]).assign(&sums);
                out.slice_mut(s![.., b, a]).assign(&sums);
            }
        }
        out
    };
    shifts.iter().map(covariance).collect()
}

/// `Σ_cc = Σ_k Z_ck²/(λ_k + s)` `[n, C, 1]` for every shift s: the squares of `Z_c` `[n, K]` times `1/(λ + s)` `[K, shifts]`.
fn diagonals(rotated: &[Array2<f64>], eigenvalues: &Array1<f64>, shifts: &[f64]) -> Vec<Array3<f64>> {
    let weights = Array2::from_shape_fn((eigenvalues.len(), shifts.len()), |(k, s)| 1.0 / (eigenvalues[k] + shifts[s]));
    let mut out = vec![Array3::zeros((rotated[0].nrows(), rotated.len(), 1)); shifts.len()];
    for (c, z) in rotated.iter().enumerate() {
        let sums = matmul(z.mapv(|z| z * z).view(), weights.view());
        for (out, sums) in out.iter_mut().zip(sums.columns()) {
            out.slice_mut(s![.., c, 0]).assign(&sums);
        }
    }
    out
}

/// `Σ_i Λ_i ⊗ f_i f_iᵀ` `[C·k, C·k]` for features `f` `[n, k]` and outputs `z` `[n, C]`.
fn product_gram(f: &Array2<f64>, z: &Array2<f64>, classes: bool) -> Array2<f64> {
    let ((n, k), c) = (f.dim(), z.ncols());
    let λ = Curvature::at(z.view(), classes);
    let mut h = Array2::zeros((c * k, c * k));
    for a in 0..c {
        for b in 0..=a {
            let block = matmul(f.t(), (f * &λ.entries(a, b, n)).view());
            h.slice_mut(s![a * k..(a + 1) * k, b * k..(b + 1) * k]).assign(&block);
            h.slice_mut(s![b * k..(b + 1) * k, a * k..(a + 1) * k]).assign(&block.t());
        }
    }
    h
}

/// `Σ_i Ψ_iᵀ Λ_i Ψ_i` `[k, k]` for functions `ψ` `[n·C, k]` and outputs `z` `[n, C]`.
pub(super) fn dense_gram(psi: &Array2<f64>, z: ArrayView2<f64>, classes: bool) -> Array2<f64> {
    let h = matmul(psi.t(), Curvature::at(z, classes).times(psi).view());
    (&h + &h.t()) * 0.5
}
