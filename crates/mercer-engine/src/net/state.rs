//! A network's numbers under names: those that PyTorch gives the tensors of the same network.
//!
//! | layer | name | tensors |
//! |---|---|---|
//! | the i-th `conv` | `conv{i}` | `weight` `[out, in, size, size]`, `bias` `[out]` |
//! | the i-th `bn` | `bn{i}` | `weight`, `bias`, `running_mean`, `running_var` `[channels]` |
//! | the i-th `ln` | `ln{i}` | `weight`, `bias` `[units]`, or `[channels, height, width]` |
//! | the i-th `dense` | `fc{i}`; the only one `fc` | `weight` `[out, in]`, `bias` `[out]` |
//! | block b of stage s of the `res` | `layer{s}.{b}` | those of its body under their names, counted anew: `layer1.0.conv2.weight` |
//! | layer i of its shortcut | `layer{s}.{b}.downsample.{i}` | as above |
//!
//! Layers and stages count from 1, blocks and shortcuts from 0; a new stage begins with every block that has layers in its
//! shortcut. For `resnetN` these are the names of torchvision's residual networks, as the usual ones for CIFAR-10 have them.

use super::chain::consecutive;
use super::foreign::listed;
use super::{Layer, Network, Parameters};
use crate::compute::Device;
use crate::{Error, Result, fail_if};
use std::ops::Range;

/// One tensor of a layer: what it is called in a file and where the layer holds it.
#[derive(Clone, Debug)]
pub struct Piece {
    pub name: String,
    /// Where it starts among the parameters or the constants.
    pub start: usize,
    /// Its shape in a file.
    pub shape: Vec<usize>,
    /// Whether the layer holds the transpose, of a matrix.
    pub transposed: bool,
    /// Whether it is among the constants.
    pub constant: bool,
}

impl Piece {
    pub fn trained(name: &str, start: usize, shape: &[usize]) -> Piece {
        Piece { name: name.to_owned(), start, shape: shape.to_vec(), transposed: false, constant: false }
    }

    pub fn constant(name: &str, start: usize, shape: &[usize]) -> Piece {
        Piece { constant: true, ..Piece::trained(name, start, shape) }
    }
}

/// The name of a tensor, its place among the parameters, and its shape in a file.
#[doc(hidden)]
pub type Placed = (String, Range<usize>, Vec<usize>);

/// A tensor under its name.
#[derive(Clone, Debug, PartialEq)]
#[doc(hidden)]
pub struct NamedTensor {
    /// Such as `layer1.0.conv1.weight`.
    pub name: String,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// Row by row.
    pub data: Vec<f32>,
}

/// All pieces of a chain in order, with full names and places; parameters and constants of its layers start at `starts`.
pub(super) fn placed(layers: &[Box<dyn Layer>], starts: &[[usize; 2]]) -> Vec<Piece> {
    let mut all = Vec::new();
    let mut counts = std::collections::HashMap::new();
    let (mut stage, mut block) = (0, 0);
    for (layer, at) in layers.iter().zip(starts) {
        let count = counts.entry(layer.facts().stem).or_insert(0);
        *count += 1;
        let name = if layer.facts().stem == "layer" {
            let opens = *count == 1 || !layer.inner()[1].is_empty();
            (stage, block) = if opens { (stage + 1, 0) } else { (stage, block + 1) };
            format!("layer{stage}.{block}")
        } else {
            let alone = layer.facts().stem == "fc" && layers.iter().filter(|l| l.facts().stem == "fc").count() == 1;
            format!("{}{}", layer.facts().stem, if alone { String::new() } else { count.to_string() })
        };
        all.extend(layer_pieces(layer.as_ref(), &name, *at));
    }
    all
}

fn layer_pieces(layer: &dyn Layer, prefix: &str, at: [usize; 2]) -> Vec<Piece> {
    let [body, shortcut] = layer.inner();
    let (starts, end) = consecutive(body, at, 1);
    let own = layer.pieces().into_iter().map(|p| Piece { start: at[usize::from(p.constant)] + p.start, ..p });
    let named = |p: Piece| Piece { name: format!("{prefix}.{}", p.name), ..p };
    let mut all: Vec<Piece> = own.chain(placed(body, &starts)).map(named).collect();
    for (i, (layer, at)) in shortcut.iter().zip(consecutive(shortcut, end, 1).0).enumerate() {
        all.extend(layer_pieces(layer.as_ref(), &format!("{prefix}.downsample.{i}"), at));
    }
    all
}

