"""Names without the value of a flag."""

import pytest

from fairseq_reservoir.studies.report.names import without_value


@pytest.mark.parametrize(
    "name, key, value, short",
    [
        ("LTLTL-lr4e-3", "optimization.lr", 0.004, "LTLTL"),
        ("6-trained-lr8e-3", "optimization.lr", 0.008, "6-trained"),
        ("a-lr8e-3", "optimization.lr", 0.004, "a-lr8e-3"),  # another value
        ("lr=0.004/LTL", "optimization.lr", 0.004, "LTL"),
        ("LTL-lr_4e-3-long", "optimization.lr", 0.004, "LTL-long"),
        ("LTL-0.3", "model.mask_keep_ratio", 0.3, "LTL"),
        ("LTL-keep0.3", "model.mask_keep_ratio", 0.3, "LTL"),
        ("layers-mask-keep-ratio0.3", "model.mask_keep_ratio", 0.3, "layers"),
        ("layers-mask-keep-ratio0.3", "model.mask_keep_ratio", 0.5, "layers-mask-keep-ratio0.3"),
        ("LTL-drop0.3", "model.mask_keep_ratio", 0.3, "LTL-drop0.3"),  # the name of another flag
        ("L-6-2", "model.encoder_layers", 6, "L-2"),  # the kind of layer, not an abbreviated flag
        ("deep-6", "model.encoder_layers", 6, "deep"),
        ("a-relu-b", "model.activation_fn", "relu", "a-b"),
        ("lr4e-3", "optimization.lr", 0.004, "lr4e-3"),  # nothing would be left
        ("a", "model.share", True, "a"),
    ],
)
def test_without_value(name, key, value, short):
    assert without_value(name, key, value) == short
