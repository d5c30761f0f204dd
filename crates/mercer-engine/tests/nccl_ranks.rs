//! Messages between ranks with a GPU each, without MPI. One process by itself is one rank; with RANK, WORLD_SIZE and MERCER_ID_FILE or
//! MASTER_ADDR it is one of several, on GPUs of their own.

use mercer_engine::compute::Device;
use mercer_engine::group::{NcclRanks, Place, Ranks, Rendezvous};
use std::time::Duration;

#[test]
#[ignore = "needs a GPU and NCCL"]
fn messages_go_by_nccl() {
    let file = std::env::temp_dir().join(format!("mercer-nccl-{}", std::process::id()));
    let own = Rendezvous::detect().unwrap().unwrap_or_else(|| Rendezvous::by_file(file, 0, 1));
    let gpus = Device::count().unwrap();
    let gpu = Device::Cuda(if gpus == 1 { 0 } else { own.local_rank });
    let ranks = NcclRanks::join(&own, gpu, Duration::from_secs(30)).unwrap_or_else(|error| panic!("answered: {error}"));
    let Place { rank, size } = ranks.place();
    assert_eq!((rank, size), (own.rank, own.size));
    // Lengths that are no multiples of a word.
    for length in [1, 7, 1 << 20] {
        let of = |rank: usize, to: usize| (0..length).map(|i| (i * 31 + rank * 7 + to) as u8).collect::<Vec<u8>>();
        let mut all = vec![0; size * length];
        ranks.all_gather(&of(rank, 0), &mut all).unwrap();
        assert_eq!(all, (0..size).flat_map(|r| of(r, 0)).collect::<Vec<u8>>());
        let sent: Vec<u8> = (0..size).flat_map(|to| of(rank, to)).collect();
        ranks.all_to_all(&sent, &mut all).unwrap();
        assert_eq!(all, (0..size).flat_map(|from| of(from, rank)).collect::<Vec<u8>>());
        let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
        let mut received = vec![0; length];
        ranks.exchange(next, &of(rank, 3), before, &mut received).unwrap();
        assert_eq!(received, of(before, 3));
    }
    // Nothing is a message too.
    ranks.exchange(rank, &[], rank, &mut []).unwrap();
}
