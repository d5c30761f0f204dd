//! Row numbers on a device.

use super::cuda::{Buffer, args, gather_rows_at, gpu, points};
use super::tensor::{Device, Tensor};
use crate::Result;

/// A sequence of row numbers, `u32`, on a device.
#[derive(Debug)]
pub struct Indices {
    len: usize,
    storage: Storage,
}

#[derive(Debug)]
enum Storage {
    Host(Vec<u32>),
    Cuda(Buffer),
}

impl Indices {
    /// All zeros.
    pub fn zeros(device: Device, len: usize) -> Result<Indices> {
        Indices::from_host(device, &vec![0; len])
    }

    /// A copy of `data`.
    pub fn from_host(device: Device, data: &[u32]) -> Result<Indices> {
        let storage = match device {
            Device::Cpu => Storage::Host(data.to_vec()),
            Device::Cuda(ordinal) => {
                let what = || format!("{} row numbers", data.len());
                Storage::Cuda(gpu(ordinal)?.upload(data, &what, "use a smaller batch")?)
            }
        };
        Ok(Indices { len: data.len(), storage })
    }

    /// Overwrites the numbers from `start` on.
    pub fn write(&mut self, start: usize, data: &[u32]) {
        assert!(start + data.len() <= self.len, "{} row numbers at {start} of {}", data.len(), self.len);
        match &mut self.storage {
            Storage::Host(numbers) => numbers[start..start + data.len()].copy_from_slice(data),
            Storage::Cuda(buffer) => buffer.write(4 * start, data),
        }
    }

    /// A copy on the host; waits for the device.
    pub fn to_host(&self) -> Result<Vec<u32>> {
        match &self.storage {
            Storage::Host(numbers) => Ok(numbers.clone()),
            Storage::Cuda(buffer) => {
                let mut numbers = vec![0; self.len];
                buffer.read(0, &mut numbers)?;
                Ok(numbers)
            }
        }
    }

    /// Number of row numbers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the first one lies on the GPU.
    pub fn address(&self) -> u64 {
        match &self.storage {
            Storage::Host(_) => panic!("row numbers on the CPU were used on a GPU"),
            Storage::Cuda(buffer) => buffer.pointer(),
        }
    }

    /// The numbers in host memory.
    pub fn host(&self) -> &[u32] {
        match &self.storage {
            Storage::Host(numbers) => numbers,
            Storage::Cuda(_) => panic!("row numbers on a GPU were used on the CPU"),
        }
    }
}

/// `out_i ← x[rows_i]`; `x` `[n, d]`, `out` `[rows, d]`. Row numbers must be below n.
pub fn gather(x: &Tensor, rows: &Indices, out: &mut Tensor) -> Result<()> {
    let (_, _, d) = x.as_matrices();
    out.reshape(&[rows.len(), d])?;
    if let Some(gpu) = x.gpu() {
        gather_rows_at(gpu, x, rows.address(), rows.len(), out);
        return Ok(());
    }
    let x = x.host();
    for (out, &row) in out.host_mut().chunks_exact_mut(d.max(1)).zip(rows.host()) {
        out.copy_from_slice(&x[row as usize * d..][..d]);
    }
    Ok(())
}

/// `out_ij ← K[rows_i, rows_j]`; `K` `[n, n]`, `out` `[rows, rows]`. Row numbers must be below n.
pub fn gather_block(k: &Tensor, rows: &Indices, out: &mut Tensor) -> Result<()> {
    let (b, n) = (rows.len(), k.shape()[0]);
    out.reshape(&[b, b])?;
    if let Some(gpu) = k.gpu() {
        points::over(gpu, "gather_block", b * b, &args![b, n, rows, k, out]);
        return Ok(());
    }
    let (k, rows) = (k.host(), rows.host());
    for (out, &row) in out.host_mut().chunks_exact_mut(b.max(1)).zip(rows) {
        let from = &k[row as usize * n..][..n];
        out.iter_mut().zip(rows).for_each(|(out, &column)| *out = from[column as usize]);
    }
    Ok(())
}
