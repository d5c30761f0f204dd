//! Sums over the GPUs of several ranks, and messages between them, by NCCL, which is loaded when it is first asked for.
//!
//! cudarc does not look for `libnccl.so.2`, the name that NVIDIA's packages install; so the few functions are taken from it here.

use super::gpu::Gpu;
use super::memory::Buffer;
use crate::compute::Tensor;
use crate::{Error, Result, fail_if};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// The files that are looked for.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// `ncclUniqueId`
#[repr(C)]
#[derive(Clone, Copy)]
struct Id([u8; 128]);

/// `ncclUint8`, `ncclFloat32` and `ncclSum`
const BYTE: c_int = 1;
const FLOAT: c_int = 7;
const SUM: c_int = 0;

/// Bytes of a buffer that go to a rank, or come from it.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// The other rank.
    pub rank: usize,
    /// Where they are in the buffer.
    pub at: usize,
    /// How many there are.
    pub bytes: usize,
}

/// The functions of NCCL that are used; those that return a number return zero where they succeeded.
struct Functions {
    unique_id: unsafe extern "C" fn(*mut Id) -> c_int,
    start: unsafe extern "C" fn(*mut *mut c_void, c_int, Id, c_int) -> c_int,
    all_reduce:
        unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, *mut c_void, *mut c_void) -> c_int,
    all_gather: unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, *mut c_void, *mut c_void) -> c_int,
    send: unsafe extern "C" fn(*const c_void, usize, c_int, c_int, *mut c_void, *mut c_void) -> c_int,
    receive: unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, *mut c_void, *mut c_void) -> c_int,
    group_start: unsafe extern "C" fn() -> c_int,
    group_end: unsafe extern "C" fn() -> c_int,
    end: unsafe extern "C" fn(*mut c_void) -> c_int,
    message: unsafe extern "C" fn(c_int) -> *const c_char,
    /// The functions are valid for as long as it is loaded.
    _library: Library,
}

/// The library, where it is installed.
fn functions() -> Option<&'static Functions> {
    static LOADED: OnceLock<Option<Functions>> = OnceLock::new();
    // SAFETY: a file of this name is NCCL, whose functions have had these arguments since its version 2.7.
    let load = |name: &&str| unsafe {
        let library = Library::new(*name).ok()?;
        Some(Functions {
            unique_id: *library.get(b"ncclGetUniqueId\0").ok()?,
            start: *library.get(b"ncclCommInitRank\0").ok()?,
            all_reduce: *library.get(b"ncclAllReduce\0").ok()?,
            all_gather: *library.get(b"ncclAllGather\0").ok()?,
            send: *library.get(b"ncclSend\0").ok()?,
            receive: *library.get(b"ncclRecv\0").ok()?,
            group_start: *library.get(b"ncclGroupStart\0").ok()?,
            group_end: *library.get(b"ncclGroupEnd\0").ok()?,
            end: *library.get(b"ncclCommDestroy\0").ok()?,
            message: *library.get(b"ncclGetErrorString\0").ok()?,
            _library: library,
        })
    };
    LOADED.get_or_init(|| NAMES.iter().find_map(load)).as_ref()
}

/// The GPUs of all ranks, as one of them sees them. Graphs that recorded its sums end before it does.
pub struct Nccl {
    functions: &'static Functions,
    gpu: &'static Gpu,
    communicator: *mut c_void,
}

impl Nccl {
    /// Whether the library is installed.
    pub fn is_installed() -> bool {
        functions().is_some()
    }

    /// A new identity, which rank 0 makes and all ranks start with.
    pub fn id() -> Result<Vec<u8>> {
        let (functions, mut id) = (required()?, Id([0; 128]));
        // SAFETY: the pointer is to an identity.
        check(functions, "an identity", unsafe { (functions.unique_id)(&mut id) })?;
        Ok(id.0.to_vec())
    }

