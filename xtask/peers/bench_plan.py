"""Plans beside SkyPilot's: the same catalogue files and queries, each in fresh processes, in one run.

Arguments: the windfall program, a Python with SkyPilot. Prints CPU and wall time, the ratio, and both answers."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WINDFALL, PYTHON = sys.argv[1:3]
HERE = Path(__file__).parent
RUNS = 40
SIX = "H100:8,A100:8,L4:8,T4:8,V100:8,A10G:8"
CLOUDS = "aws,gcp,azure,lambda,oci,runpod,vast,nebius"


def spent(command, env):
    """CPU and wall seconds of one process, and what it printed."""
    with tempfile.TemporaryFile() as out:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, env=env)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = status
        out.seek(0)
        return usage.ru_utime + usage.ru_stime, wall, out.read().decode()


def ours(arguments):
    env = {**os.environ, "WINDFALL_HOME": "/nonexistent/windfall-bench"}
    runs = [spent([WINDFALL, *arguments], env) for _ in range(RUNS)]
    return statistics.median(run[0] for run in runs), statistics.median(run[1] for run in runs), runs[0][2]


def theirs(arguments, home):
    env = {**os.environ, "HOME": home, "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    _, _, text = spent([PYTHON, str(HERE / "skypilot_plan.py"), *arguments], env)
    return json.loads(text.strip().splitlines()[-1])


def line(what, cpu, wall, peer, aim):
    ratio = peer["cpu_seconds"] / cpu
    print(f"{what:<34} {cpu * 1e3:8.2f} ms CPU {wall * 1e3:8.2f} ms wall   SkyPilot {peer['cpu_seconds']:7.2f} s CPU   ratio {ratio:7.0f}   {aim}")


def main():
    with tempfile.TemporaryDirectory() as home:
        theirs(["plan", "H100:8", "spot"], home)
        for what, gpus, market, aim in [
            ("plan, one resource, on-demand", "A100:8", "on-demand", "aim 200, <= 6 ms"),
            ("plan, one resource, spot", "H100:8", "spot", "aim 200, <= 6 ms"),
            ("plan, six alternatives", SIX, "on-demand", "aim 500, <= 15 ms"),
            ("plan, six alternatives, spot", SIX, "spot", "aim 500, <= 15 ms"),
        ]:
            first = gpus.split(",")[0]
            arguments = ["plan", "--hours", "1", "--on", first, "--gpu", gpus, "--market", market, "--cloud", CLOUDS]
            cpu, wall, _ = ours([*arguments, "--json", "--limit", "20"])
            peer = theirs(["plan", gpus, market], home)
            line(what, cpu, wall, peer, aim)
        cpu, wall, _ = ours(["offers", "--cloud", "aws,gcp,azure,lambda"])
        line("every accelerator, four clouds", cpu, wall, theirs(["list"], home), "<= 15 ms")
        print("\nthe cheapest by list price, where both price the same thing:")
        for gpus, market in [("A100:8", "on-demand"), ("H100:8", "on-demand"), ("T4:1", "on-demand"), ("L4:1", "spot"), ("H100:8", "spot"), ("V100:1", "spot"), ("A100:1", "spot")]:
            peer = theirs(["plan", gpus, market], home)
            _, _, text = ours(["offers", "--json", gpus, "--market", market, "--sort", "price", "--cloud", CLOUDS])
            offers = json.loads(text)
            best = offers[0]
            same = abs(best["price_usd_per_hour"] - peer["price"]) <= 0.01 * max(peer["price"], 0.01)
            note = "same price" if same else explain(best, peer, offers)
            print(f"  {gpus:<12} {market:<9} ours {best['cloud']} {best['instance_type']} ${best['price_usd_per_hour']:.4f}   SkyPilot {peer['cloud']} {peer['instance_type']} ${peer['price']:.4f}   {note}")


def explain(best, peer, offers):
    if peer["price"] == 0:
        return "SkyPilot takes an unknown spot price for nothing"
    known = [offer for offer in offers if offer["cloud"] == peer["cloud"] and offer["instance_type"] == peer["instance_type"]]
    if best["price_usd_per_hour"] < peer["price"]:
        return "ours is cheaper: an offer that its optimizer does not consider"
    if not known:
        return "not an offer of ours: see docs/catalog-report.md"
    return f"we price its answer at ${min(offer['price_usd_per_hour'] for offer in known):.4f}"


main()