impl Network {
    /// The numbers of one network under PyTorch's names; the names and shapes are listed in the documentation of the
    /// architectures (the guide, "Networks from PyTorch").
    ///
    /// ```
    /// use mercer_engine::compute::Device;
    /// use mercer_engine::net::{Network, named};
    /// use mercer_engine::rng::Rng;
    /// let net = Network::new(&named("lenet", [1, 28, 28], 10)?, 784, 1)?;
    /// let theta = net.init(Device::Cpu, &Rng::new(0))?;
    /// let tensors = net.tensors(&theta)?;
    /// assert_eq!((tensors[0].name.as_str(), &tensors[0].shape[..]), ("conv1.weight", &[6, 1, 5, 5][..]));
    /// let again = net.parameters_named(Device::Cpu, &tensors)?;
    /// assert_eq!(again.trained.to_host()?, theta.trained.to_host()?);
    /// # Ok::<(), mercer_engine::Error>(())
    /// ```
    pub fn tensors(&self, theta: &Parameters) -> Result<Vec<NamedTensor>> {
        self.check_single()?;
        let numbers = [theta.trained.to_host()?, theta.constants.to_host()?];
        let tensor = |Piece { name, start, shape, transposed, constant }: Piece| {
            let stored = &numbers[usize::from(constant)][start..start + shape.iter().product::<usize>()];
            let data = if transposed { transpose(stored, shape[1], shape[0]) } else { stored.to_vec() };
            NamedTensor { name, shape, data }
        };
        Ok(placed(&self.layers, &self.starts()).into_iter().map(tensor).collect())
    }

    /// Name, place among the parameters and shape in a file of every trained tensor of one network.
    #[doc(hidden)]
    pub fn trained_tensors(&self) -> Result<Vec<Placed>> {
        self.check_single()?;
        let trained = placed(&self.layers, &self.starts()).into_iter().filter(|piece| !piece.constant);
        let place = |Piece { name, start, shape, .. }: Piece| {
            let end = start + shape.iter().product::<usize>();
            (name, start..end, shape)
        };
        Ok(trained.map(place).collect())
    }

    /// Inputs and outputs of the matrix of every dense and convolutional layer, in the order of their parameters.
    #[doc(hidden)]
    pub fn affine_layers(&self) -> Vec<[usize; 2]> {
        let matrix = |piece: &Piece| match piece.shape[..] {
            [outputs, ref inputs @ ..] if inputs.len() != 2 && !inputs.is_empty() => {
                piece.name.ends_with(".weight").then(|| [inputs.iter().product(), outputs])
            }
            _ => None,
        };
        placed(&self.layers, &self.starts()).iter().filter_map(matrix).collect()
    }

    /// Parameters from tensors under PyTorch's names. Every tensor of the network must be there with its shape; counters
    /// (`num_batches_tracked`) are passed over, anything else that is left over is an error.
    pub fn parameters_named(&self, device: Device, tensors: &[NamedTensor]) -> Result<Parameters> {
        self.check_single()?;
        let places = placed(&self.layers, &self.starts());
        // All shapes before any memory: a description from a file may ask for more than its tensors hold.
        let found = places.iter().map(|piece| of_piece(piece, tensors)).collect::<Result<Vec<_>>>()?;
        let mut numbers = [vec![0.0; self.parameters()], vec![0.0; self.constants()]];
        for (Piece { start, shape, transposed, constant, .. }, tensor) in places.iter().zip(found) {
            let to = &mut numbers[usize::from(*constant)][*start..start + tensor.data.len()];
            if *transposed {
                to.copy_from_slice(&transpose(&tensor.data, shape[0], shape[1]));
            } else {
                to.copy_from_slice(&tensor.data);
            }
        }
        let known =
            |t: &&NamedTensor| t.name.ends_with("num_batches_tracked") || places.iter().any(|p| p.name == t.name);
        if let Some(extra) = tensors.iter().find(|t| !known(t)) {
            return Err(Error::input(format!(
                "the tensor \"{}\" of shape {:?} has no place in the network",
                extra.name, extra.shape
            )));
        }
        let [trained, constants] = numbers;
        self.parameters_from(device, &trained, &constants)
    }

    fn check_single(&self) -> Result<()> {
        fail_if!(self.networks() != 1, "tensors have names in one network, not in {} at once", self.networks());
        Ok(())
    }
}

