-- GPU time of intervals, one row for each interval and source that measured it. `event` is elapsed in the stream, `cupti` the
-- sum of kernels: the two are never added up. An interval of a step with recorded kernels that launched none took no time.
SELECT run, operator, step, seq, 'event' AS source, gpu_dur_ns
FROM measured_spans WHERE gpu_source = 'event'
UNION ALL
SELECT s.run, s.operator, s.step, s.seq, 'cupti' AS source, CASE WHEN s.gpu_source = 'cupti' THEN s.gpu_dur_ns ELSE 0 END AS gpu_dur_ns
FROM measured_spans AS s LEFT JOIN recorded_steps AS r ON r.run = s.run AND r.step = s.step
WHERE s.gpu_source = 'cupti' OR r.step IS NOT NULL
