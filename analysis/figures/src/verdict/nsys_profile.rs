//! Why the kernels of an Nsight Systems profile cannot be assigned to paths.

use crate::KernelsByPath;
use candlescope_schema::run::{Code, Finding, Place};

impl KernelsByPath {
    /// Findings about what makes the figures incomplete.
    pub fn findings(&self) -> Vec<Finding> {
        let file = self.file.display().to_string();
        let finding = |code, message, remedy| Finding::new(code, message, remedy).at(Place::File, file.as_str());
        let mut found = Vec::new();
        if self.ranges == 0 {
            found.push(finding(
                Code::NsysNoRanges,
                "`{file}` holds no range of candlescope, so its kernels have no path",
                "Record with `candlescope nsys -- COMMAND`, and build the program with the feature `nvtx`",
            ));
        } else if self.matched == 0 {
            let finding = finding(
                Code::NsysOtherRun,
                "none of the {ranges} ranges in `{file}` is an interval of this run",
                "Give the run that was recorded under this profile; ids differ from run to run",
            );
            found.push(finding.count("ranges", self.ranges));
        } else if self.matched < self.ranges {
            let finding = finding(
                Code::NsysRangesUnknown,
                "{unknown} of {ranges} ranges in `{file}` are not in this run",
                "Their kernels count for the interval around them. Look at the run's losses",
            );
            found.push(finding.count("unknown", self.ranges - self.matched).count("ranges", self.ranges));
        }
        if self.all.kernels == 0 {
            found.push(finding(
                Code::NsysNoKernels,
                "`{file}` holds no kernels",
                "Trace CUDA (`--trace cuda,nvtx`) on a machine with a GPU, with an Nsight Systems as new as the driver",
            ));
        }
        found
    }
}
