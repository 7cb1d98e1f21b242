-- GPU time of each operator, estimated: the mean of its measured intervals × the number of all its intervals. Each run
-- samples in its own way, so the formula is applied to each.
SELECT found.run, found.operator, found.source, found.measured, counted.calls, found.mean_ns,
       found.mean_ns * counted.calls AS total_ns
FROM (
    SELECT run, operator, source, count(*) AS measured, avg(gpu_dur_ns) AS mean_ns
    FROM gpu_intervals GROUP BY run, operator, source
) AS found
JOIN (SELECT run, operator, count(*) AS calls FROM measured_spans GROUP BY run, operator) AS counted
  ON counted.run = found.run AND counted.operator = found.operator
