//! Networks with PyTorch's weights give PyTorch's outputs, to 1e-5. `golden/networks_pytorch.py` wrote the file.

use mercer::compute::{Device, Tensor};
use mercer::net::{Description, Mode, NamedTensor, Network};
use safetensors::tensor::{Dtype, SafeTensors};

/// All tensors of the golden file whose name starts with `prefix`, under the rest of it; counters are left out.
fn golden(prefix: &str) -> Vec<NamedTensor> {
    let file =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/networks_pytorch.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let numbers = |view: &safetensors::tensor::TensorView| -> Vec<f32> {
        view.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    };
    tensors
        .iter()
        .filter(|(_, view)| view.dtype() == Dtype::F32)
        .filter_map(|(name, view)| {
            let name = name.strip_prefix(prefix)?.to_owned();
            Some(NamedTensor { name, shape: view.shape().to_vec(), data: numbers(&view) })
        })
        .collect()
}

fn tensor(name: &str) -> Tensor {
    let found = golden(name).remove(0);
    Tensor::from_host(Device::Cpu, &found.shape, &found.data).unwrap()
}

/// `own_names`: whether PyTorch's names are those that Mercer writes.
fn check(name: &str, text: &str, own_names: bool) {
    let (x, want) = (tensor(&format!("{name}.x")), tensor(&format!("{name}.y")).to_host().unwrap());
    let weights = golden(&format!("{name}.weights."));
    let description = Description::parse(text).unwrap();
    let (net, theta) = Network::with_tensors(&description, x.shape()[1], weights.clone(), Device::Cpu).unwrap();
    let (folded, less) = net.fold(&theta).unwrap();
    for (net, theta) in [(&net, &theta), (&folded, &less)] {
        let mut workspace = net.workspace(Device::Cpu).unwrap();
        let y = net.forward(theta, &x, Mode::Eval, &mut workspace).unwrap().to_host().unwrap();
        for (y, want) in y.iter().zip(&want) {
            assert!((y - want).abs() < 1e-5, "{name}: {y} {want}");
        }
    }
    if !own_names {
        return;
    }
    // And out again, number for number.
    let [out, weights] = [net.tensors(&theta).unwrap(), weights].map(|mut tensors| {
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        tensors
    });
    assert_eq!(out, weights);
}

#[test]
fn networks_give_the_outputs_of_pytorch() {
    check(
        "lenet",
        "image(1, 12, 12) conv(4, 5) relu maxpool(2) conv(6, 3, pad=valid) tanh maxpool(2) flatten dense(12) relu dense(5)",
        true,
    );
    check(
        "resnet",
        "image(3, 8, 8) conv(4, 3) bn relu res(conv(4, 3) bn relu conv(4, 3) bn) relu \
         res(conv(6, 3, stride=2, pad=1) bn relu conv(6, 3) bn; conv(6, 1, stride=2) bn) relu \
         res(conv(8, 3, stride=2, pad=1) bn relu conv(8, 3) bn; conv(8, 1, stride=2) bn) relu gap flatten dense(5)",
        true,
    );
}

/// Names that are numbers, biases before batch norms, `padding=1`, layer norm, SiLU, sigmoid, softplus, dropout, layers
/// without biases.
#[test]
fn sequential_networks_give_the_outputs_of_pytorch() {
    check(
        "sequential",
        "dense(6) ln silu dropout(0.3) dense(6) sigmoid dense(6) softplus dense(6) ln gelu dense(4)",
        false,
    );
    // `bias=False`, and one layer with a bias among them.
    check("plain", "image(2, 4, 4) conv(3, 3) relu flatten dense(5) tanh dense(4) relu dense(3)", false);
    check(
        "vgg",
        "image(3, 8, 8) conv(4, 3, pad=1) bn silu maxpool(2) conv(5, 3, stride=2, pad=1) ln relu flatten dropout \
         dense(6) bn relu dense(3)",
        false,
    );
}
