//! Products with `κ(X,X)` on the CPU, of which every symmetric half is computed once.

use crate::operator::Real;
use crate::operator::kinds::matrix_free::strips;
use crate::operator::memory::zeros;
use crate::operator::tile::few_columns::{Products, Vectors};
use crate::operator::tile::point_pair::PointPair;
use crate::operator::tile::points::{Plan, Prepared};
use crate::operator::tile::workspace::{Place, SIDE, Workspace, area, make_symmetric, upper_tiles};
use ndarray::{Array1, Array2, ArrayView2, ArrayViewMut2, Axis, s};
use rayon::prelude::*;
use std::cell::Cell;

/// `K V` over tiles on and above the diagonal: `Y_I += K_IJ V_J` and, off the diagonal, `Y_J += K_IJᵀ V_I`.
pub(crate) fn symmetric_apply<T: Real>(
    plan: &Plan,
    x: &Prepared<T>,
    diagonal: &Array1<f64>,
    v: ArrayView2<f64>,
) -> Array2<f64> {
    if v.is_empty() {
        return Array2::zeros(v.dim());
    }
    let point_pair = PointPair::new(plan, x, x, |rows| diagonal.select(Axis(0), rows));
    let vectors = Vectors::new(v);
    let strip = |tiles: &[Place], mut y: ArrayViewMut2<f64>| {
        let mut workspace = Workspace::default();
        for (rows, columns) in tiles {
            let (rows, columns) = (rows.clone(), columns.clone());
            if rows == columns {
                let mut k = workspace.tile(&point_pair, rows.clone(), rows.clone());
                make_symmetric(&mut k, diagonal.slice(s![rows.clone()]));
                Products::new(None, &vectors, columns).strip(rows.clone(), k.view(), y.slice_mut(s![rows, ..]));
            } else {
                let mut products = Products::new(Some(&vectors), &vectors, columns.clone());
                products.tile(&mut workspace, &point_pair, rows.clone(), y.slice_mut(s![rows, ..]));
                products.finish(y.slice_mut(s![columns, ..]));
            }
        }
    };
    let tiles = upper_tiles(x.n, plan.side());
    let shares = shares(&tiles, strips());
    let mut partial = sums_of_shares(shares.len() * v.len());
    let work = partial.par_chunks_mut(v.len()).zip(shares).with_max_len(1);
    work.for_each(|(y, tiles)| {
        y.fill(0.0);
        strip(tiles, ArrayViewMut2::from_shape(v.dim(), y).expect("n·k sums"));
    });
    let mut y = Array2::zeros(v.dim());
    let sums = y.as_slice_mut().expect("row by row").par_chunks_mut(SIDE * v.ncols()).enumerate();
    sums.for_each(|(chunk, sums)| {
        for part in partial.chunks_exact(v.len()) {
            sums.iter_mut().zip(&part[chunk * SIDE * v.ncols()..]).for_each(|(sum, y)| *sum += y);
        }
    });
    if size_of_val(&partial[..]) <= MOST_KEPT {
        SUMS.set(partial);
    }
    y
}

/// Bytes of the sums of shares that a thread keeps for its next product.
const MOST_KEPT: usize = 16 << 20;

thread_local! {
    /// Sums of the last product: fresh memory would be mapped and cleared in every one, which takes a tenth of a small product's time.
    static SUMS: Cell<Vec<f64>> = const { Cell::new(vec![]) };
}

/// Memory for so many sums, with any contents.
fn sums_of_shares(len: usize) -> Vec<f64> {
    let kept = SUMS.take();
    if kept.len() == len { kept } else { zeros(len) }
}

/// Splits tiles into at most `parts` runs of about the same number of values.
fn shares(tiles: &[Place], parts: usize) -> Vec<&[Place]> {
    let total: usize = tiles.iter().map(area).sum();
    let (mut shares, mut start, mut before) = (vec![], 0, 0);
    for (end, tile) in tiles.iter().enumerate() {
        // The share of a tile is that of its middle.
        if (2 * before + area(tile)) * parts / (2 * total) > shares.len() && end > start {
            shares.push(&tiles[start..end]);
            start = end;
        }
        before += area(tile);
    }
    shares.push(&tiles[start..]);
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_all_tiles_in_order_and_about_equal() {
        for (n, parts) in [(1, 8), (384, 8), (500, 8), (8000, 8), (8000, 16), (3000, 1)] {
            let tiles = upper_tiles(n, SIDE);
            let shares = shares(&tiles, parts);
            assert!(shares.concat() == tiles && shares.len() <= parts && shares.iter().all(|share| !share.is_empty()));
            // Each value of the triangle once, and those of tiles on the diagonal twice.
            let total: usize = tiles.iter().map(area).sum();
            let each = |share: &&[Place]| share.iter().map(area).sum::<usize>();
            assert!(
                total >= n * (n + 1) / 2 && shares.iter().all(|s| each(s) <= total / parts + 2 * SIDE * SIDE),
                "{n}"
            );
        }
    }
}
