//! Converts gathered metrics to OTLP's, with the same values under OpenTelemetry's names. Pure.

#[allow(unused_imports, reason = "see there")]
use either_form::Value as _;

use crate::metrics::{SAMPLES, attribute, otel_name};
use candlescope_core::HostNs;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use prometheus::proto::{self, MetricFamily, MetricType};

/// All metrics gathered at `now`, for a run that began at `started`.
pub(super) fn resource_metrics(
    families: &[MetricFamily],
    resource: &ResourceAttributesWithSchema,
    started: HostNs,
    now: HostNs,
) -> ResourceMetrics {
    let time = Time { started: unsigned(started), now: unsigned(now) };
    ResourceMetrics {
        resource: Some(Resource { attributes: resource.attributes.0.clone(), ..Resource::default() }),
        scope_metrics: vec![ScopeMetrics {
            scope: Some(InstrumentationScope {
                name: "candlescope".into(),
                version: env!("CARGO_PKG_VERSION").into(),
                ..InstrumentationScope::default()
            }),
            metrics: families.iter().filter_map(|family| metric(family, time)).collect(),
            schema_url: resource.schema_url.clone().unwrap_or_default(),
        }],
        schema_url: resource.schema_url.clone().unwrap_or_default(),
    }
}

#[derive(Clone, Copy)]
struct Time {
    started: u64,
    now: u64,
}

fn unsigned(time: HostNs) -> u64 {
    u64::try_from(time.0).unwrap_or(0)
}

fn metric(family: &MetricFamily, time: Time) -> Option<Metric> {
    let (name, unit) = otel_name(family.name());
    let points = |value: fn(&proto::Metric) -> f64, since: u64| {
        let of = |m| NumberDataPoint {
            attributes: attributes(m),
            start_time_unix_nano: since,
            time_unix_nano: time.now,
            value: Some(number_data_point::Value::AsDouble(value(m))),
            ..NumberDataPoint::default()
        };
        family.get_metric().iter().map(of).collect()
    };
    let temporality = AggregationTemporality::Cumulative as i32;
    let data = match family.get_field_type() {
        MetricType::COUNTER => {
            // Counters from samples belong to the device or the process and were not zero when the run began; a start
            // time of zero means unknown.
            let of_sample = SAMPLES.iter().any(|sample| sample.name == family.name());
            let since = if of_sample { 0 } else { time.started };
            let data_points = points(|m| m.get_counter().value(), since);
            Data::Sum(Sum { data_points, aggregation_temporality: temporality, is_monotonic: true })
        }
        MetricType::GAUGE => Data::Gauge(Gauge { data_points: points(|m| m.get_gauge().value(), 0) }),
        MetricType::HISTOGRAM => {
            let data_points = family.get_metric().iter().map(|m| histogram(m, time)).collect();
            Data::Histogram(Histogram { data_points, aggregation_temporality: temporality })
        }
        // The aggregation has none of these.
        MetricType::SUMMARY | MetricType::UNTYPED => return None,
    };
    Some(Metric { name, unit: unit.into(), description: family.help().into(), data: Some(data), ..Metric::default() })
}

/// Values under a name that works with both forms of the `prometheus` crate. Its feature `protobuf`, which any other
/// crate of a program may turn on, replaces the method `get_value` of `Counter` and `Gauge` by `value`. Inherent
/// methods have precedence over these.
#[allow(dead_code, reason = "which of them is used depends on that feature")]
mod either_form {
    use prometheus::proto::{Counter, Gauge};

    trait GetValue {
        fn get_value(&self) -> f64 {
            f64::NAN
        }
    }
    impl GetValue for Counter {}
    impl GetValue for Gauge {}

    pub(super) trait Value {
        fn value(&self) -> f64;
    }
    impl Value for Counter {
        fn value(&self) -> f64 {
            self.get_value()
        }
    }
    impl Value for Gauge {
        fn value(&self) -> f64 {
            self.get_value()
        }
    }
}

