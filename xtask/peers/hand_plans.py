"""Eleven plans beside a calculation by hand. The plan says which offer it means and, for spot, in which band AWS puts
it; prices come from `windfall offers`, everything else from the formulas and published figures below. Fails when a plan
and a hand part by more than 3 %.

    python3 hand_plans.py WINDFALL
"""

import json
import math
import os
import subprocess
import sys
import tempfile

WINDFALL = sys.argv[1]
APART = 0.03
START = 5 / 60  # hours from asking for a machine to progress, where nobody says it
SAVE = 5 / 3600  # hours that a save takes, where nobody says its size
MONTH = 730.0
BANDS = {"<5%": (0, 0.05), "5-10%": (0.05, 0.1), "10-15%": (0.1, 0.15), "15-20%": (0.15, 0.2), ">20%": (0.2, 0.99)}
# MFU of MosaicML's llm-foundry on H100 (bf16, sequence 2048), and the peak of an H100's data sheet.
MFU = {("7b", 8): 0.4644, ("70b", 512): 0.4125}
PEAK = 989.4e12


def ask(*args):
    done = subprocess.run([WINDFALL, *args, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"windfall {' '.join(args)}: {done.stderr}")
    return json.loads(done.stdout)


def price(row):
    """What the offer of a row costs, as `offers` says it."""
    found = [
        offer["price_usd_per_hour"]
        for offer in ask("offers", "--instance-type", row["instance_type"], "--cloud", row["cloud"], "--market", row["market"], "--all")
        if (offer["region"], offer["instance_type"]) == (row["region"], row["instance_type"])
        and (row["zone"] is None or offer["zone"] == row["zone"])
    ]
    return min(found) if found else math.nan


def spot(price_, nodes, hours, losses_an_hour):
    """Dollars and hours on spot, where a notice is long enough to save: work, saves, starts after each loss."""
    lasts = 1 / losses_an_hour
    every = min(max(math.sqrt(2 * SAVE * lasts), 1 / 60), 4)
    running = hours * (1 + SAVE / every)
    paid = running + START * (1 + running * losses_an_hour)
    return price_ * nodes * paid, running * losses_an_hour


def rate(share, hours):
    return -math.log(1 - share) / hours


def main():
    plans = []

    def plan(what, args, by_hand, field="expected_cost_usd"):
        row = ask("plan", *args)["candidates"][0]
        formula, result = by_hand(row)
        plans.append((what, f"{row['cloud']} {row['region']} {row['nodes']}×{row['instance_type']} {row['market']}",
                      formula, result, row[field]))

    def hours(work, factor=1.0):
        def by_hand(row):
            each = price(row) * factor
            return f"${each:.4f} × {row['nodes']} × ({work:.3f} + {START:.3f}) h", each * row["nodes"] * (work + START)
        return by_hand

    on_demand = ("--market", "on-demand")
    plan("8 h on one A100", ("--hours", "8", "--on", "A100:1", "--gpu", "A100:1", "--cloud", "lambda", *on_demand), hours(8))
    plan("40 h on eight A100", ("--hours", "40", "--on", "A100:8", "--gpu", "A100:8", "--cloud", "aws", *on_demand), hours(40))
    plan("40 h on one node, on four at 90 % of perfect",
         ("--hours", "40", "--on", "A100:8", "--gpu", "A100:8", "--nodes", "4", "--scaling", "4=0.9", "--cloud", "aws",
          *on_demand), hours(40 / 4 / 0.9))

    def tokens(parameters, count, mfu):
        work = 6 * parameters * count / (mfu[1] * PEAK * MFU[mfu]) / 3600

        def by_hand(row):
            each = price(row)
            text = f"6 × {parameters:.0e} × {count:.0e} / ({mfu[1]} × 989.4e12 × {MFU[mfu]}) = {work:.1f} h; × ${each:.2f} × {row['nodes']}"
            return text, each * row["nodes"] * (work + START)
        return by_hand

    plan("7B on 100 G tokens, eight H100",
         ("--parameters", "7e9", "--tokens", "1e11", "--gpu", "H100:8", "--cloud", "aws", *on_demand),
         tokens(7e9, 1e11, ("7b", 8)))
    plan("70B on 1 T tokens, 512 H100",
         ("--parameters", "70e9", "--tokens", "1e12", "--gpu", "H100:8", "--nodes", "64", "--cloud", "aws", *on_demand),
         tokens(70e9, 1e12, ("70b", 512)))

    def on_spot(work, unknown):
        def by_hand(row):
            each, nodes = price(row), row["nodes"]
            if unknown:
                losses, said = rate(0.10, 24), "10 % a day"
            else:
                band = row["interruption_band"]
                low, high = BANDS[band]
                losses, said = (rate(low, MONTH) + rate(high, MONTH)) / 2, f"{band} a month"
            losses *= nodes ** 0.28
            cost, lost = spot(each, nodes, work, losses)
            return f"${each:.4f} × {nodes} × ({work:g} h + saves + {1 + lost:.2f} starts), {said}", cost
        return by_hand

    plan("100 h of L4 on spot, nobody says how often it is taken",
         ("--hours", "100", "--on", "L4:1", "--gpu", "L4:1", "--cloud", "gcp", "--market", "spot"), on_spot(100, True))
    plan("1,000 h of L4 on spot with a published band",
         ("--hours", "1000", "--on", "L4:1", "--gpu", "L4:1", "--cloud", "aws", "--market", "spot"), on_spot(1000, False))
    plan("400 h on one node, on a gang of four at 90 % of perfect, on spot with a published band",
         ("--hours", "400", "--on", "A100:8", "--gpu", "A100:8", "--nodes", "4", "--scaling", "4=0.9", "--cloud", "aws",
          "--market", "spot"), on_spot(400 / 4 / 0.9, False))
    plan("100,000 h of L4 on spot",
         ("--hours", "100000", "--on", "L4:1", "--gpu", "L4:1", "--cloud", "gcp", "--market", "spot"), on_spot(100000, True))

    with tempfile.TemporaryDirectory() as folder:
        holdings = os.path.join(folder, "holdings.yaml")
        with open(holdings, "w") as file:
            file.write("discounts: [{ cloud: gcp, market: on-demand, percent: 12 }]\n")
        plan("24 h of H100 with 12 % off",
             ("--hours", "24", "--on", "H100:8", "--gpu", "H100:8", "--cloud", "gcp", *on_demand, "--holdings", holdings),
             hours(24, 0.88))
        job = os.path.join(folder, "job.yaml")
        with open(job, "w") as file:
            file.write("name: moved\nrun: ./train\nresources: { accelerators: A100:8 }\n"
                       "work: { hours: 100, accelerator: A100:8 }\n"
                       "checkpoint: { path: out, every: 1h, size: 100GB }\n")

        def egress(row):
            # A save of 100 GB out of AWS for each hour of work: tiers of 10, 40, 100 TiB; the first 100 GB a month are free.
            gib = 100 * 100e9 / 2**30
            cost, left = 0.0, gib
            for size, each in ((100, 0.0), (10 * 1024 - 100, 0.09), (40 * 1024, 0.085), (1e9, 0.07)):
                inside = min(left, size)
                cost, left = cost + inside * each, left - inside
            return f"{gib:,.0f} GiB from us-east-1 to the internet", cost

        row = ask("plan", job, "--cloud", "aws", "--region", "us-east-1", *("--market", "spot"), "--store-at", "gcp/us-central1")
        row = row["candidates"][0]
        formula, result = egress(row)
        plans.append(("100 h of A100 in AWS that saves to GCP: its traffic", f"{row['cloud']} {row['region']} {row['instance_type']}",
                      formula, result, row["cost_parts"]["checkpoint_egress"]))

    wrong = 0
    for number, (what, where, formula, by_hand, planned) in enumerate(plans, 1):
        off = planned / by_hand - 1 if by_hand else math.inf
        bad = not abs(off) <= APART
        wrong += bad
        print(f"{number:>2}. {what}\n    {where}\n    by hand  {formula} = ${by_hand:,.2f}")
        print(f"    planned  ${planned:,.2f}, {off:+.2%}{'   TOO FAR APART' if bad else ''}")
    print(f"{len(plans)} plans, {wrong} of them more than {APART:.0%} from the hand")
    sys.exit(1 if wrong else 0)


main()
