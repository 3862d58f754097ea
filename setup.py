"""Packaging of kerasbert."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
VERSION = re.search(
    r'^__version__ = "(.+)"$', (ROOT / "kerasbert" / "__init__.py").read_text("utf-8"), re.M
).group(1)

EXAMPLES = [
    "matplotlib>=3.7",
    "scikit-learn>=1.3",
    "seqeval>=1.2",
    "snownlp==0.12.3",
    "tensorboard>=2.18",
]
TEST = ["hypothesis>=6.80", "pytest>=7.4", "pytest-xdist>=3.5", "ruff>=0.6"]
PARITY = ["torch", "transformers>=4.40"]

setup(
    name="kerasbert",
    version=VERSION,
    description="Checkpoints of BERT, ALBERT, ELECTRA and their like as ordinary Keras 3 models",
    long_description=(ROOT / "README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["kerasbert", "kerasbert.*"]),
    python_requires=">=3.10",
    install_requires=[
        "keras>=3.8",
        "numpy>=1.26",
        "safetensors>=0.4",
        "sentencepiece>=0.2",
        "tensorflow>=2.18",
        "tokenizers>=0.20",
        "tqdm>=4.60",
    ],
    entry_points={"console_scripts": ["kerasbert=kerasbert.cli:main"]},
    extras_require={"examples": EXAMPLES, "test": TEST + EXAMPLES, "parity": PARITY},
    classifiers=[
        "License :: OSI Approved :: Apache Software License",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
