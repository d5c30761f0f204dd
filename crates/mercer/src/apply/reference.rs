//! The fitted points through which an estimator sees new points.

use super::check_finite;
use super::ridge::sharded_points::ShardedPoints;
use crate::FitContext;
use crate::bundle::Bundle;
use crate::compute::Device;
use crate::kernel::Kernel;
use crate::linalg::Sharding;
use crate::operator::cross_apply;
use crate::spectrum::{Origin, check_columns};
use crate::{Result, fail_if};
use ndarray::{Array2, ArrayView2};
use serde::de::DeserializeOwned;

/// The points that an estimator was fitted on, and where they come from: new points are seen through `κ(x, X)`.
/// Example: [`KernelPca`](super::KernelPca).
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// How and on what it was fitted.
    pub origin: Origin,
    /// Where kernel values of new points are computed.
    pub device: Device,
    /// X `[n, d]`, or the rows of this rank
    points: Array2<f64>,
    sharding: Sharding,
}

impl Reference {
    pub(super) fn new(origin: Origin, x: ArrayView2<f64>, context: &FitContext) -> Reference {
        Reference { origin, device: context.device, points: x.to_owned(), sharding: Sharding::WHOLE }
    }

    /// Of points of which each rank has some: what new points are seen through is a sum over the ranks.
    pub(super) fn sharded(origin: Origin, points: ShardedPoints<'_>, context: &FitContext) -> Reference {
        Reference { sharding: points.sharding().clone(), ..Reference::new(origin, points.own(), context) }
    }

    /// The points X `[n, d]` of the fit; those of this rank, where it was fitted on points that ranks share.
    pub fn points(&self) -> ArrayView2<'_, f64> {
        self.points.view()
    }

    /// `κ(x/h, X/h) V` `[m, k]` for new points `x` `[m, d]` and `V` `[n, k]`, which are the same on every rank.
    pub(super) fn expand(
        &self,
        kernel: &Kernel,
        h: f64,
        x: ArrayView2<f64>,
        v: ArrayView2<f64>,
    ) -> Result<Array2<f64>> {
        check_new(x, self.origin.d)?;
        let v = self.sharding.own(v);
        let apply = |x, points| cross_apply(kernel, x, points, v, self.origin.precision, self.device);
        let mut sum =
            if h == 1.0 { apply(x, self.points()) } else { apply((&x / h).view(), (&self.points / h).view()) }?;
        self.sharding.sum(sum.as_slice_mut().expect("own array"))?;
        Ok(sum)
    }

    pub(super) fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<()> {
        bundle.set("origin", &self.origin);
        bundle.put_sharded("points", self.points.view(), &self.sharding);
        Ok(())
    }

    pub(super) fn unpack(bundle: &Bundle, device: Device) -> Result<Reference> {
        let origin: Origin = bundle.value("origin")?;
        let points = matrix(bundle, "points", (origin.n, origin.d))?;
        Ok(Reference { origin, device, points, sharding: Sharding::WHOLE })
    }
}

/// Refuses new points `[m, ·]` that are not finite or do not have the `d` columns of the fit.
pub(super) fn check_new(x: ArrayView2<f64>, d: usize) -> Result<()> {
    check_columns(x, d)?;
    check_finite(x)
}

/// A saved matrix; one of another shape than `wanted` is refused.
pub(super) fn matrix(bundle: &Bundle, name: &str, wanted: (usize, usize)) -> Result<Array2<f64>> {
    let matrix = bundle.matrix(name)?;
    let ((a, b), (n, m)) = (matrix.dim(), wanted);
    fail_if!((a, b) != (n, m), "its parts do not fit together: '{name}' is {a}×{b} where {n}×{m} is needed");
    Ok(matrix)
}

/// A saved list; one of another length than `n` is refused.
pub(super) fn list<V: DeserializeOwned>(bundle: &Bundle, name: &str, n: usize) -> Result<Vec<V>> {
    let list: Vec<V> = bundle.value(name)?;
    fail_if!(
        list.len() != n,
        "its parts do not fit together: '{name}' has {} entries where {n} are needed",
        list.len()
    );
    Ok(list)
}
