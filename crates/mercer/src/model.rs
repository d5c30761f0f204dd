//! A saved model of any kind: [`Bundle`] is what its file holds, [`Model`] what it is.

pub use crate::bundle::{Bundle, stated_checksum};
#[doc(hidden)]
pub use crate::bundle::{FORMAT_VERSION, checksum};

use crate::apply::{Fitted, Saved};
use crate::classifier::Classifier;
use crate::compute::Device;
use crate::data::{Rows, Schema};
use crate::laplace::{FittedFunctionLaplace, FittedLaplace};
use crate::spectrum::Spectrum;
use crate::trajectory::FittedTrajectory;
use crate::{Error, Registry, Result};
use ndarray::Array2;
use std::path::Path;

/// Whatever was fitted and saved, with the schema of the table that it was fitted on.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use mercer::apply::{Fit, Fitted, Ridge, Saved};
/// use mercer::data::{Missing, ReadOptions, Scaling, Schema, Table};
/// use mercer::model::{Content, Model};
/// use mercer::{Device, FitContext, kernel::Kernel};
/// # std::fs::write(folder.path().join("t.csv"), "a,b,y\n1,red,2.5\n2,blue,1.5\n4,red,3\n")?;
/// # std::fs::write(folder.path().join("new.csv"), "b,a\nred,3\n")?;
/// let (file, new) = (folder.path().join("t.csv"), folder.path().join("new.csv"));
/// let options = ReadOptions { target: Some("y".into()), ..Default::default() };
/// let table = Table::open(file.to_str().unwrap(), &options)?;
/// let schema = Schema::fit(&table, Missing::Refuse, Scaling::Standard)?;
/// let (data, _) = schema.encode(table)?;
/// let x = data.x.to_f64();
/// let fitted = Ridge::new(Kernel::parse("rbf(1)")?).fit(x.view(), &data.y.unwrap(), &FitContext::default())?;
/// let path = folder.path().join("m.mercer");
/// fitted.save_with(Some(&schema), &path)?;
///
/// let model = Model::load(&path, Device::Cpu)?;
/// let schema = model.schema.unwrap();
/// let (new, _) = schema.encode(Table::open_like(new.to_str().unwrap(), &ReadOptions::default(), &schema)?)?;
/// let Content::Fitted(Fitted::Predict(fitted)) = model.content else { panic!("it predicts") };
/// assert_eq!(fitted.predict(new.x.to_f64().view())?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Model {
    /// How tables become features; none where the model was fitted to numbers that were given without a table.
    pub schema: Option<Schema>,
    /// What was fitted.
    pub content: Content,
}

/// What a [`Model`] holds. Example: [`Model`].
pub enum Content {
    /// Eigenvalues and eigenfunctions.
    Spectrum(Box<Spectrum>),
    /// An estimator.
    Fitted(Fitted),
    /// A network that classifies.
    Network(Box<Classifier>),
}

impl Model {
    /// Reads a file of any kind, to compute on `device`; `.safetensors` is a network.
    pub fn load(path: &Path, device: Device) -> Result<Model> {
        Model::load_with(path, device, &Registry::default())
    }

    /// The same, for a model of kernels or features from outside the crate. Example: [`Registry`].
    pub fn load_with(path: &Path, device: Device, registry: &Registry) -> Result<Model> {
        if path.extension().is_none_or(|e| e != "safetensors") {
            return Bundle::read_as(path, registry, |bundle, kind| Model::unpack(bundle, kind, device));
        }
        let mut network = Classifier::load(path, device, None)?;
        let schema = network.schema.take();
        Model::checked(schema, Content::Network(Box::new(network))).map_err(|e| Error::file(path, e.to_string()))
    }

    /// The model, where the schema makes the features that were fitted.
    fn checked(schema: Option<Schema>, content: Content) -> Result<Model> {
        schema.as_ref().map_or(Ok(()), |schema| schema.check(content.d()))?;
        Ok(Model { schema, content })
    }

