//! Numbers from files of other programs: tensors under other names, and biases where the file has them.

use super::state::{Piece, placed};
use super::{Description, LayerSpec, NamedTensor, Network, Parameters, Spread};
use crate::compute::Device;
use crate::{Error, Result, fail_if};
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};

/// Most groups of numbered tensors whose order is looked for.
const GROUPS: usize = 5;

impl Network {
    /// The network of `description` on `inputs` input units, with the numbers of a file that another program wrote.
    ///
    /// Tensors are found by name ([`Network::tensors`]). Those of PyTorch's `nn.Sequential`, `0.weight`, `2.weight` or
    /// `features.0.weight`, are taken for the layers with parameters in the order of their numbers, and must have their shapes.
    /// Convolutions and dense layers have a bias if the file has one for them.
    ///
    /// ```
    /// use mercer_engine::compute::Device;
    /// use mercer_engine::net::{Description, NamedTensor, Network};
    /// let tensor = |name: &str, shape: &[usize]| {
    ///     NamedTensor { name: name.into(), shape: shape.to_vec(), data: vec![0.5; shape.iter().product()] }
    /// };
    /// let file = vec![tensor("0.weight", &[4, 3]), tensor("0.bias", &[4]), tensor("2.weight", &[2, 4]), tensor("2.bias", &[2])];
    /// let description = Description::parse("dense(4) relu dense(2)")?;
    /// let (net, theta) = Network::with_tensors(&description, 3, file, Device::Cpu)?;
    /// assert_eq!(net.tensors(&theta)?[2].name, "fc2.weight");
    /// # Ok::<(), mercer_engine::Error>(())
    /// ```
    pub fn with_tensors(
        description: &Description,
        inputs: usize,
        mut tensors: Vec<NamedTensor>,
        device: Device,
    ) -> Result<(Network, Parameters)> {
        let net = Network::new(description, inputs, 1)?;
        let places = placed(&net.layers, &net.starts());
        tensors.retain(|t| !t.name.ends_with("num_batches_tracked"));
        let own: HashSet<&str> = places.iter().map(|piece| module(&piece.name)).collect();
        if !tensors.iter().any(|t| own.contains(module(&t.name))) {
            in_order(&places, &mut tensors)?;
        }
        let net = with_biases(net, &places, &tensors)?;
        let parameters = net.parameters_named(device, &tensors)?;
        Ok((net, parameters))
    }
}

/// Puts `new` for `old` in the names of tensors, for every rule `(old, new)` in order: where a name, or a part of it after a dot,
/// begins with `old`, the first time. A rule that fits no tensor is an error, and so are two tensors of one name.
///
/// ```
/// use mercer_engine::net::{NamedTensor, rename};
/// let mut tensors = vec![NamedTensor { name: "module.linear1.weight".into(), shape: vec![1], data: vec![0.0] }];
/// rename(&mut tensors, &[("module.".into(), String::new()), ("linear".into(), "fc".into())])?;
/// assert_eq!(tensors[0].name, "fc1.weight");
/// # Ok::<(), mercer_engine::Error>(())
/// ```
#[doc(hidden)]
pub fn rename(tensors: &mut [NamedTensor], rules: &[(String, String)]) -> Result<()> {
    for (old, new) in rules {
        let mut used = false;
        for tensor in &mut *tensors {
            let starts = |at: &usize| *at == 0 || tensor.name[..*at].ends_with('.');
            let found = tensor.name.match_indices(old.as_str()).map(|(at, _)| at).find(starts);
            if let Some(at) = found {
                tensor.name.replace_range(at..at + old.len(), new);
                used = true;
            }
        }
        fail_if!(!used, "no tensor of the file has a name with '{old}' in it; it has {}", listed(tensors));
    }
    let mut names = HashSet::new();
    match tensors.iter().find(|t| !names.insert(t.name.as_str())) {
        Some(twice) => Err(Error::input(format!("two tensors are called \"{}\" when they are renamed", twice.name))),
        None => Ok(()),
    }
}

