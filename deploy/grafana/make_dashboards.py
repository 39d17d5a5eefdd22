#!/usr/bin/python3
"""Writes the Grafana dashboards of Quire: make_dashboards.py [FOLDER].

A panel is a line here: kind, title, unit, width, explanation and its queries. SEL in a query stands
for the selector of the chosen servers, RATE for Grafana's interval of rates. The JSON in
dashboards/ is what ships; tests/deploy compares it with this script.
"""

import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent / "dashboards"
SERIES = 'model_name=~"$model_name", instance=~"$instance"'
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
HEIGHT = {"stat": 4, "timeseries": 8, "heatmap": 8, "bargauge": 8}


def rate(metric, by="instance"):
    return f"sum by ({by}) (rate({metric}{{SEL}}[RATE]))"


def quantile(q, metric, by=""):
    by = f"{by}, le" if by else "le"
    return f"histogram_quantile({q}, sum by ({by}) (rate({metric}_bucket{{SEL}}[RATE])))"


def quantiles(metric):
    return [(quantile(q, metric), f"p{q * 100:.0f}") for q in (0.5, 0.95, 0.99)]


def mean(metric):
    return f"sum(rate({metric}_sum{{SEL}}[RATE])) / (sum(rate({metric}_count{{SEL}}[RATE])) > 0)"


def each(metric, *labels):
    """A gauge by instance and labels."""
    by = ", ".join(("instance", *labels))
    legend = " ".join(f"{{{{{label}}}}}" for label in ("instance", *labels))
    return f"sum by ({by}) ({metric}{{SEL}})", legend


def stat(title, unit, expr, about):
    return "stat", title, unit, 4, about, [(expr, "")]


def plot(title, unit, about, *queries, width=8):
    return "timeseries", title, unit, width, about, list(queries)


def heatmap(title, unit, metric, about):
    expr = f"sum by (le) (increase({metric}_bucket{{SEL}}[RATE]))"
    return "heatmap", title, unit, 12, about, [(expr, "{{le}}")]


def bars(title, unit, about, query, width=12):
    return "bargauge", title, unit, width, about, [query]


