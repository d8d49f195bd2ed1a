"""The callbacks for PyTorch Lightning and Transformers.

Both are heavy and not needed here: small stand-ins with the signatures of the real hooks (Lightning 2.x `Callback`
and `Trainer`, Transformers 4.x/5.x `TrainerCallback`) take their place.
"""

import importlib
import os
import signal
import sys
import types
import unittest
import warnings
from pathlib import Path
from unittest import mock

from tests.place import InDirectory

from windfall import _progress, _stop  # noqa: E402


class FakeStrategy:
    def __init__(self, others_stop=False):
        self.others_stop = others_stop

    def reduce_boolean_decision(self, decision, all=True):
        assert all is False, "one rank that is asked is enough"
        return decision or self.others_stop

    def barrier(self, name=None):
        pass


class FakeTrainer:
    """What the callback uses of `lightning.pytorch.Trainer`, and a loop that calls the hooks as it does."""

    def __init__(self, callback, steps=10, rank=0):
        self.callback, self.steps, self.rank = callback, steps, rank
        self.strategy = FakeStrategy()
        self.estimated_stepping_batches = steps
        self.global_step = 0
        self.should_stop = False
        self.limit_val_batches = 1.0
        self.fit_loop = types.SimpleNamespace(min_epochs=1, epoch_loop=types.SimpleNamespace(min_steps=5))
        self.saved = []

    @property
    def is_global_zero(self):
        return self.rank == 0

    def save_checkpoint(self, filepath, weights_only=False, storage_options=None):
        self.saved.append(Path(filepath))
        if self.is_global_zero:
            Path(filepath).write_text(str(self.global_step))

    def fit(self, model, before_step=lambda step: None):
        self.callback.on_train_start(self, model)
        while self.global_step < self.steps and not self.should_stop:
            before_step(self.global_step)
            self.global_step += 1
            self.callback.on_train_batch_end(self, model, None, None, self.global_step - 1)


class WithCallbacks(InDirectory):
    def setUp(self):
        super().setUp()
        self.in_windfall()
        _progress._fresh()
        handler = signal.getsignal(signal.SIGTERM)
        self.addCleanup(signal.signal, signal.SIGTERM, handler)
        state = mock.patch.multiple(_stop, _asked=False, _listening=False, _before=None)
        state.start()
        self.addCleanup(state.stop)

    def load(self, name, **modules):
        """The module, imported against stand-ins; gone again afterwards."""
        patch = mock.patch.dict(sys.modules, modules)
        patch.start()
        self.addCleanup(patch.stop)
        self.addCleanup(sys.modules.pop, f"windfall.{name}", None)
        sys.modules.pop(f"windfall.{name}", None)
        return importlib.import_module(f"windfall.{name}")

    def load_lightning(self):
        pytorch = types.ModuleType("lightning.pytorch")
        pytorch.Callback = type("Callback", (), {})
        package = types.ModuleType("lightning")
        package.pytorch = pytorch
        return self.load("lightning", **{"lightning": package, "lightning.pytorch": pytorch})

    def load_transformers(self):
        package = types.ModuleType("transformers")
        package.TrainerCallback = type("TrainerCallback", (), {})
        return self.load("transformers", transformers=package)


def terminate_at(step):
    return lambda now: os.kill(os.getpid(), signal.SIGTERM) if now == step else None


