-- Runs of processes that are ranks of one start of a program, a row each; `first_run` is the run of the lowest rank,
-- and the same for all of them. They have one `world_size` and one `job`, as far as their launcher said one, and ran at
-- the same time (a run without an end for a minute). Where that gives a rank two runs, nothing says which belong
-- together, and none is here.
WITH placed AS (
    SELECT run, rank, world_size, job, started_ns, coalesce(ended_ns, started_ns + 60000000000) AS ended_ns
    FROM runs WHERE world_size > 1
), covered AS (
    SELECT run, rank, world_size, job, started_ns,
           max(ended_ns) OVER (
               PARTITION BY world_size, job ORDER BY started_ns, run ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS covered_ns
    FROM placed
), numbered AS (
    SELECT run, rank, world_size, job,
           sum(CASE WHEN covered_ns >= started_ns THEN 0 ELSE 1 END) OVER (
               PARTITION BY world_size, job ORDER BY started_ns, run ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
           ) AS nth_start
    FROM covered
), counted AS (
    SELECT run, rank, world_size, job, nth_start,
           count(*) OVER (PARTITION BY world_size, job, nth_start, rank) AS runs_of_rank
    FROM numbered
), named AS (
    SELECT run, rank, world_size, job,
           first_value(run) OVER (PARTITION BY world_size, job, nth_start ORDER BY rank, run) AS first_run,
           count(*) OVER (PARTITION BY world_size, job, nth_start) AS ranks,
           max(runs_of_rank) OVER (PARTITION BY world_size, job, nth_start) AS most_of_a_rank
    FROM counted
)
SELECT first_run, run, rank, world_size, job, ranks FROM named WHERE ranks > 1 AND most_of_a_rank = 1
