//! `mercer inspect`: the content of a model file.

use super::{eigenmap, fit};
use crate::options::input;
use crate::program::context::Context;
use crate::program::output::numbered;
use crate::show::certificate;
use crate::show::columns::importances_of;
use crate::show::table_with_notes::joined;
use crate::show::units;
use crate::text;
use clap::Args;
use mercer::Result;
use mercer::apply::Fitted;
use mercer::classifier::Classifier;
use mercer::data::Schema;
use mercer::model::{Content, Model};
use mercer::spectrum::{Origin, Spectrum};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Show what a model file holds: its columns, its kernel or network, its origin; for a spectrum eigenvalues and certificate
#[derive(Args)]
pub struct Inspect {
    /// Model file that `mercer fit`, `embed`, `eigenmap`, `regress` or `train` wrote
    model: PathBuf,
}

impl Inspect {
    pub fn run(self, context: &Context) -> Result<()> {
        let Model { schema, content } = Model::load(&self.model, context.device)?;
        let columns = || schema.as_ref().map(columns).unwrap_or_default();
        let (mut object, said) = match &content {
            Content::Spectrum(spectrum) => {
                let inspected = Inspected { fitted: fit::fitted(spectrum, schema.as_ref()), schema: schema.as_ref() };
                return context.result(&inspected, || spectrum_in_words(spectrum, schema.as_ref()) + &columns());
            }
            Content::Fitted(fitted) => estimator(fitted, schema.as_ref()),
            Content::Network(network) => classifier(network),
        };
        object["schema"] = json!(schema);
        context.result(&object, || said + &columns())
    }
}

/// What `--json` prints of a spectrum.
#[derive(Serialize)]
struct Inspected<'a> {
    #[serde(flatten)]
    fitted: fit::Fitted<'a>,
    schema: Option<&'a Schema>,
}

fn spectrum_in_words(spectrum: &Spectrum, schema: Option<&Schema>) -> String {
    let origin = &units::origin_as_written(&spectrum.origin, schema);
    let precision = format!("{:?}", origin.precision).to_lowercase();
    let said = fit::described(spectrum, schema);
    format!("{said}\nKernel: {}\nFitted with seed {}, kernel values in {precision}.\n", origin.kernel, origin.seed)
}

fn estimator(fitted: &Fitted, schema: Option<&Schema>) -> (Value, String) {
    let about = |origin: &Origin, use_it: &str| {
        let origin = &units::origin_as_written(origin, schema);
        let data = if origin.data.is_empty() { String::new() } else { format!(" on {}", origin.data) };
        let said = certificate::origin(origin, &format!("fitted{data}"), "");
        format!("{said}\nKernel: {}\nUse: {use_it}\n", origin.kernel)
    };
    match fitted {
        Fitted::Predict(fitted) => {
            let mut object = json!({ "kind": "prediction", "origin": fitted.origin() });
            if let Some(functions) = fitted.functions_of_network() {
                object["functions"] = json!(functions);
                return (object, of_functions(fitted.origin(), functions));
            }
            let said = about(fitted.origin(), "mercer predict MODEL NEW.csv --out p.csv");
            let Some(importances) = fitted.importances() else { return (object, said) };
            object["importances"] = json!(importances);
            let names = schema.map_or_else(|| numbered("column ", importances.columns.len()), Schema::features);
            (object, format!("{said}\n{}\n", joined(&importances_of(importances, &names))))
        }
        Fitted::Transform(fitted) => {
            let eigenvalues: Vec<String> = fitted.eigenvalues().iter().map(|v| text::number(*v, 6)).collect();
            let said = about(fitted.origin(), "mercer transform MODEL NEW.csv --out z.csv");
            let mut object =
                json!({ "kind": "embedding", "origin": fitted.origin(), "eigenvalues": fitted.eigenvalues() });
            let Some(certificate) = fitted.certificate() else {
                return (object, format!("{said}Eigenvalues: {}\n", eigenvalues.join(", ")));
            };
            object["certificate"] = json!(certificate);
            (object, format!("{said}\n{}", eigenmap::table(fitted.eigenvalues(), certificate)))
        }
    }
}

/// A model of the outputs and functions of a network that is not in the file.
fn of_functions(origin: &Origin, functions: usize) -> String {
    let (outputs, rows) = (text::count(origin.outputs, "output"), text::count(origin.n, "row"));
    format!(
        "{}: {} of a network of another program with {outputs}, at {rows}, in {}\nUse: mercer predict MODEL --logits Z.npy --samples \
         F.npy --out p.csv, with the network's outputs and functions at new rows, or --jacobians as it was fitted\n",
        origin.method,
        text::count(functions, "function"),
        text::seconds(origin.seconds)
    )
}

fn classifier(network: &Classifier) -> (Value, String) {
    let (net, inputs, trained) = (network.network.expression(), network.network.inputs(), network.network.trained());
    let object = json!({
        "kind": "network", "linearised": network.displacement.is_some(), "net": net, "inputs": inputs, "parameters": trained, "classes": network.classes,
        "mean": network.standardizer.mean, "spread": network.standardizer.spread,
    });
    let said = format!(
        "{}network {net}: {} in, {} out, {} parameters\nClasses: {}\nUse: mercer predict MODEL NEW.csv --out p.csv\n",
        if network.displacement.is_some() { "linearised " } else { "" },
        text::count(inputs, "number"),
        network.classes.len(),
        text::grouped(trained),
        network.classes.join(", ")
    );
    (object, said)
}

/// The columns, the first few by name.
fn columns(schema: &Schema) -> String {
    const SHOWN: usize = 12;
    let names: Vec<&str> = schema.columns.iter().take(SHOWN).map(|column| column.name.as_str()).collect();
    let more = if schema.columns.len() > SHOWN { ", …" } else { "" };
    format!("Columns: {}\nCalled: {}{more}\n", input::described(schema), names.join(", "))
}