fn histogram(metric: &proto::Metric, time: Time) -> HistogramDataPoint {
    let histogram = metric.get_histogram();
    let mut point = HistogramDataPoint {
        attributes: attributes(metric),
        start_time_unix_nano: time.started,
        time_unix_nano: time.now,
        count: histogram.get_sample_count(),
        sum: Some(histogram.get_sample_sum()),
        ..HistogramDataPoint::default()
    };
    // Prometheus counts everything up to a bound; OTLP counts what is between two bounds, with one more bucket for the
    // rest.
    let mut below = 0;
    for bucket in histogram.get_bucket().iter().filter(|bucket| bucket.upper_bound().is_finite()) {
        point.explicit_bounds.push(bucket.upper_bound());
        point.bucket_counts.push(bucket.cumulative_count().saturating_sub(below));
        below = bucket.cumulative_count();
    }
    point.bucket_counts.push(point.count.saturating_sub(below));
    point
}

fn attributes(metric: &proto::Metric) -> Vec<KeyValue> {
    let one = |label: &proto::LabelPair| KeyValue {
        key: attribute(label.name()).into(),
        value: Some(AnyValue { value: Some(Value::StringValue(label.value().into())) }),
        ..KeyValue::default()
    };
    metric.get_label().iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Aggregate;
    use candlescope_core::{Batch, SampleRecord};
    use candlescope_testkit::Decoder;

    fn sent(aggregate: &Aggregate) -> Vec<Metric> {
        let resource = ResourceAttributesWithSchema::default();
        let mut all = resource_metrics(&crate::metrics::gather(&aggregate.registry()), &resource, HostNs(5), HostNs(9));
        all.scope_metrics.remove(0).metrics
    }

    fn named<'a>(metrics: &'a [Metric], name: &str) -> &'a Metric {
        metrics.iter().find(|m| m.name == name).unwrap_or_else(|| panic!("no {name}"))
    }

    #[test]
    fn values_buckets_and_times_are_the_aggregations_own() {
        let mut source = Decoder::new(3);
        let mut aggregate = Aggregate::new(500).unwrap();
        let batches: Vec<Batch> = (0..20).map(|_| source.decode()).collect();
        let refused: u64 = batches.iter().map(|batch| aggregate.add(batch)).sum();
        assert_eq!(refused, 0);
        let mut end = Batch::default();
        let mut request = source.request(1, HostNs(1));
        (request.host_dur_ns, request.ttft_ns) = (200_000_000_000, Some(250_000));
        end.requests.push(request);
        end.samples.push(SampleRecord::new(HostNs(1), "GPU-1", "hw_energy_joules_total", 7.5, "J"));
        aggregate.add(&end);
        let metrics = sent(&aggregate);

        let steps = named(&metrics, "candlescope.steps");
        assert_eq!(steps.unit, "{step}");
        let Some(Data::Sum(sum)) = &steps.data else { panic!("{steps:?}") };
        assert!(sum.is_monotonic && sum.aggregation_temporality == AggregationTemporality::Cumulative as i32);
        let point = &sum.data_points[0];
        assert_eq!(point.value, Some(number_data_point::Value::AsDouble(20.0)));
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (5, 9));

        let duration = named(&metrics, "gen_ai.server.request.duration");
        assert_eq!(duration.unit, "s");
        let Some(Data::Histogram(histogram)) = &duration.data else { panic!("{duration:?}") };
        let point = &histogram.data_points[0];
        assert_eq!((point.count, point.sum), (1, Some(200.0)));
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert_eq!(point.bucket_counts.last(), Some(&1), "beyond every bound");
        assert_eq!(point.attributes[0].key, "gen_ai.request.model");
        let first = named(&metrics, "gen_ai.server.time_to_first_token");
        let Some(Data::Histogram(histogram)) = &first.data else { panic!("{first:?}") };
        assert_eq!(histogram.data_points[0].bucket_counts[0], 1, "a bound belongs to the bucket below it");

        let spans = named(&metrics, "candlescope.span.duration");
        let Some(Data::Histogram(histogram)) = &spans.data else { panic!("{spans:?}") };
        let all: u64 = histogram.data_points.iter().map(|p| p.count).sum();
        assert_eq!(all, batches.iter().map(|b| b.spans.len() as u64).sum::<u64>());
        for point in &histogram.data_points {
            assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
        }

        let energy = named(&metrics, "hw.energy");
        let Some(Data::Sum(sum)) = &energy.data else { panic!("{energy:?}") };
        assert_eq!(sum.data_points[0].start_time_unix_nano, 0, "it was not zero when the run began");
        assert_eq!(sum.data_points[0].attributes[0].key, "hw.id");
        assert!(matches!(named(&metrics, "candlescope.requests_active").data, Some(Data::Gauge(_))));
    }
}
