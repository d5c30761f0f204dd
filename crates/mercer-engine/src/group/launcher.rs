//! How a process learns that a launcher started it as one of several.

use std::env;

/// The launcher that started this process, as far as its variables tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// Processes that it started; none where it does not say.
    pub size: Option<usize>,
    /// The number of this process, from 0; none where it does not say.
    pub rank: Option<usize>,
    /// Whether it is that of Open MPI, whose library only works with it, or another one; none where it does not say.
    pub(super) is_open_mpi: Option<bool>,
}

/// Variables with the number of processes: of Open MPI, of MPICH and its relatives, of Slurm's `srun`.
const SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"];

/// Variables with the number of this process, by the same and by PMIx.
const RANKS: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"];

impl Launcher {
    /// The launcher of several processes; none where this process was started alone.
    pub fn detect() -> Option<Launcher> {
        Launcher::among(|name| env::var(name).ok())
    }

    fn among(variable: impl Fn(&str) -> Option<String>) -> Option<Launcher> {
        let number = |names: &[&str]| names.iter().find_map(|name| variable(name)?.parse::<usize>().ok());
        let (size, rank) = (number(&SIZES), number(&RANKS));
        // PMIx says the rank of a process, and not how many there are.
        let unknown = size.is_none() && variable("PMIX_RANK").is_some();
        // Those of MPICH and its relatives set PMI_SIZE.
        let is_open_mpi = SIZES[..2].iter().find(|name| variable(name).is_some()).map(|name| *name == SIZES[0]);
        (unknown || size.is_some_and(|size| size > 1)).then_some(Launcher { size, rank, is_open_mpi })
    }
}

#[test]
fn a_launcher_of_several_processes_is_recognised() {
    let among = |known: &[(&str, &str)]| {
        let known: Vec<(String, String)> = known.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        Launcher::among(move |name| known.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone()))
    };
    let launcher = |size, rank, is_open_mpi| Some(Launcher { size, rank, is_open_mpi });
    assert_eq!(among(&[("PATH", "/bin")]), None);
    assert_eq!(among(&[("OMPI_COMM_WORLD_SIZE", "1"), ("PMIX_RANK", "0")]), None);
    assert_eq!(among(&[("OMPI_COMM_WORLD_SIZE", "4"), ("PMIX_RANK", "0")]), launcher(Some(4), Some(0), Some(true)));
    assert_eq!(among(&[("PMI_SIZE", "2"), ("PMI_RANK", "1")]), launcher(Some(2), Some(1), Some(false)));
    assert_eq!(among(&[("SLURM_STEP_NUM_TASKS", "64")]), launcher(Some(64), None, None));
    assert_eq!(among(&[("PMIX_RANK", "3")]), launcher(None, Some(3), None));
}