/// The tensor of a piece, which must have its shape.
fn of_piece<'t>(Piece { name, shape, .. }: &Piece, tensors: &'t [NamedTensor]) -> Result<&'t NamedTensor> {
    let tensor = tensors.iter().find(|t| t.name == *name).ok_or_else(|| {
        Error::input(format!(
            "there is no tensor \"{name}\", which the network needs; the file has {}; change the network, or {rename}",
            listed(tensors),
            rename = advice!(RenameTensors)
        ))
    })?;
    let len = shape.iter().try_fold(1, |len: usize, size| len.checked_mul(*size));
    fail_if!(
        tensor.shape != *shape || Some(tensor.data.len()) != len,
        "the tensor \"{name}\" has shape {:?}, but the network needs {shape:?}",
        tensor.shape
    );
    Ok(tensor)
}

/// The transpose of a `rows × cols` matrix.
fn transpose(matrix: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    (0..rows * cols).map(|i| matrix[i % rows * cols + i / rows]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::named;
    use crate::net::tests::{host, start};
    use crate::rng::Rng;

    #[test]
    fn residual_networks_have_the_names_that_pytorch_gives_them() {
        let net = Network::new(&named("resnet20", [3, 32, 32], 10).unwrap(), 3072, 1).unwrap();
        let tensors = net.tensors(&net.init(Device::Cpu, &Rng::new(1)).unwrap()).unwrap();
        let shape = |name: &str| tensors.iter().find(|t| t.name == name).map(|t| t.shape.clone());
        for (name, want) in [
            ("layer1.2.conv2.weight", Some(vec![16, 16, 3, 3])),
            ("layer2.0.downsample.1.running_mean", Some(vec![32])),
            ("layer3.2.bn2.bias", Some(vec![64])),
            ("layer3.3.conv1.weight", None),
            ("conv1.bias", None),
        ] {
            assert_eq!(shape(name), want, "{name}");
        }
        let numbers: usize = tensors.iter().map(|t| t.data.len()).sum();
        assert_eq!((net.trained(), numbers), (272_474, 272_474 + net.constants()));
    }

    /// A description from a file may promise what no memory holds: shapes are compared before any of it is allocated.
    #[test]
    fn layers_that_a_file_does_not_hold_take_no_memory() {
        let (net, theta, ..) = start("dense(3) relu dense(2)", 4, 1, 2);
        let tensors = net.tensors(&theta).unwrap();
        for wide in
            ["dense(1048576) relu dense(1048576) relu dense(2)", "dense(3) relu dense(2) dense(1048576) dense(1048576)"]
        {
            let promised = Network::parse(wide, 4, 1).unwrap();
            let error = promised.parameters_named(Device::Cpu, &tensors).unwrap_err().to_string();
            assert!(error.contains("but the network needs") || error.contains("there is no tensor"), "{error}");
        }
    }

    #[test]
    fn numbers_survive_the_way_out_and_in_and_misfits_are_named() {
        let text = "image(2, 4, 4) conv(3, 3) bn relu res(conv(3, 1) tanh dense(48); bn) flatten dense(4) l2norm rff(6) dense(2)";
        let (net, theta, ..) = start(text, 32, 1, 2);
        let mut tensors = net.tensors(&theta).unwrap();
        let names: Vec<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
        assert!(names.contains(&"fc2.weight") && names.contains(&"layer1.0.fc.bias"), "{names:?}");
        let back = net.parameters_named(Device::Cpu, &tensors).unwrap();
        assert_eq!(host(&back.trained), host(&theta.trained));
        assert_eq!(host(&back.constants), host(&theta.constants));
        let message = |tensors: &[NamedTensor]| net.parameters_named(Device::Cpu, tensors).unwrap_err().to_string();
        tensors.push(NamedTensor { name: "bn1.num_batches_tracked".into(), shape: vec![], data: vec![7.0] });
        assert!(net.parameters_named(Device::Cpu, &tensors).is_ok());
        tensors.push(NamedTensor { name: "fc9.bias".into(), shape: vec![1], data: vec![7.0] });
        assert!(message(&tensors).contains("\"fc9.bias\" of shape [1] has no place"));
        tensors.pop();
        tensors[0].shape = vec![3, 2, 9];
        assert!(message(&tensors).contains("conv1.weight") && message(&tensors).contains("[3, 2, 3, 3]"));
        tensors.remove(0);
        assert!(message(&tensors).contains("no tensor \"conv1.weight\""));
        assert!(Network::parse(text, 32, 2).unwrap().tensors(&theta).is_err());
    }
}
