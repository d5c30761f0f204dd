//! Spectra to and from files.

use super::neural::NetworkFeatures;
use super::{Features, Origin, RandomFeatures, Spectrum};
use crate::bundle::Bundle;
use crate::compute::Device;
use crate::data::Schema;
use crate::operator::{Extension, KernelFeatures, RowFeatures, SampleFeatures};
use crate::{Error, Registry, Result, fail_if};
use ndarray::Array2;
use serde_json::{Map, Value};
use std::path::Path;

impl Spectrum {
    /// Writes the spectrum to a file, whole or not at all.
    pub fn save(&self, path: &Path) -> Result<()> {
        self.save_with(None, path)
    }

    /// Writes the spectrum to a file with the schema of the table that it was fitted on, where there is one.
    /// Example: [`Model`](crate::model::Model).
    pub fn save_with(&self, schema: Option<&Schema>, path: &Path) -> Result<()> {
        let mut bundle = self.bundle()?;
        bundle.set("schema", schema);
        bundle.write(path)
    }

    /// What its file holds: the kind and all its parts.
    #[doc(hidden)]
    pub fn bundle(&self) -> Result<Bundle<'_>> {
        let mut bundle = Bundle::default();
        bundle.set("kind", Spectrum::KIND);
        self.pack(&mut bundle)?;
        Ok(bundle)
    }

    /// The kind of model that the file names.
    pub(crate) const KIND: &str = "spectrum";

    /// Everything but the kind, so that a model that stands on a spectrum can hold one.
    pub(crate) fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<()> {
        bundle.set("eigenvalues", &self.eigenvalues);
        bundle.set("certificate", &self.certificate);
        bundle.set("origin", &self.origin);
        bundle.put_sharded("coefficients", self.coefficients.view(), &self.features.sharding());
        let features = self.features.save(bundle)?;
        bundle.set("features", features);
        if let Some(Extension { features, coefficients }) = &self.by_samples {
            features.save(bundle)?;
            bundle.put("by_samples", coefficients.view());
        }
        bundle.set("by_samples", self.by_samples.is_some());
        if let Some(training) = &self.training {
            bundle.set("training", training);
        }
        Ok(())
    }

    /// Reads a spectrum back, to be evaluated on `device`.
    pub fn load(path: &Path, device: Device) -> Result<Spectrum> {
        Spectrum::load_with(path, device, &Registry::default())
    }

    /// The same, for a spectrum of kernels or features from outside the crate. `examples/own_kernel.rs` uses it.
    pub fn load_with(path: &Path, device: Device, registry: &Registry) -> Result<Spectrum> {
        Bundle::read_as(path, registry, |bundle, kind| match kind {
            Spectrum::KIND => Spectrum::unpack(bundle, device),
            _ => Err(Error::input(format!("holds a model of kind '{kind}', not a spectrum"))),
        })
    }

    /// The counterpart of [`Self::pack`].
    pub(crate) fn unpack(bundle: &Bundle, device: Device) -> Result<Spectrum> {
        let kind = bundle.text("features")?;
        let by_samples = match bundle.value("by_samples") {
            Ok(true) => {
                let (features, coefficients) = (Box::new(SampleFeatures::load(bundle)?), bundle.matrix("by_samples")?);
                Some(Extension { features, coefficients })
            }
            _ => None,
        };
        let origin: Origin = bundle.value("origin")?;
        let spectrum = Spectrum {
            eigenvalues: bundle.value("eigenvalues")?,
            certificate: bundle.value("certificate")?,
            notes: vec![],
            origin,
            training: (kind == NetworkFeatures::KIND).then(|| bundle.value("training")).transpose()?,
            features: features(kind, bundle, device)?,
            coefficients: bundle.matrix("coefficients")?,
            by_samples,
        };
        spectrum.check_parts(bundle)?;
        Ok(spectrum)
    }

    /// Refuses a file whose parts do not fit together: the only place where the shapes of a spectrum are checked.
    fn check_parts(&self, bundle: &Bundle) -> Result<()> {
        let (k, d, outputs) = (self.k(), self.origin.d, self.origin.outputs);
        fail_if!(k == 0 || outputs == 0, "it holds {k} functions of {outputs} outputs");
        let fits = |name: &str, features: &dyn Features, a: &Array2<f64>| -> Result<()> {
            let (p, columns) = a.dim();
            fail_if!(
                (p, columns) != (features.dim(), k) || features.outputs() != outputs,
                "its parts do not fit together: '{name}' is {p}×{columns} for {k} functions of {} features and {} outputs, \
                 where {outputs} outputs were fitted",
                features.dim(),
                features.outputs()
            );
            Ok(())
        };
        fits("coefficients", self.features.as_ref(), &self.coefficients)?;
        if let Some(Extension { features, coefficients }) = &self.by_samples {
            fits("by_samples", features.as_ref(), coefficients)?;
        }
        // Where the kernel has no formula, a new point is given by its kernel values, whatever coordinates the fitted ones had.
        let by_rows = bundle.text("features")? == RowFeatures::KIND;
        let inputs = self.features.inputs().filter(|_| !by_rows);
        fail_if!(
            inputs.is_some_and(|inputs| inputs != d),
            "its parts do not fit together: it was fitted on {d} columns, and its features take {}",
            inputs.unwrap_or(0)
        );
        // Every list of the certificate has an entry for each pair.
        let certificate: Map<String, Value> = bundle.value("certificate")?;
        for (name, list) in certificate.iter().filter_map(|(name, value)| Some((name, value.as_array()?))) {
            let length = list.len();
            fail_if!(
                length != k,
                "its parts do not fit together: 'certificate.{name}' has {length} entries for {k} pairs"
            );
        }
        Ok(())
    }
}

