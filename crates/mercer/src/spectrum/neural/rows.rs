//! Batches of rows of the data, drawn ahead.

use super::{Functions, Points, Standardizer};
use crate::compute::{self, Control, Device, Indices};
use crate::{Result, data, fail_if};

/// Most batches that are drawn ahead for a GPU, whose steps the host then does not see. The CPU sees every step.
pub(super) fn most_ahead(device: Device) -> usize {
    match device {
        Device::Cpu => 1,
        Device::Cuda(_) => 256,
    }
}

/// Batches of B rows of the points `x` `[n, d]`.
pub(super) struct Rows<'a> {
    x: data::Rows<'a>,
    standardizer: Standardizer,
    /// All points, where a GPU gathers them.
    pub all: Option<Points>,
    /// Drawn and not yet brought, `[·, B]`.
    drawn: Vec<u32>,
    /// `[most, B]`
    table: Indices,
    /// Those of the batch, `[B]`.
    pub now: Indices,
    /// Batches begun since the last were brought, on the CPU.
    begun: usize,
}

impl<'a> Rows<'a> {
    pub fn new(x: data::Rows<'a>, standardizer: Standardizer, functions: &Functions, batch: usize) -> Result<Rows<'a>> {
        let (device, n) = (functions.device(), x.n());
        fail_if!(i32::try_from(n).is_err(), "training takes at most {} points, got {n}", i32::MAX);
        let all = match device {
            Device::Cpu => None,
            Device::Cuda(_) => {
                let x = standardizer.gather(device, x, 0..n)?;
                Some(Points { envelope: functions.envelope_at(&x)?, x })
            }
        };
        Ok(Rows {
            x,
            standardizer,
            all,
            drawn: vec![],
            table: Indices::zeros(device, &[most_ahead(device) * batch])?,
            now: Indices::zeros(device, &[batch])?,
            begun: 0,
        })
    }

    /// Adds a batch.
    pub fn push(&mut self, rows: Vec<usize>) {
        self.drawn.extend(rows.into_iter().map(|row| row as u32));
    }

    /// Brings the batches that were added; returns their rows `[·, B]`.
    pub fn bring(&mut self) -> Vec<u32> {
        self.table.write(0, &self.drawn);
        self.begun = 0;
        std::mem::take(&mut self.drawn)
    }

    /// Takes up the batch of the step that `control` is at.
    pub fn begin(&mut self, control: &Control, out: &mut Points) -> Result<()> {
        let b = self.now.len();
        let Some(all) = &self.all else {
            self.now.write(0, &self.table.host()[self.begun * b..(self.begun + 1) * b]);
            self.begun += 1;
            return self.gather(&self.now, out);
        };
        control.begin_step(&self.table, &all.x, &mut self.now, &mut out.x)?;
        gather_envelope(all, &self.now, out)
    }

    /// Most batches that may be drawn ahead.
    pub fn most(&self) -> usize {
        self.table.len() / self.now.len().max(1)
    }

    /// The points `rows`.
    pub fn gather(&self, rows: &Indices, out: &mut Points) -> Result<()> {
        match &self.all {
            Some(all) => {
                compute::gather(&all.x, rows, &mut out.x)?;
                gather_envelope(all, rows, out)
            }
            None => {
                let rows = rows.host().iter().map(|row| *row as usize);
                out.x = self.standardizer.gather(Device::Cpu, self.x, rows)?;
                Ok(())
            }
        }
    }
}

fn gather_envelope(all: &Points, rows: &Indices, out: &mut Points) -> Result<()> {
    let Some(w) = &all.envelope else { return Ok(()) };
    let mut here = match out.envelope.take() {
        Some(here) => here,
        None => compute::Tensor::zeros(w.device(), &[rows.len(), 1])?,
    };
    compute::gather(w, rows, &mut here)?;
    out.envelope = Some(here);
    Ok(())
}
