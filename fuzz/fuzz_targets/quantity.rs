#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| muster_sim::fuzzing::quantity(data));
