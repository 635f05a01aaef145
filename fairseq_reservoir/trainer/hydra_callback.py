"""hydra callback that loads the plugin in ``fairseq-hydra-train`` before fairseq starts processes.

fairseq imports ``common.user_dir`` only in the training process. At that time it is too late to check data and folders, to start processes
on CPUs, and to report errors in one line.
"""

import sys
from pathlib import Path

from fairseq.distributed import utils as distributed_utils
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from hydra.utils import to_absolute_path

from ..errors import InputError
from ..fairseq_repairs.error_report import find_input_error
from ..fairseq_repairs.repair import wrap
from ..fairseq_repairs.version import is_plugin


class LoadPlugin(Callback):
    """Import the plugin and set ``common.user_dir`` to its absolute path.

    A configuration enables this callback with ``hydra.callbacks.fairseq_reservoir._target_: fairseq_reservoir.hydra_start.LoadPlugin``.
    """

    def on_job_start(self, config, **kwargs):
        # Wraps call_main after trainer.install did, so that errors of that hook are printed too.
        wrap(distributed_utils, "call_main", _start)


def _start(call_main, cfg, main, **kwargs):
    ours, given = Path(__file__).parents[1], cfg.common.user_dir
    try:
        if given is None or Path(given).name == ours.name:  # do not replace a plugin of the user
            folder = Path(to_absolute_path(given or ours))
            if (folder / "__init__.py").is_file() and not is_plugin(folder):
                raise InputError(
                    f"common.user_dir {given}: this folder has the name of the plugin, but is not the plugin; rename the folder"
                )
            cfg.common.user_dir = str(ours)
        return call_main(cfg, main, **kwargs)
    except Exception as error:
        mistake = find_input_error(error)
        if mistake is None:
            raise
        print(f"fairseq-hydra-train: error: {mistake}", file=sys.stderr)
        if HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN:
            raise  # hydra reports it after the remaining jobs
        raise SystemExit(2) from None  # hydra prints a traceback for any other exception
