//! Classifiers in files: safetensors under PyTorch's names, with the architecture and the classes in the header.

use super::{Classifier, Labelled, Standardizer, network};
use crate::compute::Device;
use crate::data::{Schema, write_atomically};
use crate::model;
use crate::net::{NamedTensor, Network};
use crate::{Error, Result, fail_if};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;

/// The header that this version writes and reads. Version 1 had no checksum.
const VERSION: u64 = 2;

/// The entry `mercer` of the file's metadata, as JSON.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u64,
    net: String,
    inputs: usize,
    classes: Vec<String>,
    #[serde(rename = "standard")]
    standardizer: Standardizer,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schema: Option<Schema>,
}

/// What a file that another program wrote does not say. Example: [the module](crate::classifier).
#[derive(Clone, Copy, Debug)]
pub struct Unnamed<'a> {
    /// Name or architecture of the network.
    pub net: &'a str,
    /// Rows like those that it was trained on: their classes, their image shape, and their mean and spread.
    pub data: &'a Labelled,
}

impl Classifier {
    /// Writes a file that [`Classifier::load`] reads, and PyTorch too (`safetensors.torch.load_file`), whole or not at all.
    pub fn save(&self, path: &Path) -> Result<()> {
        let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = self
            .network
            .tensors(&self.parameters)?
            .into_iter()
            .map(|t| (t.name, t.shape, t.data.iter().flat_map(|v| v.to_le_bytes()).collect()))
            .collect();
        let views = tensors.iter().map(|(name, shape, data)| {
            (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), data).expect("f32 bytes"))
        });
        for (name, view) in views.clone() {
            tensor(name, &view).map_err(|e| Error::file(path, format!("is not written: {e}")))?;
        }
        let header = Header {
            version: VERSION,
            net: self.network.expression(),
            inputs: self.network.inputs(),
            classes: self.classes.clone(),
            standardizer: self.standardizer.clone(),
            schema: self.schema.clone(),
        };
        let header = serde_json::to_string(&header).expect("headers are plain data");
        let checksum = model::checksum(&header, views.clone());
        let metadata = HashMap::from([
            ("format".to_owned(), "pt".to_owned()),
            ("mercer".to_owned(), header),
            ("checksum".to_owned(), checksum),
        ]);
        let file = safetensors::serialize(views, Some(metadata)).map_err(|e| Error::file(path, e.to_string()))?;
        write_atomically(path, |w| w.write_all(&file))
    }

    /// Reads a file. One that PyTorch wrote holds the numbers alone: `unnamed` says the rest, and is not looked at
    /// otherwise.
    pub fn load(path: &Path, device: Device, unnamed: Option<Unnamed<'_>>) -> Result<Classifier> {
        let file = std::fs::read(path).map_err(|e| Error::io(path, e))?;
        let broken = |what: String| Error::file(path, format!("cannot be read as a network: {what}"));
        let foreign = |e: safetensors::SafeTensorError| broken(format!("truncated, or not safetensors ({e})"));
        let (_, metadata) = SafeTensors::read_metadata(&file).map_err(foreign)?;
        let entries = metadata.metadata().as_ref();
        let entry = entries.and_then(|m| m.get("mercer"));
        let tensors = SafeTensors::deserialize(&file).map_err(foreign)?;
        if let Some(entry) = entry {
            check_version(entry).map_err(broken)?;
            model::check(entries.and_then(|m| m.get("checksum")), entry, &tensors).map_err(broken)?;
        }
        let tensors =
            tensors.iter().map(|(name, view)| tensor(name, &view).map_err(broken)).collect::<Result<Vec<_>>>()?;
        let (network, classes, standardizer, schema) = match (entry, unnamed) {
            (Some(entry), _) => described(entry).map_err(|e| broken(e.to_string()))?,
            (None, Some(Unnamed { net, data })) => {
                let network = network(net, data.d(), data.image, data.classes.len())?;
                let standardizer = Standardizer::of(data.x.view(), network.description().image.or(data.image))?;
                (network, data.classes.clone(), standardizer, None)
            }
            (None, None) => {
                return Err(broken("it does not name its network; name the network beside the file".into()));
            }
        };
        let parameters = network.parameters_named(device, &tensors).map_err(|e| broken(e.to_string()))?;
        Ok(Classifier { network, parameters, standardizer, classes, schema })
    }
}

/// Refuses the header of an older or newer version.
fn check_version(entry: &str) -> Result<(), String> {
    let version = serde_json::from_str::<serde_json::Value>(entry).ok().and_then(|v| v["version"].as_u64());
    match version {
        Some(newer) if newer > VERSION => {
            Err(format!("its header is version {newer}, newer than {VERSION}; update mercer"))
        }
        Some(older) if older < VERSION => Err(format!(
            "its header is version {older}, of an earlier mercer, and has no checksum; train and save the network again"
        )),
        _ => Ok(()),
    }
}

fn described(entry: &str) -> Result<(Network, Vec<String>, Standardizer, Option<Schema>)> {
    let header: Header =
        serde_json::from_str(entry).map_err(|e| Error::input(format!("its header is not what mercer writes ({e})")))?;
    let network = Network::parse(&header.net, header.inputs, 1)?;
    fail_if!(
        network.outputs() != header.classes.len() || !header.standardizer.fits(header.inputs),
        "its header contradicts itself"
    );
    header.schema.as_ref().map_or(Ok(()), |schema| schema.check(header.inputs))?;
    Ok((network, header.classes, header.standardizer, header.schema))
}

fn tensor(name: &str, view: &TensorView) -> Result<NamedTensor, String> {
    let bytes = view.data();
    let data: Vec<f32> = match view.dtype() {
        Dtype::F32 => bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four bytes"))).collect(),
        Dtype::F64 => model::numbers(bytes).map(|v| v as f32).collect(),
        // Counters of batches are whole numbers, and of no use here.
        _ if name.ends_with("num_batches_tracked") => Vec::new(),
        other => return Err(format!("the tensor \"{name}\" is {other:?}; only F32 and F64 are read")),
    };
    fail_if!(data.iter().any(|v| !v.is_finite()); format!("the tensor \"{name}\" holds values that are not finite"));
    Ok(NamedTensor { name: name.to_owned(), shape: view.shape().to_vec(), data })
}