/// Some names of tensors, for messages.
pub(super) fn listed(tensors: &[NamedTensor]) -> String {
    let few: Vec<String> = tensors.iter().take(4).map(|t| format!("\"{}\"", t.name)).collect();
    let more = tensors.len().saturating_sub(few.len());
    few.join(", ") + &if more == 0 { String::new() } else { format!(" and {more} more") }
}

/// The name of a tensor without its last part.
fn module(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(module, _)| module)
}

/// The tensors of one layer, by the last part of their names.
type Layer<'a> = BTreeMap<&'a str, &'a [usize]>;

/// Shapes of tensors by layer, in the order in which layers first occur.
fn by_layer<'a>(tensors: impl Iterator<Item = (&'a str, &'a [usize])>) -> Vec<(&'a str, Layer<'a>)> {
    let mut layers: Vec<(&str, Layer)> = vec![];
    for (name, shape) in tensors {
        let (prefix, last) = (module(name), name.rsplit('.').next().unwrap_or(name));
        match layers.iter_mut().find(|(known, _)| *known == prefix) {
            Some((_, layer)) => _ = layer.insert(last, shape),
            None => layers.push((prefix, BTreeMap::from([(last, shape)]))),
        }
    }
    layers
}

/// Renames tensors with numbered names to those of the layers at `places`, in the order of the numbers.
fn in_order(places: &[Piece], tensors: &mut [NamedTensor]) -> Result<()> {
    let wanted = by_layer(places.iter().map(|p| (p.name.as_str(), &p.shape[..])));
    let found = by_layer(tensors.iter().map(|t| (t.name.as_str(), &t.shape[..])));
    let Some(groups) = groups(&found) else { return Ok(()) };
    let orders: Vec<Vec<usize>> = orders(&groups);
    let misfit = |order: &Vec<usize>| {
        let pairs = wanted.iter().zip(order.iter().map(|&i| &found[i]));
        pairs.into_iter().position(|((_, want), (_, have))| !fits(want, have))
    };
    let right: Vec<&Vec<usize>> =
        orders.iter().filter(|order| order.len() == wanted.len() && misfit(order).is_none()).collect();
    let order = match right[..] {
        [order] => order,
        [] => {
            let order = &orders[0];
            let at = misfit(order).unwrap_or(wanted.len().min(order.len()));
            let show = |layer: Option<&(&str, Layer)>| layer.map_or("nothing".to_owned(), shown);
            let (want, have) = (show(wanted.get(at)), show(order.get(at).map(|&i| &found[i])));
            return Err(Error::input(format!(
                "layer {} with numbers is {have} in the file, but {want} in the network; change the network, or {rename}",
                at + 1,
                rename = advice!(RenameTensors)
            )));
        }
        _ => {
            return Err(Error::input(concat!(
                "the file's tensors fit the network in more than one order; ",
                advice!(RenameTensors)
            )));
        }
    };
    let renamed: BTreeMap<String, String> =
        order.iter().zip(&wanted).map(|(&i, (name, _))| (found[i].0.to_owned(), (*name).to_owned())).collect();
    for tensor in tensors {
        let prefix = module(&tensor.name);
        let rest = tensor.name[prefix.len()..].trim_start_matches('.');
        tensor.name = format!("{}.{rest}", renamed[prefix]);
    }
    Ok(())
}

