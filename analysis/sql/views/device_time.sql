-- The time line of each device: from its first kernel or copy to the end of its last, `span_ns`; how long at least one ran,
-- `busy_ns` (merged where they overlap); and the sum of all, `work_ns`.
WITH ordered AS (
    SELECT run, device, gpu_start_ns AS start_ns, gpu_start_ns + gpu_dur_ns AS end_ns, gpu_dur_ns,
           max(gpu_start_ns + gpu_dur_ns) OVER (
               PARTITION BY run, device ORDER BY gpu_start_ns, gpu_dur_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS covered_ns
    FROM kernels WHERE gpu_start_ns IS NOT NULL
)
SELECT run, device, count(*) AS activities, max(end_ns) - min(start_ns) AS span_ns, CAST(sum(gpu_dur_ns) AS BIGINT) AS work_ns,
       CAST(sum(greatest(end_ns - greatest(start_ns, coalesce(covered_ns, start_ns)), 0)) AS BIGINT) AS busy_ns
FROM ordered GROUP BY run, device
