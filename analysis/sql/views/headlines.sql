-- Headline figures of each run: measured requests, medians of latency and of steps, decode throughput, and energy an output
-- token: mean power from the first measured request's start to the last one's end, of at least five samples, of the GPUs that
-- recorded kernels ran on, or of all where none were recorded and steps have GPU time.
SELECT runs.run, coalesce(asked.requests, 0) AS requests, asked.output_tokens, latency.ttft_ns, latency.tpot_ns,
       phase.prefill_step_ns, phase.decode_step_ns, phase.decode_tokens_per_s, energy.energy_mj_per_token
FROM runs
LEFT JOIN (
    SELECT run, count(*) AS requests, CAST(sum(output_tokens) AS BIGINT) AS output_tokens FROM measured_requests GROUP BY run
) AS asked ON asked.run = runs.run
LEFT JOIN (
    SELECT run, median(ttft_ns) AS ttft_ns, median(tpot_ns) AS tpot_ns FROM request_latency GROUP BY run
) AS latency ON latency.run = runs.run
LEFT JOIN (
    SELECT run, max(CASE WHEN phase = 'prefill' THEN median_ns END) AS prefill_step_ns,
           max(CASE WHEN phase = 'decode' THEN median_ns END) AS decode_step_ns,
           max(CASE WHEN phase = 'decode' THEN tokens_per_s END) AS decode_tokens_per_s
    FROM phases GROUP BY run
) AS phase ON phase.run = runs.run
LEFT JOIN (
    SELECT power.run, sum(power.watts) * max(power.ns) / 1e6 / max(power.output_tokens) AS energy_mj_per_token
    FROM (
        SELECT s.run, s.device, avg(s.value) AS watts, max(asked.ended - asked.began) AS ns,
               max(asked.output_tokens) AS output_tokens
        FROM samples AS s
        JOIN (
            SELECT run FROM kernels UNION SELECT run FROM steps WHERE gpu_dur_ns IS NOT NULL
        ) AS worked ON worked.run = s.run
        LEFT JOIN (SELECT DISTINCT run FROM kernels) AS known ON known.run = s.run
        LEFT JOIN (SELECT DISTINCT run, device FROM kernels) AS used ON used.run = s.run AND used.device = s.device
        JOIN (
            SELECT run, min(host_start_ns) AS began, max(host_start_ns + host_dur_ns) AS ended,
                   sum(output_tokens) AS output_tokens
            FROM measured_requests GROUP BY run
        ) AS asked ON asked.run = s.run AND s.time_ns BETWEEN asked.began AND asked.ended
        WHERE s.metric = 'hw_power_watts' AND asked.output_tokens > 0 AND (known.run IS NULL OR used.run IS NOT NULL)
        GROUP BY s.run, s.device HAVING count(*) >= 5
    ) AS power GROUP BY power.run
) AS energy ON energy.run = runs.run
