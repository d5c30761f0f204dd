//! `mercer devices`: lists the devices.

use crate::program::context::Context;
use crate::program::output::NewFile;
use crate::text;
use clap::Args;
use mercer::compute::cuda::describe_all;
use mercer::error::human_bytes;
use mercer::simd::Level;
use mercer::{Result, operator::memory::free_memory};
use serde::Serialize;
use serde_json::json;

/// List the devices, with their memory and versions
#[derive(Args)]
pub struct Devices {
    /// Write the sources of all CUDA kernels into this folder
    #[arg(long, value_name = "FOLDER")]
    sources: Option<NewFile>,
}

#[derive(Serialize)]
struct Row {
    device: String,
    name: String,
    units: usize,
    free: Option<u64>,
    total: Option<u64>,
}

impl Devices {
    pub fn run(self, context: &Context) -> Result<()> {
        if let Some(folder) = &self.sources {
            return write_sources(folder, context);
        }
        // Without a CUDA device there is a reason.
        let (cuda, versions, without) = match describe_all() {
            Ok((devices, versions)) => (devices, versions, None),
            Err(error) => (vec![], vec![], Some(error.to_string())),
        };
        let mut devices = vec![Row {
            device: "cpu".into(),
            name: format!("{:?} instructions", Level::best()),
            units: std::thread::available_parallelism().map_or(1, usize::from),
            free: Some(free_memory()),
            total: None,
        }];
        devices.extend(cuda.into_iter().map(|d| Row {
            name: format!("{}, compute capability {}", d.name, d.capability),
            device: d.device,
            units: d.multiprocessors as usize,
            free: Some(d.memory[0]),
            total: Some(d.memory[1]),
        }));
        context.result(&json!({ "devices": devices, "versions": versions, "without": without }), || {
            let bytes = |b: Option<u64>| b.map_or_else(|| text::GAP.into(), human_bytes);
            let row =
                |r: &Row| vec![r.device.clone(), r.units.to_string(), bytes(r.free), bytes(r.total), r.name.clone()];
            let rows: Vec<Vec<String>> = devices.iter().map(row).collect();
            let table = text::table(&["device", "units", "free", "memory", "description"], &rows);
            match &without {
                Some(why) => format!("{table}\nNo CUDA device: {why}.\n"),
                None if versions.is_empty() => table,
                None => format!("{table}\n{}.\n", versions.join(", ")),
            }
        })
    }
}

fn write_sources(folder: &std::path::Path, context: &Context) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| mercer::Error::io(folder, e))?;
    let mut sources = mercer::compute::cuda::sources();
    sources.extend(mercer::operator::cuda::sources());
    for (name, text) in &sources {
        let path = folder.join(format!("{name}.cu"));
        std::fs::write(&path, text).map_err(|e| mercer::Error::io(&path, e))?;
    }
    context.note(format_args!("{} sources written to {}", sources.len(), folder.display()));
    Ok(())
}
