//! Every metric of a GPU: its name, its unit, the question to NVML that answers it and how often that is asked. Pure.

use candlescope_core::metric;
use std::time::Duration;

/// One question to NVML: one call, which succeeds or fails as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Query {
    Energy,
    PowerInstant,
    PowerUsage,
    PowerAverage,
    PowerLimit,
    Memory,
    Utilization,
    ClockGraphics,
    ClockSm,
    ClockMemory,
    ClockVideo,
    Temperature,
    Throttle,
    PcieGeneration,
    PcieWidth,
    PcieReceive,
    PcieTransmit,
}

impl Query {
    /// All of them, in the order in which a round asks. Energy comes first, so that it is read as close as possible to
    /// the round's time.
    pub(super) const ALL: [Query; 17] = [
        Query::Energy,
        Query::PowerInstant,
        Query::PowerUsage,
        Query::PowerAverage,
        Query::PowerLimit,
        Query::Memory,
        Query::Utilization,
        Query::ClockGraphics,
        Query::ClockSm,
        Query::ClockMemory,
        Query::ClockVideo,
        Query::Temperature,
        Query::Throttle,
        Query::PcieGeneration,
        Query::PcieWidth,
        Query::PcieReceive,
        Query::PcieTransmit,
    ];

    /// How often the query is made, by its cost.
    pub(super) fn cadence(self) -> Cadence {
        match self {
            Query::PowerInstant
            | Query::PowerUsage
            | Query::PowerAverage
            | Query::Memory
            | Query::Utilization
            | Query::ClockGraphics
            | Query::ClockSm
            | Query::ClockMemory
            | Query::ClockVideo => Cadence::Round,
            Query::Temperature | Query::Throttle => Cadence::Often,
            Query::Energy | Query::PowerLimit | Query::PcieGeneration | Query::PcieWidth => Cadence::Second,
            Query::PcieReceive | Query::PcieTransmit => Cadence::Rare,
        }
    }
}

/// How often a question is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cadence {
    /// In every round: below five microseconds a call.
    Round,
    /// Five times a second: what changes slowly, or gives a series for each of many reasons.
    Often,
    /// Once a second and in the last round: the energy counter takes some three milliseconds a call.
    Second,
    /// Every five seconds, at most one such call per round and none in the last round: each blocks for some twenty
    /// milliseconds.
    Rare,
}

impl Cadence {
    /// Time between two queries; zero for [`Cadence::Round`].
    pub(super) const fn interval(self) -> Duration {
        match self {
            Cadence::Round => Duration::ZERO,
            Cadence::Often => Duration::from_millis(200),
            Cadence::Second => Duration::from_secs(1),
            Cadence::Rare => Duration::from_secs(5),
        }
    }
}

/// What NVML answered, in its own units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Answer {
    Number(f64),
    /// Bytes of the whole GPU, whoever uses them.
    Memory {
        used: u64,
        free: u64,
        reserved: u64,
        total: u64,
    },
    /// Percent of the last sampling period in which a kernel ran, and in which memory was read or written.
    Utilization {
        gpu: u32,
        memory: u32,
    },
    /// Bits of NVML's clock event reasons. If it is not known which are supported, all are taken to be.
    Throttle {
        active: u64,
        supported: Option<u64>,
    },
}

/// What part of an answer a metric is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Part {
    /// The number × this.
    Scaled(f64),
    MemoryUsed,
    MemoryFree,
    MemoryReserved,
    MemoryTotal,
    UtilizationGpu,
    UtilizationMemory,
    Reason(u64),
}

/// One metric of a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Metric {
    /// Its name on the wire. For a metric with a label, the name ends in `_{value}`, with the label's value.
    pub name: &'static str,
    /// Its unit: `bytes`, `watts`, `ratio`, …
    pub unit: &'static str,
    /// What it measures, and its source in NVML.
    pub doc: &'static str,
    pub(super) query: Query,
    pub(super) part: Part,
}

impl Metric {
    /// Its value in `answer`; `None` if the GPU does not report it.
    pub(super) fn of(&self, answer: &Answer) -> Option<f64> {
        Some(match (self.part, *answer) {
            (Part::Scaled(factor), Answer::Number(n)) => n * factor,
            (Part::MemoryUsed, Answer::Memory { used, .. }) => used as f64,
            (Part::MemoryFree, Answer::Memory { free, .. }) => free as f64,
            (Part::MemoryReserved, Answer::Memory { reserved, .. }) => reserved as f64,
            (Part::MemoryTotal, Answer::Memory { total, .. }) => total as f64,
            (Part::UtilizationGpu, Answer::Utilization { gpu, .. }) => f64::from(gpu) / 100.0,
            (Part::UtilizationMemory, Answer::Utilization { memory, .. }) => f64::from(memory) / 100.0,
            (Part::Reason(bit), Answer::Throttle { active, supported }) => {
                // A reason that the GPU does not support is absent; one that does not apply now is zero.
                if supported.is_some_and(|all| all & bit == 0) && active & bit == 0 {
                    return None;
                }
                f64::from(u8::from(active & bit != 0))
            }
            _ => return None,
        })
    }
}

