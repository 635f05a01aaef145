"""From the plan LFLFL to its frozen tensors, calls go through the files in docs/package-layout.md, in their order."""

import re
import sys
from argparse import Namespace
from pathlib import Path

from fairseq_reservoir.models.reservoir.transformer import ReservoirTransformer
from fairseq_reservoir.options.for_fairseq.namespaces import as_namespace
from fairseq_reservoir.options.for_fairseq.transformer import ReservoirTransformerConfig
from tests.support.building import SIZES, dictionary

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "package-layout.md").read_text()


def files_called(run):
    """Files of the package, in the order in which ``run`` first calls a function of each."""
    found = {}

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT / "fairseq_reservoir"):
            found.setdefault(path.relative_to(ROOT / "fairseq_reservoir").as_posix())

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return list(found)


def test_the_walk_of_the_page():
    sizes = {**SIZES, "reservoir_encoder": "LFLFL", "reservoir_seed": 1}
    options, words = as_namespace(Namespace(**vars(ReservoirTransformerConfig(**sizes)))), dictionary(20)
    task = Namespace(source_dictionary=words, target_dictionary=words)
    called = files_called(lambda: ReservoirTransformer.build_model(options, task))
    walk = re.search(
        r"^`LFLFL`, from flag to frozen tensor: (.*?)\. (Other files on the way are.*?)\.$",
        PAGE,
        flags=re.DOTALL | re.MULTILINE,
    )
    stops, looked_up = (re.findall(r"`([\w/]+\.py)`", part) for part in walk.groups())
    assert [path for path in called if path in stops] == stops and len(stops) == 10
    rooms = ("models", "plan", "layers", "freezing", "random_tensors")
    others = {path for path in called if path.startswith(rooms)} - {*stops, *looked_up}
    # FLOPs, quantization noise and the description in the checkpoint are not part of it.
    assert others == {"plan/flops.py", "layers/quant_noise.py", "freezing/description.py"}
