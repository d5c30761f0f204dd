//! Classifiers in files: safetensors under PyTorch's names, with the architecture and the classes in the header.

use super::{Classifier, Number, Standardizer, description};
use crate::bundle::{self, Bundle};
use crate::compute::{Device, Tensor};
use crate::data::{Dataset, Schema, Target, write_atomically};
use crate::finite::finite_json;
use crate::net::{self, NamedTensor, Network, Parameters};
use crate::{Error, Result, fail_if};
use ndarray::Array2;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The header that this version writes and reads. Version 1 had no checksum.
const VERSION: u64 = 2;

/// Bytes of the largest header that safetensors allows.
const LARGEST_HEADER: u64 = 100_000_000;

/// What the header of a file says beside its tensors.
#[derive(Deserialize)]
struct Metadata {
    #[serde(rename = "__metadata__", default)]
    entries: HashMap<String, String>,
}

/// The entry `mercer` of the file's metadata, as JSON.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u64,
    net: String,
    inputs: usize,
    classes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<Number>,
    #[serde(rename = "standard")]
    standardizer: Standardizer,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schema: Option<Schema>,
    /// Whether tensors under [`DISPLACEMENT`] say how far the weights of a linearised network moved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    linearised: bool,
}

/// What the names of the tensors of a displacement begin with.
const DISPLACEMENT: &str = "displacement.";

/// What a file that another program wrote does not say. Example: [the module](crate::classifier).
#[derive(Clone, Copy, Debug, Default)]
pub struct Unnamed<'a> {
    /// Name or architecture of the network.
    pub net: &'a str,
    /// Number of columns of the rows that it takes.
    pub inputs: usize,
    /// Channels, height and width, where each row is an image.
    pub image: Option<[usize; 3]>,
    /// Names of its classes, in the order of its outputs; none where that does not matter.
    pub classes: &'a [String],
    /// Subtracted from rows before the network sees them: nothing, one number, or one for each channel
    /// ([`Standardizer::given`]).
    pub mean: &'a [f64],
    /// Divides rows after that, in the same form.
    pub spread: &'a [f64],
    /// Names of tensors, `(old, new)`: where a name, or a part of it after a dot, begins with `old`, that becomes `new`.
    pub rename: &'a [(String, String)],
}

/// Names and shapes of tensors, the first of them, for messages.
fn shapes(tensors: &[NamedTensor]) -> String {
    const SHOWN: usize = 24;
    let mut shown: Vec<String> = tensors.iter().take(SHOWN).map(|t| format!("{} {:?}", t.name, t.shape)).collect();
    shown.sort_unstable();
    let more = tensors.len().saturating_sub(SHOWN);
    shown.join(", ") + &if more == 0 { String::new() } else { format!(" and {more} more tensors") }
}

impl<'a> Unnamed<'a> {
    /// The network `net` for rows like those of `data`, which it sees as they are.
    pub fn new(net: &'a str, data: &'a Dataset) -> Unnamed<'a> {
        let classes = data.y.as_ref().map_or(&[][..], Target::names);
        Unnamed { net, inputs: data.d(), image: data.shape, classes, ..Unnamed::default() }
    }
}

