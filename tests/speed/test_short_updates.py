"""Short updates: the model changes its mode and learns the number of the update as before, with fewer calls."""

from types import SimpleNamespace

from omegaconf import DictConfig
from torch import nn

from fairseq_reservoir.masks.masked_weight import masked_modules
from fairseq_reservoir.speed.short_updates import CachedConfig, cached_configuration, shorten_updates
from tests.support.commands import train

MASKS = "--arch supermask_one_layer_transformer --encoder-layers 2 --decoder-layers 1 --max-update 2 --no-save".split()


def test_modes_and_numbers(toy_data, monkeypatch):
    model = train(toy_data, *MASKS).model
    short = shorten_updates(model)
    assert type(short).__name__ == type(model).__name__ and short.encoder is model.encoder
    for mode in (False, True, True, False):
        short.train(mode)
        assert {module.training for module in short.modules()} == {mode}
    short.set_num_updates(41)
    assert {masked.mask_cache.num_updates for masked in masked_modules(short).values()} == {41}
    caches = [masked.mask_cache for masked in masked_modules(short).values()]
    walked = []
    monkeypatch.setattr(nn.Module, "modules", lambda self: walked.append(self) or iter(()))
    short.train(False)
    short.set_num_updates(42)
    assert not walked and {cache.num_updates for cache in caches} == {42}


def test_a_model_with_its_own_methods_is_kept():
    class Own(nn.Module):
        def train(self, mode=True):
            return super().train(mode)

    model = Own()
    linear = nn.Linear(1, 1)  # no model of fairseq
    assert shorten_updates(model) is model and shorten_updates(linear) is linear


def test_a_quick_configuration_looks_up_each_value_once():
    looked = []

    class Slow(DictConfig):
        def __getattr__(self, name):
            looked.append(name)
            return super().__getattr__(name)

    quick = CachedConfig(Slow({"common": {"seed": 3}}))
    looked.clear()
    assert [quick.common.seed for _ in range(5)] == [3] * 5 and looked.count("common") == 1


def test_an_update_reads_quickly_but_saves_the_whole_configuration():
    whole = DictConfig({"common": {"seed": 3}})
    trainer = SimpleNamespace(cfg=whole, cached_cfg=CachedConfig(whole))
    with cached_configuration(trainer, wanted=True):
        assert trainer.cfg is trainer.cached_cfg
        with cached_configuration(trainer, wanted=False):
            assert trainer.cfg is whole
        assert trainer.cfg is trainer.cached_cfg
    assert trainer.cfg is whole
