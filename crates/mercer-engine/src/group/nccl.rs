//! Ranks without MPI: each has a GPU, and what they tell each other goes by NCCL through the memory of their GPUs.

use super::{Place, Ranks, Rendezvous};
use crate::Result;
use crate::compute::Device;
use crate::compute::cuda::{Buffer, Gpu, Message, Nccl, gpu};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The ranks of a [`Rendezvous`], which have met.
pub struct NcclRanks {
    nccl: Mutex<Nccl>,
    gpu: &'static Gpu,
    place: Place,
}

impl NcclRanks {
    /// Joins the ranks of `rendezvous`, each on its `device`, a GPU that no other rank has; an error where they do not meet within
    /// `patience`. Collective.
    pub fn join(rendezvous: &Rendezvous, device: Device, patience: Duration) -> Result<NcclRanks> {
        let Device::Cuda(ordinal) = device else {
            return Err(crate::Error::input(
                "ranks without MPI compute on a GPU each, and the device is the CPU; use a GPU, or start the ranks by mpirun",
            ));
        };
        let (rank, size, gpu) = (rendezvous.rank, rendezvous.size, gpu(ordinal)?);
        let id = rendezvous.identity(Nccl::id, patience)?;
        let nccl = Nccl::new(gpu, rank, size, &id)?;
        rendezvous.end();
        Ok(NcclRanks { nccl: Mutex::new(nccl), gpu, place: Place { rank, size } })
    }

    fn turn(&self) -> MutexGuard<'_, Nccl> {
        self.nccl.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message on the GPU.
    fn there(&self, bytes: &[u8]) -> Result<Buffer> {
        self.gpu.upload(bytes, &|| "a message between ranks".into(), "use fewer points")
    }

    /// Room for a message there.
    fn room(&self, bytes: usize) -> Result<Buffer> {
        self.gpu.allocate(bytes, &|| "a message between ranks".into(), "use fewer points")
    }
}

impl Ranks for NcclRanks {
    fn place(&self) -> Place {
        self.place
    }

    fn all_gather(&self, own: &[u8], all: &mut [u8]) -> Result<()> {
        self.place.check_gather(own, all);
        let nccl = self.turn();
        let (sent, mut received) = (self.there(own)?, self.room(all.len())?);
        nccl.all_gather(&sent, &mut received)?;
        received.read(0, all)
    }

    fn all_to_all(&self, sent: &[u8], received: &mut [u8]) -> Result<()> {
        let (nccl, length) = (self.turn(), self.place.part(sent, received));
        let (there, mut room) = (self.there(sent)?, self.room(received.len())?);
        let parts: Vec<Message> =
            (0..self.place.size).map(|rank| Message { rank, at: rank * length, bytes: length }).collect();
        nccl.exchange((&there, &parts), (&mut room, &parts))?;
        room.read(0, received)
    }

    fn exchange(&self, to: usize, sent: &[u8], from: usize, received: &mut [u8]) -> Result<()> {
        let nccl = self.turn();
        let (there, mut room) = (self.there(sent)?, self.room(received.len())?);
        let message = |rank, bytes| [Message { rank, at: 0, bytes }];
        nccl.exchange((&there, &message(to, sent.len())), (&mut room, &message(from, received.len())))?;
        room.read(0, received)
    }
}
