"""Lists the packages of every folder that pyproject.toml maps, so that a new one needs no entry there."""

from setuptools import Distribution, find_packages, setup

project = Distribution()
project.parse_config_files()
folders = project.package_dir

setup(packages=[*folders, *(f"{root}.{name}" for root, folder in folders.items() for name in find_packages(folder))])
