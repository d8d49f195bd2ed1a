"""`windfall profile` beside HTA and gunzip, on real traces, in one run.

Arguments: the windfall program, a Python with HTA (or `none`), the folder of data, and gigabytes of the invented trace.
Checks figures against HTA's recorded ones, verdicts against what is known, and speed and memory against their bounds;
exits with 1 where one of them does not hold."""

import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

WINDFALL, PYTHON, DATA, GIGABYTES = sys.argv[1], sys.argv[2], Path(sys.argv[3]), float(sys.argv[4])
HERE = Path(__file__).parent
TRACES, OURS = DATA / "traces", DATA / "h200"
RUNS = 7
LARGE = ["v100_dfindex_r1of2", "mtia_r0"]
ENV = {**os.environ, "WINDFALL_HOME": "/nonexistent/windfall-bench"}
FAILED = []


def hold(good, what):
    print(("  holds: " if good else "  DOES NOT HOLD: ") + what)
    if not good:
        FAILED.append(what)


def peak_of(pid, seen, done):
    """Watches a process's peak of memory. Its `ru_maxrss` would count this script's own memory before the exec."""
    while not done.wait(0.004):
        try:
            with open(f"/proc/{pid}/status") as status:
                seen += [int(line.split()[1]) / 1e3 for line in status if line.startswith("VmHWM")]
        except OSError:
            return


def spent(command, keep=True):
    """Wall seconds, CPU seconds, peak MB and output of one process; without `keep` the output goes nowhere."""
    with tempfile.TemporaryFile() as out:
        began = time.perf_counter()
        stdout = out if keep else subprocess.DEVNULL
        process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.DEVNULL, env=ENV)
        seen, done = [], threading.Event()
        watcher = threading.Thread(target=peak_of, args=(process.pid, seen, done))
        watcher.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        done.set()
        watcher.join()
        out.seek(0)
        # The first look may come before the exec, at this script's own image.
        return wall, usage.ru_utime + usage.ru_stime, max(seen[1:], default=0.0), out.read()


def profile(*arguments):
    return json.loads(spent([WINDFALL, "profile", *map(str, arguments), "--json"])[3])


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def compare(name, expected, rank):
    """Figures of one rank that are not HTA's to the microsecond."""
    wrong = []
    seen = 0

    def same(what, ours, theirs):
        nonlocal seen
        seen += 1
        if abs(ours - float(theirs)) >= 1.0:
            wrong.append(f"{what} {ours} instead of {theirs}")

    number = str(rank["rank"])
    row = next(row for row in rows(f"{expected}.temporal_breakdown.csv") if row["rank"] == number)
    same("kernel time", rank["kernel_time_us"], row["kernel_time(us)"])
    same("idle", rank["idle_us"], row["idle_time(us)"])
    same("compute", rank["compute_us"], row["compute_time(us)"])
    streams = {stream["stream"]: stream["idle_by_cause_us"] for stream in rank["streams"]}
    for row in rows(f"{expected}.idle_time_breakdown.0.csv"):
        if row["rank"] == number:
            ours = streams[int(row["stream"])][row["idle_category"]]
            same(f"stream {row['stream']} {row['idle_category']}", ours, row["idle_time"])
    overlap = next(row for row in rows(f"{expected}.comm_comp_overlap.csv") if row["rank"] == number)
    if overlap["comp_comm_overlap_pctg"]:
        seen += 1
        if abs(rank["overlap_percent"] - float(overlap["comp_comm_overlap_pctg"])) > 0.006:
            wrong.append(f"overlap {rank['overlap_percent']}")
    hold(not wrong, f"{name} rank {number}: {seen} figures are HTA's" + "".join("\n    " + line for line in wrong))


def figures():
    print("\n== figures beside HTA 0.5.0")
    folder = TRACES / "hta_expected"
    names = sorted({path.name.split(".")[0] for path in folder.iterdir()})
    for name in names:
        how = "exact" if name.endswith("_noround") else "rounded"
        files = [TRACES / f"{name.removesuffix('_noround')}.json.gz"]
        if name == "sampled_r0r1of128":
            files = [TRACES / "sampled_r0of128.json.gz", TRACES / "sampled_r1of128.json.gz"]
        for rank in profile(*files, f"--like-hta={how}")["ranks"]:
            compare(f"{name} ({how})", folder / name, rank)
    for path in sorted((OURS / "traces").glob("*.gz")):
        name = path.name.split(".")[0]
        rank = profile(path, "--like-hta")["ranks"][0]
        compare(f"h200 {name} (exact)", OURS / "hta_expected" / f"h200_{name}", rank)


def verdicts():
    print("\n== verdicts on traces whose limit is known")
    known = {
        "resnet50_bf16_healthy": "compute-bound",
        "resnet50_fp32": "compute-bound in fp32",
        "resnet50_bs2_launch_bound": "launch-bound",
        "bert_bf16": "launch-bound",
        "resnet50_input_bound": "input-bound",
        "resnet50_sync_bound": "sync-bound",
    }
    for name, verdict in known.items():
        report = profile(OURS / "traces" / f"{name}.json.gz")
        hold(report["verdict"] == verdict, f"{name}: {report['verdict']}")


