//! What rules look at, and what they make their findings of.

use crate::clocks::AlignedBy;
use crate::facts::{JudgedTimes, LEAST_STEPS, RankAnalysis, mean};
use crate::reading::Source;
use candlescope_figures::advice::{
    Advice, AdviceCode, AdviceFigure, AdvicePlace, AdviceSeverity, Confidence, ConfidenceLevel, Coverage,
};
use candlescope_figures::stats::two_sided_quantile;
use candlescope_work::estimate::Estimate;

/// Ranks, and their steps that are judged.
pub(super) struct RanksScene<'a> {
    pub(super) analysis: &'a RankAnalysis,
    pub(super) judged: &'a [JudgedTimes],
}

impl RanksScene<'_> {
    /// The steps, if there are enough of them and ranks do anything together: without that nobody waits for another.
    pub(super) fn steps(&self) -> Option<&[JudgedTimes]> {
        (self.judged.len() >= LEAST_STEPS && self.analysis.matched > 0).then_some(self.judged)
    }

    /// A time of each step as a share of all steps' time on a mean rank, with the interval in which it lies in 95 of
    /// 100 cases by how much steps differ, wider by as much as the ranks' clocks may be off.
    pub(super) fn share(&self, of: impl Fn(&JudgedTimes) -> f64) -> Estimate {
        let pairs: Vec<(f64, f64)> =
            self.judged.iter().map(|step| (of(step), mean(step.step.iter().copied()))).collect();
        let all: f64 = pairs.iter().map(|(_, step)| step).sum();
        let n = pairs.len() as f64;
        if n < 2.0 || all <= 0.0 {
            return Estimate::default();
        }
        let mid = pairs.iter().map(|(part, _)| part).sum::<f64>() / all;
        // The error of a ratio of sums [Cochran, Sampling Techniques, 6.3].
        let off: f64 = pairs.iter().map(|(part, step)| (part - mid * step).powi(2)).sum();
        let error = (off * n / (n - 1.0)).sqrt() / all;
        let half = two_sided_quantile(0.05, n - 1.0) * error + self.clock_share(all / n);
        Estimate { low: mid - half, mid, high: mid + half }
    }

    /// What clocks may be off in a step, as a share of it: as much in each of its collectives, of which the last to
    /// come decides.
    fn clock_share(&self, step_ns: f64) -> f64 {
        let analysis = self.analysis;
        let of_phase = analysis.collectives.iter().filter(|of| of.phase == analysis.phase && of.waiting_ns.is_some());
        let each = of_phase.map(|of| of.count).sum::<usize>() as f64 / analysis.steps.max(1) as f64;
        let clocks = &analysis.clocks;
        // The bound is that beside the first rank: two others may be off by it in opposite directions.
        let sides = if clocks.by == AlignedBy::Collectives && analysis.ranks.len() > 2 { 2 } else { 1 };
        // How far apart devices' clocks are placed, the ends of a collective tell: its kernels end at one time.
        let of_devices = clocks.ends_apart_ns.filter(|_| analysis.source == Source::Kernels).unwrap_or(0);
        each * (sides * clocks.bound_ns.unwrap_or(0)).max(of_devices) as f64 / step_ns
    }

    /// A finding about the steps that are judged.
    pub(super) fn advice(
        &self,
        code: AdviceCode,
        gain: Estimate,
        evidence: Vec<AdviceFigure>,
        query: String,
    ) -> Advice {
        let gain = gain.map(|share| share.clamp(0.0, 1.0));
        Advice {
            code,
            severity: AdviceSeverity::of(gain.mid),
            place: AdvicePlace::of(&self.analysis.phase),
            evidence,
            query,
            coverage: Coverage { steps: self.judged.len() as u64, share_of_time: 1.0 },
            gain,
            confidence: self.confidence(gain),
            disturbed: false,
            record: None,
        }
    }

    fn confidence(&self, gain: Estimate) -> Confidence {
        let clocks = &self.analysis.clocks;
        let (level, reason) = if !clocks.agrees {
            (ConfidenceLevel::Low, "the ranks' clocks contradict each other")
        } else if clocks.bound_ns.is_none() {
            (ConfidenceLevel::Low, "the ranks' clocks are held together by nothing but NTP")
        } else if gain.low <= 0.0 {
            (ConfidenceLevel::Low, "it gains no more than steps differ by and clocks may be off")
        } else if clocks.by == AlignedBy::OneMachine {
            (ConfidenceLevel::High, "the ranks have one machine's clock, and many steps were judged")
        } else {
            (ConfidenceLevel::Medium, "clocks of several machines are held together by the collectives themselves")
        };
        Confidence { level, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clocks::Clocks;
    use crate::collective::CollectiveKind;
    use crate::facts::CollectiveSum;

    /// Two ranks with these own times, in steps of 100 ns.
    fn judged(own: [f64; 2]) -> JudgedTimes {
        JudgedTimes { step: vec![100.0; 2], own: own.to_vec(), ..JudgedTimes::default() }
    }

    /// With two collectives a step.
    fn analysis(steps: usize, bound_ns: Option<i64>) -> RankAnalysis {
        let clocks = Clocks {
            by: AlignedBy::Collectives,
            ahead_ns: vec![0; 2],
            bound_ns,
            ends_apart_ns: None,
            collectives: 2 * steps,
            agrees: true,
        };
        let sum = CollectiveSum {
            kind: CollectiveKind::AllReduce,
            phase: "decode".to_string(),
            count: 2 * steps,
            waiting_ns: Some(0.0),
            transfer_ns: 0.0,
            bytes: None,
            bus_bytes_per_s: None,
            link_bytes_per_s: None,
        };
        RankAnalysis {
            world_size: 2,
            missing: Vec::new(),
            clocks,
            source: Source::Kernels,
            phase: "decode".to_string(),
            steps,
            matched: 2 * steps,
            ranks: Vec::new(),
            collectives: vec![sum],
            odd_steps: 0,
            findings: Vec::new(),
            damage: Vec::new(),
            unreadable: Vec::new(),
        }
    }

    #[test]
    fn bounds_are_what_steps_differ_by_and_clocks_may_be_off() {
        let alike = vec![judged([80.0, 70.0]); 10];
        let differ: Vec<JudgedTimes> = (0..10).map(|at| judged([80.0, 70.0 + f64::from(at % 2) * 4.0 - 2.0])).collect();
        let share = |steps: &[JudgedTimes], bound_ns| {
            let analysis = analysis(steps.len(), bound_ns);
            RanksScene { analysis: &analysis, judged: steps }.share(|step| step.own[0] - step.own[1])
        };
        assert_eq!(share(&alike, Some(0)), Estimate::exact(0.1));
        // 3 ns in each of two collectives.
        let off = share(&alike, Some(3));
        assert!((off.low - 0.04).abs() < 1e-9 && (off.high - 0.16).abs() < 1e-9, "{off:?}");
        // Of ten values that are 2 above and below their mean the error is 0.667, times t = 2.262.
        let apart = share(&differ, Some(0));
        assert!((apart.high - apart.mid - 0.01508).abs() < 1e-4 && (apart.mid - 0.1).abs() < 1e-9, "{apart:?}");
        assert_eq!(share(&alike[..1], Some(0)), Estimate::default(), "one step differs from none");
        // Devices whose clocks lie 3 ns apart, though one process read them.
        let mut devices = analysis(alike.len(), Some(0));
        devices.clocks.ends_apart_ns = Some(3);
        let half = |analysis: &RankAnalysis| {
            let all = RanksScene { analysis, judged: &alike }.share(|step| step.own[0] - step.own[1]);
            all.high - all.mid
        };
        assert!((half(&devices) - 0.06).abs() < 1e-9, "{}", half(&devices));
        devices.source = Source::Host;
        assert!(half(&devices).abs() < 1e-9, "ends on hosts are not those of clocks");
    }

    #[test]
    fn what_clocks_may_have_made_is_not_trusted() {
        let steps = vec![judged([80.0, 70.0]); 10];
        let level = |bound_ns| {
            let analysis = analysis(steps.len(), bound_ns);
            let scene = RanksScene { analysis: &analysis, judged: &steps };
            let gain = scene.share(|step| step.own[0] - step.own[1]);
            scene.advice(AdviceCode::StragglerRank, gain, Vec::new(), String::new()).confidence.level
        };
        assert_eq!(level(Some(3)), ConfidenceLevel::Medium);
        assert_eq!((level(Some(6)), level(None)), (ConfidenceLevel::Low, ConfidenceLevel::Low));
    }
}
