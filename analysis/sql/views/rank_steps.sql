-- The n-th measured step of a phase on every rank of one start of a program (`rank_runs`): how much longer it took than
-- on the fastest of them, and how much later it ended than on the first.
WITH counted AS (
    SELECT r.first_run, r.rank, s.run, s.phase, s.step, s.host_dur_ns, s.host_start_ns + s.host_dur_ns AS end_ns,
           row_number() OVER (PARTITION BY s.run, s.phase ORDER BY s.host_start_ns, s.step) AS nth
    FROM measured_steps AS s JOIN rank_runs AS r ON r.run = s.run WHERE s.phase IS NOT NULL
)
SELECT first_run, rank, run, phase, nth, step, host_dur_ns,
       host_dur_ns - min(host_dur_ns) OVER (PARTITION BY first_run, phase, nth) AS longer_ns,
       end_ns - min(end_ns) OVER (PARTITION BY first_run, phase, nth) AS later_ns,
       count(*) OVER (PARTITION BY first_run, phase, nth) AS ranks
FROM counted
