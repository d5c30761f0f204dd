//! How networks see points.

use crate::compute::{Device, Tensor};
use crate::data::Rows;
use crate::{Result, fail_if};
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
    pub fn of<'x>(x: impl Into<Rows<'x>>) -> Standardizer {
        let x = x.into();
        let (n, d) = x.dim();
        let centre = match d {
            // ndarray adds numbers that lie side by side in another order.
            1 => vec![x.to_f64().mean().unwrap_or(0.0)],
            _ => x.mean().map_or_else(|| vec![0.0; d], |mean| mean.to_vec()),
        };
        let mut squares = 0.0;
        for few in x.chunks(64) {
            few.rows()
                .into_iter()
                .for_each(|row| row.iter().zip(&centre).for_each(|(v, c)| squares += (v - c).powi(2)));
        }
        let scale = (squares / (n * d).max(1) as f64).sqrt();
        Standardizer { centre, scale: if scale > 0.0 && scale.is_finite() { scale } else { 1.0 } }
    }

    /// The same of images of channels, height and width, whose pixels have the mean of their channel subtracted.
    pub(super) fn of_channels(x: Rows<'_>, [channels, height, width]: [usize; 3]) -> Standardizer {
        let (own, plane) = (Standardizer::of(x), height * width);
        let mean = |c: usize| own.centre[c * plane..(c + 1) * plane].iter().sum::<f64>() / plane as f64;
        let means: Vec<f64> = (0..channels).map(mean).collect();
        // The variance about the mean of the channel: that about the mean of the pixel, and that of these means.
        let between = own.centre.iter().enumerate().map(|(i, c)| (c - means[i / plane]).powi(2)).sum::<f64>();
        let scale = (own.scale.powi(2) + between / own.centre.len().max(1) as f64).sqrt();
        Standardizer { centre: (0..own.centre.len()).map(|i| means[i / plane]).collect(), scale }
    }

    /// What is subtracted, `[d]`.
    pub(super) fn centre(&self) -> &[f64] {
        &self.centre
    }

    /// What divides.
    pub(super) fn scale(&self) -> f64 {
        self.scale
    }

    /// Refuses a scale that cannot divide.
    pub(super) fn checked(self) -> Result<Standardizer> {
        let scale = self.scale;
        fail_if!(
            scale.is_nan() || scale <= 0.0,
            "the model's 'features.standard' must have a scale above 0, not {scale}"
        );
        Ok(self)
    }

    /// The points `rows` of `x` `[n, d]`, as a tensor `[rows, d]` on `device`.
    pub fn gather<'x>(
        &self,
        device: Device,
        x: impl Into<Rows<'x>>,
        rows: impl ExactSizeIterator<Item = usize>,
    ) -> Result<Tensor> {
        let x = x.into();
        let shape = [rows.len(), x.d()];
        let mut data = Vec::with_capacity(shape[0] * shape[1]);
        for row in rows {
            let point = x.slice(row..row + 1).to_f64();
            data.extend(point.iter().zip(&self.centre).map(|(v, c)| ((v - c) / self.scale) as f32));
        }
        Tensor::from_host(device, &shape, &data)
    }

    /// Columns d.
    pub fn inputs(&self) -> usize {
        self.centre.len()
    }
}
