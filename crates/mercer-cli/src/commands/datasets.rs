//! `mercer datasets`: the named data sets.

use crate::program::context::Context;
use crate::text;
use clap::Args;
use mercer::Result;
use mercer::data::{Entry, Origin, catalogue};

/// List the data sets that have a name
#[derive(Args)]
pub struct Datasets;

impl Datasets {
    pub fn run(self, context: &Context) -> Result<()> {
        let sets = catalogue();
        context.result(&sets, || listed(&sets))
    }
}

fn listed(sets: &[Entry]) -> String {
    let row = |set: &Entry| {
        let place = match (set.origin, set.present) {
            (Origin::Embedded, _) => "embedded",
            (Origin::Generated, _) => "generated",
            (Origin::Folder, true) => "here",
            (Origin::Folder, false) => "not here",
        };
        let rows = set.n.map_or_else(|| text::GAP.into(), text::grouped);
        vec![set.name.into(), rows, set.d.to_string(), place.into(), set.parameters.into(), set.help.into()]
    };
    let rows: Vec<Vec<String>> = sets.iter().map(row).collect();
    let mut said = text::table(&["name", "rows", "columns", "where", "parameters", "what it is"], &rows);
    said += "\nParameters follow the name: mercer fit \"moons(n=500, noise=0.1)\"\n";
    if sets.iter().any(|set| !set.present) {
        said += "Sets that are not here are read from the folder that the environment variable MERCER_DATA names.\n";
    }
    said
}