OVERVIEW = [
    "Now",
    stat("Servers up", "none", 'sum(up{job="quire"})', "Admin ports that answer the scrape."),
    stat("Servers ready", "none", 'sum(quire_server_state{SEL, state="ready"})',
         "Servers whose /readyz is 200: they accept requests."),
    stat("Alerts firing", "none",
         'count(ALERTS{alertstate="firing", alertname=~"Quire.*"}) or vector(0)',
         "docs/operations.md has a section for each."),
    stat("Requests a second", "reqps", "sum(rate(quire_requests_finished_total{SEL}[RATE]))",
         "Requests that ended, for any reason."),
    stat("Output tokens a second", "none", "sum(rate(quire_generated_tokens_total{SEL}[RATE]))",
         "Sampled tokens of all requests."),
    stat("Prompt tokens a second", "none", "sum(rate(quire_prompt_tokens_total{SEL}[RATE]))",
         "Computed tokens; tokens found in the cache are not among them."),
    stat("First token, p95", "s", quantile(0.95, "quire_time_to_first_token_seconds"),
         "From arrival to the first token."),
    stat("Between tokens, p95", "s", quantile(0.95, "quire_inter_token_latency_seconds"),
         "Between two tokens of a stream."),
    stat("Running", "none", "sum(quire_requests_running{SEL})",
         "Requests that hold a row of the batch."),
    stat("Waiting", "none", "sum(quire_requests_waiting{SEL})", "Requests in the queue."),
    stat("KV cache in use", "percentunit", "max(quire_kv_cache_usage_ratio{SEL})",
         "Of the fullest server. Cached blocks count as free."),
    stat(
        "Prefix cache hits", "percentunit",
        "sum(rate(quire_prefix_cache_hit_tokens_total{SEL}[RATE])) / "
        "(sum(rate(quire_prefix_cache_queried_tokens_total{SEL}[RATE])) > 0)",
        "Share of prompt tokens whose KV was found, on the device or on the host."),
    "Traffic",
    plot(
        "Requests by end", "reqps", "EOS, stops and MAX_TOKENS are answers; DEADLINE, SLOW_READER, "
        "NUMERIC and ENGINE_FAULT are not.",
        (rate("quire_requests_finished_total", "reason"), "{{reason}}")),
    plot("Refused requests", "reqps", "By gRPC code. UNAVAILABLE: the queue is full, or a drain.",
         (rate("quire_requests_rejected_total", "code"), "{{code}}")),
    plot("Tokens a second", "none", "Computed prompt tokens and sampled tokens, each server.",
         (rate("quire_generated_tokens_total"), "{{instance}} output"),
         (rate("quire_prompt_tokens_total"), "{{instance}} prompt")),
    plot("Queue", "none", "Requests by place. Restoring requests wait for KV from the host.",
         ("sum(quire_requests_running{SEL})", "running"),
         ("sum(quire_requests_waiting{SEL})", "waiting"),
         ("sum(quire_requests_restoring{SEL})", "restoring")),
    plot("Waiting prompt tokens", "none", "Work in the queue.",
         each("quire_waiting_prompt_tokens")),
    plot("First token", "s", "From arrival to the first token.",
         *quantiles("quire_time_to_first_token_seconds")),
    "Health",
    bars("Builds", "none", "Servers by version and commit.",
         ("count by (version, commit) (quire_build_info{SEL})", "{{version}} {{commit}}"),
         width=24),
    plot("State", "none", "1 for the state of each server.",
         ("sum by (state) (quire_server_state{SEL})", "{{state}}")),
    plot("Time since the last step", "s", "Grows while work waits; beyond 10 s the server is hung.",
         each("quire_step_age_seconds")),
    plot(
        "Faults", "none", "Increases of each minute: replaced workers, ranks that disagree, shed "
        "streams, refused connections, lost log lines.",
        ("sum(increase(quire_engine_recoveries_total{SEL}[1m]))", "workers replaced"),
        ("sum(increase(quire_rank_mismatches_total{SEL}[1m]))", "rank mismatches"),
        ("sum(increase(quire_slow_reader_shed_total{SEL}[1m]))", "slow readers shed"),
        ("sum(increase(quire_connections_rejected_total{SEL}[1m]))", "connections refused"),
        ("sum(increase(quire_log_dropped_total{SEL}[1m]))", "log lines lost")),
    plot("Resident memory", "bytes", "Of the server's process, without its workers.",
         ('process_resident_memory_bytes{job="quire", instance=~"$instance"}', "{{instance}}")),
    plot("Cores in use", "none", "Of the server's process.",
         ('rate(process_cpu_seconds_total{job="quire", instance=~"$instance"}[RATE])',
          "{{instance}}")),
    plot("Streams and descriptors", "none", "Open calls, detached requests, open descriptors.",
         each("quire_streams_open"), ("sum(quire_detached_streams{SEL})", "detached"),
         ('process_open_fds{job="quire", instance=~"$instance"}', "{{instance}} descriptors"))
]

LATENCY = [
    "What a user waits for",
    plot("First token", "s", "From arrival to the first token.",
         *quantiles("quire_time_to_first_token_seconds")),
    plot("Between tokens", "s", "Between two tokens of a stream.",
         *quantiles("quire_inter_token_latency_seconds")),
    plot("Whole request", "s", "From arrival to the end.", *quantiles("quire_request_seconds")),
    heatmap("First token", "s", "quire_time_to_first_token_seconds",
            "Requests by time to first token."),
    heatmap("Between tokens", "s", "quire_inter_token_latency_seconds",
            "Tokens by the time before them."),
    "By class: where a request found its KV",
    plot(
        "First token, p95, by KV outcome", "s", "NONE: no KV could exist. DEVICE, RESTORED: found. "
        "PARTIAL, RECOMPUTED: a part or all was computed again.",
        (quantile(0.95, "quire_residency_time_to_first_token_seconds", "outcome"), "{{outcome}}")),
    plot("Requests by KV outcome", "reqps", "The same classes.",
         (rate("quire_request_residency_total", "outcome"), "{{outcome}}")),
    plot("Restore", "s", "From the first to the last copy of a request's KV from the host.",
         *quantiles("quire_kv_restore_seconds")),
    "Where the time goes",
    plot("Mean time by phase", "s", "Queue, prefill (first step to first token) and decode.",
         (mean("quire_request_queue_seconds"), "queue"),
         (mean("quire_request_prefill_seconds"), "prefill"),
         (mean("quire_request_decode_seconds"), "decode")),
    plot("Queue", "s", "From arrival to the first step.",
         *quantiles("quire_request_queue_seconds")),
    plot("Prefill", "s", "From the first step to the first token.",
         *quantiles("quire_request_prefill_seconds")),
    plot("Time per output token", "s", "Mean of a request, without its first.",
         *quantiles("quire_time_per_output_token_seconds")),
    plot("Cancel to end", "s", "From the arrival of a cancel to the request's end.",
         *quantiles("quire_cancel_to_end_seconds")),
    plot("Calls, p95, by method", "s", "All RPCs; Generate lasts as long as its stream.",
         (quantile(0.95, "quire_grpc_server_handling_seconds", "method"), "{{method}}")),
    "Shape of the requests",
    plot("Prompt tokens", "none", "", *quantiles("quire_request_prompt_tokens")),
    plot("Computed prompt tokens", "none", "Those whose KV was not found.",
         *quantiles("quire_request_computed_prompt_tokens")),
    plot("Output tokens", "none", "", *quantiles("quire_request_generated_tokens"))
]

