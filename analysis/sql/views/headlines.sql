-- Headline figures of each run: measured requests, medians of latency and of steps, decode throughput, energy a token.
SELECT runs.run, coalesce(asked.requests, 0) AS requests, asked.output_tokens, latency.ttft_ns, latency.tpot_ns,
       phase.prefill_step_ns, phase.decode_step_ns, phase.decode_tokens_per_s, energy.decode_energy_mj_per_token
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
    SELECT run, sum(energy_mj) / sum(coalesce(new_tokens, tokens)) AS decode_energy_mj_per_token
    FROM measured_steps WHERE phase = 'decode' AND energy_mj IS NOT NULL GROUP BY run
) AS energy ON energy.run = runs.run
