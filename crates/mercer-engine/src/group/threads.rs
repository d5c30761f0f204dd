//! Ranks that are threads of one process: for tests of what is distributed.

use super::{Group, Place, Ranks};
use crate::{Error, Result};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// One of the threads, with a channel to each and from each.
struct OnThread {
    rank: usize,
    to: Vec<Sender<Vec<u8>>>,
    from: Vec<Mutex<Receiver<Vec<u8>>>>,
}

impl OnThread {
    fn send(&self, to: usize, message: &[u8]) -> Result<()> {
        self.to[to].send(message.to_vec()).map_err(|_| ended(to))
    }

    fn receive(&self, from: usize, into: &mut [u8]) -> Result<()> {
        let message = self.from[from].lock().expect("one reader").recv().map_err(|_| ended(from))?;
        into.copy_from_slice(&message);
        Ok(())
    }
}

fn ended(rank: usize) -> Error {
    Error::Device(format!("rank {rank} has ended"))
}

impl Ranks for OnThread {
    fn place(&self) -> Place {
        Place { rank: self.rank, size: self.to.len() }
    }

    fn all_gather(&self, own: &[u8], all: &mut [u8]) -> Result<()> {
        self.all_to_all(&own.repeat(self.to.len()), all)
    }

    fn all_to_all(&self, sent: &[u8], received: &mut [u8]) -> Result<()> {
        let (size, length) = (self.to.len(), self.place().part(sent, received));
        (0..size).try_for_each(|to| self.send(to, &sent[to * length..(to + 1) * length]))?;
        (0..size).try_for_each(|from| self.receive(from, &mut received[from * length..(from + 1) * length]))
    }

    fn exchange(&self, to: usize, sent: &[u8], from: usize, received: &mut [u8]) -> Result<()> {
        self.send(to, sent)?;
        self.receive(from, received)
    }
}

/// What `work` returns on each of `size` threads that are the ranks of a group. Example: [`Group`].
pub fn on_threads<T: Send>(size: usize, work: impl Fn(Group<'_>) -> T + Sync) -> Vec<T> {
    let mut ranks: Vec<OnThread> = (0..size).map(|rank| OnThread { rank, to: vec![], from: vec![] }).collect();
    for to in 0..size {
        for from in 0..size {
            let (sender, receiver) = channel();
            ranks[from].to.push(sender);
            ranks[to].from.push(Mutex::new(receiver));
        }
    }
    std::thread::scope(|scope| {
        let work = &work;
        let on_rank = |rank| {
            let rank: Arc<dyn Ranks> = Arc::new(rank);
            work(Group::new(&rank))
        };
        let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || on_rank(rank))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic on a rank")).collect()
    })
}
