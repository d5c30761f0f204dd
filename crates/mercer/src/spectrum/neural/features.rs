//! Networks as the features of a [`crate::spectrum::Spectrum`].

use super::{Functions, Layout, Standardizer};
use crate::bundle::Bundle;
use crate::compute::{self, Device};
use crate::net::{Network, Parameters};
use crate::operator::{Features, Points};
use crate::training::{numbers, put_numbers};
use crate::{Result, fail_if};
use ndarray::Array2;

/// `φ(x)`: k networks, or the hidden units of one, at standardised points, in single precision.
pub struct NetworkFeatures {
    architecture: String,
    inputs: usize,
    networks: usize,
    parameters: Parameters,
    layout: Layout,
    standardizer: Standardizer,
    outputs: usize,
}

impl NetworkFeatures {
    pub(crate) const KIND: &'static str = "networks";

    /// The trained functions, which see points through `standardizer`.
    pub fn new(functions: &Functions, standardizer: Standardizer) -> Self {
        let network = functions.network();
        NetworkFeatures {
            architecture: network.expression(),
            inputs: network.inputs(),
            networks: network.networks(),
            parameters: functions.parameters().clone(),
            layout: functions.layout(),
            standardizer,
            outputs: functions.outputs(),
        }
    }

    pub(crate) fn load(bundle: &Bundle, device: Device) -> Result<Self> {
        let architecture = bundle.text("features.architecture")?.to_owned();
        let standardizer = bundle.value::<Standardizer>("features.standard")?.checked()?;
        let networks = bundle.value("features.networks")?;
        let inputs = standardizer.inputs();
        let network = Network::parse(&architecture, inputs, networks)?;
        let (trained, constants) = (numbers(bundle, "parameters")?, numbers(bundle, "constants")?);
        let parameters = network.parameters_from(device, &trained, &constants)?;
        fail_if!(
            !compute::all_finite(&parameters.trained) || !compute::all_finite(&parameters.constants),
            "the model's network has parameters that single precision cannot hold"
        );
        let layout = bundle.value("features.layout")?;
        let outputs = Functions::from_parts(network, parameters.clone(), layout, false)?.outputs();
        Ok(NetworkFeatures { architecture, inputs, networks, parameters, layout, standardizer, outputs })
    }

    fn functions(&self) -> Result<Functions> {
        let network = Network::parse(&self.architecture, self.inputs, self.networks)?;
        Functions::from_parts(network, self.parameters.clone(), self.layout, false)
    }
}

impl Features for NetworkFeatures {
    fn dim(&self) -> usize {
        self.functions().map_or(0, |f| f.count())
    }

    fn inputs(&self) -> Option<usize> {
        Some(self.inputs)
    }

    fn outputs(&self) -> usize {
        self.outputs
    }

    fn eval(&self, points: Points<'_>) -> Result<Array2<f64>> {
        let x = points.coordinates()?;
        if x.n() == 0 {
            return Ok(Array2::zeros((0, self.dim())));
        }
        let device = self.parameters.trained.device();
        device.enter(|| self.functions()?.columns(&self.standardizer.gather(device, x, 0..x.n())?))
    }

    fn multiply_adds(&self) -> usize {
        Network::parse(&self.architecture, self.inputs, self.networks).map_or(0, |network| network.multiply_adds())
    }

    fn save<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<&'static str> {
        bundle.set("features.architecture", &self.architecture);
        bundle.set("features.networks", self.networks);
        bundle.set("features.layout", self.layout);
        bundle.set("features.standard", &self.standardizer);
        put_numbers(bundle, "parameters", &self.parameters.trained.to_host()?);
        put_numbers(bundle, "constants", &self.parameters.constants.to_host()?);
        Ok(Self::KIND)
    }
}
