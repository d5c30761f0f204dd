//! What a fit takes, before it starts.

use super::passes::points_at_a_time;
use super::{Laplace, method::Span};
use crate::Result;
use crate::classifier::Classifier;
use crate::laplace::NetworkFunctions;
use crate::net::ntk::EmpiricalNtk;
use serde::Serialize;

/// What a fit takes, estimated before it starts. Example: [`Laplace::cost`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Bytes of the largest arrays.
    pub bytes: u64,
    /// Multiply-adds of a fit.
    pub fit: f64,
    /// Multiply-adds of a prediction, in those of the network alone.
    pub predict: f64,
}

/// What a method takes beside the outputs and the features of the last layer: bytes, and multiply-adds of a fit and of a prediction.
pub struct Work {
    pub bytes: f64,
    pub fit: f64,
    pub predict: f64,
}

/// Sizes of a network and of the rows of a fit.
pub struct Sizes<'a> {
    classifier: &'a Classifier,
    /// Rows.
    pub n: f64,
    /// Outputs.
    pub c: f64,
    /// Parameters.
    pub p: f64,
    /// Multiply-adds of a pass forward.
    pub pass: f64,
    /// Inputs of the last layer, and one for its bias.
    pub hidden: f64,
    /// Whether derivatives of its layers stay factors; those of convolutions are written out.
    pub dense: bool,
    /// Inputs and outputs of the affine layers.
    layers: Vec<[f64; 2]>,
}

impl Sizes<'_> {
    fn of(classifier: &Classifier, n: usize) -> Sizes<'_> {
        let net = &classifier.network;
        let [n, c, p, pass] = [n, net.outputs(), net.parameters(), net.multiply_adds()].map(|count| count as f64);
        let layers: Vec<[f64; 2]> = net.affine_layers().iter().map(|layer| layer.map(|units| units as f64)).collect();
        let hidden = layers.last().map_or(0.0, |[inputs, _]| inputs + 1.0);
        let dense = pass <= layers.iter().map(|[i, o]| i * o).sum::<f64>();
        Sizes { classifier, n, c, p, pass, hidden, dense, layers }
    }

    /// The sum of `of([inputs, outputs])` over the layers.
    pub fn sum(&self, of: fn([f64; 2]) -> f64) -> f64 {
        self.layers.iter().map(|layer| of(*layer)).sum()
    }

    /// Multiply-adds of the NTK at m points, of c outputs.
    pub fn kernel(&self, m: f64, c: f64) -> f64 {
        m * m * if self.dense { self.sum(|[i, _]| i) + c * self.sum(|[_, o]| o) } else { c * self.p }
    }

    /// Multiply-adds of a pass back from every output.
    pub fn backward(&self) -> f64 {
        (1.0 + 2.0 * self.c) * self.pass
    }

    /// Bytes of a batch that goes back from every output: cotangents `[C, b, C]` in both precisions, and signals of the widest layer.
    pub fn batch(&self) -> Result<f64> {
        let Classifier { network, parameters, .. } = self.classifier;
        let points = points_at_a_time(&EmpiricalNtk::new(network, parameters)?, network.outputs());
        let of_layer = |[i, o]: &[f64; 2]| if self.dense { i + o } else { i + o + i * o };
        let widest = self.layers.iter().fold(self.c, |most, layer| most.max(of_layer(layer)));
        Ok((points as f64).min(self.n) * self.c * (12.0 * self.c + 8.0 * widest))
    }
}

/// Bytes of the algebra of few functions, and its multiply-adds.
pub fn functions(order: f64) -> [f64; 2] {
    [32.0 * order * order, 10.0 * order.powi(3)]
}

impl Laplace {
    /// An estimate of what a fit to `n` rows takes.
    ///
    /// ```
    /// use mercer::classifier::Classifier;
    /// use mercer::laplace::{Laplace, LastLayer};
    /// let data = mercer::data::digits().with_classes()?;
    /// let network = Classifier::new("dense(100) relu dense(10)", &data, mercer::Device::Cpu, 0)?;
    /// let cost = Laplace::new(LastLayer).cost(&network, data.n())?;
    /// assert!(cost.bytes > 1_010 * 1_010 * 8); // H is 1010×1010
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn cost(&self, network: &Classifier, n: usize) -> Result<Cost> {
        let sizes = Sizes::of(network, n);
        let Work { bytes, fit, predict } = self.method.recipe().work(&sizes)?;
        let rows = 8.0 * sizes.n * (sizes.hidden + 2.0 * sizes.c);
        Ok(Cost { bytes: (bytes + rows) as u64, fit, predict: predict / sizes.pass.max(1.0) })
    }

    /// An estimate of what a fit to the functions of a network takes, and of what τ takes on so many validation rows.
    pub(crate) fn cost_of_functions(&self, network: &NetworkFunctions, validation: usize) -> Cost {
        let sizes = [network.n(), network.outputs(), network.functions()];
        let [n, c, k] = sizes.map(|v| v as f64);
        let outputs = 8 * (sizes[0] as u64).saturating_mul(sizes[1] as u64);
        let width = match self.method.recipe().span() {
            None | Some(Span::Empty) => return Cost { bytes: outputs, fit: 0.0, predict: 1.0 },
            Some(Span::Whole) => k,
            Some(Span::Leading(count)) => (count as f64).min(k),
        };
        // One or two Gram matrices, one or two eigenproblems; τ sees the validation rows once for each of its four grids.
        let fit = n * c * k * (k + width) + 20.0 * k.powi(3) + 6.0 * validation as f64 * c * k * width;
        let bytes = outputs.saturating_add(32 * (sizes[2] as u64).saturating_mul(sizes[2] as u64));
        Cost { bytes, fit, predict: 1.0 }
    }
}
