#!/usr/bin/env python3
"""Reads a trace with Perfetto's own definitions and checks what its importer relies on.

    check_perfetto.py FILE [--slices N] [--samples JSON] [--kernels JSON [--together NS]]

Every track is described before it is used and hangs below a process; every interned name resolves; slices on a track nest,
sorted by time as the importer sorts them; samples have a thread that is described, and a stack whose frames have a name and a
file. If the package can run `trace_processor`, its SQL must agree. JSON is a file with the number of samples by function, or of
kernels by name of process: without it, there is one process. With --together kernels of NCCL end at the same time in all of them.
"""

import argparse
import collections
import json
import os
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb


def innermost(sample, known: dict, say) -> str:
    """The function that a sample was taken in."""
    if not sample.callstack_iid:
        return ""
    stack = known["callstacks"].get(sample.callstack_iid)
    if not stack:
        say(f"callstack {sample.callstack_iid} is not interned")
        return ""
    for frame in (known["frames"].get(iid) for iid in stack.frame_ids):
        if frame is None or frame.function_name_id not in known["function_names"]:
            say(f"a frame of callstack {stack.iid} or its function is not interned")
        elif not all(text in known["mapping_paths"] for text in known["mappings"][frame.mapping_id].path_string_ids):
            say(f"the file of frame {frame.iid} is not interned")
        elif frame.source_path_iid and frame.source_path_iid not in known["source_paths"]:
            say(f"the source of frame {frame.iid} is not interned")
    return known["function_names"][known["frames"][stack.frame_ids[-1]].function_name_id].str.decode()


def check(trace: pb.Trace, kernels: dict[str, list], processes_expected: int) -> tuple[int, collections.Counter, list[str]]:
    """`kernels` gets name, start and end of each kernel by its process."""
    problems: list[str] = []
    say = problems.append
    tracks: dict[int, pb.TrackDescriptor] = {}
    interned: dict[int, dict] = {}
    events, samples = [], collections.Counter()
    for at, packet in enumerate(trace.packet):
        sequence = packet.trusted_packet_sequence_id
        if packet.sequence_flags & pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
            interned[sequence] = collections.defaultdict(dict)
        elif sequence not in interned:
            say(f"packet {at} needs incremental state that was never begun")
            interned[sequence] = collections.defaultdict(dict)
        known = interned[sequence]
        if packet.HasField("interned_data"):
            for field in ("event_names", "event_categories", "debug_annotation_names"):
                known[field].update((entry.iid, entry.name) for entry in getattr(packet.interned_data, field))
            strings = packet.interned_data.debug_annotation_string_values
            known["strings"].update((entry.iid, entry.str.decode()) for entry in strings)
            for field in ("callstacks", "frames", "mappings", "function_names", "mapping_paths", "source_paths"):
                known[field].update((entry.iid, entry) for entry in getattr(packet.interned_data, field))
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if packet.HasField("track_event"):
            event = packet.track_event
            if event.track_uuid not in tracks:
                say(f"packet {at} uses track {event.track_uuid}, which is not described")
            if event.type == pb.TrackEvent.TYPE_SLICE_BEGIN:
                if event.name_iid not in known["event_names"]:
                    say(f"packet {at}: name {event.name_iid} is not interned")
                for category in event.category_iids:
                    if category not in known["event_categories"]:
                        say(f"packet {at}: category {category} is not interned")
                for argument in event.debug_annotations:
                    if argument.name_iid not in known["debug_annotation_names"]:
                        say(f"packet {at}: argument name {argument.name_iid} is not interned")
                    if argument.HasField("string_value_iid") and argument.string_value_iid not in known["strings"]:
                        say(f"packet {at}: text {argument.string_value_iid} is not interned")
            if event.type == pb.TrackEvent.TYPE_COUNTER and not tracks[event.track_uuid].HasField("counter"):
                say(f"packet {at}: a counter value on a track that is no counter")
            name, categories = known["event_names"].get(event.name_iid), known["event_categories"]
            is_kernel = any(categories.get(category) == "kernel" for category in event.category_iids)
            events.append((packet.timestamp, at, event, name if is_kernel else None))
        if packet.HasField("perf_sample"):
            sample = packet.perf_sample
            threads = ((track.thread.pid, track.thread.tid) for track in tracks.values() if track.HasField("thread"))
            if (sample.pid, sample.tid) not in threads:
                say(f"packet {at}: a sample of thread {sample.tid}, which is not described")
            samples[innermost(sample, known, say)] += 1

    processes = {t.uuid: t.process.process_name for t in tracks.values() if t.HasField("process")}
    if len(processes) != processes_expected:
        say(f"{len(processes)} process tracks")

    def process(track: pb.TrackDescriptor) -> str | None:
        # As deep as tracks are: process, thread or device, launch calls or stream.
        for _ in range(3):
            track = tracks.get(track.parent_uuid, track)
        return processes.get(track.uuid)

    for track in tracks.values():
        if process(track) is None:
            say(f"track {track.uuid} ({track.name}) does not hang below a process")

    slices, opened = 0, collections.defaultdict(list)
    # The importer sorts by time and keeps the file's order among equals.
    for timestamp, at, event, kernel in sorted(events, key=lambda e: (e[0], e[1])):
        if event.type == pb.TrackEvent.TYPE_SLICE_BEGIN:
            slices += 1
            opened[event.track_uuid].append((kernel, timestamp))
        elif event.type == pb.TrackEvent.TYPE_SLICE_END:
            if not opened[event.track_uuid]:
                say(f"packet {at}: an end without a begin at {timestamp}")
                continue
            name, start = opened[event.track_uuid].pop()
            if name is not None:
                kernels[process(tracks[event.track_uuid])].append((name, start, timestamp))
    for track, left in opened.items():
        if left:
            say(f"track {track}: {len(left)} slices are never ended")
    return slices, samples, problems