KV = [
    "Device",
    plot("Blocks", "none",
         "Used, cached (reusable, counted as free) and unused blocks of all servers.",
         ("sum(quire_kv_blocks{SEL}) - sum(quire_kv_blocks_free{SEL})", "used"),
         ("sum(quire_kv_blocks_cached{SEL})", "cached"),
         ("sum(quire_kv_blocks_free{SEL}) - sum(quire_kv_blocks_cached{SEL})", "unused")),
    plot("In use", "percentunit", "Used blocks of each server.",
         each("quire_kv_cache_usage_ratio")),
    plot(
        "Preemptions and evictions a second", "none", "Preempted requests; evicted cached blocks; "
        "evicted blocks of idle sessions without a copy.",
        ("sum(rate(quire_preemptions_total{SEL}[RATE]))", "preemptions"),
        ("sum(rate(quire_kv_evicted_blocks_total{SEL}[RATE]))", "evicted blocks"),
        ("sum(rate(quire_session_kv_lost_blocks_total{SEL}[RATE]))", "lost session blocks")),
    "Prefix cache",
    plot("Prompt tokens by tier", "none", "Tokens a second: found on a tier, or computed.",
         (rate("quire_prefix_cache_hit_tokens_total", "tier"), "{{tier}}"),
         ("sum(rate(quire_prefix_cache_queried_tokens_total{SEL}[RATE])) - "
          "sum(rate(quire_prefix_cache_hit_tokens_total{SEL}[RATE]))", "computed")),
    plot("Hit ratio", "percentunit", "Of the prompt tokens of each server.",
         ("sum by (instance) (rate(quire_prefix_cache_hit_tokens_total{SEL}[RATE])) / "
          "(sum by (instance) (rate(quire_prefix_cache_queried_tokens_total{SEL}[RATE])) > 0)",
          "{{instance}}")),
    plot("KV tokens of running requests", "none", "", each("quire_running_tokens")),
    "Host memory",
    plot("Pages", "none", "Used pages, pages that are ready for use, and all.",
         ("sum(quire_host_pages_used{SEL})", "used"), ("sum(quire_host_pages_ready{SEL})", "ready"),
         ("sum(quire_host_pages{SEL})", "all")),
    plot("Copies", "Bps", "Bytes a second over all servers, by direction.",
         ("sum(rate(quire_kv_stored_bytes_total{SEL}[RATE]))", "store"),
         ("sum(rate(quire_kv_loaded_bytes_total{SEL}[RATE]))", "load")),
    plot("Speed of a copy", "Bps", "Measured by the server, which decides by it.",
         each("quire_kv_copy_bytes_per_second", "direction")),
    plot("Copies in flight", "none", "Jobs.", each("quire_kv_copies_in_flight")),
    plot(
        "Dropped, declined, late", "none",
        "A second. Dropped pages: host memory, or a tenant's share, is full. Declined: "
        "computing was expected to be faster.",
        ("sum(rate(quire_kv_dropped_pages_total{SEL}[RATE]))", "dropped pages"),
        ("sum(rate(quire_kv_restores_declined_total{SEL}[RATE]))", "restores declined"),
        ("sum(rate(quire_kv_restores_late_total{SEL}[RATE]))", "restores late"),
        ("sum(rate(quire_kv_stores_given_up_total{SEL}[RATE]))", "stores given up")),
    plot("Failures", "none", "Increases of each minute.",
         ("sum(increase(quire_kv_copies_failed_total{SEL}[1m]))", "copies failed"),
         ("sum(increase(quire_kv_copies_late_total{SEL}[1m]))", "copies late"),
         ("sum(increase(quire_kv_corrupt_pages_total{SEL}[1m]))", "corrupt pages")),
    "Plan",
    bars("Memory plan of a rank",
         "bytes",
         "Computed before loading.", ("max by (part) (quire_memory_plan_bytes{SEL})", "{{part}}"),
         width=24)
]

