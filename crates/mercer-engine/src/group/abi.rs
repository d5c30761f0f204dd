//! The binary interfaces of MPI libraries: which file has which, and what it calls its constants.

use super::launcher::Launcher;
use libloading::Library;
use std::ffi::{c_char, c_int, c_void};

/// A communicator, a datatype or a request: a pointer, or an `int` in its lower half.
pub(super) type Handle = usize;

/// How the constants of an interface are known.
enum Constants {
    /// By their values: `MPI_COMM_WORLD`, `MPI_BYTE`, `MPI_STATUS_IGNORE`, `MPI_THREAD_SERIALIZED`.
    Values(Handle, Handle, usize, c_int),
    /// As addresses of objects in the library, as in Open MPI.
    Objects(&'static str, &'static str, usize, c_int),
}

/// The standard interface of MPI 5, that of Open MPI, and that of MPICH, which Intel's and Cray's libraries share.
const INTERFACES: [(&str, Constants); 3] = [
    ("libmpi_abi.so.1", Constants::Values(0x101, 0x247, 0, 2048)),
    ("libmpi.so.40", Constants::Objects("ompi_mpi_comm_world", "ompi_mpi_byte", 0, 2)),
    ("libmpi.so.12", Constants::Values(0x4400_0000, 0x4c00_010d, 1, 2)),
];

/// The files that are looked for.
pub(super) fn names() -> String {
    INTERFACES.map(|(name, _)| name).join(", ")
}

/// An MPI library that was loaded, and its functions.
pub(super) struct Api {
    /// Its file.
    pub name: &'static str,
    pub world: Handle,
    pub byte: Handle,
    pub ignore: *mut c_void,
    pub serialized: c_int,
    pub functions: Functions,
    /// The functions are valid for as long as it is loaded.
    _library: Library,
}

macro_rules! functions {
    ($($field:ident = $symbol:literal($($argument:ty),*);)*) => {
        /// The functions of MPI that are used, each of which returns zero where it succeeded.
        pub(super) struct Functions {
            $(pub $field: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Functions {
            /// # Safety
            /// The library is an MPI library.
            unsafe fn of(library: &Library) -> Option<Functions> {
                // SAFETY: the functions of MPI have these arguments in every interface of the list.
                unsafe { Some(Functions { $($field: *library.get($symbol).ok()?,)* }) }
            }
        }
    };
}

functions! {
    init = b"MPI_Init_thread\0"(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    rank = b"MPI_Comm_rank\0"(Handle, *mut c_int);
    size = b"MPI_Comm_size\0"(Handle, *mut c_int);
    duplicate = b"MPI_Comm_dup\0"(Handle, *mut Handle);
    send = b"MPI_Isend\0"(*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    receive = b"MPI_Irecv\0"(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    all_gather = b"MPI_Iallgather\0"(*const c_void, c_int, Handle, *mut c_void, c_int, Handle, Handle, *mut Handle);
    all_to_all = b"MPI_Ialltoall\0"(*const c_void, c_int, Handle, *mut c_void, c_int, Handle, Handle, *mut Handle);
    test = b"MPI_Test\0"(*mut Handle, *mut c_int, *mut c_void);
    abort = b"MPI_Abort\0"(Handle, c_int);
    finalize = b"MPI_Finalize\0"();
}

impl Api {
    /// The first library that is installed: of two, the one of the launcher.
    pub fn load(launcher: Option<Launcher>) -> Option<Api> {
        order(launcher).into_iter().find_map(|i| Api::open(INTERFACES[i].0, &INTERFACES[i].1))
    }

    fn open(name: &'static str, constants: &Constants) -> Option<Api> {
        let library = library(name)?;
        // SAFETY: a file of this name is an MPI library.
        let functions = unsafe { Functions::of(&library) }?;
        let (world, byte, ignore, serialized) = match *constants {
            Constants::Values(world, byte, ignore, serialized) => (world, byte, ignore, serialized),
            Constants::Objects(world, byte, ignore, serialized) => {
                // SAFETY: only the addresses of the objects are taken.
                let address =
                    |name: &str| unsafe { library.get::<*mut c_void>(name.as_bytes()) }.ok().map(|at| *at as Handle);
                (address(world)?, address(byte)?, ignore, serialized)
            }
        };
        Some(Api { name, world, byte, ignore: ignore as *mut c_void, serialized, functions, _library: library })
    }
}

/// The order in which libraries are looked for: that of Open MPI first where its launcher was used, and last where another was.
fn order(launcher: Option<Launcher>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..INTERFACES.len()).collect();
    if let Some(is_open_mpi) = launcher.and_then(|launcher| launcher.is_open_mpi) {
        order.sort_by_key(|&i| matches!(INTERFACES[i].1, Constants::Objects(..)) != is_open_mpi);
    }
    order
}

#[test]
fn the_library_of_the_launcher_is_looked_for_first() {
    let names = |is_open_mpi| {
        let launcher = Launcher { size: Some(2), rank: None, is_open_mpi };
        order(Some(launcher)).into_iter().map(|i| INTERFACES[i].0).collect::<Vec<_>>()
    };
    assert_eq!(names(Some(true)), ["libmpi.so.40", "libmpi_abi.so.1", "libmpi.so.12"]);
    assert_eq!(names(Some(false)), ["libmpi_abi.so.1", "libmpi.so.12", "libmpi.so.40"]);
    assert_eq!(names(None), ["libmpi_abi.so.1", "libmpi.so.40", "libmpi.so.12"]);
}

/// Loads a library. Its plugins look for its symbols among the global ones.
#[cfg(unix)]
fn library(name: &str) -> Option<Library> {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    // SAFETY: loading runs the initialisers of an installed MPI library, which are made for that.
    unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) }.ok().map(Into::into)
}

#[cfg(not(unix))]
fn library(_: &str) -> Option<Library> {
    None
}
