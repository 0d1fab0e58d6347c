"""The local trainer and its policies keep every contract of the kit."""

from focus_adapter_local import LocalTrainer

from focus_core.testing import PolicyContract, TrainerContract


class TestTrainer(TrainerContract):
    def subject(self, **options):
        return LocalTrainer(threads=1, **options)


class TestPolicy(PolicyContract):
    def subject(self):
        return LocalTrainer(threads=1)