class Lightning(WithCallbacks):
    def test_a_stop_saves_once_and_ends_the_trainer(self):
        module = self.load_lightning()
        trainer = FakeTrainer(module.Callback())
        trainer.fit(None, terminate_at(3))
        self.assertEqual(trainer.global_step, 4)
        self.assertEqual([path.name for path in self.saves.iterdir()], ["windfall-000000004.ckpt"])
        self.assertEqual((self.saves / "windfall-000000004.ckpt").read_text(), "4")
        self.assertEqual(len(trainer.saved), 1)
        self.assertEqual(trainer.limit_val_batches, 0)
        self.assertIsNone(trainer.fit_loop.min_epochs)
        self.assertIsNone(trainer.fit_loop.epoch_loop.min_steps)
        _progress._report.flush()
        self.assertEqual(self.progress_file.read_text(), "4 10\n")

    def test_the_last_periodic_save_is_kept_and_found(self):
        module = self.load_lightning()
        FakeTrainer(module.Callback(every_n_steps=3)).fit(None)
        self.assertEqual([path.name for path in self.saves.iterdir()], ["windfall-000000009.ckpt"])
        self.assertIsNone(module.last_checkpoint())
        os.environ["WINDFALL_RESUME"] = str(self.saves)
        self.assertEqual(module.last_checkpoint(), str(self.saves / "windfall-000000009.ckpt"))

    def test_another_rank_takes_part_in_the_save_and_leaves_the_rest_to_rank_0(self):
        module = self.load_lightning()
        trainer = FakeTrainer(module.Callback(), rank=1)
        trainer.strategy.others_stop = True
        trainer.fit(None)
        self.assertEqual((trainer.global_step, len(trainer.saved)), (1, 1))
        self.assertEqual(list(self.saves.iterdir()), [])
        self.assertFalse(self.progress_file.exists())

    def test_a_handler_that_lightning_put_in_front_is_set_aside_while_it_trains(self):
        module = self.load_lightning()
        trainer = FakeTrainer(module.Callback())
        signal.signal(signal.SIGTERM, lambda number, frame: self.fail("Lightning would end this rank alone"))
        trainer.fit(None, terminate_at(2))
        self.assertEqual(trainer.global_step, 3)

    def test_a_loader_without_a_state_is_warned_about_at_once(self):
        module = self.load_lightning()
        trainer = FakeTrainer(module.Callback())
        trainer.train_dataloader = object()
        with self.assertWarnsRegex(RuntimeWarning, "in the middle of an epoch .* first batch again"):
            trainer.fit(None)

    def test_batches_that_are_seen_twice_are_counted(self):
        module = self.load_lightning()
        trainer = FakeTrainer(module.Callback())
        trainer.train_dataloader = object()
        trainer.fit_loop.epoch_loop.batch_progress = types.SimpleNamespace(current=types.SimpleNamespace(ready=42))
        with self.assertWarnsRegex(RuntimeWarning, "42 batches of this epoch are seen twice, as many never"):
            trainer.fit(None)

    def test_a_loader_with_a_state_is_left_alone(self):
        module = self.load_lightning()
        trainer = FakeTrainer(module.Callback())
        trainer.train_dataloader = types.SimpleNamespace(load_state_dict=None)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            trainer.fit(None)

    def test_endless_training_has_no_total(self):
        module = self.load_lightning()
        trainer = FakeTrainer(module.Callback())
        trainer.estimated_stepping_batches = float("inf")
        trainer.fit(None)
        _progress._report.flush()
        self.assertEqual(self.progress_file.read_text(), "10\n")

    def test_without_lightning_the_message_says_what_to_install(self):
        with self.assertRaisesRegex(ImportError, "hint: pip install lightning"):
            self.load("lightning", **{"lightning": None, "lightning.pytorch": None, "pytorch_lightning": None})


class Transformers(WithCallbacks):
    def train(self, callback, before_step=lambda step: None, rank=0, output_dir=None):
        """The order of the real Trainer: on_step_end, save or evaluate, on_epoch_end, save or evaluate."""
        args = types.SimpleNamespace(output_dir=str(output_dir or self.saves))
        state = types.SimpleNamespace(global_step=0, max_steps=10, is_world_process_zero=rank == 0)
        control = types.SimpleNamespace(should_save=False, should_evaluate=False, should_training_stop=False)
        done = []

        def act():
            done.extend(name for name in ("save", "evaluate") if getattr(control, "should_" + name))
            control.should_save = control.should_evaluate = False

        callback.on_train_begin(args, state, control, model=None)
        while state.global_step < state.max_steps and not control.should_training_stop:
            before_step(state.global_step)
            state.global_step += 1
            control.should_evaluate = True  # as the Trainer's own flow callback does, which runs first
            callback.on_step_end(args, state, control, model=None, optimizer=None)
            act()
        control.should_save = control.should_evaluate = True
        callback.on_epoch_end(args, state, control, model=None)
        act()
        return state.global_step, done

    def test_a_stop_saves_once_evaluates_nothing_and_ends_the_training(self):
        callback = self.load_transformers().Callback()
        self.assertEqual(self.train(callback, terminate_at(2)), (3, ["evaluate", "evaluate", "save"]))
        _progress._report.flush()
        self.assertEqual(self.progress_file.read_text(), "3 10\n")

    def test_training_that_is_not_asked_to_stop_is_left_alone(self):
        callback = self.load_transformers().Callback()
        self.assertEqual(self.train(callback), (10, ["evaluate"] * 10 + ["save", "evaluate"]))

    def test_another_rank_saves_its_part_and_reports_nothing(self):
        callback = self.load_transformers().Callback()
        self.assertEqual(self.train(callback, terminate_at(0), rank=1), (1, ["save"]))
        self.assertFalse(self.progress_file.exists())

    def test_checkpoints_that_windfall_does_not_keep_are_warned_about(self):
        callback = self.load_transformers().Callback()
        with self.assertWarnsRegex(RuntimeWarning, "lost with the machine"):
            self.train(callback, output_dir=self.dir / "elsewhere")

    def test_the_newest_whole_checkpoint_is_resumed_from(self):
        module = self.load_transformers()
        os.environ["WINDFALL_RESUME"] = str(self.saves)
        self.assertIsNone(module.last_checkpoint())
        for name, whole in (("checkpoint-900", True), ("checkpoint-1000", True), ("checkpoint-1100", False)):
            (self.saves / name).mkdir()
            if whole:
                (self.saves / name / "trainer_state.json").write_text("{}")
        self.assertEqual(module.last_checkpoint(), str(self.saves / "checkpoint-1000"))

    def test_without_transformers_the_message_says_what_to_install(self):
        with self.assertRaisesRegex(ImportError, "hint: pip install transformers"):
            self.load("transformers", transformers=None)

if __name__ == "__main__":
    unittest.main()
