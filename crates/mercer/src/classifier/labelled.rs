//! Rows with a class each, and their standardization.

use crate::compute::{Device, Tensor};
use crate::data::{Dataset, Target};
use crate::{Error, Result, fail_if};
use ndarray::{Array2, ArrayView2};
use serde::{Deserialize, Serialize};

/// Rows with a class each. Example: [the module](crate::classifier).
#[derive(Clone, Debug)]
pub struct Labelled {
    /// `[n, d]`
    pub x: Array2<f64>,
    /// `[n]`, each below the number of classes.
    pub labels: Vec<usize>,
    /// Names of the classes.
    pub classes: Vec<String>,
    /// Channels, height and width, where each row is an image.
    pub image: Option<[usize; 3]>,
}

impl Labelled {
    /// A data set whose target is a class, or can be read as one.
    pub fn of(data: &Dataset) -> Result<Labelled> {
        let target = data.y.as_ref().ok_or_else(|| {
            Error::input(format!("`{}` has no target; name the column that holds the classes", data.name))
        })?;
        let Target::Classes { labels, names } = target.as_classes()? else {
            return Err(Error::input(format!("the target of `{}` is not a class", data.name)));
        };
        Ok(Labelled { x: data.x.to_f64().into_owned(), labels, classes: names, image: data.shape })
    }

    /// Number of rows.
    pub fn n(&self) -> usize {
        self.x.nrows()
    }

    /// Number of columns.
    pub fn d(&self) -> usize {
        self.x.ncols()
    }

    /// The labels as positions in `classes`, found by name.
    pub fn labels_for(&self, classes: &[String]) -> Result<Vec<usize>> {
        let place = |name: &String| classes.iter().position(|c| c == name);
        let places: Vec<Option<usize>> = self.classes.iter().map(place).collect();
        if let Some(c) = (0..places.len()).find(|c| places[*c].is_none() && self.labels.contains(c)) {
            let (name, learnt) = (&self.classes[c], classes.join(", "));
            return Err(Error::input(format!("the class `{name}` is not one of those that were learnt ({learnt})")));
        }
        Ok(self.labels.iter().map(|&l| places[l].unwrap_or(0)).collect())
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
    /// That of the rows `x` `[n, d]`; a channel without spread keeps its scale. Rows that are no images have one channel too:
    /// columns that are alike everywhere would otherwise be blown up.
    pub fn of(x: ArrayView2<f64>, image: Option<[usize; 3]>) -> Result<Standardizer> {
        let channels = image.map_or(1, |[c, ..]| c);
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
    pub fn apply(&self, x: ArrayView2<f64>, device: Device) -> Result<Tensor> {
        let (columns, plane) = (x.ncols(), x.ncols() / self.mean.len());
        let standardized = |(i, x): (usize, &f64)| {
            let c = i % columns / plane;
            ((x - self.mean[c]) / self.spread[c]) as f32
        };
        let values: Vec<f32> = x.iter().enumerate().map(standardized).collect();
        Tensor::from_host(device, &[x.nrows(), columns], &values)
    }
}
