//! Rows with a class or a number each, and their standardization.

use crate::compute::{Device, Tensor};
use crate::data::{Dataset, MOST_MAGNITUDE, Rows, Scaler, Target};
use crate::{Error, Result, fail_if};
use ndarray::{Array2, ArrayView2, Axis};
use serde::{Deserialize, Serialize};

/// Rows with a class each, or a number each. Example: [the module](crate::classifier).
#[derive(Clone, Debug)]
pub struct Labelled {
    /// `[n, d]`
    pub x: Array2<f64>,
    /// `[n]`, each below the number of classes; empty where rows have numbers.
    pub labels: Vec<usize>,
    /// Names of the classes; empty where rows have numbers.
    pub classes: Vec<String>,
    /// `[n]`: the numbers to predict; empty where rows have classes.
    pub numbers: Vec<f64>,
    /// Channels, height and width, where each row is an image.
    pub image: Option<[usize; 3]>,
}

impl Labelled {
    /// A data set whose target is a class, or can be read as one.
    pub fn of(data: &Dataset) -> Result<Labelled> {
        let Target::Classes { labels, names } = target(data)?.as_classes()? else {
            return Err(Error::input(format!("the target of `{}` is not a class", data.name)));
        };
        let x = checked(data)?;
        Ok(Labelled { x, labels, classes: names, numbers: vec![], image: data.shape })
    }

    /// A data set whose target is a number.
    pub fn with_numbers(data: &Dataset) -> Result<Labelled> {
        let Target::Values(numbers) = target(data)? else {
            return Err(Error::input(format!("the target of `{}` is a class, not a number", data.name)));
        };
        let too_large = |y: &f64| y.is_nan() || y.abs() > MOST_MAGNITUDE;
        if let Some(i) = numbers.iter().position(too_large) {
            return Err(Error::Numerical(format!(
                "the target of row {} (counted from 1) of `{}` is {:e}, too large to compute with; scale the target",
                i + 1,
                data.name,
                numbers[i]
            )));
        }
        let x = checked(data)?;
        Ok(Labelled { x, labels: vec![], classes: vec![], numbers: numbers.clone(), image: data.shape })
    }

    /// Number of rows.
    pub fn n(&self) -> usize {
        self.x.nrows()
    }

    /// Number of columns.
    pub fn d(&self) -> usize {
        self.x.ncols()
    }

    /// Some of the rows, in the given order.
    pub fn select(&self, rows: &[usize]) -> Labelled {
        let labels = rows.iter().filter_map(|&row| self.labels.get(row).copied()).collect();
        let numbers = rows.iter().filter_map(|&row| self.numbers.get(row).copied()).collect();
        Labelled { x: self.x.select(Axis(0), rows), labels, numbers, classes: self.classes.clone(), image: self.image }
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

/// The rows `[n, d]`, none of which is too large to compute with.
fn checked(data: &Dataset) -> Result<Array2<f64>> {
    let x = data.x.to_f64().into_owned();
    Rows::from(&x).check_magnitude()?;
    Ok(x)
}

fn target(data: &Dataset) -> Result<&Target> {
    data.y.as_ref().ok_or_else(|| {
        Error::input(format!(
            "`{}` has no target; {name_classes}",
            data.name,
            name_classes = crate::advice!(NameClasses)
        ))
    })
}

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
    pub fn of(x: ArrayView2<f64>, image: Option<[usize; 3]>) -> Result<Standardizer> {
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
