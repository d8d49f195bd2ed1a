"""A small training loop with every habit to choose from on its command line.

loop.py [habit …]: without any habit it is a good program. It saves with a rename every few steps, resumes,
and on SIGTERM saves and exits.
"""

import fcntl
import glob
import hashlib
import json
import os
import signal
import subprocess
import sys
import time

HABITS = set(sys.argv[1:])
STEPS = 50
SECONDS_A_STEP = 0.1
SAVE_EVERY = 4 if "early" in HABITS else 5
DIR = os.environ["WINDFALL_CHECKPOINT_DIR"]
if "relative" in HABITS:
    DIR = "out"
if "in-folder" in HABITS:
    DIR = "."
if "subfolder" in HABITS:
    DIR = os.path.join(DIR, "run-1", "weights")
PATH = os.path.join(DIR, f"state-{time.time()}.json" if "stamped" in HABITS else "state.json")
stop = False
since_start = 0


def has(habit):
    return habit in HABITS


def on_term(*_):
    global stop
    stop = True
    if has("slow-term"):
        time.sleep(60)


def say(*words):
    if not has("silent"):
        print(*words, flush=True)


def save(step, state):
    if has("never"):
        return
    os.makedirs(DIR, exist_ok=True)
    text = json.dumps({"step": step, "state": state, "fill": state * 400})
    if has("scattered"):
        for name in ("weights.json", "moments.json"):
            with open(os.path.join(DIR, name), "w") as file:
                file.write(json.dumps({"step": step, "fill": state * 400}))
    if has("multi-file"):
        with open(os.path.join(DIR, "optimiser.json.tmp"), "w") as file:
            file.write(json.dumps({"step": step, "moments": state[::-1] * 100}))
        os.replace(os.path.join(DIR, "optimiser.json.tmp"), os.path.join(DIR, "optimiser.json"))
    if has("trainer-notes"):
        # Means since the last log or the last start, as trainers log them.
        notes = {"global_step": step, "log_history": [{"step": step, "loss": since_start / step}]}
        with open(os.path.join(DIR, "notes.tmp"), "w") as file:
            file.write(json.dumps(notes))
        os.replace(os.path.join(DIR, "notes.tmp"), os.path.join(DIR, "trainer_state.json"))
    if has("slow-in-place"):
        with open(PATH, "w") as file:
            for part in range(0, len(text), len(text) // 8):
                file.write(text[part : part + len(text) // 8])
                file.flush()
                time.sleep(0.05)
        return
    if has("in-place"):
        with open(PATH, "w") as file:
            half = len(text) // 2
            file.write(text[:half])
            file.flush()
            time.sleep(0.02)
            file.write(text[half:])
        return
    with open(PATH + ".tmp", "w") as file:
        file.write(text)
        file.flush()
        if has("slow-fsync"):
            time.sleep(0.15)
        os.fsync(file.fileno())
    os.replace(PATH + ".tmp", PATH)


def load():
    newest = max(glob.glob(os.path.join(DIR, "state*.json")), default=PATH, key=os.path.getmtime)
    if has("from-zero") or not os.path.exists(newest):
        return 0, "seed"
    with open(newest) as file:
        saved = json.load(file)
    return saved["step"], saved["state"]


def main():
    request = os.environ["WINDFALL_SAVE_REQUEST"]
    if has("ignore-term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif not has("die-on-term"):
        signal.signal(signal.SIGTERM, on_term)
    if has("lock"):
        os.makedirs(DIR, exist_ok=True)
        lock = os.path.join(DIR, "train.lock")
        if os.path.exists(lock):
            sys.exit("another run holds " + lock)
        with open(lock, "w") as file:
            file.write(str(os.getpid()))
    if has("alone"):
        global held
        held = open(os.path.join(os.environ["TMPDIR"], "..", "alone.lock"), "w")
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit("address already in use")
    if has("needs-empty") and os.path.isdir(DIR) and os.listdir(DIR):
        sys.exit("the output directory is not empty")
    if has("child"):
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    if has("slow-start"):
        time.sleep(2)
    global since_start
    step, state = load()
    if has("forgets") and step:
        state = "seed"
    while step < STEPS:
        noise = str(time.time()) if has("random") else ""
        state = hashlib.sha256(f"{state} {step} {noise}".encode()).hexdigest()
        step += 1
        since_start += 1
        time.sleep(SECONDS_A_STEP)
        say(f"step {step}/{STEPS} {state[:8]}")
        if stop and not has("finish-anyway"):
            if not has("no-save-on-term"):
                save(step, state)
            sys.exit(143 if has("exit-143") else 0)
        if has("asked") and os.path.exists(request):
            os.remove(request)
            save(step, state)
        if has("early") and step > 12:
            continue
        if step % SAVE_EVERY == 0 and not has("end-only") and not has("notice-only") and not has("asked"):
            save(step, state)
    if not has("notice-only") and not has("early") and not has("asked"):
        save(step, state)
    say(f"done: {since_start} steps in this run" if has("counts") else "done")


main()