def by_trace_processor(path: str) -> tuple[int, int] | None:
    """Slices and samples as the real importer counts them; None if its binary is not available."""
    binary = os.environ.get("TRACE_PROCESSOR")
    if not binary:
        return None
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    with TraceProcessor(trace=path, config=TraceProcessorConfig(bin_path=binary)) as processor:
        count = lambda of: next(iter(processor.query(f"select count(*) as n from {of}"))).n
        return count("slice where dur >= 0"), count("perf_sample")


def of_processes(kernels: dict[str, list], expected: dict[str, int], together: int | None) -> list[str]:
    """What is wrong with the kernels of several processes."""
    problems = []
    for name in {*kernels, *expected}:
        if len(kernels[name]) != expected.get(name, 0):
            problems.append(f"{len(kernels[name])} kernels of {name}, not {expected.get(name, 0)}")
    if together is not None:
        ends = [sorted(end for name, _, end in kernels[process] if name.startswith("nccl")) for process in sorted(expected)]
        if not all(ends) or len({len(each) for each in ends}) != 1:
            problems.append(f"kernels of NCCL by process: {[len(each) for each in ends]}")
        apart = max((max(all_ends) - min(all_ends) for all_ends in zip(*ends)), default=0)
        if apart > together:
            problems.append(f"kernels of NCCL end {apart} ns apart")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--slices", type=int, help="number of slices there should be")
    parser.add_argument("--samples", help="file with the number of samples by function there should be")
    parser.add_argument("--kernels", help="file with the number of kernels by name of process there should be")
    parser.add_argument("--together", type=int, metavar="NS", help="how far kernels of NCCL may end apart in these processes")
    arguments = parser.parse_args()
    trace = pb.Trace()
    with open(arguments.file, "rb") as file:
        trace.ParseFromString(file.read())
    expected_kernels = None
    if arguments.kernels:
        with open(arguments.kernels) as file:
            expected_kernels = json.load(file)
    kernels = collections.defaultdict(list)
    slices, samples, problems = check(trace, kernels, 1 if expected_kernels is None else len(expected_kernels))
    if expected_kernels is not None:
        problems.extend(of_processes(kernels, expected_kernels, arguments.together))
    if arguments.slices is not None and slices != arguments.slices:
        problems.append(f"{slices} slices, not {arguments.slices}")
    if arguments.samples:
        with open(arguments.samples) as file:
            expected = collections.Counter(json.load(file))
        for function in {*expected, *samples}:
            if expected[function] != samples[function]:
                problems.append(f"{samples[function]} samples in {function}, not {expected[function]}")
    imported = by_trace_processor(arguments.file)
    seen = (slices, samples.total())
    if imported is not None and imported != seen:
        problems.append(f"trace_processor sees {imported} slices and samples, the file has {seen}")
    for problem in problems[:20]:
        print(problem, file=sys.stderr)
    if not problems:
        agrees = "" if imported is None else ", trace_processor agrees"
        print(f"{len(trace.packet)} packets, {slices} slices, {samples.total()} samples{agrees}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
