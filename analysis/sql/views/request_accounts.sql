-- What each request caused, those of the warm-up included: its share of the time of its steps, on the host and on the device, by
-- the work that each request of a step causes, and of their energy, with bounds. `device_estimate_ns` is of all its recorded
-- steps: the mean share in those whose time on the device is known × their number.
SELECT run, request, model, outcome, prompt_tokens, output_tokens, queue_ns, ttft_ns,
       CASE WHEN output_tokens >= 2 * greatest(coalesce(batch, 1), 1)
            THEN CAST(coalesce(last_token_ns, host_dur_ns) - ttft_ns AS DOUBLE)
                 / (floor(CAST(output_tokens AS DOUBLE) / greatest(coalesce(batch, 1), 1)) - 1) END AS tpot_ns,
       step_count, step_share_ns, device_step_count, device_share_ns,
       CASE WHEN device_step_count > 0 THEN CAST(device_share_ns AS DOUBLE) / device_step_count * step_count END
       AS device_estimate_ns,
       energy_mj, energy_low_mj, energy_high_mj,
       CASE WHEN output_tokens > 0 THEN energy_mj / output_tokens END AS energy_mj_per_token
FROM requests WHERE step_count IS NOT NULL