    /// Builds the model of a bundle of any kind, to compute on `device`.
    ///
    /// ```
    /// use mercer::apply::{Fit, Fitted, Ridge, Saved};
    /// use mercer::model::{Bundle, Content, Model};
    /// use mercer::{Device, FitContext, data::Target, kernel::Kernel};
    /// let x = ndarray::array![[0.0], [1.0], [2.0]];
    /// let y = Target::Values(vec![0.0, 1.0, 4.0]);
    /// let fitted = Ridge::new(Kernel::parse("rbf(1)")?).fit(x.view(), &y, &FitContext::default())?;
    /// let bytes = fitted.bundle()?.to_bytes()?;
    /// let model = Model::of_bundle(&Bundle::from_bytes(&bytes)?, Device::Cpu)?;
    /// assert!(matches!(model.content, Content::Fitted(Fitted::Predict(_))));
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn of_bundle(bundle: &Bundle, device: Device) -> Result<Model> {
        Model::unpack(bundle, bundle.text("kind")?, device)
    }

    fn unpack(bundle: &Bundle, kind: &str, device: Device) -> Result<Model> {
        let content = match kind {
            "checkpoint" => {
                return Err(Error::input(concat!(
                    "holds the state of a training run, not a model; ",
                    crate::advice!(Resume)
                )));
            }
            FittedLaplace::KIND => Content::Fitted(Fitted::Predict(Box::new(FittedLaplace::unpack(bundle, device)?))),
            FittedFunctionLaplace::KIND => {
                Content::Fitted(Fitted::Predict(Box::new(FittedFunctionLaplace::unpack(bundle, device)?)))
            }
            FittedTrajectory::KIND => {
                Content::Fitted(Fitted::Predict(Box::new(FittedTrajectory::unpack(bundle, device)?)))
            }
            Spectrum::KIND => Content::Spectrum(Box::new(Spectrum::unpack(bundle, device)?)),
            _ => Content::Fitted(Fitted::unpack(bundle, kind, device)?),
        };
        Model::checked(bundle.schema()?, content)
    }
}

impl Content {
    /// Number of features that it was fitted on.
    pub fn d(&self) -> usize {
        match self {
            Content::Spectrum(spectrum) => spectrum.origin.d,
            Content::Fitted(Fitted::Predict(fitted)) => fitted.origin().d,
            Content::Fitted(Fitted::Transform(fitted)) => fitted.origin().d,
            Content::Network(network) => network.network.inputs(),
        }
    }

    /// Number of coordinates that it gives a row. An error where it gives none, or needs more than the row's features.
    pub fn code_length(&self) -> Result<usize> {
        match self {
            Content::Spectrum(spectrum) if spectrum.takes_coordinates() && spectrum.origin.outputs == 1 => {
                Ok(spectrum.k())
            }
            Content::Fitted(Fitted::Transform(fitted)) => Ok(fitted.eigenvalues().len()),
            Content::Spectrum(_) => {
                Err(Error::input("holds functions of samples or with several outputs, which are no codes of rows"))
            }
            Content::Fitted(Fitted::Predict(_)) | Content::Network(_) => {
                Err(Error::input("holds a model that predicts and has no coordinates"))
            }
        }
    }

    /// The coordinates `[n, k]` of rows `[n, d]`: eigenfunctions of a spectrum, coordinates of an embedding, in the order of their
    /// eigenvalues.
    ///
    /// ```
    /// use mercer::apply::{Fit, Fitted, KernelPca};
    /// use mercer::{FitContext, kernel::Kernel, model::Content};
    /// let x = ndarray::array![[0.0], [1.0], [2.5]];
    /// let fitted = KernelPca::new(Kernel::parse("rbf(1)")?).fit(x.view(), &(), &FitContext::default())?;
    /// let content = Content::Fitted(Fitted::Transform(Box::new(fitted)));
    /// assert_eq!(content.codes(x.view().into())?.dim(), (3, content.code_length()?));
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn codes(&self, x: Rows<'_>) -> Result<Array2<f64>> {
        self.code_length()?;
        match self {
            Content::Spectrum(spectrum) => spectrum.transform(x),
            Content::Fitted(Fitted::Transform(fitted)) => fitted.transform(x.to_f64().view()),
            _ => unreachable!("refused above"),
        }
    }
}

impl Bundle<'_> {
    /// The schema of a model, where it has one.
    fn schema(&self) -> Result<Option<Schema>> {
        if self.header().contains_key("schema") { self.value("schema") } else { Ok(None) }
    }
}
