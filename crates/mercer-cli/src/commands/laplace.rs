//! `mercer laplace`: calibrated probabilities, or numbers with deviations, of a network that was trained.

use super::laplace_shown::{Counts, table};
use crate::options::function_files::FunctionFiles;
use crate::options::input::{Reader, labelled};
use crate::options::network::{Foreign, Input};
use crate::options::offered::{Given, plain_name};
use crate::options::validation_rows::ValidationRows;
use crate::program::context::Context;
use crate::program::output::NewFile;
use crate::show::posterior::Rows;
use crate::text;
use clap::Args;
use mercer::classifier::Classifier;
use mercer::data::{Dataset, Scaling, Schema};
use mercer::laplace::NetworkKind;
use mercer::learn::{Samples, posteriors};
use mercer::{FitContext, Result, Silent, fail_if};
use std::path::Path;
use std::sync::Arc;

/// Give a trained network calibrated probabilities, or deviations, by linearised Laplace
#[derive(Args)]
#[command(
    after_help = "Examples:\n  mercer laplace net.safetensors train.csv --target y --validation other.csv --test test.csv --out m.mercer\n  mercer predict m.mercer new.csv --out p.csv\n  mercer laplace train.csv --target y --test test.csv --logits z.npy,z-test.npy --samples F.npy,F-test.npy --out m.mercer"
)]
pub struct Laplace {
    /// Network file: one that `mercer train` wrote, or a state dict of PyTorch as safetensors; left out with --logits
    #[arg(value_name = "NETWORK")]
    pub(super) first: String,

    /// Rows that the network was trained on, with their targets
    #[arg(required_unless_present = "logits")]
    pub(super) data: Option<String>,

    /// Network of a file that does not name it, as for `mercer train`; it sees rows as they are, unless --mean and --std are given
    #[arg(long, value_name = "NET")]
    net: Option<String>,

    /// How the posterior is approximated: auto takes the method with the lowest NLL on the validation rows; map is the network alone;
    /// functions and eigenfunctions are those for --logits
    #[arg(long, default_value = "auto", value_parser = plain_name::<NetworkKind>())]
    pub(super) method: &'static str,

    #[command(flatten)]
    pub(super) options: Given<NetworkKind>,

    #[command(flatten)]
    pub(super) validation_rows: ValidationRows,

    /// Model file to write, for `mercer predict`
    #[arg(long, short, visible_alias = "model", value_name = "FILE")]
    pub(super) out: Option<NewFile>,

    /// Report to write, with reliability diagrams
    #[arg(long, value_name = "FILE.html")]
    pub(super) report: Option<NewFile>,

    #[command(flatten)]
    foreign: Foreign,

    #[command(flatten)]
    pub(super) files: FunctionFiles,

    #[command(flatten)]
    pub(super) reader: Reader,
}

/// A network and how tables become its rows.
struct Network {
    network: Arc<Classifier>,
    schema: Schema,
}

impl Laplace {
    pub fn run(self, context: &Context) -> Result<()> {
        if self.files.given() {
            return self.of_functions(context);
        }
        fail_if!(!self.files.samples.is_empty(), "--samples needs the network's outputs too; give --logits");
        let outputs = self.outputs()?;
        let (Network { network, schema }, rows) = self.read(context)?;
        let candidates = posteriors().build(self.method, self.options.options(), &NetworkKind::of(&network))?;
        let plan = candidates.plan(&network, &rows, &context.fit(&Silent))?;
        context.note(table(&plan, text::count(rows.fit.n(), "row"), true));
        let found = context.fitting(|fit| plan.fit(&network, &rows, &FitContext { data: self.source(), ..*fit }))?;
        let (names, x) = (schema.features(), rows.fit.x.to_f64());
        let drawn = Rows { x: x.view(), names: &names, y: rows.fit.target()?, scaler: schema.scaler() };
        self.finish(&found, Counts::of(&rows), Some((&schema, &drawn)), outputs, context)
    }

    /// The rows that the network was trained on.
    pub(super) fn source(&self) -> &str {
        self.data.as_deref().unwrap_or(&self.first)
    }

    /// Reads the network and the rows; says what the network sees of them.
    fn read(&self, context: &Context) -> Result<(Network, Samples<Dataset>)> {
        let file = Path::new(&self.first);
        let (rows, schema) = match Classifier::schema_of(file)? {
            Some(schema) => (labelled(self.reader.source.open_like(self.source(), &schema, context)?, context), schema),
            None => self.reader.features(self.source(), Some(Scaling::None), context)?,
        };
        let network = self.foreign.load(file, self.net.as_deref(), &rows, context)?;
        context.note(Input::new(&network.standardizer, network.foreign, rows.x.rows()).words);
        let rows = self.validation_rows.read(rows, self.source(), &network, (&self.reader, &schema), context)?;
        Ok((Network { network: Arc::new(network), schema }, rows))
    }
}
