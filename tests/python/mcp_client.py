"""Speaks to `candlescope mcp` as a client does: lists its tools, calls each, tries to leave its folder, asks what is hostile.

    mcp_client.py CANDLESCOPE ROOT OUTSIDE

ROOT holds the runs `a` and `b`; OUTSIDE is a run elsewhere. Prints one object on success."""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

MOST_BYTES = 32_000
MOST_OF_AN_OVERVIEW = 8_000
program, root, outside = sys.argv[1:]


def text(result):
    assert len(result.content) == 1 and result.content[0].type == "text", result
    assert len(result.content[0].text.encode()) <= MOST_BYTES, len(result.content[0].text)
    return result.content[0].text


async def main(session):
    async def good(tool, **arguments):
        result = await session.call_tool(tool, arguments)
        assert not result.is_error, (tool, arguments, text(result))
        return json.loads(text(result))

    async def refused(tool, part, **arguments):
        result = await session.call_tool(tool, arguments)
        assert result.is_error, (tool, arguments, text(result))
        assert part in text(result), (tool, part, text(result))
        assert "panicked" not in text(result)

    said = await session.initialize()
    assert said.server_info.name == "candlescope" and "overview" in said.instructions, said
    tools = (await session.list_tools()).tools
    names = sorted(tool.name for tool in tools)
    assert names == ["analyze", "compare", "finding", "list_runs", "overview", "query", "views"], names
    for tool in tools:
        assert tool.annotations.read_only_hint and not tool.annotations.destructive_hint, tool
        assert tool.description and tool.input_schema["type"] == "object", tool

    # Each tool, in the order in which an agent goes.
    found = await good("list_runs")
    assert sorted(run["run"] for run in found["runs"]) == ["./a", "./b"], found
    assert found["runs"][0]["model_name"] == "embedded", found
    short = await session.call_tool("overview", {"run": "a"})
    assert len(text(short)) <= MOST_OF_AN_OVERVIEW, len(text(short))
    short = json.loads(text(short))
    assert short["kind"] == "run" and any(figure["key"] == "ttft" for figure in short["figures"]), short
    assert (await good("overview", run="."))["kind"] == "runs"
    analysis = await good("analyze", run="a", top=3)
    assert analysis["schema"] == 1 and len(analysis["findings"]) <= 3
    for finding in analysis["findings"]:
        assert (await good("finding", code=finding["code"]))["meaning"]
        assert (await good("query", run="a", sql=finding["query"]))["columns"]
    for missing in analysis["abstained"]:
        assert (await good("finding", code=missing["missing"]))["record"]
    steps = await good("query", run=".", sql="SELECT run, count(*) AS n FROM measured_steps GROUP BY run ORDER BY run")
    assert [row["run"] for row in steps["rows"]] == ["./a", "./b"] and not steps["truncated"], steps
    views = await good("views")
    assert "host_dur_ns" in views["tables"]["steps"] and views["views"]["operators"]["columns"], views
    for view in views["views"]:
        assert (await good("query", run="a", sql=f"SELECT * FROM {view} LIMIT 1"))["columns"] == views["views"][view]["columns"]
    assert (await good("views", table="steps"))["columns"][0]["type"]
    compared = await good("compare", a="a", b="b", allow=["machine"])
    assert compared["outcome"] in ("equivalent", "better", "worse", "undecided"), compared
    assert (await good("finding", code="ring_full"))["remedy"]

    # What is long is cut, and it is said.
    many = await good("query", run="a", sql="SELECT * FROM spans", limit=1000)
    assert many["cut"][0]["at"] == "/rows" and many["cut"][0]["of"] > len(many["rows"]) and many["more"], many.keys()
    assert (await good("query", run="a", sql="SELECT seq FROM spans", limit=2))["truncated"]

    # The folder cannot be left, by any tool.
    link = os.path.join(root, "link")
    os.symlink(outside, link)
    for path in ["..", "a/../..", outside, "link", "/etc", "../outside", "link/spans", "s3://bucket/runs", "a/../../outside"]:
        for tool, argument in [("overview", "run"), ("analyze", "run"), ("list_runs", "folder")]:
            await refused(tool, "`", **{argument: path})
        await refused("query", "`", run=path, sql="SELECT 1")
        await refused("compare", "`", a="a", b=path)
    await refused("query", "leads out", run=".", sql="SELECT 1")
    os.unlink(link)
    for sql in [
        "SELECT * FROM '/etc/passwd'",
        f"SELECT * FROM '{outside}/spans/part-00000.parquet'",
        f"SELECT * FROM read_parquet('{outside}/spans/*.parquet')",
        "COPY (SELECT 1) TO '/tmp/candlescope-mcp-must-not-be'",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
        "DROP TABLE spans",
        "SELECT 1; SELECT 2",
        "",
        "--help",
    ]:
        result = await session.call_tool("query", {"run": "a", "sql": sql})
        assert result.is_error, (sql, text(result))

    # What would fill memory or never end, ends; the server does not.
    wide = "x" * 200
    for sql in [
        f"SELECT replace(replace(replace(string_agg(path, '{wide}'), '/', '{wide}'), '{wide}', '{wide}{wide}'), 'x', '{wide}') FROM spans",
        "SELECT count(*) FROM spans a, spans b, spans c, spans d WHERE a.seq + b.seq * c.seq < d.seq",
        "SELECT " + "(" * 20_000 + "1" + ")" * 20_000,
        "SELECT '" + "y" * 2_000_000 + "'",
    ]:
        result = await session.call_tool("query", {"run": "a", "sql": sql})
        assert result.is_error, (sql[:100], text(result))
        assert len(text(result)) < 4_000, len(text(result))
    await refused("overview", "takes run", runs="a")
    await refused("overview", "missing", run=7)
    await refused("query", "1 to 1000", run="a", sql="SELECT 1", limit=10**9)
    await refused("overview", "list_runs", run="nothing")
    await refused("finding", "launch_bound", code="launch_bond")
    await refused("compare", "--allow", a="a", b="b", allow=["--html=/tmp/candlescope-mcp-must-not-be"])
    try:
        await session.call_tool("delete", {})
        raise AssertionError("there is no such tool")
    except Exception as error:
        assert "no tool" in str(error), error

    # Several at once, and still there.
    together = await asyncio.gather(*(good("overview", run=run) for run in ["a", "b"] * 4))
    assert len(together) == 8
    return {"tools": names, "overview_bytes": len(json.dumps(short)), "protocol": said.protocol_version}


async def session():
    # The limit is low, so that what never ends takes little of a test's time.
    environment = {"CANDLESCOPE_LIMITS": "query-seconds=3,query-bytes=67108864"}
    server = StdioServerParameters(command=program, args=["mcp", "--root", root], env=environment)
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        return await main(session)


print(json.dumps(asyncio.run(session())))
