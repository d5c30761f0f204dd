//! Suites that run on each kind of device.

/// Tests of each function, on the CPU and on the first GPU.
macro_rules! on_every_device {
    ($($name:ident,)*) => {
        mod on_the_cpu {
            $(#[test]
            fn $name() {
                super::$name(super::Device::Cpu);
            })*
        }

        mod on_a_gpu {
            $(#[test]
            #[ignore = "needs a GPU"]
            fn $name() {
                let device = super::Device::Cuda(0).open().unwrap_or_else(|error| panic!("{error}"));
                super::$name(device);
                device.synchronize().unwrap();
            })*
        }
    };
}
