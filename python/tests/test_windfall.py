"""The helpers, each test in a directory of its own; what concerns signals and kills runs in a child process."""

import json
import os
import random
import signal
import sys
import time
import types
import unittest
import warnings
from pathlib import Path
from unittest import mock

from tests.place import InDirectory

import windfall  # noqa: E402
from windfall import _progress, _stop  # noqa: E402


class Outside(InDirectory):
    def test_everything_is_harmless(self):
        windfall.progress(1, 10)
        windfall.saved()
        self.assertFalse(windfall.inside())
        self.assertIsNone(windfall.stint())
        self.assertIsNone(windfall.resume())
        self.assertIsNone(windfall.resume("model"))
        self.assertEqual(windfall.rank(), 0)
        self.assertEqual(windfall.precision("fp16"), "fp16")
        self.assertEqual(windfall.checkpoint_dir(), Path("checkpoints"))
        self.assertEqual(list(self.dir.iterdir()), [])

    def test_a_saved_file_is_found_again(self):
        windfall.save("model", b"weights")
        self.assertEqual(windfall.resume("model"), Path("checkpoints/model"))
        self.assertEqual(windfall.resume("model").read_bytes(), b"weights")

    def test_importing_installs_no_handler(self):
        said = self.run_child("import signal, windfall\nprint(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)")
        self.assertEqual(said, "True")


class Inside(InDirectory):
    def test_what_the_agent_says_is_read(self):
        self.in_windfall(WINDFALL_PRECISION="bf16")
        self.assertTrue(windfall.inside())
        self.assertEqual((windfall.stint(), windfall.precision("fp32")), (3, "bf16"))
        self.assertEqual(windfall.checkpoint_dir(), self.saves)

    def test_a_whole_save_is_marked_by_rank_0_with_a_rename(self):
        mark = self.dir / "saved"
        self.in_windfall(WINDFALL_SAVED=str(mark))
        windfall.saved()
        first = mark.stat().st_ino
        windfall.saved()
        self.assertNotEqual(mark.stat().st_ino, first, "renamed into place, so that it is seen")
        self.assertEqual([path.name for path in self.dir.glob("saved*")], ["saved"])
        mark.unlink()
        os.environ["RANK"] = "1"
        windfall.saved()
        self.assertFalse(mark.exists())

    def test_each_request_to_save_is_heard_once(self):
        request = self.dir / "request"
        self.in_windfall(WINDFALL_SAVE_REQUEST=str(request))
        self.assertFalse(windfall.should_save())
        for number, heard in [("7", True), ("7", False), ("6", False), ("", False), ("what", False), ("12", True)]:
            beside = self.dir / "beside"
            beside.write_text(number)
            os.replace(beside, request)
            self.assertEqual(windfall.should_save(), heard, number)
            self.assertFalse(windfall.should_save(), number)

    def test_only_what_was_restored_is_resumed_from(self):
        self.in_windfall()
        windfall.save("model", b"weights")
        self.assertIsNone(windfall.resume())
        self.assertIsNone(windfall.resume("model"))
        os.environ["WINDFALL_RESUME"] = str(self.saves)
        self.assertEqual(windfall.resume(), self.saves)
        self.assertEqual(windfall.resume("model"), self.saves / "model")
        self.assertIsNone(windfall.resume("another"))


