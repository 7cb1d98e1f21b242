-- Ranks by how often they had the longest step of all ranks of their program, and by how much longer they took than the
-- fastest.
SELECT first_run, rank, phase, count(*) AS steps, avg(longer_ns) AS mean_longer_ns,
       sum(CASE WHEN longer_ns = longest_ns AND longer_ns > 0 THEN 1 ELSE 0 END) AS longest
FROM (
    SELECT first_run, rank, phase, nth, longer_ns, ranks,
           max(longer_ns) OVER (PARTITION BY first_run, phase, nth) AS longest_ns
    FROM rank_steps
) AS beside
WHERE ranks > 1
GROUP BY first_run, rank, phase