SESSIONS = [
    "Sessions",
    plot("By state", "none", "HOST: KV in host memory only. DROPPED: the next turn computes it.",
         ("sum by (state) (quire_sessions{SEL})", "{{state}}")),
    plot("Tokens", "none", "Of all sessions.", each("quire_session_tokens")),
    plot("Turns by KV outcome", "reqps", "Where turns and requests found their KV.",
         (rate("quire_request_residency_total", "outcome"), "{{outcome}}")),
    plot("Recomputed tokens a second", "none", "Tokens of sessions that turns computed again.",
         (rate("quire_session_recomputed_tokens_total"), "{{instance}}")),
    plot("Lost blocks a second", "none", "Evicted KV of idle sessions that had no other copy.",
         (rate("quire_session_kv_lost_blocks_total"), "{{instance}}")),
    plot("Watches and transfers", "none", "Open Watch, Export and Import calls.",
         ("sum(quire_session_watches{SEL})", "watch"),
         ("sum by (direction) (quire_session_transfers{SEL})", "{{direction}}")),
    "Session directory (--session-dir)",
    plot("Size", "bytes", "By kind of file.",
         ("sum by (file) (quire_session_dir_bytes{SEL})", "{{file}}")),
    plot("Sessions in it", "none", "", each("quire_session_dir_sessions")),
    plot("Traffic", "Bps", "",
         ("sum(rate(quire_session_dir_written_bytes_total{SEL}[RATE]))", "written"),
         ("sum(rate(quire_session_dir_read_bytes_total{SEL}[RATE]))", "read")),
    plot("Saves a second", "none", "KV of idle sessions, by outcome.",
         (rate("quire_session_saves_total", "outcome"), "{{outcome}}")),
    plot("Recalls a second", "none", "KV wanted back for a turn, by outcome.",
         (rate("quire_session_recalls_total", "outcome"), "{{outcome}}")),
    plot("Failures", "none", "Increases of each minute: refused operations and unsaved turns.",
         ("sum by (operation) (increase(quire_session_dir_failures_total{SEL}[1m]))",
          "{{operation}} failed"),
         ("sum by (reason) (increase(quire_session_turns_unsaved_total{SEL}[1m]))",
          "turn unsaved: {{reason}}")),
    plot("At the start", "none", "Sessions found in the directory, and journals cut off.",
         ("sum by (outcome) (quire_session_adoptions_total{SEL})", "{{outcome}}"),
         ("sum(quire_session_journals_torn_total{SEL})", "torn journals")),
    plot("Jobs", "none", "By state.", ("sum by (state) (quire_jobs{SEL})", "{{state}}")),
    plot("Lines of jobs a second", "none", "By status.",
         (rate("quire_job_items_total", "status"), "{{status}}")),
]