impl Classifier {
    /// How tables become the rows of the network in a file, by the header alone; none where the network saw no table, and in files of other
    /// programs.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// use mercer::{classifier::Classifier, data::{Missing, Scaling, Schema, Table}};
    /// let table = Table::open("digits", &Default::default())?;
    /// let schema = Schema::fit(&table, Missing::Refuse, Scaling::None)?;
    /// let mut network = Classifier::new("dense(10)", &schema.encode(table)?.0.with_classes()?, mercer::Device::Cpu, 0)?;
    /// network.schema = Some(schema.clone());
    /// let file = folder.path().join("net.safetensors");
    /// network.save(&file)?;
    /// assert_eq!(Classifier::schema_of(&file)?, Some(schema));
    /// assert!(Classifier::schema_of("missing.safetensors".as_ref()).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn schema_of(path: &Path) -> Result<Option<Schema>> {
        let head = head(path).map_err(|e| Error::io(path, e))?;
        refuse_pickle(path, &head)?;
        let header = head.get(8..).unwrap_or_default();
        let metadata: Metadata =
            serde_json::from_slice(header).map_err(|_| foreign(path, "its header cannot be read"))?;
        let Some(entry) = metadata.entries.get("mercer") else { return Ok(None) };
        check_version(entry).map_err(|what| broken(path, what))?;
        described(entry).map(|(_, header)| header.schema).map_err(|e| broken(path, e.to_string()))
    }

    /// Writes a file that [`Classifier::load`] reads, and PyTorch too (`safetensors.torch.load_file`), whole or not at all.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut tensors = self.network.tensors(&self.parameters)?;
        if let Some(displacement) = &self.displacement {
            let moved = Parameters { trained: displacement.clone(), constants: self.parameters.constants.clone() };
            let named = |t: NamedTensor| NamedTensor { name: format!("{DISPLACEMENT}{}", t.name), ..t };
            tensors.extend(self.network.tensors(&moved)?.into_iter().map(named));
        }
        let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
            .into_iter()
            .map(|t| (t.name, t.shape, t.data.iter().flat_map(|v| v.to_le_bytes()).collect()))
            .collect();
        let views = tensors.iter().map(|(name, shape, data)| {
            (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), data).expect("f32 bytes"))
        });
        for (name, view) in views.clone() {
            tensor(name, &view).map_err(|e| Error::file(path, format!("is not written: {e}")))?;
        }
        let header = finite_json(&self.header()).map_err(|e| Error::file(path, e))?;
        let checksum = bundle::checksum(&header, views.clone());
        let metadata = HashMap::from([
            ("format".to_owned(), "pt".to_owned()),
            ("mercer".to_owned(), header),
            ("checksum".to_owned(), checksum),
        ]);
        let file = safetensors::serialize(views, Some(metadata)).map_err(|e| Error::file(path, e.to_string()))?;
        write_atomically(path, |w| w.write_all(&file))
    }

    /// Reads a file. One that PyTorch wrote holds the numbers alone: `unnamed` says the rest, and its network and classes are
    /// not looked at otherwise. The network of such a file sees rows as they are, unless a mean or a spread is given.
    pub fn load(path: &Path, device: Device, unnamed: Option<Unnamed<'_>>) -> Result<Classifier> {
        let file = std::fs::read(path).map_err(|e| Error::io(path, e))?;
        refuse_pickle(path, &file)?;
        let broken = |what: String| broken(path, what);
        let foreign = |e: safetensors::SafeTensorError| foreign(path, e);
        let (_, metadata) = SafeTensors::read_metadata(&file).map_err(foreign)?;
        let entries = metadata.metadata().as_ref();
        let entry = entries.and_then(|m| m.get("mercer"));
        let tensors = SafeTensors::deserialize(&file).map_err(foreign)?;
        if let Some(entry) = entry {
            check_version(entry).map_err(broken)?;
            bundle::check(entries.and_then(|m| m.get("checksum")), entry, &tensors).map_err(broken)?;
        }
        let tensors =
            tensors.iter().map(|(name, view)| tensor(name, &view).map_err(broken)).collect::<Result<Vec<_>>>()?;
        let unfit = |e: Error| broken(e.to_string());
        let Some(entry) = entry else {
            let Some(unnamed) = unnamed else {
                let listed = shapes(&tensors);
                return Err(broken(format!(
                    "it does not name its network; {name_network}; it holds {listed}",
                    name_network = crate::advice!(NameNetwork)
                )));
            };
            return unnamed.classifier(tensors, device).map_err(unfit);
        };
        fail_if!(
            unnamed.is_some_and(|unnamed| unnamed.changes());
            Error::file(path, "was written by mercer, with its own scaling and names; give no others")
        );
        let (network, header) = described(entry).map_err(unfit)?;
        let (moved, tensors): (Vec<_>, Vec<_>) =
            tensors.into_iter().partition(|t| header.linearised && t.name.starts_with(DISPLACEMENT));
        let parameters = network.parameters_named(device, &tensors).map_err(unfit)?;
        let unnamed = |t: NamedTensor| NamedTensor { name: t.name[DISPLACEMENT.len()..].to_owned(), ..t };
        let moved: Vec<NamedTensor> = moved.into_iter().map(unnamed).collect();
        let displacement = header.linearised.then(|| network.parameters_named(device, &moved)).transpose();
        let displacement = displacement.map_err(unfit)?.map(|moved| moved.trained);
        let Header { classes, number, standardizer, schema, .. } = header;
        Ok(Classifier { schema, displacement, ..Classifier::of((network, parameters), standardizer, classes, number) })
    }
}

