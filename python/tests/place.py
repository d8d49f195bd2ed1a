"""Where the tests run: a clean environment, an empty directory, and children of their own."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path
from unittest import mock

PACKAGE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PACKAGE))


class InDirectory(unittest.TestCase):
    """A clean environment, and an empty directory that is also the current one."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.dir = Path(holder.name).resolve()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.dir)
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
        clean = {k: v for k, v in os.environ.items() if not k.startswith("WINDFALL_") and k not in names}
        patch = mock.patch.dict(os.environ, clean, clear=True)
        patch.start()
        self.addCleanup(patch.stop)

    def in_windfall(self, **more):
        self.saves = self.dir / "saves"
        self.saves.mkdir(exist_ok=True)
        self.progress_file = self.dir / "progress-3"
        os.environ.update(
            WINDFALL_JOB="job-1",
            WINDFALL_STINT="3",
            WINDFALL_CHECKPOINT_DIR=str(self.saves),
            WINDFALL_RESUME="",
            WINDFALL_PROGRESS=str(self.progress_file),
            RANK="0",
            WORLD_SIZE="1",
            LOCAL_RANK="0",
            **more,
        )

    def child(self, program):
        """A Python process that runs the program and has said `ready`."""
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", textwrap.dedent(program)],
            env={**os.environ, "PYTHONPATH": str(PACKAGE)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        said = process.stdout.readline()
        self.assertEqual(said, "ready\n", msg=said + (process.stdout.read() if said != "ready\n" else ""))
        return process

    def run_child(self, program):
        process = self.child("print('ready')\n" + textwrap.dedent(program))
        said = process.stdout.read()
        self.assertEqual(process.wait(30), 0, msg=said)
        return said.strip()
