-- What each device did when: stretches one after another, from its first kernel or copy to the end of its last. One is `busy` (at
-- least one ran; what overlaps or touches is one stretch), `idle`, or `unrecorded`: what the device did is not known, because a
-- step without recorded kernels ran then, of a kind of which others have them, or because steps have no row there: the numbers of
-- those whose work is the nearest before and after it leave some out. `first_step` and `last_step` are those of the work of a busy
-- stretch, and of another stretch those before and after it.
WITH ordered AS (
    SELECT k.run, k.device, k.step, s.missing, k.gpu_start_ns AS start_ns, k.gpu_start_ns + k.gpu_dur_ns AS end_ns,
           max(k.gpu_start_ns + k.gpu_dur_ns) OVER (
               PARTITION BY k.run, k.device ORDER BY k.gpu_start_ns, k.gpu_dur_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS covered_ns
    FROM kernels AS k
    LEFT JOIN (
        SELECT run, step, step - row_number() OVER (PARTITION BY run ORDER BY step) AS missing FROM steps
    ) AS s ON s.run = k.run AND s.step = k.step
    WHERE k.gpu_start_ns IS NOT NULL
), numbered AS (
    SELECT run, device, step, missing, start_ns, end_ns,
           sum(CASE WHEN covered_ns >= start_ns THEN 0 ELSE 1 END) OVER (
               PARTITION BY run, device ORDER BY start_ns RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
           ) AS stretch
    FROM ordered
), busy AS (
    SELECT run, device, stretch, min(start_ns) AS start_ns, max(end_ns) AS end_ns, count(*) AS activities,
           min(step) AS first_step, max(step) AS last_step, min(missing) AS first_missing, max(missing) AS last_missing
    FROM numbered GROUP BY run, device, stretch
), followed AS (
    SELECT run, device, start_ns, end_ns, activities, first_step, last_step,
           coalesce(max(stretch * 4294967296 + last_missing + 1) OVER (
               PARTITION BY run, device ORDER BY stretch ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
           ) % 4294967296, 0) AS last_missing,
           lead(start_ns) OVER (PARTITION BY run, device ORDER BY stretch) AS next_ns,
           lead(first_step) OVER (PARTITION BY run, device ORDER BY stretch) AS next_step,
           min(stretch * 4294967296 + first_missing + 1) OVER (
               PARTITION BY run, device ORDER BY stretch ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
           ) % 4294967296 AS next_missing
    FROM busy
), unrecorded AS (
    SELECT steps.run, steps.host_start_ns AS begin_ns, steps.host_start_ns + steps.host_dur_ns AS until_ns
    FROM steps
    JOIN (
        SELECT DISTINCT steps.run, coalesce(steps.phase, steps.operator) AS kind
        FROM steps JOIN recorded_steps AS r ON r.run = steps.run AND r.step = steps.step
    ) AS kinds ON kinds.run = steps.run AND kinds.kind = coalesce(steps.phase, steps.operator)
    LEFT JOIN recorded_steps AS r ON r.run = steps.run AND r.step = steps.step
    WHERE r.step IS NULL
), marked AS (
    SELECT beside.*,
           max(until_ns) OVER (
               PARTITION BY run ORDER BY at_ns RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
           ) AS unrecorded_until_ns
    FROM (
        SELECT followed.*, coalesce(next_ns, end_ns) - 1 AS at_ns, CAST(NULL AS BIGINT) AS until_ns FROM followed
        UNION ALL
        SELECT run, NULL AS device, NULL AS start_ns, NULL AS end_ns, NULL AS activities, NULL AS first_step, NULL AS last_step,
               NULL AS last_missing, NULL AS next_ns, NULL AS next_step, NULL AS next_missing, begin_ns AS at_ns, until_ns
        FROM unrecorded
    ) AS beside
)
SELECT run, device,
       CASE WHEN is_work = 1 THEN 'busy'
            WHEN unrecorded_until_ns > end_ns OR next_missing <> last_missing THEN 'unrecorded'
            ELSE 'idle' END AS state,
       CASE WHEN is_work = 1 THEN start_ns ELSE end_ns END AS start_ns,
       CASE WHEN is_work = 1 THEN end_ns ELSE next_ns END AS end_ns,
       CASE WHEN is_work = 1 THEN end_ns - start_ns ELSE next_ns - end_ns END AS dur_ns,
       CASE WHEN is_work = 1 THEN activities ELSE 0 END AS activities,
       CASE WHEN is_work = 1 THEN first_step ELSE last_step END AS first_step,
       CASE WHEN is_work = 1 THEN last_step ELSE next_step END AS last_step
FROM marked
JOIN (SELECT 1 AS is_work, 1 AS of_device UNION ALL SELECT 0 AS is_work, 1 AS of_device) AS parts
  ON parts.of_device = CASE WHEN marked.device IS NULL THEN 0 ELSE 1 END
WHERE is_work = 1 OR next_ns IS NOT NULL