impl Classifier {
    /// Puts the network into the file of a model that holds one.
    pub(crate) fn pack(&self, bundle: &mut Bundle<'_>) -> Result<()> {
        Classifier::pack_all(std::slice::from_ref(self), bundle)
    }

    /// Puts networks that differ in their numbers only, at least one, into the file of a model.
    pub(crate) fn pack_all(networks: &[impl Borrow<Classifier>], bundle: &mut Bundle<'_>) -> Result<()> {
        let networks: Vec<&Classifier> = networks.iter().map(Borrow::borrow).collect();
        bundle.set("network", networks[0].header());
        let put = |bundle: &mut Bundle<'_>, name: &str, of: fn(&Classifier) -> &Tensor, count: usize| {
            let numbers = networks.iter().map(|network| of(network).to_host()).collect::<Result<Vec<_>>>()?.concat();
            let rows = Array2::from_shape_vec((networks.len(), count), numbers.into_iter().map(f64::from).collect());
            bundle.put(name, rows.expect("a row for each network"));
            Ok(())
        };
        put(bundle, "trained", |n| &n.parameters.trained, networks[0].network.parameters())?;
        put(bundle, "constants", |n| &n.parameters.constants, networks[0].network.constants())
    }

    /// Reads what [`Self::pack`] wrote.
    pub(crate) fn unpack(bundle: &Bundle, device: Device) -> Result<Classifier> {
        let mut all = Classifier::unpack_all(bundle, device)?;
        fail_if!(all.len() != 1, "its parts do not fit together: there are {} networks", all.len());
        Ok(all.remove(0))
    }

    /// Reads what [`Self::pack_all`] wrote.
    pub(crate) fn unpack_all(bundle: &Bundle, device: Device) -> Result<Vec<Classifier>> {
        let (network, header) = checked(bundle.value("network")?)?;
        let numbers = |name: &str, count: usize| {
            let matrix = bundle.matrix(name)?;
            fail_if!(
                matrix.ncols() != count || matrix.nrows() == 0,
                "its parts do not fit together: the network has {count} {name} numbers"
            );
            Ok(matrix.mapv(|v| v as f32))
        };
        let (trained, constants) =
            (numbers("trained", network.parameters())?, numbers("constants", network.constants())?);
        fail_if!(trained.nrows() != constants.nrows(), "its parts do not fit together: the numbers of its networks");
        let Header { classes, number, standardizer, .. } = header;
        let row = |numbers: &Array2<f32>, i: usize| numbers.row(i).to_vec();
        let parameters = network.parameters_from(device, &row(&trained, 0), &row(&constants, 0))?;
        let first = Classifier::of((network, parameters), standardizer, classes, number);
        let others = (1..trained.nrows()).map(|i| first.with_numbers(&row(&trained, i), &row(&constants, i)));
        let others = others.collect::<Result<Vec<_>>>()?;
        Ok(std::iter::once(first).chain(others).collect())
    }

    fn header(&self) -> Header {
        Header {
            version: VERSION,
            net: self.network.expression(),
            inputs: self.network.inputs(),
            classes: self.classes.clone(),
            number: self.number,
            standardizer: self.standardizer.clone(),
            schema: self.schema.clone(),
            linearised: self.displacement.is_some(),
        }
    }
}

impl Unnamed<'_> {
    /// Whether it says anything of rows or tensors.
    fn changes(&self) -> bool {
        !(self.mean.is_empty() && self.spread.is_empty() && self.rename.is_empty())
    }

    /// The network with the numbers in `tensors`.
    fn classifier(&self, mut tensors: Vec<NamedTensor>, device: Device) -> Result<Classifier> {
        let Unnamed { net, inputs, image, classes, mean, spread, rename } = *self;
        net::rename(&mut tensors, rename)?;
        let known = if classes.is_empty() { outputs(&tensors) } else { Some(classes.len()) };
        let description = description(net, inputs, image, known)?;
        let (network, parameters) = Network::with_tensors(&description, inputs, tensors, device)?;
        fail_if!(
            !classes.is_empty() && network.outputs() != classes.len(),
            "the network puts out {} numbers, but there are {} classes",
            network.outputs(),
            classes.len()
        );
        let standardizer = Standardizer::given(mean, spread, inputs, network.description().image.or(image))?;
        // One output without classes is a number.
        let number = (classes.is_empty() && network.outputs() == 1).then_some(Number { mean: 0.0, spread: 1.0 });
        let numbered = || (0..network.outputs()).map(|c| c.to_string()).collect();
        let classes = match number {
            Some(_) => vec![],
            None if classes.is_empty() => numbered(),
            None => classes.to_vec(),
        };
        Ok(Classifier { foreign: true, ..Classifier::of((network, parameters), standardizer, classes, number) })
    }
}

