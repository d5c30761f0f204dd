//! Networks of one architecture: the snapshots of a run, or runs from several starts.

use super::Swag;
use crate::classifier::{Classifier, snapshot_files};
use crate::compute::Device;
use crate::{Error, FitContext, Result, fail_if};
use ndarray::{Array3, ArrayView2, Axis};
use std::path::Path;
use std::sync::Arc;

/// M networks `g(x, θ_i)` that differ in their numbers only, in the order of training. Example: [the module](super).
#[derive(Debug)]
pub struct Trajectory {
    pub(super) networks: Vec<Arc<Classifier>>,
}

impl Trajectory {
    /// The snapshots in a folder that training wrote.
    pub fn open(folder: &Path, device: Device) -> Result<Trajectory> {
        let files = snapshot_files(folder)?;
        let networks =
            files.iter().map(|file| Classifier::load(file, device, None).map(Arc::new)).collect::<Result<_>>()?;
        Trajectory::of(networks).map_err(|e| Error::file(folder, format!("cannot be read as snapshots: {e}")))
    }

    /// Of networks in their order, at least two.
    pub fn of(networks: Vec<Arc<Classifier>>) -> Result<Trajectory> {
        fail_if!(
            networks.is_empty(),
            "there are no networks (.safetensors); training writes snapshots where it is asked to"
        );
        fail_if!(networks.len() == 1, "there is a single network; at least two are needed");
        networks.iter().try_for_each(|network| network.require_nonlinear("the kernel of snapshots"))?;
        let first = &networks[0];
        fail_if!(first.number.is_some(), "the networks predict a number; the kernel of snapshots is for classes");
        for (i, other) in networks.iter().enumerate().skip(1) {
            let (ours, theirs) = (first.network.expression(), other.network.expression());
            fail_if!(
                ours != theirs || first.network.inputs() != other.network.inputs(),
                "network {} (counted from 1) is \"{theirs}\", the first \"{ours}\"; all must be of one architecture",
                i + 1
            );
            fail_if!(
                first.classes != other.classes || first.standardizer != other.standardizer,
                "network {} (counted from 1) has other classes or another scaling of its input than the first; train all of them on the same rows",
                i + 1
            );
        }
        Ok(Trajectory { networks })
    }

    /// M
    pub fn count(&self) -> usize {
        self.networks.len()
    }

    /// The network that training ended with.
    pub fn last(&self) -> &Arc<Classifier> {
        &self.networks[self.count() - 1]
    }

    /// `g(x, θ_i)` `[M, n, C]` at rows `x` `[n, d]`, by M passes.
    pub fn outputs(&self, x: ArrayView2<f64>, context: &FitContext) -> Result<Array3<f64>> {
        outputs(&self.networks, x, context)
    }

    /// The functions `F_i = g(x, θ_i) − ḡ(x)` `[M, n, C]` at rows `x` `[n, d]`, ḡ the mean of the snapshots. They are samples for
    /// [`crate::operator::LowRankOperator`]: its kernel `FᵀF/M` is that of the trajectory.
    pub fn samples(&self, x: ArrayView2<f64>, context: &FitContext) -> Result<Array3<f64>> {
        Ok(centred(self.outputs(x, context)?))
    }

    /// Stochastic weight averaging: the network at the mean of the parameters, its batch norms measured anew at rows `x` `[n, d]`.
    pub fn average(&self, x: ArrayView2<f64>) -> Result<Classifier> {
        Swag::of(self, 2)?.average(x)
    }
}

/// The outputs `[M, n, C]` of networks at rows `x` `[n, d]`.
pub(super) fn outputs(networks: &[Arc<Classifier>], x: ArrayView2<f64>, context: &FitContext) -> Result<Array3<f64>> {
    let (m, c) = (networks.len(), networks[0].network.outputs());
    context.budget.require(
        format!("the outputs of {m} networks at {} rows", x.nrows()),
        [x.nrows(), c, 3 * 8].iter().fold(m as u64, |product, factor| product.saturating_mul(*factor as u64)),
        "use fewer rows or networks",
    )?;
    let mut all = Array3::zeros((m, x.nrows(), c));
    for (i, network) in networks.iter().enumerate() {
        context.progress.step("outputs of networks", i, m, "");
        all.index_axis_mut(Axis(0), i).assign(&network.logits(x)?.mapv(f64::from));
    }
    Ok(all)
}

/// `F_i = g_i − ḡ` of outputs `[M, n, C]`.
pub(super) fn centred(outputs: Array3<f64>) -> Array3<f64> {
    let mean = outputs.mean_axis(Axis(0)).expect("there are networks");
    outputs - mean.insert_axis(Axis(0))
}
