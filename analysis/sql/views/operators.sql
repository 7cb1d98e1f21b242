-- Operators of each run: calls, time, self time, and rates. `bytes` counts weights and KV cache, without activations.
SELECT run, operator, count(*) AS calls, CAST(sum(host_dur_ns) AS BIGINT) AS total_ns, CAST(sum(self_ns) AS BIGINT) AS self_ns,
       CAST(sum(flops) AS DOUBLE) / sum(host_dur_ns) AS gflop_per_s, CAST(sum(bytes) AS DOUBLE) / sum(host_dur_ns) AS gb_per_s
FROM self_time GROUP BY run, operator