/// A layer and its tensors, for messages.
fn shown((name, layer): &(&str, Layer<'_>)) -> String {
    let tensors: Vec<String> = layer.iter().map(|(last, shape)| format!("{last} {shape:?}")).collect();
    format!("\"{name}\" ({})", tensors.join(", "))
}

/// Whether a layer of a file has the tensors that are wanted; a convolution or dense layer may have a bias more or less.
fn fits(want: &Layer, have: &Layer) -> bool {
    let affine = want.get("weight").filter(|weight| matches!(weight.len(), 2 | 4));
    let free = |last: &str| last == "bias" && affine.is_some();
    let bias_more = |last: &str, shape: &[usize]| free(last) && affine.is_some_and(|weight| weight[..1] == *shape);
    want.iter().all(|(last, shape)| have.get(last).map_or(free(last), |found| found == shape))
        && have.iter().all(|(last, shape)| want.contains_key(last) || bias_more(last, shape))
}

/// The layers of a file, by number, in groups of one name: `features.0`, `features.3` are one. None where there are no numbers,
/// where they do not say the order within a group, or where there are too many groups.
fn groups(layers: &[(&str, Layer)]) -> Option<Vec<Vec<usize>>> {
    let parts = |i: usize| layers[i].0.split('.').map(|part| part.parse::<u64>().map_err(|_| part)).collect::<Vec<_>>();
    let group = |i: usize| parts(i).into_iter().take_while(Result::is_err).filter_map(Result::err).collect::<Vec<_>>();
    let mut groups: BTreeMap<Vec<&str>, Vec<usize>> = BTreeMap::new();
    (0..layers.len()).for_each(|i| groups.entry(group(i)).or_default().push(i));
    // The first difference of two names must be one of numbers.
    let compare = |&i: &usize, &j: &usize| {
        let (a, b) = (parts(i), parts(j));
        match a.iter().zip(&b).find(|(a, b)| a != b) {
            Some((Ok(a), Ok(b))) => Some(a.cmp(b)),
            _ => None,
        }
    };
    for group in groups.values_mut() {
        group.sort_by(|i, j| compare(i, j).unwrap_or(Ordering::Equal));
        if group.windows(2).any(|pair| compare(&pair[0], &pair[1]) != Some(Ordering::Less)) {
            return None;
        }
    }
    let numbered = (0..layers.len()).any(|i| parts(i).iter().any(Result::is_ok));
    (numbered && groups.len() <= GROUPS).then(|| groups.into_values().collect())
}

/// The groups one after the other, in every order.
fn orders(groups: &[Vec<usize>]) -> Vec<Vec<usize>> {
    if groups.is_empty() {
        return vec![vec![]];
    }
    let starting_with = |first: usize| {
        let mut rest = groups.to_vec();
        let first = rest.remove(first);
        orders(&rest).into_iter().map(move |order| [first.clone(), order].concat())
    };
    (0..groups.len()).flat_map(starting_with).collect()
}

/// The same network, where convolutions and dense layers have a bias if `tensors` has one for them.
fn with_biases(net: Network, places: &[Piece], tensors: &[NamedTensor]) -> Result<Network> {
    let has = |name: &str| tensors.iter().any(|t| t.name == name);
    // Such a layer has a weight of four or two extents, and its bias follows.
    let weights = places
        .iter()
        .enumerate()
        .filter(|(_, piece)| piece.name.ends_with("weight") && !piece.constant && matches!(piece.shape.len(), 2 | 4));
    let changes: Vec<Option<Spread>> = weights
        .map(|(i, piece)| {
            let bias = format!("{}.bias", module(&piece.name));
            let fan_in: usize = piece.shape[1..].iter().product();
            let known = places.get(i + 1).is_some_and(|next| next.name == bias);
            match (known, has(&bias)) {
                (false, true) => Some(Spread::Deviation(1.0 / (3.0 * fan_in as f64).sqrt())),
                // Without the weight too, the layer has another name in the file.
                (true, false) if has(&piece.name) => Some(Spread::Absent),
                _ => None,
            }
        })
        .collect();
    if changes.iter().all(Option::is_none) {
        return Ok(net);
    }
    let mut description = net.description().clone();
    change_biases(&mut description.layers, &mut changes.into_iter());
    Network::new(&description, net.inputs(), 1)
}

/// Gives the convolutions and dense layers among `layers`, in order, the spreads of biases that are some.
fn change_biases(layers: &mut [LayerSpec], spreads: &mut impl Iterator<Item = Option<Spread>>) {
    for layer in layers {
        match layer {
            LayerSpec::Conv { weights, .. } | LayerSpec::Dense { weights, .. } => {
                weights.bias = spreads.next().flatten().or(weights.bias);
            }
            LayerSpec::Residual { body, shortcut } => {
                change_biases(body, spreads);
                change_biases(shortcut, spreads);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::tests::host;
    use crate::rng::Rng;

    /// The tensors of a network, with `rename` as names.
    fn file(text: &str, inputs: usize, rename: &[(&str, &str)]) -> (Vec<NamedTensor>, Vec<f32>) {
        let net = Network::parse(text, inputs, 1).unwrap();
        let theta = net.init(Device::Cpu, &Rng::new(3)).unwrap();
        let mut tensors = net.tensors(&theta).unwrap();
        for tensor in &mut tensors {
            let (layer, last) = tensor.name.rsplit_once('.').unwrap();
            let new = rename.iter().find(|(old, _)| *old == layer).unwrap_or_else(|| panic!("{layer}")).1;
            tensor.name = if new.is_empty() { last.to_owned() } else { format!("{new}.{last}") };
        }
        // As safetensors has them: by name, as text.
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        (tensors, host(&theta.trained))
    }

    fn load(text: &str, inputs: usize, tensors: Vec<NamedTensor>) -> Result<Vec<f32>> {
        let (_, theta) = Network::with_tensors(&Description::parse(text)?, inputs, tensors, Device::Cpu)?;
        Ok(host(&theta.trained))
    }

    #[test]
    fn numbered_names_are_taken_in_the_order_of_their_numbers() {
        let text = "dense(4) relu dense(4) relu dense(4) relu dense(2)";
        for names in
            [["0", "2", "10", "12"], ["net.0", "net.2", "net.10", "net.12"], ["a.0.0", "a.0.1", "a.2.0", "a.11.0"]]
        {
            let map: Vec<(&str, &str)> = ["fc1", "fc2", "fc3", "fc4"].into_iter().zip(names).collect();
            let (tensors, want) = file(text, 4, &map);
            assert_eq!(load(text, 4, tensors).unwrap(), want, "{names:?}");
        }
        // Groups come in the order that the shapes ask for, whatever their names.
        let text = "conv(3, 3) relu conv(4, 3) relu flatten dense(5) relu dense(2)";
        let map = [("conv1", "features.0"), ("conv2", "features.3"), ("fc1", "classifier.0"), ("fc2", "classifier.2")];
        let (tensors, want) = file(text, 16, &map);
        assert_eq!(load(text, 16, tensors).unwrap(), want);
        let map = [("conv1", "features.0"), ("conv2", "features.3"), ("fc1", "body.0"), ("fc2", "head")];
        let (tensors, want) = file(text, 16, &map);
        assert_eq!(load(text, 16, tensors).unwrap(), want);
    }

    #[test]
    fn what_does_not_fit_or_is_not_clear_is_said() {
        let text = "dense(4) relu dense(4) relu dense(2)";
        let refused = |text: &str, names: [&str; 3], words: &str| {
            let map: Vec<(&str, &str)> = ["fc1", "fc2", "fc3"].into_iter().zip(names).collect();
            let (tensors, _) = file("dense(4) relu dense(4) relu dense(2)", 4, &map);
            let error = load(text, 4, tensors).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        // Two groups of equal shapes.
        refused(text, ["a.0", "b.0", "c.0"], "more than one order");
        refused("dense(4) relu dense(3) relu dense(2)", ["0", "2", "4"], "layer 2 with numbers is \"2\"");
        refused("dense(4) relu dense(4)", ["0", "2", "4"], "\"4\"");
        // No numbers say the order.
        refused(text, ["net.first", "net.second", "net.third"], "\"net.first.bias\"");
    }

    #[test]
    fn a_bias_of_the_file_is_kept_before_a_norm() {
        let with = "conv(3, 3, b=0.5) bn relu res(conv(3, 3) bn; conv(3, 1, b=0.5) bn) gap dense(2)";
        let without = "conv(3, 3) bn relu res(conv(3, 3) bn; conv(3, 1) bn) gap dense(2)";
        let net = Network::parse(with, 16, 1).unwrap();
        let theta = net.init(Device::Cpu, &Rng::new(3)).unwrap();
        let tensors = net.tensors(&theta).unwrap();
        assert!(tensors.iter().any(|t| t.name == "layer1.0.downsample.0.bias"));
        assert_eq!(load(without, 16, tensors).unwrap(), host(&theta.trained));
        let map = [("conv1", "0"), ("bn1", "1"), ("fc", "4")];
        let (tensors, want) = file("conv(3, 3, b=0.5) bn relu gap dense(2)", 16, &map);
        assert_eq!(load("conv(3, 3) bn relu gap dense(2)", 16, tensors).unwrap(), want);
    }

    /// Files without biases: the network has none, and computes what it would with biases of zero.
    #[test]
    fn a_file_without_biases_makes_a_network_without_them() {
        let text = "conv(3, 3) relu res(conv(3, 3) bn relu conv(3, 3)) gap dense(4) tanh dense(2)";
        let net = Network::parse(text, 16, 1).unwrap();
        let mut tensors = net.tensors(&net.init(Device::Cpu, &Rng::new(3)).unwrap()).unwrap();
        let is_bias = |name: &str| ["conv1.bias", "layer1.0.conv2.bias", "fc1.bias", "fc2.bias"].contains(&name);
        tensors.iter_mut().filter(|t| is_bias(&t.name)).for_each(|t| t.data.fill(0.0));
        let with = net.parameters_named(Device::Cpu, &tensors).unwrap();
        let all = tensors.len();
        tensors.retain(|t| !is_bias(&t.name));
        assert_eq!(tensors.len(), all - 4);
        let (less, theta) =
            Network::with_tensors(&Description::parse(text).unwrap(), 16, tensors.clone(), Device::Cpu).unwrap();
        let want = "image(1, 4, 4) conv(3, 3, b=no) relu res(conv(3, 3) bn relu conv(3, 3, b=no)) gap dense(4, b=no) tanh \
                    dense(2, b=no)";
        assert_eq!(less.expression(), want);
        assert_eq!(less.parameters(), net.parameters() - 3 - 3 - 4 - 2);
        assert_eq!(less.tensors(&theta).unwrap().len(), tensors.len());
        let mut rng = Rng::new(4);
        let x: Vec<f32> = (0..5 * 16).map(|_| rng.normal() as f32).collect();
        let x = crate::compute::Tensor::from_host(Device::Cpu, &[5, 16], &x).unwrap();
        let outputs = |net: &Network, theta: &Parameters| {
            let mut workspace = net.workspace(Device::Cpu).unwrap();
            host(net.forward(theta, &x, crate::net::Mode::Eval, &mut workspace).unwrap())
        };
        let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(close(&outputs(&less, &theta), &outputs(&net, &with)));
        let (folded, parameters) = less.fold(&theta).unwrap();
        assert!(close(&outputs(&folded, &parameters), &outputs(&net, &with)));
        // The numbers of nn.Sequential, one layer with a bias and one without.
        let (mut tensors, _) = file("dense(4) relu dense(2)", 3, &[("fc1", "0"), ("fc2", "2")]);
        tensors.retain(|t| t.name != "0.bias");
        let description = Description::parse("dense(4) relu dense(2)").unwrap();
        let (net, _) = Network::with_tensors(&description, 3, tensors, Device::Cpu).unwrap();
        assert_eq!(net.expression(), "dense(4, b=no) relu dense(2)");
    }

    #[test]
    fn names_change_where_a_part_begins() {
        let named = |name: &str| NamedTensor { name: name.into(), shape: vec![1], data: vec![1.0] };
        let renamed = |names: &[&str], rules: &[(&str, &str)]| {
            let mut tensors: Vec<NamedTensor> = names.iter().map(|name| named(name)).collect();
            let rules: Vec<(String, String)> = rules.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
            rename(&mut tensors, &rules).map(|()| tensors.into_iter().map(|t| t.name).collect::<Vec<_>>())
        };
        assert_eq!(
            renamed(&["layer2.0.shortcut.0.weight"], &[("shortcut", "downsample")]).unwrap(),
            ["layer2.0.downsample.0.weight"]
        );
        assert_eq!(renamed(&["nonlinear.w", "linear.w"], &[("linear", "fc")]).unwrap(), ["nonlinear.w", "fc.w"]);
        assert!(renamed(&["a.w"], &[("b", "c")]).unwrap_err().to_string().contains("'b'"));
        assert!(renamed(&["a.w", "b.w"], &[("b", "a")]).unwrap_err().to_string().contains("two tensors"));
    }
}