STEPS = [
    "Steps",
    plot("Steps a second", "none", "", (rate("quire_steps_total"), "{{instance}}")),
    plot("Tokens of a step", "none", "", (mean("quire_tokens_per_step"), "mean"),
         (quantile(0.95, "quire_tokens_per_step"), "p95")),
    plot("Guesses a second", "none", "Tokens guessed ahead that steps verified, and those of them "
         "that were right; none without --speculate.",
         ("sum(rate(quire_guessed_tokens_total{SEL}[RATE]))", "guessed"),
         ("sum(rate(quire_accepted_guesses_total{SEL}[RATE]))", "right")),
    plot("Last step", "s", "Time in the worker.", each("quire_step_seconds")),
    plot("Step anatomy", "s", "Where the time of a step goes, from sampled steps; idle is the time "
         "since the step before.",
         ("sum by (part) (rate(quire_sampled_step_seconds_total{SEL}[RATE])) / on () group_left () "
          "(sum(rate(quire_sampled_steps_total{SEL}[RATE])) > 0)", "{{part}}"), width=12),
    heatmap("Tokens of a step", "none", "quire_tokens_per_step",
            "Steps by the tokens they computed."),
    "CUDA graphs (GPU only)",
    plot("Replays a second, by size", "none", "Captured steps, by batch size.",
         (rate("quire_cuda_graph_replays_total", "size"), "{{size}}")),
    plot("Share of steps replayed", "percentunit", "",
         ("sum(rate(quire_cuda_graph_replays_total{SEL}[RATE])) / "
          "(sum(rate(quire_steps_total{SEL}[RATE])) > 0)", "replayed")),
    plot("Padding", "percentunit", "Fraction of replayed rows that no request uses.",
         each("quire_cuda_graph_padded_ratio", "size")),
    bars("Capture time",
         "s",
         "By batch size.", ("max by (size) (quire_cuda_graph_capture_seconds{SEL})", "{{size}}"),
         width=8),
    bars("Memory of the captures",
         "bytes",
         "By batch size.", ("max by (size) (quire_cuda_graph_bytes{SEL})", "{{size}}"),
         width=8),
    bars("Nodes",
         "none",
         "By batch size.", ("max by (size) (quire_cuda_graph_nodes{SEL})", "{{size}}"),
         width=8),
    "Start",
    bars("Start of the server",
         "s",
         "By phase; ready is the sum.",
         ("max by (phase) (quire_startup_phase_seconds{SEL})", "{{phase}}"),
         width=12),
    bars("Start of a worker (GPU only)",
         "s",
         "load: weights. warm: first steps, selection of algorithms, captures.",
         ("max by (phase) (quire_worker_start_seconds{SEL})", "{{phase}}"),
         width=12)
]

GPUS = [
    "Load of each GPU",
    plot("Busy", "percentunit", "Time in which a kernel ran.", each("quire_gpu_busy_ratio", "gpu")),
    plot("Multiprocessors busy", "percentunit", "Mean share of the multiprocessors.",
         each("quire_gpu_sm_busy_ratio", "gpu")),
    plot("Memory bandwidth", "percentunit", "Of the theoretical maximum. Decoding is bound by it.",
         each("quire_gpu_memory_bandwidth_ratio", "gpu")),
    plot("Tensor cores busy", "percentunit", "Prefill is bound by them.",
         each("quire_gpu_tensor_busy_ratio", "gpu")),
    plot("Memory", "bytes", "Of all processes, and the GPU's.",
         each("quire_gpu_memory_used_bytes", "gpu"),
         ("max(quire_gpu_memory_total_bytes{SEL})", "of one GPU")),
    plot("Memory of a worker", "bytes", "planned, and measured after its start.",
         each("quire_worker_memory_bytes", "part")),
    "Power and clocks",
    plot("Power", "watt", "", each("quire_gpu_power_watts", "gpu"),
         ("max(quire_gpu_power_limit_watts{SEL})", "limit")),
    plot("Energy per output token", "joule", "Of all GPUs of a server.",
         ("sum by (instance) (rate(quire_gpu_energy_joules_total{SEL}[RATE])) / "
          "(sum by (instance) (rate(quire_generated_tokens_total{SEL}[RATE])) > 0)",
          "{{instance}}")),
    plot("Temperature", "celsius", "", each("quire_gpu_temperature_celsius", "gpu")),
    plot("Clock of the multiprocessors", "hertz", "", each("quire_gpu_sm_clock_hertz", "gpu"),
         ("max(quire_gpu_sm_clock_max_hertz{SEL})", "maximum")),
    plot("Clock of the memory", "hertz", "", each("quire_gpu_memory_clock_hertz", "gpu")),
    plot("Reasons for lower clocks", "none",
         "1 while a reason holds. power_cap is normal at full load.",
         ('max by (instance, gpu, reason) (quire_gpu_clocks_limited{SEL, reason!="idle"})',
          "{{instance}} {{gpu}} {{reason}}")),
    "Between GPUs",
    plot("NVLink", "Bps", "All links of a GPU.",
         (rate("quire_gpu_nvlink_bytes_total", "gpu, direction"), "{{gpu}} {{direction}}")),
    plot("NVLink errors", "none", "Increases of each minute.",
         ("sum by (gpu, kind) (increase(quire_gpu_nvlink_errors_total{SEL}[1m]))",
          "{{gpu}} {{kind}}")),
    plot(
        "Memory errors", "none", "Increases of each minute.",
        ("sum by (gpu, kind) (increase(quire_gpu_ecc_errors_total{SEL}[1m]))", "{{gpu}} {{kind}}")),
    "Ranks",
    plot("Time of a step by rank", "s", "Without the time between steps. A rank that is slower "
         "than the others holds them up.",
         ('sum by (instance, rank) (rate(quire_sampled_step_seconds_total{SEL, part!="idle"}'
          "[RATE])) / (sum by (instance, rank) (rate(quire_sampled_steps_total{SEL}[RATE])) > 0)",
          "{{instance}} {{rank}}")),
    plot("Ranks replaced", "none",
         "Times since the start that the workers died and were replaced.",
         each("quire_engine_recoveries_total")),
    plot("Ranks that disagree", "none",
         "Steps since the start. Any is a reason to look for broken hardware.",
         each("quire_rank_mismatches_total"))
]

