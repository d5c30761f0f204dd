//! Networks that classify, or predict a number: trained on labelled rows, scored, and kept in files that PyTorch reads.
//!
//! ```
//! use mercer::classifier::{Classifier, Settings, Stop, Unnamed, train};
//! use mercer::{Device, data};
//!
//! let (fit, held_out) = data::open("digits", &Default::default())?.with_classes()?.split(0.2, 0)?;
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
mod linearised;
mod quality;
mod snapshots;
mod standardizer;
mod training;

pub use crate::measures::{Cases, Detection, Errors, Estimate, Measure, NumberCases, NumberMeasure, Scores};
pub use crate::training::Stop;
pub use file::Unnamed;
pub use quality::Quality;
pub use snapshots::{Snapshots, snapshot_files};
pub use standardizer::{Number, Standardizer};
pub use training::{Epoch, Settings, Trained, train};

use crate::compute::{Device, Tensor};
use crate::data::{Dataset, Rows, Schema, Target};
use crate::net::{Description, Mode, Network, Parameters, named};
use crate::rng::Rng;
use crate::{Error, FitContext, Result, fail_if};
use ndarray::{Array2, s};

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
    pub fn new(net: &str, data: &Dataset, device: Device, seed: u64) -> Result<Classifier> {
        Classifier::within(net, data, &FitContext { device, seed, ..FitContext::default() })
    }

    /// [`Classifier::new`] on the device, with the seed and within the memory of a context.
    pub fn within(net: &str, data: &Dataset, context: &FitContext) -> Result<Classifier> {
        let FitContext { device, seed, budget, .. } = *context;
        let y = data.target()?;
        let number = if let Target::Values(numbers) = y { Some(Number::of(numbers)) } else { None };
        let outputs = if number.is_some() { 1 } else { y.names().len() };
        let what = if number.is_some() {
            "one number is to be predicted".into()
        } else {
            format!("there are {outputs} classes")
        };
        let network = Network::new(&description(net, data.d(), data.shape, Some(outputs))?, data.d(), 1)?;
        fail_if!(
            network.outputs() != outputs,
            "the network puts out {} numbers, but {what}; end it with dense({outputs})",
            network.outputs()
        );
        let standardizer = Standardizer::of(&data.x, network.description().image.or(data.shape))?;
        budget.require_network(&network, 2, 0)?;
        let parameters = network.init(device, &Rng::new(seed).fork(1))?;
        Ok(Classifier {
            network,
            parameters,
            standardizer,
            classes: y.names().to_vec(),
            number,
            schema: None,
            foreign: false,
            displacement: None,
        })
    }

    /// The logits `[n, classes]` of rows `x` `[n, d]`, with batch norms in their evaluating form, folded where they can be.
    pub fn logits<'x>(&self, x: impl Into<Rows<'x>>) -> Result<Array2<f32>> {
        let x = x.into();
        self.check_columns(x.d())?;
        let device = self.parameters.trained.device();
        let (network, parameters) = self.network.fold(&self.parameters)?;
        device.enter(|| {
            let mut workspace = network.workspace(device)?;
            let mut out = Array2::zeros((x.n(), network.outputs()));
            for start in (0..x.n()).step_by(EVALUATED) {
                let rows = start..(start + EVALUATED).min(x.n());
                let batch = self.standardizer.apply(x.slice(rows.clone()), device)?;
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
    pub fn predict<'x>(&self, x: impl Into<Rows<'x>>) -> Result<Vec<f64>> {
        let Some(Number { mean, spread }) = self.number else {
            return Err(Error::input("the network predicts classes, not a number"));
        };
        Ok(self.logits(x)?.iter().map(|z| mean + spread * f64::from(*z)).collect())
    }

    /// How well it does on labelled rows.
    pub fn score(&self, data: &Dataset) -> Result<Quality> {
        let y = data.target()?;
        if self.number.is_some() {
            let found = Errors::of(&self.predict(&data.x)?, y.numbers()?);
            return found.map(Quality::Numbers).ok_or_else(|| Error::input("there are no rows to score"));
        }
        let labels = y.labels_for(&self.classes)?;
        Ok(Quality::Classes(Scores::of(self.logits(&data.x)?.view(), &labels)))
    }

    /// Measures the statistics of batch norms anew at rows `x` `[n, d]`, for parameters that training did not pass through: the means and
    /// variances of batches, averaged over all rows. Example: [`crate::trajectory`].
    pub fn recompute_statistics<'x>(&mut self, x: impl Into<Rows<'x>>) -> Result<()> {
        let x = x.into();
        self.check_columns(x.d())?;
        if self.network.constants() == 0 {
            return Ok(());
        }
        let (network, device) = (&self.network, self.parameters.trained.device());
        device.enter(|| {
            let mut workspace = network.workspace(device)?;
            for start in (0..x.n()).step_by(EVALUATED) {
                let end = (start + EVALUATED).min(x.n());
                let batch = self.standardizer.apply(x.slice(start..end), device)?;
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
