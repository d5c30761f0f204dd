//! Products with `κ(Z,X) diag(w) κ(X,Z)` on the CPU: each value of κ is computed once a product, and used twice.

use crate::data::Rows;
use crate::kernel::Kernel;
use crate::operator::kinds::matrix_free::{add_product, strips};
use crate::operator::tile::point_pair::PointPair;
use crate::operator::tile::points::{Plan, Prepared};
use crate::operator::tile::workspace::{Workspace, ranges};
use crate::operator::{Precision, Real};
use ndarray::{Array2, ArrayView1, ArrayView2, Axis, s};
use rayon::prelude::*;
use std::ops::Range;

/// The points X `[n, d]` and Z `[m, d]`, prepared once.
pub(crate) enum Normal<'a> {
    F32(Sets<'a, f32>),
    F64(Sets<'a, f64>),
}

/// What a product begins with.
#[derive(Clone, Copy)]
pub(crate) enum Of<'v> {
    /// U `[m, k]`: the product is `κ(Z,X) diag(w) κ(X,Z) U`.
    Landmarks(ArrayView2<'v, f64>),
    /// Y `[n, k]`: the product is `κ(Z,X) diag(w) Y`.
    Points(ArrayView2<'v, f64>),
}

impl<'a> Normal<'a> {
    /// Kernel values are those of `precision`; sums over points are f64.
    pub fn new(kernel: &Kernel, x: Rows<'a>, z: Rows<'a>, precision: Precision) -> Self {
        match precision {
            Precision::F64 => Normal::F64(Sets::new(kernel, x, z)),
            Precision::F32 | Precision::Tf32 => Normal::F32(Sets::new(kernel, x, z)),
        }
    }

    /// `[m, k]`, for weights w `[n]`.
    pub fn product(&self, weights: ArrayView1<f64>, of: Of<'_>) -> Array2<f64> {
        match self {
            Normal::F32(sets) => sets.product(weights, of),
            Normal::F64(sets) => sets.product(weights, of),
        }
    }
}

/// The points in one precision.
pub(crate) struct Sets<'a, T> {
    plan: Plan,
    x: Rows<'a>,
    points: Prepared<T>,
    landmarks: Prepared<T>,
}

impl<'a, T: Real> Sets<'a, T> {
    fn new(kernel: &Kernel, x: Rows<'a>, z: Rows<'a>) -> Self {
        let plan = Plan::new(kernel, z);
        Sets { points: plan.points(x), landmarks: plan.points(z), plan, x }
    }

    /// Rows of κ(X,Z) that a thread keeps between the two products: they stay in cache.
    fn height(&self) -> usize {
        const BYTES: usize = 6 << 20;
        let rows = BYTES / (self.landmarks.n * size_of::<T>()).max(1);
        (rows / 16 * 16).clamp(64.min(self.plan.side()), self.plan.side())
    }

    fn product(&self, weights: ArrayView1<f64>, of: Of<'_>) -> Array2<f64> {
        let (n, m) = (self.points.n, self.landmarks.n);
        let diagonal = |rows: &[usize]| self.plan.diagonal(self.x.select(rows).rows());
        let point_pair = PointPair::new(&self.plan, &self.points, &self.landmarks, diagonal);
        let (Of::Landmarks(v) | Of::Points(v)) = of;
        let k = v.ncols();
        let rounded = v.mapv(T::of);
        let columns = ranges(m, self.plan.side());
        let part = |rows: Range<usize>| {
            let mut sum = Array2::zeros((m, k));
            let mut workspaces: Vec<Workspace<T>> = columns.iter().map(|_| Workspace::default()).collect();
            for start in rows.clone().step_by(self.height()) {
                let few = start..rows.end.min(start + self.height());
                let mut y = Array2::zeros((few.len(), k));
                if let Of::Points(v) = of {
                    y.assign(&v.slice(s![few.clone(), ..]));
                }
                let tile = |(workspace, columns): (_, &Range<usize>)| {
                    let tile = Workspace::tile(workspace, &point_pair, few.clone(), columns.clone());
                    if let Of::Landmarks(_) = of {
                        add_product(y.view_mut(), tile.view(), rounded.slice(s![columns.clone(), ..]));
                    }
                    tile
                };
                let tiles: Vec<_> = workspaces.iter_mut().zip(&columns).map(tile).collect();
                let y = y * weights.slice(s![few.clone()]).insert_axis(Axis(1));
                let y = y.mapv(T::of);
                for (tile, columns) in tiles.iter().zip(&columns) {
                    add_product(sum.slice_mut(s![columns.clone(), ..]), tile.t(), y.view());
                }
            }
            sum
        };
        let parts: Vec<Array2<f64>> = ranges(n, n.div_ceil(strips()).max(1)).into_par_iter().map(part).collect();
        parts.into_iter().reduce(|a, b| a + b).unwrap_or_else(|| Array2::zeros((m, k)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::Device;
    use crate::operator::gram_cross;
    use crate::rng::Rng;
    use ndarray::Array1;

    /// Against the matrices, with Z a part of X, so that points are equal; several strips, and several tiles of landmarks.
    #[test]
    fn products_are_those_of_the_matrices_in_both_precisions() {
        let mut rng = Rng::new(5);
        let x = rng.normals((1500, 4));
        let z = x.slice(s![100..600, ..]).to_owned();
        let (u, y) = (rng.normals((500, 3)), x.slice(s![.., ..2]).to_owned());
        let w = Array1::from_shape_simple_fn(1500, || 0.5 + rng.uniform());
        for text in ["rbf(2)", "laplacian(3) + 0.5*linear"] {
            let kernel = Kernel::parse(text).unwrap();
            let k = gram_cross::<f64>(&kernel, x.view(), z.view(), Device::Cpu).unwrap();
            let column = w.view().insert_axis(Axis(1));
            let want = [k.t().dot(&(k.dot(&u) * column)), k.t().dot(&(&y * &column))];
            for (precision, within) in [(Precision::F64, 1e-12), (Precision::F32, 1e-5)] {
                let normal = Normal::new(&kernel, (&x).into(), (&z).into(), precision);
                let got = [Of::Landmarks(u.view()), Of::Points(y.view())].map(|of| normal.product(w.view(), of));
                for (got, want) in got.iter().zip(&want) {
                    let size = want.mapv(f64::abs).sum();
                    assert!((got - want).mapv(f64::abs).sum() < within * size, "{text}, {precision:?}");
                }
            }
        }
    }
}
