//! The linearisation of a network at its start: `f(x, θ₀) + ∂_θ f(x, θ₀)·δ`, trained in the displacement δ of the weights.

use super::Classifier;
use crate::compute::{self, Tensor};
use crate::net::{LayerSpec, Mode, Network, Parameters, Workspace};
use crate::{Result, fail_if};

impl Classifier {
    /// The same network, linear in its weights around those that it has now: its outputs are
    /// `f(x, θ₀) + ∂_θ f(x, θ₀)·δ`, and training moves the displacement δ, which is zero at first.
    ///
    /// ```
    /// use mercer::classifier::{Classifier, Settings, train};
    /// use mercer::{Device, data};
    /// let (fit, held_out) = data::digits().with_classes()?.split(0.2, 0)?;
    /// let network = Classifier::new("dense(64) relu dense(10)", &fit, Device::Cpu, 0)?;
    /// let start = network.logits(&held_out.x)?;
    /// let linear = network.linearised()?;
    /// assert_eq!(linear.logits(&held_out.x)?, start);
    /// let settings = Settings { epochs: 3, batch: 64, learning_rate: 0.02, ..Settings::default() };
    /// let trained = train(linear, &fit, Some(&held_out), &settings, &Default::default(), &|_| ())?;
    /// assert!(trained.history.last().unwrap().test.unwrap().classes().unwrap().accuracy > 0.85);
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn linearised(self) -> Result<Classifier> {
        let of_batch = |layer: &LayerSpec| matches!(layer, LayerSpec::BatchNorm | LayerSpec::L2Norm);
        fail_if!(
            self.network.description().any(of_batch),
            "a network with norms over the batch (bn, l2norm) has no linearisation of its own; leave them out, or use ln"
        );
        let device = self.parameters.trained.device();
        Ok(Classifier { displacement: Some(Tensor::zeros(device, &[self.network.parameters()])?), ..self })
    }

    /// Refuses a linearised network where its outputs would be taken for those of `parameters`.
    pub(crate) fn require_nonlinear(&self, what: &str) -> Result<()> {
        fail_if!(self.displacement.is_some(), "{what} is for a network, not for one that was linearised");
        Ok(())
    }
}

/// `out ← f(x, θ₀) + ∂_θ f(x, θ₀)·δ` `[1, b, c]` at rows `x` `[b, d]`; leaves the workspace as a forward pass does, for `vjp`.
pub(super) fn outputs(
    network: &Network,
    start: &Parameters,
    displacement: &Tensor,
    x: &Tensor,
    workspace: &mut Workspace,
    out: &mut Tensor,
) -> Result<()> {
    let y = network.forward(start, x, Mode::Eval, workspace)?;
    out.reshape(y.shape())?;
    compute::copy(y, out);
    compute::axpy(1.0, network.jvp(start, x, workspace, Some(displacement), None)?, out);
    Ok(())
}
