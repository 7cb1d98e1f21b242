-- The n-th measured step of a phase on every rank of a run of several: when it ended on each, and how much later than the
-- first one. Ranks share a `run_id`.
WITH counted AS (
    SELECT s.run_id, s.rank, s.run, s.phase, s.step, s.host_dur_ns, s.host_start_ns + s.host_dur_ns AS end_ns,
           row_number() OVER (PARTITION BY s.run, s.phase ORDER BY s.host_start_ns, s.step) AS nth
    FROM measured_steps AS s WHERE s.phase IS NOT NULL
)
SELECT run_id, rank, run, phase, nth, step, host_dur_ns,
       host_dur_ns - min(host_dur_ns) OVER (PARTITION BY run_id, phase, nth) AS longer_ns,
       end_ns - min(end_ns) OVER (PARTITION BY run_id, phase, nth) AS later_ns,
       count(*) OVER (PARTITION BY run_id, phase, nth) AS ranks
FROM counted
