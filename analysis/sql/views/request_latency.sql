-- Latency of measured requests: to the first token, between tokens after it (TPOT, of sequences with more than one; those of a batch get
-- as many each), in all.
SELECT run, request, model, outcome, host_start_ns, prompt_tokens, output_tokens, queue_ns, ttft_ns, host_dur_ns,
       CASE WHEN output_tokens >= 2 * greatest(coalesce(batch, 1), 1)
            THEN CAST(coalesce(last_token_ns, host_dur_ns) - ttft_ns AS DOUBLE)
                 / (floor(CAST(output_tokens AS DOUBLE) / greatest(coalesce(batch, 1), 1)) - 1) END AS tpot_ns
FROM measured_requests
