//! Compiles CUDA source with NVRTC at run time.

use super::gpu::{Gpu, lock};
use crate::{Error, Result};
use cudarc::driver::{CudaFunction, CudaModule};
use cudarc::nvrtc::{Ptx, result as nvrtc, sys};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
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

        fn compiled() -> &'static super::module::Source {
            static SOURCE: std::sync::OnceLock<super::module::Source> = std::sync::OnceLock::new();
            SOURCE.get_or_init(|| super::module::Source::new(source()))
        }

        /// Queues a kernel that loops over `n` elements.
        pub(in crate::compute) fn over(gpu: &Gpu, name: &'static str, n: usize, arguments: &[Arg]) {
            gpu.over(compiled(), name, n, arguments);
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
        let module = match modules.compiled.get(&source.key) {
            Some(module) => module.clone(),
            None => {
                let code = compile(&source.text, self.architecture)?;
                let module = self.note(self.context.load_module(Ptx::from_binary(code)));
                self.check()?;
                let module = module.expect("no error was noted");
                modules.compiled.insert(source.key, module.clone());
                module
            }
        };
        let function = module.load_function(name).map_err(|e| {
            Error::Device(format!("the compiled kernels have no function {name}: {}", super::gpu::message(e)))
        })?;
        modules.functions.insert((source.key, name), function.clone());
        Ok(function)
    }
}

/// Compiles `text` to machine code for compute capability `architecture`.
fn compile(text: &str, architecture: u32) -> Result<Vec<u8>> {
    let source = CString::new(text).map_err(|_| Error::Device("the source of a kernel contains a zero byte".into()))?;
    let failed = |what: &str, log: String| {
        Error::Device(format!("NVRTC cannot compile a kernel for compute capability {architecture}: {what}\n{log}"))
    };
    let program = nvrtc::create_program(&source, None).map_err(|e| failed(&format!("{:?}", e.0), String::new()))?;
    let options = [format!("--gpu-architecture=sm_{architecture}"), "--std=c++17".into()];
    // SAFETY: `program` was just created and is destroyed last; the buffer has the size that NVRTC returned.
    unsafe {
        let compiled = nvrtc::compile_program(program, &options);
        let code = match compiled {
            Err(error) => {
                let log = nvrtc::get_program_log(program).unwrap_or_default();
                let log =
                    if log.is_empty() { String::new() } else { CStr::from_ptr(log.as_ptr()).to_string_lossy().into() };
                Err(failed(&format!("{:?}", error.0), log))
            }
            Ok(()) => {
                let mut size = 0;
                sys::nvrtcGetCUBINSize(program, &mut size);
                let mut code = vec![0u8; size];
                sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast());
                if size == 0 { Err(failed("no machine code", String::new())) } else { Ok(code) }
            }
        };
        nvrtc::destroy_program(program).ok();
        code
    }
}
