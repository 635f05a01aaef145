"""Packaging of fairseq_reservoir; `bash scripts/setup.sh` installs it with everything it needs."""

from setuptools import find_packages, setup

setup(
    name="fairseq_reservoir",
    version="0.1.0",
    description="Reservoir Transformers for fairseq: some layers random, frozen and never trained",
    packages=find_packages(include=["fairseq_reservoir", "fairseq_reservoir.*"]),
    package_data={"fairseq_reservoir": ["config/*.yaml", "config/**/*.yaml"]},
    # What has been measured; fairseq-fixed says nothing of other versions.
    python_requires=">=3.11,<3.13",
    install_requires=[
        "torch>=2.6",  # before, loading weights alone could run a program; measured with 2.13
        "numpy>=1.21.3,<3",
        "fairseq-fixed==0.12.3.1",  # installs the module `fairseq`; the only release that imports on Python 3.11
        "sacrebleu>=2.3",
        "sentencepiece",
        "sacremoses",
        "safetensors",
    ],
    extras_require={
        "fastbpe": ["fastBPE==0.1.0"],  # compiles C++, and only `--bpe fastbpe` needs it
        "data": ["subword-nmt>=0.3.8"],  # what scripts/prepare_*.sh need besides; pure Python
        "slurm": ["submitit"],  # what `fairseq-reservoir sweep --slurm` needs
        "report": ["matplotlib>=3.7"],  # figures of `fairseq-reservoir report`
        "test": [
            *("pytest", "pytest-xdist", "hypothesis", "ctranslate2", "subword-nmt>=0.3.8", "submitit", "matplotlib>=3.7"),
            "selenium",  # the report's page in a browser, where one is installed
        ],
    },
    entry_points={"console_scripts": ["fairseq-reservoir = fairseq_reservoir.cli:main"]},
)