/// The length of a file's header, and the header.
fn head(path: &Path) -> std::io::Result<Vec<u8>> {
    let (mut file, mut head) = (File::open(path)?, vec![]);
    file.by_ref().take(8).read_to_end(&mut head)?;
    let length = head.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    file.take(length.min(LARGEST_HEADER)).read_to_end(&mut head)?;
    Ok(head)
}

fn broken(path: &Path, what: String) -> Error {
    Error::file(path, format!("cannot be read as a network: {what}"))
}

fn foreign(path: &Path, e: impl Display) -> Error {
    broken(path, format!("truncated, or not safetensors ({e})"))
}

/// Refuses what `torch.save` writes, a pickle alone or in a zip archive, with the line that converts it.
fn refuse_pickle(path: &Path, file: &[u8]) -> Result<()> {
    let named = path.extension().is_some_and(|e| ["pt", "pth", "bin", "pkl", "ckpt"].iter().any(|known| e == *known));
    // The header of safetensors follows its length in eight bytes, which may be those that a pickle starts with.
    let pickled = file.starts_with(b"PK\x03\x04") || matches!(file, [0x80, 2..=5, ..]) && file.get(8) != Some(&b'{');
    fail_if!(pickled || named; Error::file(
        path,
        "is a pickle of PyTorch, not safetensors; write the weights from Python by \
         `safetensors.torch.save_file(model.state_dict(), \"net.safetensors\")`"
    ));
    Ok(())
}

/// How many outputs a network with a name has, by the bias of its last dense layer: `fc`, or the `fc` of the largest number.
fn outputs(tensors: &[NamedTensor]) -> Option<usize> {
    let biases = tensors.iter().filter(|t| t.name.starts_with("fc") && t.name.ends_with(".bias"));
    biases.max_by_key(|t| t.name.as_str()).map(|t| t.data.len())
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

fn described(entry: &str) -> Result<(Network, Header)> {
    let header: Header =
        serde_json::from_str(entry).map_err(|e| Error::input(format!("its header is not what mercer writes ({e})")))?;
    checked(header)
}

/// The network that a header describes, if it does not contradict itself.
fn checked(header: Header) -> Result<(Network, Header)> {
    let network = Network::parse(&header.net, header.inputs, 1)?;
    let valid = |Number { mean, spread }: Number| mean.is_finite() && spread.is_finite() && spread > 0.0;
    let outputs = header.classes.len() + usize::from(header.number.is_some_and(valid));
    fail_if!(
        network.outputs() != outputs
            || header.number.is_some() && outputs != 1
            || !header.standardizer.fits(header.inputs),
        "its header contradicts itself"
    );
    header.schema.as_ref().map_or(Ok(()), |schema| schema.check(header.inputs))?;
    Ok((network, header))
}

fn tensor(name: &str, view: &TensorView) -> Result<NamedTensor, String> {
    let bytes = view.data();
    let data: Vec<f32> = match view.dtype() {
        Dtype::F32 => bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four bytes"))).collect(),
        Dtype::F64 => bundle::numbers(bytes).map(|v| v as f32).collect(),
        // Counters of batches are whole numbers, and of no use here.
        _ if name.ends_with("num_batches_tracked") => Vec::new(),
        other => return Err(format!("the tensor \"{name}\" is {other:?}; only F32 and F64 are read")),
    };
    fail_if!(data.iter().any(|v| !v.is_finite()); format!("the tensor \"{name}\" holds values that are not finite"));
    Ok(NamedTensor { name: name.to_owned(), shape: view.shape().to_vec(), data })
}
