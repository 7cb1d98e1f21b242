-- Phases of each run: steps, their durations, and tokens a second while steps of the phase run. Steps of several threads are
-- merged where they overlap (`union_ns`). In a batch only sequences that go on count.
WITH ordered AS (
    SELECT run, phase, coalesce(new_tokens, tokens) AS tokens, host_dur_ns, host_start_ns AS start_ns,
           host_start_ns + host_dur_ns AS end_ns,
           max(host_start_ns + host_dur_ns) OVER (
               PARTITION BY run, phase ORDER BY host_start_ns, step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS covered_ns
    FROM measured_steps WHERE phase IS NOT NULL
), united AS (
    SELECT run, phase, count(*) AS steps, median(host_dur_ns) AS median_ns, CAST(sum(host_dur_ns) AS BIGINT) AS total_ns,
           CAST(sum(tokens) AS BIGINT) AS tokens,
           CAST(sum(greatest(end_ns - greatest(start_ns, coalesce(covered_ns, start_ns)), 0)) AS BIGINT) AS union_ns
    FROM ordered GROUP BY run, phase
)
SELECT run, phase, steps, median_ns, total_ns, tokens, union_ns, CAST(total_ns AS DOUBLE) / union_ns AS steps_at_once,
       tokens * 1e9 / union_ns AS tokens_per_s
FROM united
