-- Ranks by how often they had the longest step of all ranks, and by how much longer they took than the fastest.
SELECT run_id, rank, phase, count(*) AS steps, avg(longer_ns) AS mean_longer_ns,
       sum(CASE WHEN longer_ns = longest_ns AND longer_ns > 0 THEN 1 ELSE 0 END) AS longest
FROM (
    SELECT run_id, rank, phase, nth, longer_ns, ranks, max(longer_ns) OVER (PARTITION BY run_id, phase, nth) AS longest_ns
    FROM rank_steps
) AS beside
WHERE ranks > 1
GROUP BY run_id, rank, phase
