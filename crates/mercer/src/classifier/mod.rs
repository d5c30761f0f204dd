//! Networks that classify, or predict a number: trained on labelled rows, scored, and kept in files that PyTorch reads.
//!
//! ```
//! use mercer::classifier::{Classifier, Labelled, Settings, Stop, Unnamed, train};
//! use mercer::{Device, data};
//!
//! let (fit, held_out) = data::open("digits", &Default::default())?.split(0.2, 0)?;
//! let (fit, held_out) = (Labelled::of(&fit)?, Labelled::of(&held_out)?);
//! let start = Classifier::new("dense(32) relu dense(10)", &fit, Device::Cpu, 0)?;
//! let settings = Settings { epochs: 4, batch: 64, learning_rate: 0.05, ..Settings::default() };
//! let trained = train(start, &fit, Some(&held_out), &settings, &Default::default(), &|_| ())?;
//! assert!(trained.history.last().unwrap().test.unwrap().classes().unwrap().accuracy > 0.9);
//! assert_eq!((trained.stop, trained.classifier.standardizer.mean.len()), (Stop::Budget, 1));
//! let unnamed = Unnamed::new("dense(32) relu dense(10)", &fit);
//! assert!(Classifier::load("missing.safetensors".as_ref(), Device::Cpu, Some(unnamed)).is_err());
//! # Ok::<(), mercer::Error>(())
//! ```

mod file;
mod labelled;
mod linearised;
mod quality;
mod snapshots;
mod training;

pub use crate::measures::{Cases, Detection, Errors, Estimate, Measure, NumberCases, NumberMeasure, Scores};
pub use crate::training::Stop;
pub use file::Unnamed;
pub use labelled::{Labelled, Number, Standardizer};
pub use quality::Quality;
pub use snapshots::{Snapshots, snapshot_files};
pub use training::{Epoch, Settings, Trained, train};

use crate::compute::{Device, Tensor};
use crate::data::Schema;
use crate::net::{Description, Mode, Network, Parameters, named};
use crate::rng::Rng;
use crate::{Error, FitContext, Result, fail_if};
use ndarray::{Array2, ArrayView2, s};

/// Rows of a batch when a classifier is evaluated.
const EVALUATED: usize = 256;

/// A network whose outputs are the logits of classes, or whose one output is a number, and how its input is standardized.
/// Example: [the module](crate::classifier).
#[derive(Debug)]
pub struct Classifier {
    /// One network.
    pub network: Network,
    /// Its numbers.
    pub parameters: Parameters,
    /// What is done to rows before the network sees them.
    pub standardizer: Standardizer,
    /// Names of the classes, in the order of the logits; none of a network that predicts a number.
    pub classes: Vec<String>,
    /// How tables become rows of numbers, where it was trained on a table.
    pub schema: Option<Schema>,
    /// What its output means, where it predicts a number.
    pub number: Option<Number>,
    /// Whether it comes from a file of another program.
    pub foreign: bool,
    /// Of a network that is linear in its weights around `parameters`, how far they moved. Example: [`Classifier::linearised`].
    pub displacement: Option<Tensor>,
}

impl Classifier {
    /// A fresh network for the rows and classes of `data`: `net` is a name ([`crate::net::NAMES`]) or an architecture. Rows are
    /// standardized, channel by channel, by their mean and spread in `data`.
    pub fn new(net: &str, data: &Labelled, device: Device, seed: u64) -> Result<Classifier> {
        Classifier::within(net, data, &FitContext { device, seed, ..FitContext::default() })
    }

    /// [`Classifier::new`] on the device, with the seed and within the memory of a context.
    pub fn within(net: &str, data: &Labelled, context: &FitContext) -> Result<Classifier> {
        let FitContext { device, seed, budget, .. } = *context;
        let number = (!data.numbers.is_empty()).then(|| Number::of(&data.numbers));
        let outputs = if number.is_some() { 1 } else { data.classes.len() };
        let what = if number.is_some() {
            "one number is to be predicted".into()
        } else {
            format!("there are {outputs} classes")
        };
        let network = Network::new(&description(net, data.d(), data.image, Some(outputs))?, data.d(), 1)?;
        fail_if!(
            network.outputs() != outputs,
            "the network puts out {} numbers, but {what}; end it with dense({outputs})",
            network.outputs()
        );
        let standardizer = Standardizer::of(data.x.view(), network.description().image.or(data.image))?;
        budget.require_network(&network, 2, 0)?;
        let parameters = network.init(device, &Rng::new(seed).fork(1))?;
        Ok(Classifier {
            network,
            parameters,
            standardizer,
            classes: data.classes.clone(),
            number,
            schema: None,
            foreign: false,
            displacement: None,
        })
    }