/// The metrics that `query` answers.
pub(super) fn of_query(query: Query) -> impl Iterator<Item = &'static Metric> {
    METRICS.iter().filter(move |m| m.query == query)
}

const fn metric(name: &'static str, unit: &'static str, query: Query, part: Part, doc: &'static str) -> Metric {
    Metric { name, unit, doc, query, part }
}

const fn reason(name: &'static str, bit: u64, doc: &'static str) -> Metric {
    metric(name, "count", Query::Throttle, Part::Reason(bit), doc)
}

const MILLI: Part = Part::Scaled(1e-3);
const MEGA: Part = Part::Scaled(1e6);
const KILO: Part = Part::Scaled(1e3);
const ONE: Part = Part::Scaled(1.0);

/// Every metric. `hw_power_watts` is listed twice because it has two sources, of which a GPU uses one.
#[rustfmt::skip]
pub const METRICS: &[Metric] = &[
    metric(metric::GPU_ENERGY, "joules", Query::Energy, MILLI, "energy used since the driver was loaded (Volta and later)"),
    metric(metric::GPU_POWER, "watts", Query::PowerInstant, MILLI, "power drawn now, of the whole board (field 186)"),
    metric(metric::GPU_POWER, "watts", Query::PowerUsage, MILLI, "the same where field 186 is missing: drawn now up to GA100, later ones give the mean of the last second"),
    metric(metric::GPU_POWER_AVERAGE, "watts", Query::PowerAverage, MILLI, "mean power of the last second (field 185; Ampere other than GA100, and later)"),
    metric(metric::GPU_POWER_LIMIT, "watts", Query::PowerLimit, MILLI, "power limit that is enforced"),
    metric(metric::GPU_MEMORY_USED, "bytes", Query::Memory, Part::MemoryUsed, "memory in use by anyone; candle's pools count as used as soon as they reserve"),
    metric(metric::GPU_MEMORY_FREE, "bytes", Query::Memory, Part::MemoryFree, "memory that can be allocated"),
    metric(metric::GPU_MEMORY_RESERVED, "bytes", Query::Memory, Part::MemoryReserved, "memory the driver and firmware keep for themselves"),
    metric(metric::GPU_MEMORY_LIMIT, "bytes", Query::Memory, Part::MemoryTotal, "memory of the GPU: used + free + reserved"),
    metric(metric::GPU_UTILIZATION, "ratio", Query::Utilization, Part::UtilizationGpu, "share of the last sampling period (1/6 s to 1 s) in which any kernel ran"),
    metric(metric::GPU_MEMORY_BUSY, "ratio", Query::Utilization, Part::UtilizationMemory, "share of the same period in which device memory was read or written: time, not occupancy and not bandwidth"),
    metric(metric::GPU_CLOCK_GRAPHICS, "hertz", Query::ClockGraphics, MEGA, "graphics clock"),
    metric(metric::GPU_CLOCK_SM, "hertz", Query::ClockSm, MEGA, "clock of the multiprocessors"),
    metric(metric::GPU_CLOCK_MEMORY, "hertz", Query::ClockMemory, MEGA, "memory clock"),
    metric(metric::GPU_CLOCK_VIDEO, "hertz", Query::ClockVideo, MEGA, "clock of the video engines"),
    metric(metric::GPU_TEMPERATURE, "celsius", Query::Temperature, ONE, "temperature of the die"),
    reason("candlescope_gpu_throttled_gpu_idle", 0x1, "1 while clocks are low because nothing runs"),
    reason("candlescope_gpu_throttled_applications_clocks_setting", 0x2, "1 while the applications clocks hold clocks down"),
    reason("candlescope_gpu_throttled_sw_power_cap", 0x4, "1 while the power limit holds clocks down"),
    reason("candlescope_gpu_throttled_hw_slowdown", 0x8, "1 while the hardware has halved clocks or more: heat, power or an external brake"),
    reason("candlescope_gpu_throttled_sync_boost", 0x10, "1 while another GPU of the sync boost group holds clocks down"),
    reason("candlescope_gpu_throttled_sw_thermal_slowdown", 0x20, "1 while the driver lowers clocks for heat of die or memory"),
    reason("candlescope_gpu_throttled_hw_thermal_slowdown", 0x40, "1 while the hardware halves clocks or more for heat"),
    reason("candlescope_gpu_throttled_hw_power_brake_slowdown", 0x80, "1 while the power supply has pulled the brake"),
    reason("candlescope_gpu_throttled_display_clock_setting", 0x100, "1 while the display's clocks hold clocks down"),
    metric(metric::GPU_PCIE_GENERATION, "count", Query::PcieGeneration, ONE, "PCIe generation of the link now; falls when idle"),
    metric(metric::GPU_PCIE_WIDTH, "count", Query::PcieWidth, ONE, "PCIe lanes of the link now"),
    metric("candlescope_gpu_pcie_throughput_bytes_per_second_receive", "bytes/s", Query::PcieReceive, KILO, "PCIe traffic to the GPU, over 20 ms (NVML's KB taken as 1000)"),
    metric("candlescope_gpu_pcie_throughput_bytes_per_second_transmit", "bytes/s", Query::PcieTransmit, KILO, "PCIe traffic from the GPU, over 20 ms (NVML's KB taken as 1000)"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn names_are_valid_on_the_wire_and_carry_their_unit() {
        let mut seen: BTreeMap<&str, Vec<Query>> = BTreeMap::new();
        for m in METRICS {
            assert!(m.name.starts_with("hw_") || m.name.starts_with("candlescope_gpu_"), "{}", m.name);
            assert!(m.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{}", m.name);
            let carried = m.unit.replace("bytes/s", "bytes_per_second");
            assert!(m.unit == "count" || m.name.contains(&format!("_{carried}")), "{} in {}", m.name, m.unit);
            assert!(!m.doc.is_empty());
            seen.entry(m.name).or_default().push(m.query);
        }
        seen.retain(|_, queries| queries.len() > 1);
        let twice = BTreeMap::from([("hw_power_watts", vec![Query::PowerInstant, Query::PowerUsage])]);
        assert_eq!(seen, twice, "one source a name, but for power");
    }

    #[test]
    fn every_question_answers_a_metric_and_stands_at_its_place() {
        for (place, query) in Query::ALL.into_iter().enumerate() {
            assert!(of_query(query).next().is_some(), "{query:?}");
            assert_eq!(query as usize, place, "{query:?} indexes the collector's states");
        }
    }

    fn values(query: Query, answer: &Answer) -> Vec<(&'static str, f64)> {
        of_query(query).filter_map(|m| Some((m.name, m.of(answer)?))).collect()
    }

    #[test]
    fn answers_come_in_base_units() {
        let number = |query, n: f64| values(query, &Answer::Number(n))[0].1;
        assert_eq!(number(Query::PowerInstant, 694_500.0), 694.5);
        assert_eq!(number(Query::Energy, 1_500.0), 1.5);
        assert_eq!(number(Query::ClockSm, 1980.0), 1.98e9);
        assert_eq!(number(Query::PcieReceive, 2.0), 2000.0);
        let memory = values(Query::Memory, &Answer::Memory { used: 1, free: 2, reserved: 3, total: 6 });
        assert_eq!(memory.iter().map(|m| m.1).collect::<Vec<_>>(), [1.0, 2.0, 3.0, 6.0]);
        let used = values(Query::Utilization, &Answer::Utilization { gpu: 97, memory: 0 });
        assert_eq!(used, [("hw_gpu_utilization_ratio", 0.97), ("candlescope_gpu_memory_busy_ratio", 0.0)]);
        assert_eq!(values(Query::Memory, &Answer::Number(1.0)), [], "an answer to another question is no value");
    }

    #[test]
    fn only_reasons_that_the_gpu_can_have_are_told() {
        let told = values(Query::Throttle, &Answer::Throttle { active: 0x4, supported: Some(0x5) });
        assert_eq!(
            told,
            [("candlescope_gpu_throttled_gpu_idle", 0.0), ("candlescope_gpu_throttled_sw_power_cap", 1.0)]
        );
        let told = values(Query::Throttle, &Answer::Throttle { active: 0x48, supported: Some(0x8) });
        assert_eq!(told.len(), 2, "an active reason is told whatever is said to be supported: {told:?}");
        assert_eq!(values(Query::Throttle, &Answer::Throttle { active: 0, supported: None }).len(), 9);
    }
}
