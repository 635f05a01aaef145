"""For ``fairseq-hydra-train``: loads the plugin before fairseq starts processes, by a callback of hydra's named in the YAML.

fairseq imports ``common.user_dir`` in the process that trains. That is too late to look at data and folders before, to start
processes on CPUs, and to say what is wrong in one line.
"""

import sys
from pathlib import Path

from fairseq.distributed import utils as distributed_utils
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from hydra.utils import to_absolute_path

from .errors import InputError
from .fairseq_repairs.error_report import find_input_error
from .fairseq_repairs.repair import wrap
from .version import is_plugin


class LoadPlugin(Callback):
    """``hydra.callbacks.fairseq_reservoir._target_: fairseq_reservoir.hydra_start.LoadPlugin``.

    That hydra finds this class imports the plugin; what is left is to say from where, whatever the folder of the run.
    """

    def on_job_start(self, config, **kwargs):
        # Around what training.install has put there, whose mistakes it prints.
        wrap(distributed_utils, "call_main", _start)


def _start(call_main, cfg, main, **kwargs):
    ours, given = Path(__file__).parent, cfg.common.user_dir
    try:
        if given is None or Path(given).name == ours.name:  # another one, a plugin of the user's, is kept
            folder = Path(to_absolute_path(given or ours))
            if (folder / "__init__.py").is_file() and not is_plugin(folder):
                raise InputError(
                    f"common.user_dir {given}: has the name of this plugin, but is another folder; rename it"
                )
            cfg.common.user_dir = str(ours)
        return call_main(cfg, main, **kwargs)
    except Exception as error:
        mistake = find_input_error(error)
        if mistake is None:
            raise
        print(f"fairseq-hydra-train: error: {mistake}", file=sys.stderr)
        if HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN:
            raise  # which hydra keeps until the jobs behind this one are done
        raise SystemExit(2) from None  # hydra prints a traceback of every other exception