/// The kinds of features that [`features`] reads.
const FEATURES: [&str; 6] = [
    NetworkFeatures::KIND,
    KernelFeatures::KIND,
    SampleFeatures::KIND,
    RandomFeatures::FOURIER,
    RandomFeatures::POSITIVE,
    RowFeatures::KIND,
];

/// The feature map of a saved model. A new kind of feature of the crate is one more line here and above.
pub(crate) fn features(kind: &str, bundle: &Bundle, device: Device) -> Result<Box<dyn Features>> {
    match kind {
        NetworkFeatures::KIND => Ok(Box::new(NetworkFeatures::load(bundle, device)?)),
        KernelFeatures::KIND => Ok(Box::new(KernelFeatures::load(bundle, device)?)),
        SampleFeatures::KIND => Ok(Box::new(SampleFeatures::load(bundle)?)),
        RandomFeatures::FOURIER | RandomFeatures::POSITIVE => Ok(Box::new(RandomFeatures::load(kind, bundle)?)),
        RowFeatures::KIND => Ok(Box::new(RowFeatures::load(bundle)?)),
        other => bundle.registry().load_features(other, bundle, device),
    }
}

/// Reads features from outside the crate back.
type LoadFeatures = Box<dyn Fn(&Bundle, Device) -> Result<Box<dyn Features>> + Send + Sync>;

impl Registry {
    /// With features of the kind `name`, which [`Features::save`] returns; `load` is the counterpart of that method.
    pub fn features(
        self,
        name: &'static str,
        load: impl Fn(&Bundle, Device) -> Result<Box<dyn Features>> + Send + Sync + 'static,
    ) -> Result<Registry> {
        let mut taken = FEATURES.into_iter().chain(self.all::<LoadFeatures>().map(|(known, _)| known));
        fail_if!(taken.any(|known| known == name), "there are features called `{name}` already");
        drop(taken);
        Ok(self.with::<LoadFeatures>(name, Box::new(load)))
    }

    /// The registered features of that kind, read from a model.
    fn load_features(&self, kind: &str, bundle: &Bundle, device: Device) -> Result<Box<dyn Features>> {
        match self.all::<LoadFeatures>().find(|(name, _)| *name == kind) {
            Some((_, load)) => load(bundle, device),
            None => Err(Error::input(format!(
                "the model holds features of kind `{kind}`, which are none of this crate's; register them by \
                 `Registry::features(\"{kind}\", …)`, and load the model with that registry (`load_with`)"
            ))),
        }
    }
}
