//! Compiles CUDA source with NVRTC at run time.

use super::gpu::{Gpu, lock, message};
use crate::{Error, Result};
use cudarc::driver::{CudaFunction, CudaModule};
use cudarc::nvrtc::{Ptx, result as nvrtc, sys};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CString;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Compiled modules and their functions.
#[derive(Default)]
pub struct Modules {
    compiled: HashMap<u64, Arc<CudaModule>>,
    functions: HashMap<(u64, &'static str), CudaFunction>,
}

/// CUDA source, compiled when one of its functions is first used.
#[derive(Clone, Debug)]
pub struct Source {
    key: u64,
    text: Arc<str>,
}

impl Source {
    /// From CUDA C++ text.
    pub fn new(text: String) -> Source {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Source { key: hasher.finish(), text: text.into() }
    }
}

/// Defines `source()`, the text of a module's kernels, `compiled()`, and `over()`, which queues one that loops over elements.
macro_rules! kernels {
    ($text:expr) => {
        pub(super) fn source() -> String {
            $text.into()
        }

        pub(in crate::compute) fn compiled() -> &'static super::module::Source {
            static SOURCE: std::sync::OnceLock<super::module::Source> = std::sync::OnceLock::new();
            SOURCE.get_or_init(|| super::module::Source::new(source()))
        }

        /// Queues a kernel that loops over `n` elements.
        pub(in crate::compute) fn over(gpu: &Gpu, name: &'static str, n: usize, arguments: &[Arg]) {
            gpu.over(compiled(), name, [n, 1], arguments);
        }
    };
}
pub(super) use kernels;

impl Gpu {
    /// The function `name` of `source`.
    pub fn function(&self, source: &Source, name: &'static str) -> Result<CudaFunction> {
        let mut modules = lock(&self.modules);
        if let Some(function) = modules.functions.get(&(source.key, name)) {
            return Ok(function.clone());
        }
        self.bind();
        let function = match modules.compiled.entry(source.key) {
            Entry::Occupied(module) => module.get().load_function(name),
            Entry::Vacant(place) => {
                let code = compile(&source.text, self.architecture)?;
                let module = self.note(self.context.load_module(Ptx::from_binary(code)));
                self.check()?;
                place.insert(module.expect("no error was noted")).load_function(name)
            }
        };
        let missing = |e| Error::Device(format!("the compiled kernels have no function {name}: {}", message(e)));
        let function = function.map_err(missing)?;
        modules.functions.insert((source.key, name), function.clone());
        Ok(function)
    }
}

/// Compiles `text` to machine code for compute capability `architecture`.
fn compile(text: &str, architecture: u32) -> Result<Vec<u8>> {
    let failed = |what: &dyn Debug, log: &str| {
        Error::Device(format!("NVRTC cannot compile a kernel for compute capability {architecture}: {what:?}\n{log}"))
    };
    let source = CString::new(text).map_err(|e| failed(&e, ""))?;
    let program = nvrtc::create_program(&source, None).map_err(|e| failed(&e.0, ""))?;
    let options = [format!("--gpu-architecture=sm_{architecture}"), "--std=c++17".into()];
    // SAFETY: `program` was just created and is destroyed last; the buffer has the size that NVRTC returned.
    unsafe {
        let code = match nvrtc::compile_program(program, &options) {
            Err(error) => {
                let log: Vec<u8> =
                    nvrtc::get_program_log(program).unwrap_or_default().iter().map(|&c| c as u8).collect();
                Err(failed(&error.0, String::from_utf8_lossy(&log).trim_end_matches('\0')))
            }
            Ok(()) => {
                let mut size = 0;
                sys::nvrtcGetCUBINSize(program, &mut size);
                let mut code = vec![0u8; size];
                sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast());
                Ok(code)
            }
        };
        nvrtc::destroy_program(program).ok();
        code
    }
}
