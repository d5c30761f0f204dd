//! An ordered code: functions whose first m values are the code of length m.

use super::reference::{check_new, matrix};
use super::traits::{fields, saved};
use super::{PairCertificate, Transform};
use crate::compute::Device;
use crate::linalg::matmul;
use crate::model::Bundle;
use crate::operator::{Features, Points};
use crate::spectrum::Origin;
use crate::spectrum::neural::{NetworkFeatures, Training};
use crate::{Result, fail_if};
use ndarray::{Array2, ArrayView2, Axis};

/// Coordinates `√μ_j ψ_j(x)` in the order of the eigenvalues `μ_j` of a kernel that is known through pairs: products of codes are
/// the kernel's best approximation by so many coordinates. Example: [`ViewEigenmap`](super::ViewEigenmap).
pub struct FittedCode {
    /// How and on what it was fitted.
    pub origin: Origin,
    /// μ, descending, none of them zero.
    pub eigenvalues: Vec<f64>,
    /// The same functions on pairs that were not used to find them.
    pub certificate: PairCertificate,
    /// How the network was trained, where there is one.
    pub training: Option<Training>,
    /// Warnings for the user.
    pub notes: Vec<String>,
    pub(super) map: CodeMap,
}

/// `x ↦ (φ(x) − b) A`.
pub(super) struct CodeMap {
    /// φ, where it is not the row itself.
    pub network: Option<NetworkFeatures>,
    /// b `[1, p]`
    pub shift: Array2<f64>,
    /// A `[p, k]`, which has the factors `√μ_j`.
    pub coefficients: Array2<f64>,
}

/// Rows that networks see at a time.
const STRIP: usize = 2048;

impl CodeMap {
    pub fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        let Some(network) = &self.network else {
            return Ok(matmul((&x - &self.shift).view(), self.coefficients.view()));
        };
        let mut codes = Array2::zeros((x.nrows(), self.coefficients.ncols()));
        for (x, mut codes) in x.axis_chunks_iter(Axis(0), STRIP).zip(codes.axis_chunks_iter_mut(Axis(0), STRIP)) {
            let phi = network.eval(Points::from(x))? - &self.shift;
            codes.assign(&matmul(phi.view(), self.coefficients.view()));
        }
        Ok(codes)
    }

    fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<()> {
        bundle.set("network", self.network.is_some());
        if let Some(network) = &self.network {
            network.save(bundle)?;
        }
        bundle.put("shift", self.shift.view());
        bundle.put("coefficients", self.coefficients.view());
        Ok(())
    }

    fn unpack(bundle: &Bundle, device: Device) -> Result<CodeMap> {
        let (origin, eigenvalues): (Origin, Vec<f64>) = (bundle.value("origin")?, bundle.value("eigenvalues")?);
        let network = if bundle.value("network")? { Some(NetworkFeatures::load(bundle, device)?) } else { None };
        let (inputs, p) = network.as_ref().map_or((origin.d, origin.d), |n| (n.inputs().unwrap_or(0), n.dim()));
        fail_if!(
            inputs != origin.d,
            "its parts do not fit together: the network takes {inputs} columns, not {}",
            origin.d
        );
        Ok(CodeMap {
            network,
            shift: matrix(bundle, "shift", (1, p))?,
            coefficients: matrix(bundle, "coefficients", (p, eigenvalues.len()))?,
        })
    }
}

impl Transform for FittedCode {
    fields! {
        origin: Origin = origin;
        eigenvalues: [f64] = eigenvalues;
        notes: [String] = notes;
    }

    /// The fitted rows are not kept: there are no coordinates of them.
    fn embedding(&self) -> Array2<f64> {
        Array2::zeros((0, self.eigenvalues.len()))
    }

    fn certificate(&self) -> Option<&PairCertificate> {
        Some(&self.certificate)
    }

    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        check_new(x, self.origin.d)?;
        self.map.evaluate(x)
    }
}

saved! {
    FittedCode, "code":
    origin: Origin = value("origin");
    eigenvalues: Vec<f64> = value("eigenvalues");
    certificate: PairCertificate = value("certificate", |c: PairCertificate| c.checked(eigenvalues.len()));
    training: Option<Training> = value("training");
    notes: Vec<String> = value("notes");
    map: CodeMap = whole(CodeMap::unpack);
}
