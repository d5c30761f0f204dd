//! Sums of tensors over ranks, where the tensors lie.

use super::Group;
use crate::compute::cuda::{Nccl, gpu};
use crate::compute::{Device, Tensor};
use crate::{Result, fail_if};

/// Sums tensors over the ranks of a group. On GPUs of their own the ranks sum by NCCL, queued on the stream as kernels are;
/// otherwise tensors pass through the host, and are summed in double precision in the order of the ranks.
///
/// ```
/// use mercer_engine::compute::{Device, Tensor};
/// use mercer_engine::group::{TensorSums, on_threads};
/// let sums = on_threads(3, |group| {
///     let mut t = Tensor::from_host(Device::Cpu, &[2], &[1.0, group.rank() as f32])?;
///     TensorSums::new(group, Device::Cpu)?.sum(&mut t)?;
///     t.to_host()
/// });
/// assert!(sums.into_iter().all(|sum| sum.unwrap() == [3.0, 3.0]));
/// ```
pub struct TensorSums<'a> {
    group: Group<'a>,
    nccl: Option<Nccl>,
    note: Option<String>,
}

impl<'a> TensorSums<'a> {
    /// Sums of tensors on `device`, which may be another one on each rank. Collective.
    pub fn new(group: Group<'a>, device: Device) -> Result<TensorSums<'a>> {
        let mut sums = TensorSums { group, nccl: None, note: None };
        // The GPU of each rank; nothing where it has no GPU, or no NCCL.
        let own = match device {
            Device::Cuda(ordinal) if Nccl::is_installed() => gpu(ordinal)?.uuid()?.to_vec(),
            _ => vec![],
        };
        let all = group.all_gather(&own)?;
        let Device::Cuda(ordinal) = device else { return Ok(sums) };
        let alike = |&(a, b): &(usize, usize)| all[a] == all[b];
        let mut pairs = (0..all.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
        let reason = match (all.iter().position(Vec::is_empty), pairs.find(alike)) {
            (Some(rank), _) => format!("NCCL (libnccl.so.2) is not found on rank {rank}"),
            (None, Some((a, b))) => format!("ranks {a} and {b} share one GPU, which NCCL does not allow"),
            (None, None) => {
                let id = group.of_first(Nccl::id)?;
                sums.nccl = Some(Nccl::new(gpu(ordinal)?, group.rank(), group.size(), &id)?);
                return Ok(sums);
            }
        };
        sums.note = Some(format!("{reason}; sums over the ranks pass through the host"));
        Ok(sums)
    }

    /// Why tensors on a GPU pass through the host, where they do.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Whether sums are queued on the stream, so that they may be recorded.
    pub fn is_queued(&self) -> bool {
        self.nccl.is_some()
    }

    /// Replaces `t` by its sum over the ranks; all have the same shape. Collective.
    pub fn sum(&mut self, t: &mut Tensor) -> Result<()> {
        if let Some(nccl) = &self.nccl {
            nccl.sum(t);
            return Ok(());
        }
        let mut wide: Vec<f64> = t.to_host()?.into_iter().map(f64::from).collect();
        self.group.sum(&mut wide)?;
        t.copy_from_host(&wide.into_iter().map(|v| v as f32).collect::<Vec<f32>>())
    }

    /// The mean over the ranks of a number. Collective.
    pub fn mean(&self, own: f64) -> Result<f64> {
        let mut sum = [own];
        self.group.sum(&mut sum)?;
        Ok(sum[0] / self.group.size() as f64)
    }

    /// Refuses `what` where a rank has other `bytes` than rank 0. Collective.
    pub fn agree(&self, what: &str, bytes: &[u8]) -> Result<()> {
        let other = self.group.first_other(bytes)?;
        fail_if!(other.is_some(); crate::Error::Device(format!(
            "rank {} has other {what} than rank 0; run all ranks on processors and GPUs of one kind",
            other.unwrap_or(0)
        )));
        Ok(())
    }
}
