//! Choices of landmarks on a GPU: the distances of k-means++, greedy pivots and leverage scores.

use super::landmarks::CHOOSING;
use crate::compute::Device;
use crate::linalg::{Panel, Part};
use crate::operator::Operator;
use crate::{Progress, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis};

/// Where landmarks are chosen: on the GPU that computes the kernel, if it sees points.
pub(super) fn choosing_device(operator: &dyn Operator) -> Device {
    let kernel = operator.kernel().filter(|kernel| !kernel.formula().sees_images());
    kernel.map_or(Device::Cpu, |kernel| kernel.runs_on())
}

/// The distances on the GPU that computes the kernel of the points.
pub(super) struct DeviceDistances {
    /// D² and `κ(x,x)`, `[n, 1]` each.
    distance: Panel,
    diagonal: Panel,
    roundoff: f64,
}

impl DeviceDistances {
    pub fn new(operator: &dyn Operator, diagonal: &Array1<f64>) -> Result<Option<Self>> {
        let device = choosing_device(operator);
        if device == Device::Cpu {
            return Ok(None);
        }
        let infinite = Array2::from_elem((operator.n(), 1), f64::INFINITY);
        Ok(Some(DeviceDistances {
            distance: Panel::from_host(device, infinite)?,
            diagonal: Panel::from_host(device, diagonal.clone().insert_axis(Axis(1)))?,
            roundoff: operator.roundoff(),
        }))
    }

    /// The distances `[n]` after those to the new landmarks.
    pub fn lower(&mut self, operator: &dyn Operator, diagonal: &Array1<f64>, new: &[usize]) -> Result<Vec<f64>> {
        let block = operator.block_panel(&Part::All, &Part::Rows(new), self.distance.device())?;
        let of_new: Vec<f64> = new.iter().map(|&j| diagonal[j]).collect();
        self.distance.lower_to_distances(&block, &self.diagonal, &of_new, 10.0 * self.roundoff)?;
        Ok(self.distance.to_host()?.into_raw_vec_and_offset().0)
    }
}

/// Greedy pivots of `K ≈ L Lᵀ`, as [`super::Landmarks::PivotedCholesky`] says; of each step the host sees `r` `[n]`, what is left of the diagonal.
pub(super) fn greedy_pivots(
    operator: &dyn Operator,
    m: usize,
    device: Device,
    progress: &dyn Progress,
) -> Result<Vec<usize>> {
    /// Columns that are kept together: those before are not copied for a new one.
    const BLOCK: usize = 64;
    let diagonal = operator.diagonal()?;
    let threshold = 10.0 * operator.roundoff() * diagonal.iter().fold(0.0, |a: f64, b| a.max(*b));
    let mut taken = vec![false; operator.n()];
    let mut left = Panel::from_host(device, diagonal.insert_axis(Axis(1)))?;
    let (mut l, mut chosen): (Vec<Panel>, Vec<usize>) = (vec![], vec![]);
    while chosen.len() < m {
        let residual = left.to_host()?.into_raw_vec_and_offset().0;
        // The first of equals.
        let free = residual.iter().enumerate().rev().filter(|(i, _)| !taken[*i]);
        let Some((p, &r_p)) = free.max_by(|a, b| a.1.total_cmp(b.1)).filter(|(_, r)| **r > threshold) else { break };
        progress.step(CHOOSING, chosen.len(), m, "");
        let (pivot, scale) = ([p], 1.0 / r_p.sqrt());
        let at = Part::Rows(&pivot);
        let mut column = operator.block_panel(&Part::All, &at, device)?;
        for block in &l {
            column.add_product(-1.0, block, block.rows(&at)?.to_host()?.t())?;
        }
        column.scale(&[scale])?;
        left.subtract_row_squares(&column);
        match l.last_mut().filter(|last| last.ncols() < BLOCK) {
            Some(last) => *last = last.joined(&column)?,
            None => l.push(column),
        }
        taken[p] = true;
        chosen.push(p);
    }
    Ok(chosen)
}

/// `(κ_ii − ‖Rᵀk_i‖²)/λ` between 0 and 1 for `points`, where `k_i = κ(S, x_i)` for the pilot sample S, and R is `[s, s]`.
pub(super) fn leverage(
    operator: &dyn Operator,
    [points, pilot]: [&[usize]; 2],
    (root, λ): (ArrayView2<f64>, f64),
    device: Device,
) -> Result<Vec<f64>> {
    /// Points whose kernel values are there at a time.
    const POINTS: usize = 16_384;
    let diagonal = operator.diagonal()?;
    let mut scores = vec![];
    for rows in points.chunks(POINTS) {
        let k = operator.block_panel(&Part::Rows(rows), &Part::Rows(pilot), device)?;
        let own = Array2::from_shape_fn((rows.len(), 1), |(i, _)| diagonal[rows[i]]);
        let mut left = Panel::from_host(device, own)?;
        left.subtract_row_squares(&k.matmul(root)?);
        scores.extend(left.to_host()?.iter().map(|left| (left / λ).clamp(0.0, 1.0)));
    }
    Ok(scores)
}
