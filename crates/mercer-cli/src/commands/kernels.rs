//! `mercer kernels`: the list of kernels.

use crate::program::context::Context;
use clap::Args;
use mercer::Result;
use mercer::kernel::{self, Entry, Kind, Parameter, catalogue};
use serde_json::{Value, json};

/// List the kernels, with their parameters
#[derive(Args)]
pub struct Kernels;

impl Kernels {
    pub fn run(self, context: &Context) -> Result<()> {
        let kernels = catalogue();
        context.result(&kernels.iter().map(object).collect::<Vec<_>>(), || listed(&kernels))
    }
}

fn object(kernel: &Entry) -> Value {
    let parameter = |p: &Parameter| {
        let default = p.default_value().map(|value| match value {
            kernel::Value::Number(v) => json!(v),
            kernel::Value::Numbers(each) => json!(each),
            kernel::Value::Word(word) | kernel::Value::Text(word) => json!(word),
        });
        json!({ "name": p.name, "default": default, "takes": p.kind.in_words(), "help": p.help })
    };
    json!({
        "name": kernel.name,
        "help": kernel.help,
        "parameters": kernel.parameters.iter().map(parameter).collect::<Vec<_>>(),
        "shift_invariant": kernel.shift_invariant,
    })
}

fn listed(kernels: &[Entry]) -> String {
    let mut said = String::new();
    for kernel in kernels {
        said += &format!("{}\n    {}\n", call(kernel), kernel.help);
        for p in kernel.parameters {
            said += &format!("    {}: {}\n", p.name, explained(p));
        }
    }
    said += "\nParameters may be given by name or in this order: rbf(2) is rbf(lengthscale=2).\n";
    said += "Kernels add, multiply and scale: 0.5*rbf(lengthscale=median) + poly(degree=3)*cosine\n";
    said +=
        "An infinite network may be written layer by layer: ntk(\"conv(3) relu conv(3) relu gap dense\", w_var=2);\n";
    said += "layers are dense, conv(size, stride=1, pad=same), avgpool(size, stride=size), gap, flatten,\n";
    said += "res(layers) or res(layers; shortcut), and activations. Images are stored channel by channel;\n";
    said += "pad=same is TensorFlow's and JAX's SAME, pad=1 is PyTorch's padding=1, pad=valid is none.\n";
    said +=
        "Activations with parameters: leaky_relu(slope), ab_relu(below, above), rbf(gamma), monomial(n), hermite(n),\n";
    said += "polynomial(constant, slope, ...), exp_normalized(gamma, shift).\n";
    said += "A lengthscale of median is the median distance between points of the data (of inner products, the median norm; of ntk and\n";
    said += "nngp, the median norm over the root of the number of columns; of periodic, 1); auto is what predicts a target best, and\n";
    said += "ard the same for each column: linear(lengthscale=ard), ntk(depth=2, lengthscale=[1, 0.5]).\n";
    said += "A lengthscale is in the unit of the columns as the kernel sees them: a number counts standard deviations where a command\n";
    said += "standardises columns, as it does with those of tables (--scale). A period is always in the unit of its own column.\n";
    said
}

/// The meaning and the allowed values; the help of a lengthscale states both.
fn explained(parameter: &Parameter) -> String {
    match parameter.kind {
        Kind::Lengthscale | Kind::Text | Kind::Shape => parameter.help.into(),
        kind => format!("{} ({})", parameter.help, kind.in_words()),
    }
}

/// The kernel as it is written, with its defaults: `rbf(lengthscale=1)`.
fn call(kernel: &Entry) -> String {
    let argument = |p: &Parameter| match p.default_value()? {
        kernel::Value::Number(v) => Some(format!("{}={v}", p.name)),
        kernel::Value::Numbers(each) => Some(format!("{}={each:?}", p.name)),
        kernel::Value::Word(word) | kernel::Value::Text(word) => Some(format!("{}={word}", p.name)),
    };
    let arguments: Vec<String> = kernel.parameters.iter().filter_map(argument).collect();
    if arguments.is_empty() { kernel.name.into() } else { format!("{}({})", kernel.name, arguments.join(", ")) }
}