TENANTS = [
    "What each tenant has",
    plot("Running requests", "none", "Requests with a row of the batch, by tenant.",
         each("quire_tenant_requests_running", "tenant"), width=6),
    plot("Waiting requests", "none", "Requests in the queue, by tenant.",
         each("quire_tenant_requests_waiting", "tenant"), width=6),
    plot("Waiting tokens", "none", "Tokens of waiting requests. A tenant far above the others is "
         "a flood: it waits behind them.", each("quire_tenant_waiting_tokens", "tenant"), width=6),
    plot("Host memory", "none", "Pages with KV; max_host_kv_tokens bounds them.",
         each("quire_tenant_host_pages", "tenant"), width=6),
    "What each tenant gets",
    plot("Prompt tokens a second", "none", "Computed tokens; under load they are shared by weight, "
         "together with sampled ones.", (rate("quire_tenant_prompt_tokens_total", "tenant"),
                                         "{{tenant}}")),
    plot("Sampled tokens a second", "none", "Sampled tokens by tenant.",
         (rate("quire_tenant_generation_tokens_total", "tenant"), "{{tenant}}")),
    plot("Refused at a limit", "reqps", "Requests that a limit of the tenant's own refused.",
         (rate("quire_tenant_refused_total", "tenant, limit"), "{{tenant}} {{limit}}")),
    "The door",
    plot("Refused calls", "reqps", "Calls that were refused before their message was read, by "
         "reason. Many of one reason: a key was revoked or expired, or somebody guesses.",
         (rate("quire_auth_failures_total", "reason"), "{{reason}}"), width=12),
    plot("Keys", "none", "Keys in use; a refused file leaves the keys of before in use.",
         each("quire_keys"), each("quire_key_file_refused"), width=12),
    "TLS",
    plot("Handshakes a second", "reqps", "Clients that open a connection for each call cost a "
         "handshake each.", (rate("quire_tls_handshakes_total"), "{{instance}}")),
    plot("Failed handshakes", "reqps", "By reason.",
         (rate("quire_tls_handshake_failures_total", "reason"), "{{reason}}")),
    plot("Certificate expires in", "s", "Of the first certificate of the chain to expire. Below "
         "two weeks an alert fires.",
         ("min by (instance) (quire_tls_certificate_expiry_timestamp_seconds{SEL}) - time()",
          "{{instance}}"))
]

DASHBOARDS = {
    "overview": ("Quire: overview", OVERVIEW),
    "latency": ("Quire: latency", LATENCY),
    "kv": ("Quire: KV and tiers", KV),
    "sessions": ("Quire: sessions", SESSIONS),
    "steps": ("Quire: steps and graphs", STEPS),
    "gpus": ("Quire: GPUs and ranks", GPUS),
    "tenants": ("Quire: tenants, keys and TLS", TENANTS)
}