    /// The logits `[n, classes]` of rows `x` `[n, d]`, with batch norms in their evaluating form, folded where they can be.
    pub fn logits(&self, x: ArrayView2<f64>) -> Result<Array2<f32>> {
        self.check_columns(x.ncols())?;
        let device = self.parameters.trained.device();
        let (network, parameters) = self.network.fold(&self.parameters)?;
        device.enter(|| {
            let mut workspace = network.workspace(device)?;
            let mut out = Array2::zeros((x.nrows(), network.outputs()));
            for start in (0..x.nrows()).step_by(EVALUATED) {
                let rows = start..(start + EVALUATED).min(x.nrows());
                let batch = self.standardizer.apply(x.slice(s![rows.clone(), ..]), device)?;
                let logits = match &self.displacement {
                    None => network.forward(&parameters, &batch, Mode::Eval, &mut workspace)?.to_host()?,
                    Some(displacement) => {
                        let mut sum = Tensor::zeros(device, &[0])?;
                        linearised::outputs(&network, &parameters, displacement, &batch, &mut workspace, &mut sum)?;
                        sum.to_host()?
                    }
                };
                let to = out.slice_mut(s![rows, ..]).into_iter();
                to.zip(logits).for_each(|(to, z)| *to = z);
            }
            if let Some(i) = out.rows().into_iter().position(|row| row.iter().any(|z| !z.is_finite())) {
                return Err(Error::Numerical(format!(
                    "a logit of row {} (counted from 1) is not finite: the row is too large for the network; scale it, or leave it out",
                    i + 1
                )));
            }
            Ok(out)
        })
    }

    /// The numbers `[n]` that it predicts for rows `x` `[n, d]`, if it is a network for that.
    pub fn predict(&self, x: ArrayView2<f64>) -> Result<Vec<f64>> {
        let Some(Number { mean, spread }) = self.number else {
            return Err(Error::input("the network predicts classes, not a number"));
        };
        Ok(self.logits(x)?.iter().map(|z| mean + spread * f64::from(*z)).collect())
    }

    /// How well it does on labelled rows.
    pub fn score(&self, data: &Labelled) -> Result<Quality> {
        if self.number.is_some() {
            fail_if!(data.numbers.len() != data.n(), "the network predicts a number, but the rows have classes");
            let found = Errors::of(&self.predict(data.x.view())?, &data.numbers);
            return found.map(Quality::Numbers).ok_or_else(|| Error::input("there are no rows to score"));
        }
        let labels = data.labels_for(&self.classes)?;
        Ok(Quality::Classes(Scores::of(self.logits(data.x.view())?.view(), &labels)))
    }

    /// Measures the statistics of batch norms anew at rows `x` `[n, d]`, for parameters that training did not pass through: the means and
    /// variances of batches, averaged over all rows. Example: [`crate::trajectory`].
    pub fn recompute_statistics(&mut self, x: ArrayView2<f64>) -> Result<()> {
        self.check_columns(x.ncols())?;
        if self.network.constants() == 0 {
            return Ok(());
        }
        let (network, device) = (&self.network, self.parameters.trained.device());
        device.enter(|| {
            let mut workspace = network.workspace(device)?;
            for start in (0..x.nrows()).step_by(EVALUATED) {
                let end = (start + EVALUATED).min(x.nrows());
                let batch = self.standardizer.apply(x.slice(s![start..end, ..]), device)?;
                network.forward(&self.parameters, &batch, Mode::Train, &mut workspace)?;
                // The mean over the rows so far moves by the batch's share of them.
                network.track(&mut self.parameters, &workspace, (end - start) as f32 / end as f32);
            }
            Ok(())
        })
    }

    /// The same network with other numbers: what is trained, and the constants.
    pub(crate) fn with_numbers(&self, trained: &[f32], constants: &[f32]) -> Result<Classifier> {
        let network = Network::parse(&self.network.expression(), self.network.inputs(), 1)?;
        let parameters = network.parameters_from(self.parameters.trained.device(), trained, constants)?;
        Ok(Classifier {
            network,
            parameters,
            standardizer: self.standardizer.clone(),
            classes: self.classes.clone(),
            schema: self.schema.clone(),
            number: self.number,
            foreign: self.foreign,
            displacement: None,
        })
    }

    pub(crate) fn check_columns(&self, d: usize) -> Result<()> {
        if d == self.network.inputs() {
            return Ok(());
        }
        Err(Error::input(format!("the network takes rows of {} numbers, the data have {d}", self.network.inputs())))
    }
}

/// The network called or written `net` on `d` columns; one with a name has an output for each class.
fn description(net: &str, d: usize, image: Option<[usize; 3]>, classes: Option<usize>) -> Result<Description> {
    let is_name = !net.trim().contains(|c: char| c == '(' || c.is_whitespace());
    let mut description = match classes {
        Some(classes) if is_name => named(net.trim(), image.unwrap_or([1, 1, d]), classes)?,
        None if is_name => {
            return Err(Error::input(format!(
                "how many outputs '{}' has is not known; write its layers, or give labelled rows",
                net.trim()
            )));
        }
        _ => Description::parse(net)?,
    };
    description.image = description.image.or(image);
    Ok(description)
}
