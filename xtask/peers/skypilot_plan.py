"""SkyPilot's optimizer on the catalogue files of WINDFALL_DATA, offline: one query in this process; CPU seconds and
the cheapest answer as one line of JSON. Arguments: `plan GPU:N[,GPU:N…] spot|on-demand`, or `list`."""

import contextlib
import gzip
import io
import json
import os
import resource
import sys
import time
from pathlib import Path


def lay_out():
    """Puts the files where SkyPilot looks for them, as fresh as if it had just fetched them."""
    from sky.skylet import constants

    root = Path(os.environ["HOME"]) / ".sky" / "catalogs" / constants.CATALOG_SCHEMA_VERSION
    if root.exists():
        return
    for folder in (Path(os.environ["WINDFALL_DATA"]) / "prices" / "skypilot-catalog").iterdir():
        (root / folder.name).mkdir(parents=True)
        for file in folder.iterdir():
            raw = file.read_bytes()
            whole = gzip.decompress(raw) if file.suffix == ".gz" else raw
            (root / folder.name / file.name.removesuffix(".gz")).write_bytes(whole)


def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def plan(accelerators, spot):
    import sky
    from sky import check, clouds, optimizer

    enabled = [clouds.AWS(), clouds.GCP(), clouds.Azure(), clouds.Lambda(), clouds.OCI(), clouds.RunPod(), clouds.Vast(), clouds.Nebius()]
    check.get_cached_enabled_clouds_or_refresh = lambda *_, **__: enabled
    task = sky.Task(run="true")
    task.set_resources({sky.Resources(accelerators=name, use_spot=spot) for name in accelerators})
    with sky.Dag() as dag:
        dag.add(task)
    began = cpu()
    with contextlib.redirect_stdout(io.StringIO()):
        optimizer.Optimizer.optimize(dag, quiet=True)
    best = task.best_resources
    hourly = best.get_cost(3600)
    return cpu() - began, {"cloud": str(best.cloud).lower(), "instance_type": best.instance_type, "region": best.region, "price": hourly}


def list_all():
    from sky import catalog

    began = cpu()
    found = catalog.list_accelerators(gpus_only=False, all_regions=True, clouds=["aws", "gcp", "azure", "lambda"])
    return cpu() - began, {"accelerators": len(found)}


if __name__ == "__main__":
    lay_out()
    if sys.argv[1] == "plan":
        seconds, answer = plan(sys.argv[2].split(","), sys.argv[3] == "spot")
    else:
        seconds, answer = list_all()
    print(json.dumps({"cpu_seconds": seconds, "process_cpu_seconds": cpu(), **answer}))
