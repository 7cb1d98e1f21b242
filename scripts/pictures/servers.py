"""Servers as child processes: each ends with the `with` block that started it."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def ask(url, body=None):
    """The JSON that a server answers to GET, or to POST if there is a body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        text = answer.read().decode()
    return json.loads(text) if text.startswith(("{", "[")) else text


@contextlib.contextmanager
def started(command, up, **environment):
    """Starts a program, waits until the address `up` answers, and ends it afterwards."""
    child = subprocess.Popen(
        [str(part) for part in command],
        env=os.environ | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        while True:
            if child.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"pictures: {command[0]} does not come up")
            with contextlib.suppress(OSError):
                ask(up)
                break
            time.sleep(0.2)
        yield
    finally:
        child.terminate()
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()


@contextlib.contextmanager
def example_server(programs, model, otlp=None):
    """The example server; gives its address and that of its metrics."""
    listen, metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    command = [programs / "candlescope-server", "--model", model, "--listen", listen, "--prometheus", metrics]
    command += ["--otlp", otlp] if otlp else []
    # One thread: on a small machine that shares its cores, more threads wait for each other.
    with started(command, f"http://{listen}/healthz", RAYON_NUM_THREADS="1", OTEL_SERVICE_NAME="candlescope-server"):
        yield f"http://{listen}", metrics


@contextlib.contextmanager
def prometheus(program, work, target):
    """A Prometheus that scrapes `target` twice a second; gives a function that runs a range query."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "prometheus.yml").write_text(
        "global: {scrape_interval: 500ms, scrape_timeout: 500ms}\n"
        f"scrape_configs: [{{job_name: candlescope, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    address = f"127.0.0.1:{free_port()}"
    command = [program, f"--config.file={work}/prometheus.yml", f"--storage.tsdb.path={work}/data"]
    command += [f"--web.listen-address={address}"]

    def over(expr, start, end):
        query = urllib.parse.urlencode({"query": expr, "start": start, "end": end, "step": "1s"})
        return ask(f"http://{address}/api/v1/query_range?{query}")["data"]["result"]

    with started(command, f"http://{address}/-/ready"):
        yield over


@contextlib.contextmanager
def jaeger(program):
    """A Jaeger with nothing in its memory; gives its addresses for OTLP and for queries."""
    otlp, query = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    command = [program, "--config", ROOT / "tests/otlp/jaeger.yaml"]
    ports = {"JAEGER_OTLP_HTTP": otlp, "JAEGER_QUERY_HTTP": query, "JAEGER_QUERY_GRPC": f"127.0.0.1:{free_port()}"}
    with started(command, f"http://{query}/api/services", OTEL_TRACES_SAMPLER="always_off", **ports):
        yield f"http://{otlp}", f"http://{query}"