def query_variable(name, query):
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {
            "query": query,
            "refId": name
        },
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {
            "text": ["All"],
            "value": ["$__all"]
        },
        "sort": 1
    }


def options(kind, unit):
    if kind == "stat":
        return {
            "colorMode": "none",
            "graphMode": "area",
            "textMode": "value",
            "reduceOptions": {
                "calcs": ["lastNotNull"],
                "fields": "",
                "values": False
            }
        }
    if kind == "bargauge":
        return {
            "orientation": "horizontal",
            "displayMode": "basic",
            "reduceOptions": {
                "calcs": ["lastNotNull"],
                "fields": "",
                "values": False
            }
        }
    if kind == "heatmap":
        return {
            "calculate": False,
            "cellGap": 0,
            "color": {
                "mode": "scheme",
                "scheme": "Blues",
                "steps": 64
            },
            "yAxis": {
                "axisPlacement": "left",
                "unit": unit
            }
        }
    return {
        "legend": {
            "displayMode": "list",
            "placement": "bottom",
            "showLegend": True
        },
        "tooltip": {
            "mode": "multi",
            "sort": "desc"
        }
    }


def panel(number, spec, x, y):
    kind, title, unit, width, about, queries = spec
    targets = []
    for i, (expr, legend) in enumerate(queries):
        expr = expr.replace("SEL", SERIES).replace("RATE", "$__rate_interval")
        target = {
            "refId": chr(ord("A") + i),
            "datasource": SOURCE,
            "expr": expr,
            "legendFormat": legend
        }
        if kind == "heatmap":
            target["format"] = "heatmap"
        if kind == "bargauge":
            target["instant"] = True
        targets.append(target)
    # The values of a heatmap are counts; the unit is that of its buckets.
    defaults = {"unit": "short" if kind == "heatmap" else unit, "min": 0}
    if kind == "timeseries":
        defaults["custom"] = {"lineWidth": 1, "fillOpacity": 8, "showPoints": "never"}
    return {
        "id": number,
        "type": kind,
        "title": title,
        "description": about,
        "datasource": SOURCE,
        "gridPos": {
            "h": HEIGHT[kind],
            "w": width,
            "x": x,
            "y": y
        },
        "targets": targets,
        "fieldConfig": {
            "defaults": defaults,
            "overrides": []
        },
        "options": options(kind, unit)
    }


def layout(specs):
    """Panels from left to right; a text begins a row with this title."""
    panels, x, y, height = [], 0, 0, 0
    for spec in specs:
        row = isinstance(spec, str)
        if row or x + spec[3] > 24:
            x, y = 0, y + height
        if row:
            panels.append({
                "id": len(panels) + 1,
                "type": "row",
                "title": spec,
                "collapsed": False,
                "gridPos": {
                    "h": 1,
                    "w": 24,
                    "x": 0,
                    "y": y
                },
                "panels": []
            })
            y, height = y + 1, 0
            continue
        panels.append(panel(len(panels) + 1, spec, x, y))
        x, height = x + spec[3], HEIGHT[spec[0]]
    return panels


def dashboard(name):
    title, specs = DASHBOARDS[name]
    return {
        "uid": f"quire-{name}",
        "title": title,
        "tags": ["quire"],
        "schemaVersion": 39,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "10s",
        "timezone": "browser",
        "time": {"from": "now-30m", "to": "now"},
        "links": [{
            "type": "dashboards",
            "tags": ["quire"],
            "title": "Quire",
            "asDropdown": True,
            "includeVars": True,
            "keepTime": True
        }],
        "templating": {
            "list": [{
                "name": "datasource",
                "type": "datasource",
                "query": "prometheus",
                "label": "Data source"
            },
                     query_variable("model_name", "label_values(quire_steps_total, model_name)"),
                     query_variable(
                         "instance",
                         'label_values(quire_steps_total{model_name=~"$model_name"}, instance)')]
        },
        "annotations": {"list": []},
        "panels": layout(specs)
    }


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    for name in DASHBOARDS:
        text = json.dumps(dashboard(name), indent=1, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