    /// Joins the `size` ranks with this identity. Collective.
    pub fn new(gpu: &'static Gpu, rank: usize, size: usize, id: &[u8]) -> Result<Nccl> {
        let functions = required()?;
        let id = Id(id.try_into().map_err(|_| Error::Device("NCCL's identity has 128 bytes".into()))?);
        let mut communicator = std::ptr::null_mut();
        gpu.bind();
        // SAFETY: the pointer is to a live pointer, and the device is current.
        let code = unsafe { (functions.start)(&mut communicator, size as c_int, id, rank as c_int) };
        check(functions, "the connection of the ranks, each of which needs a GPU of its own,", code)?;
        Ok(Nccl { functions, gpu, communicator })
    }

    /// Queues the sum of `t` over the ranks, in its place. Collective.
    pub fn sum(&self, t: &mut Tensor) {
        self.gpu.bind();
        let (at, stream) = (t.address() as *mut c_void, self.gpu.stream.cu_stream().cast());
        // SAFETY: `t` has so many numbers on the device of the communicator, and its memory is used in the order of the stream.
        let code = unsafe { (self.functions.all_reduce)(at, at, t.len(), FLOAT, SUM, self.communicator, stream) };
        if let Err(error) = check(self.functions, "a sum over the ranks", code) {
            self.gpu.defer(error);
        }
    }
}

// SAFETY: a communicator may be used by any thread, one at a time.
unsafe impl Send for Nccl {}

impl Nccl {
    /// Queues the gathering of `sent` of every rank into `received`, in the order of the ranks; all have as many bytes. Collective.
    pub fn all_gather(&self, sent: &Buffer, received: &mut Buffer) -> Result<()> {
        self.gpu.bind();
        let (from, to) = (sent.pointer() as *const c_void, received.pointer() as *mut c_void);
        let stream = self.gpu.stream.cu_stream().cast();
        // SAFETY: the buffers have so many bytes, and those of all ranks, and are used in the order of the stream.
        let code = unsafe { (self.functions.all_gather)(from, to, sent.bytes(), BYTE, self.communicator, stream) };
        check(self.functions, "a gathering over the ranks", code)
    }

    /// Queues messages out of one buffer and into another. Every message has its receiver; one of no bytes is not sent.
    pub fn exchange(
        &self,
        (sent, out): (&Buffer, &[Message]),
        (received, into): (&mut Buffer, &[Message]),
    ) -> Result<()> {
        self.gpu.bind();
        let within = |messages: &[Message], of: &Buffer| messages.iter().all(|m| m.at + m.bytes <= of.bytes());
        assert!(within(out, sent) && within(into, received), "messages lie in their buffers");
        let (functions, stream) = (self.functions, self.gpu.stream.cu_stream().cast());
        let checked = |code| check(functions, "a message between ranks", code);
        // SAFETY: a group of calls begins.
        checked(unsafe { (functions.group_start)() })?;
        let sends = out.iter().filter(|m| m.bytes > 0).try_for_each(|m| {
            let at = (sent.pointer() + m.at as u64) as *const c_void;
            // SAFETY: the bytes lie in the buffer, which is used in the order of the stream.
            checked(unsafe { (functions.send)(at, m.bytes, BYTE, m.rank as c_int, self.communicator, stream) })
        });
        let receives = into.iter().filter(|m| m.bytes > 0).try_for_each(|m| {
            let at = (received.pointer() + m.at as u64) as *mut c_void;
            // SAFETY: as above.
            checked(unsafe { (functions.receive)(at, m.bytes, BYTE, m.rank as c_int, self.communicator, stream) })
        });
        // SAFETY: the group ends, whatever was in it.
        checked(unsafe { (functions.group_end)() }).and(sends).and(receives)
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        self.gpu.bind();
        // An error that work has met is told by the next check.
        let _ = self.gpu.synchronize();
        // SAFETY: nothing is queued any more, and nothing follows.
        unsafe { (self.functions.end)(self.communicator) };
    }
}

fn required() -> Result<&'static Functions> {
    functions().ok_or_else(|| Error::Device("NCCL (libnccl.so.2) is not found".into()))
}

fn check(functions: &Functions, what: &str, code: c_int) -> Result<()> {
    // SAFETY: NCCL has a constant text for every code.
    let message = || unsafe { CStr::from_ptr((functions.message)(code)) }.to_string_lossy().into_owned();
    fail_if!(code != 0; Error::Device(format!("NCCL: {what} failed: {}; NCCL_DEBUG=INFO has its reason", message())));
    Ok(())
}