class Saving(InDirectory):
    def setUp(self):
        super().setUp()
        self.in_windfall()

    def names(self):
        return sorted(path.name for path in self.saves.iterdir())

    def test_bytes_text_and_callables_land_in_the_checkpoint_directory(self):
        self.assertEqual(windfall.save("a", b"1"), self.saves / "a")
        windfall.save("deep/b.txt", "ü")
        windfall.save(self.dir / "c.npy", lambda path: path.with_name(path.name).write_text(path.suffix))
        self.assertEqual((self.saves / "a").read_bytes(), b"1")
        self.assertEqual((self.saves / "deep/b.txt").read_text("utf-8"), "ü")
        self.assertEqual((self.dir / "c.npy").read_text(), ".npy")
        self.assertEqual(self.names(), ["a", "deep"])

    def test_a_failed_save_changes_nothing(self):
        windfall.save("a", b"old")

        def fail(path):
            path.write_bytes(b"half")
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            windfall.save("a", fail)
        with self.assertRaises(ZeroDivisionError), windfall.atomic("a") as file:
            file.write(b"half")
            file.write(bytes(1 // 0))
        with self.assertRaisesRegex(TypeError, "hint: pass a callable"):
            windfall.save("a", {"step": 1})
        with self.assertRaisesRegex(FileNotFoundError, "wrote no file"):
            windfall.save("a", lambda path: None)
        self.assertEqual((self.saves / "a").read_bytes(), b"old")
        self.assertEqual(self.names(), ["a"])

    def test_the_context_manager_gives_a_file_and_refuses_to_append(self):
        with windfall.atomic("state.json", "w", encoding="utf-8") as file:
            json.dump({"step": 1}, file)
            self.assertFalse((self.saves / "state.json").exists())
        self.assertEqual(json.loads((self.saves / "state.json").read_text()), {"step": 1})
        with self.assertRaisesRegex(ValueError, "'a'"), windfall.atomic("state.json", "a"):
            pass

    def test_a_directory_is_saved_under_a_new_name_only(self):
        def shards(path):
            path.mkdir()
            (path / "0").write_bytes(b"0")

        windfall.save("step-1", shards)
        with self.assertRaisesRegex(FileExistsError, "new name each time"):
            windfall.save("step-1", shards)
        self.assertEqual(self.names(), ["step-1"])

    def test_it_is_synced_before_the_rename_and_the_directory_after_it(self):
        calls = []
        real_sync, real_replace = os.fsync, os.replace

        def fsync(descriptor):
            calls.append("sync " + os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")).split("-")[0])
            real_sync(descriptor)

        def replace(old, new):
            calls.append("rename")
            real_replace(old, new)

        with mock.patch("os.fsync", fsync), mock.patch("os.replace", replace):
            windfall.save("a", b"1")
        self.assertEqual(calls, ["sync .windfall", "rename", "sync saves"])

    def test_the_mode_follows_the_umask(self):
        before = os.umask(0o027)
        self.addCleanup(os.umask, before)
        self.assertEqual(windfall.save("a", b"1").stat().st_mode & 0o777, 0o640)

    def test_a_save_killed_at_any_moment_leaves_a_whole_file(self):
        # Each of its files repeats one byte: a torn one would be short, or mixed.
        program = """
            import windfall
            size = 1 << 20
            print("ready")
            while True:
                for byte in range(256):
                    windfall.save("model", bytes([byte]) * size)
        """
        rng = random.Random(7)
        contents = set()
        for _ in range(50):
            process = self.child(program)
            time.sleep(rng.uniform(0, 0.05))
            process.kill()
            process.wait()
            if not (self.saves / "model").exists():
                continue
            data = (self.saves / "model").read_bytes()
            self.assertEqual((len(data), len(set(data))), (1 << 20, 1))
            contents.add(data[0])
        self.assertGreater(len(contents), 3, "the kills came before any save")
        # And of fifty kills at most the last one's unfinished file is left.
        self.assertLessEqual(len(self.names()), 2, self.names())


class Reporting(InDirectory):
    def setUp(self):
        super().setUp()
        self.in_windfall()
        _progress._fresh()
        self.addCleanup(_progress._fresh)

    def wait_for(self, text):
        until = time.monotonic() + 5
        while self.progress_file.read_text() != text and time.monotonic() < until:
            time.sleep(0.01)
        self.assertEqual(self.progress_file.read_text(), text)

    def test_the_agent_reads_done_and_total(self):
        windfall.progress(3, 10)
        self.assertEqual(self.progress_file.read_text(), "3 10\n")
        _progress._fresh()
        windfall.progress(4)
        self.assertEqual(self.progress_file.read_text(), "4\n")
        _progress._fresh()
        windfall.progress(5.0, -1)
        self.assertEqual(self.progress_file.read_text(), "5\n")

    def test_a_flood_is_written_five_times_a_second_and_its_last_value_gets_through(self):
        written = []
        real = os.replace
        with mock.patch("os.replace", lambda a, b: (written.append(Path(a).read_text()), real(a, b))):
            began = time.monotonic()
            for step in range(2_000):
                windfall.progress(step, 1_000_000)
            took = time.monotonic() - began
            self.wait_for("1999 1000000\n")
        self.assertEqual(written[0], "0 1000000\n")
        # The first, the last by its timer, and one that a slow machine may put between them.
        self.assertLessEqual(len(written), 3 + took / _progress.PERIOD_SECONDS)

    def test_the_end_is_written_at_once(self):
        windfall.progress(9, 10)
        windfall.progress(10, 10)
        self.assertEqual(self.progress_file.read_text(), "10 10\n")

    def test_the_last_value_gets_through_when_the_program_ends(self):
        self.run_child("import windfall\nfor step in range(8): windfall.progress(step, 100)")
        self.assertEqual(self.progress_file.read_text(), "7 100\n")

    def test_only_the_first_process_of_a_machine_reports(self):
        os.environ.update(RANK="8", LOCAL_RANK="1")
        windfall.progress(1, 10)
        self.assertFalse(self.progress_file.exists())
        os.environ.update(LOCAL_RANK="0")
        windfall.progress(1, 10)
        self.assertTrue(self.progress_file.exists())

    def test_what_cannot_be_written_is_warned_about_once(self):
        os.environ["WINDFALL_PROGRESS"] = str(self.dir / "none" / "progress")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            windfall.progress(1, 2)
            windfall.progress(2, 2)
        self.assertEqual(len(caught), 1)

    def test_less_than_nothing_is_refused(self):
        with self.assertRaisesRegex(ValueError, "zero or more: -1"):
            windfall.progress(-1)


class Stopping(InDirectory):
    def test_sigterm_is_noticed_and_does_not_kill(self):
        process = self.child("""
            import time, windfall
            print(windfall.should_stop() or "ready")
            while not windfall.should_stop():
                time.sleep(0.01)
            print("saved")
        """)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(10), 0)
        self.assertEqual(process.stdout.read(), "saved\n")

    def test_a_handler_that_was_there_before_still_runs(self):
        process = self.child("""
            import signal, time, windfall
            signal.signal(signal.SIGTERM, lambda number, frame: print("mine", number))
            windfall.listen()
            windfall.listen()
            print("ready")
            while not windfall.should_stop():
                time.sleep(0.01)
        """)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(10), 0)
        self.assertEqual(process.stdout.read(), "mine 15\n")

    def test_another_thread_is_told_to_listen_in_the_main_one(self):
        said = self.run_child("""
            import threading, windfall
            def ask():
                try:
                    print(windfall.should_stop())
                except RuntimeError as error:
                    print(str(error).splitlines()[-1])
            def in_thread():
                thread = threading.Thread(target=ask); thread.start(); thread.join()
            in_thread()
            windfall.listen()
            in_thread()
        """)
        self.assertRegex(said, "(?s)^hint: call windfall.listen.. in the main thread first.*\nFalse$")

    def test_a_forked_child_dies_of_sigterm_as_it_would_without_this(self):
        said = self.run_child("""
            import os, signal, time, windfall
            windfall.listen()
            child = os.fork()
            if not child:
                time.sleep(5)
                os._exit(0)
            time.sleep(0.1)
            os.kill(child, signal.SIGTERM)
            print(os.WTERMSIG(os.waitpid(child, 0)[1]), windfall.should_stop())
        """)
        self.assertEqual(said, "15 False")

    def test_a_worker_survives_the_signal_to_its_group_and_heeds_its_parent(self):
        process = self.child("""
            import multiprocessing, os, time, windfall
            windfall.listen()
            def work(pipe):
                pipe.send("up")
                while True:
                    pipe.recv()
                    pipe.send("batch")
            context = multiprocessing.get_context("fork")
            mine, its = context.Pipe()
            worker = context.Process(target=work, args=(its,), daemon=True)
            worker.start()
            mine.recv()
            print("ready")
            while not windfall.should_stop():
                time.sleep(0.01)
            time.sleep(0.2)
            mine.send(None)
            print(mine.recv() if mine.poll(5) else "dead", worker.is_alive())
            worker.terminate()
            worker.join(5)
            print(worker.exitcode)
        """)
        os.killpg(process.pid, signal.SIGTERM)
        self.assertEqual(process.wait(20), 0)
        self.assertEqual(process.stdout.read(), "batch True\n143\n")

    def test_a_rank_that_was_forked_hears_the_signal_too(self):
        process = self.child("""
            import multiprocessing, time, windfall
            def train(pipe):
                windfall.listen()
                pipe.send("up")
                while not windfall.should_stop():
                    time.sleep(0.01)
            windfall.listen()
            context = multiprocessing.get_context("fork")
            mine, its = context.Pipe()
            rank = context.Process(target=train, args=(its,))
            rank.start()
            mine.recv()
            print("ready")
            rank.join(10)
            print(rank.exitcode)
        """)
        os.killpg(process.pid, signal.SIGTERM)
        self.assertEqual(process.wait(20), 0)
        self.assertEqual(process.stdout.read(), "0\n")

    def test_ranks_agree_through_torch_distributed(self):
        votes = []

        class Vote(list):
            def item(self):
                return 1  # another rank was asked to stop

        distributed = types.SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: True,
            get_world_size=lambda: 2,
            get_backend=lambda: "gloo",
            ReduceOp=types.SimpleNamespace(MAX="max"),
            all_reduce=lambda vote, op: votes.append((list(vote), op)),
        )
        torch = types.SimpleNamespace(distributed=distributed, tensor=lambda values, device: Vote(values))
        with mock.patch.dict(sys.modules, torch=torch), mock.patch.multiple(_stop, _listening=True, _asked=False):
            self.assertFalse(windfall.should_stop())
            self.assertTrue(windfall.should_stop(together=True))
        self.assertEqual(votes, [([0], "max")])

if __name__ == "__main__":
    unittest.main()