def speed():
    print("\n== speed and memory")
    for name in LARGE:
        path = TRACES / f"{name}.json.gz"
        unpack, ours = [], []
        for _ in range(RUNS):
            unpack.append(spent(["gunzip", "-c", str(path)], keep=False)[:3])
            ours.append(spent([WINDFALL, "profile", str(path)], keep=False)[:3])
        (zip_wall, zip_cpu, _), (wall, cpu, _) = ([statistics.median(run[at] for run in runs) for at in range(3)] for runs in (unpack, ours))
        peak = max(run[2] for run in ours)
        size = sum(len(block) for block in iter_blocks(path)) / 1e6
        print(f"{name}, {size:.1f} MB: windfall {wall:.2f} s ({cpu:.2f} s CPU, {peak:.0f} MB); gunzip {zip_wall:.2f} s ({zip_cpu:.2f} s CPU)")
        hold(wall <= 2 * zip_wall, f"{wall / zip_wall:.2f} times the wall time of gunzip, at most 2 ({cpu / zip_cpu:.2f} times the CPU time)")
        hold(peak <= 150, f"{peak:.0f} MB, at most 150")
        if PYTHON != "none":
            theirs_wall, theirs_cpu, theirs_peak, said = spent([PYTHON, str(HERE / "hta_profile.py"), str(path)])
            try:
                said = json.loads(said)
            except ValueError:
                print("  HTA fails on this trace")
                continue
            print(f"  HTA {theirs_wall:.1f} s ({theirs_cpu:.1f} s CPU, {theirs_peak:.0f} MB), {said['import_s']:.1f} s of it importing")
            hold(theirs_wall / wall >= 20, f"{theirs_wall / wall:.0f} times faster than HTA, at least 20 (without its imports {said['analysis_s'] / wall:.0f} times)")
            print(f"  {theirs_peak / peak:.0f} times less memory than HTA")


def iter_blocks(path):
    import gzip

    with gzip.open(path) as file:
        while block := file.read(1 << 20):
            yield block


def ranks():
    print("\n== many ranks")
    path = str(TRACES / "v100_dfindex_r1of2.json.gz")
    one = statistics.median(spent([WINDFALL, "profile", path])[0] for _ in range(3))
    runs = [spent([WINDFALL, "profile", *[path] * 8]) for _ in range(3)]
    many, peak = statistics.median(run[0] for run in runs), max(run[2] for run in runs)
    print(f"8 ranks {many:.2f} s and {peak:.0f} MB, one {one:.2f} s: {8 * one / many:.2f} times as fast as one after another, on {os.cpu_count()} cores")


def invented(bytes_wanted, out):
    """A trace like a real one, as long as is wanted: operators, launches and kernels of steps, one after another."""
    written = out.write(b'{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], "traceEvents": [\n')
    names = [f"void at::native::elementwise_kernel_{number}<float>(int, float*)" for number in range(200)]
    clock, number, step = 0, 0, 0
    while written < bytes_wanted:
        lines, began = [], clock
        for _ in range(2000):
            number += 1
            clock += 11
            lines.append(f'  {{"ph": "X", "cat": "cpu_op", "name": "aten::add_{number % 300}", "pid": 388, "tid": 448,\n    "ts": {clock}.{number % 1000:03}, "dur": 9.250,\n    "args": {{"External id": {number}, "Record function id": 0, "Sequence number": {number}, "Fwd thread id": 1, "Ev Idx": {number}}}\n  }},\n')
            lines.append(f'  {{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 388, "tid": 448,\n    "ts": {clock + 2}.{number % 1000:03}, "dur": 4.125,\n    "args": {{"External id": {number}, "cbid": 211, "correlation": {number}}}\n  }},\n')
            lines.append(f'  {{"ph": "X", "cat": "kernel", "name": "{names[number % 200]}", "pid": 0, "tid": 7,\n    "ts": {clock + 9}.{number % 1000:03}, "dur": {3 + number % 5}.500,\n    "args": {{"External id": {number}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {number}, "registers per thread": 32, "shared memory": 0, "blocks per SM": 12.1, "warps per SM": 97.0, "grid": [1568, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 87}}\n  }},\n')
        lines.append(f'  {{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", "pid": 388, "tid": 388, "ts": {began}, "dur": {clock - began}}},\n')
        step += 1
        written += out.write("".join(lines).encode())
    out.write(b'  {"ph": "M", "name": "end"}]}\n')
    out.close()


def huge():
    print(f"\n== an invented trace of {GIGABYTES:g} GB, through a pipe")
    with tempfile.TemporaryDirectory() as folder:
        pipe = os.path.join(folder, "trace.json")
        os.mkfifo(pipe)
        writer = threading.Thread(target=lambda: invented(int(GIGABYTES * 1e9), open(pipe, "wb", buffering=1 << 20)))
        writer.start()
        wall, cpu, peak, said = spent([WINDFALL, "profile", pipe, "--json"])
        writer.join()
    report = json.loads(said)
    launches = report["ranks"][0]["launches"]["count"]
    print(f"{launches:,} launches in {wall:.0f} s, most of it making them ({cpu:.1f} s CPU of ours, {GIGABYTES * 1e3 / cpu:.0f} MB/s)")
    hold(peak <= 500, f"{peak:.0f} MB, at most 500")


figures()
verdicts()
speed()
ranks()
huge()
print("\n" + ("everything holds" if not FAILED else f"{len(FAILED)} bounds do not hold"))
sys.exit(bool(FAILED))
