//! `RUN/kernels`: one row per kernel, copy or memset.

use super::columns::{Columns, Ints, Paths, Texts, Words};
use super::table;
use crate::parquet::encoding::chunk::signed;
use candlescope_core::{KernelKind, KernelRecord, Phase};

table! {
    /// Kernels of the next row group.
    Kernels: KernelRecord, Kernel {
        seq: Ints,
        span_id: Ints,
        step: Ints,
        phase: Words<Phase>,
        path: Paths,
        module: Texts,
        kind: Words<KernelKind>,
        name: Texts,
        device: Texts,
        stream: Ints,
        gpu_start: Ints,
        gpu_dur: Ints,
        grid: [Ints; 3],
        block: [Ints; 3],
        registers: Ints,
        shared_static: Ints,
        shared_dynamic: Ints,
        bytes: Ints,
        launch: Words<&'static str>,
        launch_start: Ints,
        launch_dur: Ints,
        queue_delay: Ints,
        correlation: Ints,
        graph: Ints,
    }
}

impl Kernels {
    fn add(&mut self, kernel: &KernelRecord) {
        self.seq.push_opt(kernel.seq.map(signed));
        self.span_id.push_opt(kernel.span_id.map(|id| id.0 as i64));
        self.step.push_opt(kernel.step.map(signed));
        self.phase.push(0, kernel.phase);
        self.path.push_opt(kernel.path.as_ref());
        self.module.push_opt(kernel.path.as_ref().and_then(|path| path.module.as_ref()));
        self.kind.push(0, Some(kernel.kind));
        self.name.push(&kernel.name);
        self.device.push(&kernel.device);
        self.stream.push(i64::from(kernel.stream));
        self.gpu_start.push(kernel.gpu_start.0);
        self.gpu_dur.push(signed(kernel.gpu_dur_ns));
        for axis in 0..3 {
            self.grid[axis].push_opt(kernel.grid.map(|g| i64::from(g[axis])));
            self.block[axis].push_opt(kernel.block.map(|b| i64::from(b[axis])));
        }
        self.registers.push_opt(kernel.registers.map(i64::from));
        self.shared_static.push_opt(kernel.shared_static.map(i64::from));
        self.shared_dynamic.push_opt(kernel.shared_dynamic.map(i64::from));
        self.bytes.push_opt(kernel.bytes.map(signed));
        self.launch.push(0, kernel.launch);
        self.launch_start.push_opt(kernel.launch_start.map(|t| t.0));
        self.launch_dur.push_opt(kernel.launch_dur_ns.map(signed));
        self.queue_delay.push_opt(kernel.queue_delay_ns.map(signed));
        self.correlation.push(i64::from(kernel.correlation));
        self.graph.push_opt(kernel.graph.map(i64::from));
    }
}
