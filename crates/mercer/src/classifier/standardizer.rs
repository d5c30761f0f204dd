//! How rows are standardized before a network sees them, and what the number that it puts out means.

use crate::compute::{Device, Tensor};
use crate::data::{Rows, Scaler};
use crate::{Result, fail_if};
use serde::{Deserialize, Serialize};

/// Rows that are in double precision at a time.
const FEW: usize = 256;

/// A number to predict as a network puts it out: `(y − mean)/spread`. Example: [the module](crate::classifier).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Number {
    /// Mean of the numbers that were learnt.
    pub mean: f64,
    /// Their standard deviation, above zero.
    pub spread: f64,
}

impl Number {
    /// That of the numbers `y`; ones that are all alike keep their scale.
    pub fn of(y: &[f64]) -> Number {
        let n = y.len() as f64;
        let mean = y.iter().sum::<f64>() / n;
        let variance = y.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / n;
        Number { mean, spread: if variance > 0.0 { variance.sqrt() } else { 1.0 } }
    }
}

/// `(x − mean)/spread`, a pair for every channel of an image, or for every column. Example: [the module](crate::classifier).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Standardizer {
    /// `[channels]`
    pub mean: Vec<f64>,
    /// `[channels]`, above zero.
    pub spread: Vec<f64>,
}

impl Standardizer {
    /// Rows as they are.
    pub fn identity() -> Standardizer {
        Standardizer { mean: vec![0.0], spread: vec![1.0] }
    }

    /// Whether it leaves rows as they are.
    pub fn is_identity(&self) -> bool {
        self.mean.iter().all(|m| *m == 0.0) && self.spread.iter().all(|s| *s == 1.0)
    }

    /// What `scaler` does, column by column; one that it maps to zero keeps its scale.
    pub fn of_scaler(scaler: &Scaler) -> Standardizer {
        let spread = scaler.scale.iter().map(|&scale| if scale == 0.0 { 1.0 } else { 1.0 / scale }).collect();
        Standardizer { mean: scaler.shift.clone(), spread }
    }

    /// From numbers that a user gave: one for all of a row, or one for each channel of `image`, or for each of `d` columns where
    /// rows are no images. None at all are zeros, of `mean`, and ones, of `spread`.
    pub fn given(mean: &[f64], spread: &[f64], d: usize, image: Option<[usize; 3]>) -> Result<Standardizer> {
        let parts = image.map_or(d, |[channels, ..]| channels);
        let kind = if image.is_some() { "channels" } else { "columns" };
        for (name, numbers) in [("mean", mean), ("standard deviation", spread)] {
            fail_if!(
                numbers.len() > 1 && numbers.len() != parts,
                "the {name} has {} numbers; give one, or one for each of the {parts} {kind}",
                numbers.len()
            );
        }
        let channels = mean.len().max(spread.len()).max(1);
        let all = |numbers: &[f64], usual: f64| match *numbers {
            [] => vec![usual; channels],
            [one] => vec![one; channels],
            ref many => many.to_vec(),
        };
        let standardizer = Standardizer { mean: all(mean, 0.0), spread: all(spread, 1.0) };
        fail_if!(
            !standardizer.fits(d),
            "the mean must be finite and the standard deviation above 0, not {mean:?} and {spread:?}"
        );
        Ok(standardizer)
    }

    /// That of the rows `x` `[n, d]`: by channel where they are images, else by column. One without spread keeps its scale.
    pub fn of<'x>(x: impl Into<Rows<'x>>, image: Option<[usize; 3]>) -> Result<Standardizer> {
        let x = x.into().to_f64();
        let channels = image.map_or(x.ncols(), |[c, ..]| c);
        let plane = x.ncols() / channels.max(1);
        fail_if!(
            channels == 0 || plane * channels != x.ncols() || x.is_empty(),
            "rows of {} columns are no images of {channels} channels",
            x.ncols()
        );
        let size = (x.nrows() * plane) as f64;
        let moments = |c: usize| {
            let channel = x.slice(ndarray::s![.., c * plane..(c + 1) * plane]);
            let mean = channel.sum() / size;
            let variance = channel.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / size;
            (mean, if variance > 0.0 { variance.sqrt() } else { 1.0 })
        };
        let (mean, spread) = (0..channels).map(moments).unzip();
        Ok(Standardizer { mean, spread })
    }

    /// Whether it is one of rows of `d` columns.
    pub(super) fn fits(&self, d: usize) -> bool {
        let channels = self.mean.len();
        let valid = |(mean, spread): (&f64, &f64)| mean.is_finite() && spread.is_finite() && *spread > 0.0;
        channels > 0
            && channels == self.spread.len()
            && d.is_multiple_of(channels)
            && self.mean.iter().zip(&self.spread).all(valid)
    }

    /// The standardized rows `[n, d]` on a device.
    pub fn apply<'x>(&self, x: impl Into<Rows<'x>>, device: Device) -> Result<Tensor> {
        let x = x.into();
        let (n, columns) = x.dim();
        let plane = columns / self.mean.len();
        let mut values = Vec::with_capacity(n * columns);
        for few in x.chunks(FEW) {
            values.extend(few.iter().enumerate().map(|(i, x)| {
                let c = i % columns / plane;
                ((x - self.mean[c]) / self.spread[c]) as f32
            }));
        }
        Tensor::from_host(device, &[n, columns], &values)
    }
}
