//! How networks see points.

use crate::Result;
use crate::compute::{Device, Tensor};
use ndarray::{ArrayView2, Axis};
use serde::{Deserialize, Serialize};

/// What networks see of a point: `(x − centre)/scale`, with one scale for all columns, because the kernels weigh all
/// columns alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Standardizer {
    centre: Vec<f64>,
    scale: f64,
}

impl Standardizer {
    /// Leaves points of `d` columns as they are.
    pub fn identity(d: usize) -> Standardizer {
        Standardizer { centre: vec![0.0; d], scale: 1.0 }
    }

    /// Mean zero, and mean variance one over the columns, on the points `x` `[n, d]`.
    pub fn of(x: ArrayView2<f64>) -> Standardizer {
        let centre: Vec<f64> = x.axis_iter(Axis(1)).map(|column| column.mean().unwrap_or(0.0)).collect();
        let squares: f64 =
            x.rows().into_iter().flat_map(|r| r.into_iter().zip(&centre)).map(|(v, c)| (v - c).powi(2)).sum();
        let scale = (squares / x.len().max(1) as f64).sqrt();
        Standardizer { centre, scale: if scale > 0.0 && scale.is_finite() { scale } else { 1.0 } }
    }

    /// The points `rows` of `x` `[n, d]`, as a tensor `[rows, d]` on `device`.
    pub fn gather(
        &self,
        device: Device,
        x: ArrayView2<f64>,
        rows: impl ExactSizeIterator<Item = usize>,
    ) -> Result<Tensor> {
        let shape = [rows.len(), x.ncols()];
        let mut data = Vec::with_capacity(shape[0] * shape[1]);
        for row in rows {
            data.extend(x.row(row).iter().zip(&self.centre).map(|(v, c)| ((v - c) / self.scale) as f32));
        }
        Tensor::from_host(device, &shape, &data)
    }

    /// Columns d.
    pub fn inputs(&self) -> usize {
        self.centre.len()
    }
}
