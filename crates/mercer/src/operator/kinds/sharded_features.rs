//! Kernel features whose centres are sharded over ranks.

use crate::Result;
use crate::bundle::Bundle;
use crate::linalg::Sharding;
use crate::operator::{Features, KernelFeatures, Points};
use ndarray::{Array2, ArrayView2};

/// `φ_m(x) = κ(x, z_m)` for centres of which each rank has some. The coefficients of a rank are those of its centres; values are sums over the
/// ranks. All methods that return a `Result` are collective.
pub(crate) struct ShardedFeatures {
    /// At the centres of this rank.
    own: KernelFeatures,
    sharding: Sharding,
}

impl ShardedFeatures {
    /// Features at the centres of all ranks, of which this one has those of `own`.
    pub fn new(own: KernelFeatures, sharding: Sharding) -> Self {
        ShardedFeatures { own, sharding }
    }
}

impl Features for ShardedFeatures {
    fn dim(&self) -> usize {
        self.sharding.shares().map_or(self.own.dim(), |shares| shares.n())
    }

    fn inputs(&self) -> Option<usize> {
        self.own.inputs()
    }

    /// `φ(x)` `[n, p]`, with the columns of all ranks.
    fn eval(&self, points: Points<'_>) -> Result<Array2<f64>> {
        let own = self.own.eval(points)?;
        Ok(self.sharding.gathered(own.reversed_axes())?.reversed_axes())
    }

    fn project(&self, points: Points<'_>, a: ArrayView2<f64>) -> Result<Array2<f64>> {
        let mut sum = self.own.project_in_parts(points, a)?;
        self.sharding.sum(sum.as_slice_mut().expect("own array"))?;
        Ok(sum)
    }

    fn multiply_adds(&self) -> usize {
        self.own.multiply_adds()
    }

    fn sharding(&self) -> Sharding {
        self.sharding.clone()
    }

    fn save<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<&'static str> {
        self.own.save_sharded(bundle, &self.sharding);
        Ok(KernelFeatures::KIND)
    }
}
